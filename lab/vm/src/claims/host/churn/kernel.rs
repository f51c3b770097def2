//! What this process and the kernel hold for BPF programs: their number, and what is in the maps of `gleaner-host`.

use std::fs;

use libbpf_rs::query::{LinkInfoIter, MapInfoIter, ProgInfoIter};
use libbpf_rs::{MapCore as _, MapFlags, MapHandle};

use crate::error::{Error, Result};

/// How many there are on the whole machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Objects {
    pub(super) programs: usize,
    pub(super) maps: usize,
    pub(super) links: usize,
}

impl Objects {
    pub(super) fn now() -> Self {
        Self {
            programs: ProgInfoIter::default().count(),
            maps: MapInfoIter::default().count(),
            links: LinkInfoIter::default().count(),
        }
    }
}

/// Files that this process has open.
pub(super) fn files() -> Result<usize> {
    const FILES: &str = "/proc/self/fd";
    Ok(fs::read_dir(FILES).map_err(Error::file("read", FILES))?.count())
}

/// What the maps of the only tracer on this machine hold of VMs.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Contents {
    /// Recipients of interrupts.
    pub(super) recipients: usize,
    /// Pairs of who waited and who had the pCPU.
    pub(super) pairs: usize,
    /// Counters of vCPUs that are not all zero.
    pub(super) counters: usize,
    /// Histograms that are not all zero.
    pub(super) histograms: usize,
    /// Slots for counters that no vCPU can get.
    pub(super) slots: usize,
}

impl Contents {
    /// Nothing.
    pub(super) const NONE: Self = Self { recipients: 0, pairs: 0, counters: 0, histograms: 0, slots: 0 };

    /// Takes all free slots, so that the tracer can follow nothing any more.
    pub(super) fn at_the_end() -> Result<Self> {
        let free = map("free_slots")?;
        let mut found: u32 = 0;
        while free.lookup_and_delete(&[]).map_err(|error| failed("take a free slot", &error))?.is_some() {
            found += 1;
        }
        Ok(Self {
            recipients: map("recipients")?.keys().count(),
            pairs: map("steals")?.keys().count(),
            counters: filled(&map("vcpus")?)?,
            histograms: filled(&map("hists")?)?,
            slots: free.max_entries().abs_diff(found) as usize,
        })
    }
}

/// Values of an array that are not zero.
fn filled(array: &MapHandle) -> Result<usize> {
    let mut filled = 0;
    for key in 0..array.max_entries() {
        let value = array.lookup(&key.to_ne_bytes(), MapFlags::ANY);
        let value = value.map_err(|error| failed("read a map", &error))?.unwrap_or_default();
        filled += usize::from(value.iter().any(|byte| *byte != 0));
    }
    Ok(filled)
}

/// The only map of this name.
fn map(name: &str) -> Result<MapHandle> {
    let ids: Vec<u32> = MapInfoIter::default().filter(|map| map.name == name).map(|map| map.id).collect();
    let [id] = ids[..] else {
        let error = format!("there are {} maps `{name}` in place of the tracer's one", ids.len());
        return Err(Error::Guest { vm: "host".to_owned(), error });
    };
    MapHandle::from_map_id(id).map_err(|error| failed("open a map", &error))
}

fn failed(what: &str, error: &libbpf_rs::Error) -> Error {
    Error::System { what: what.to_owned(), source: std::io::Error::other(error.to_string()) }
}

//! Which CPUs exist, and which of them share a core, a last-level cache, a package or a NUMA node.

use std::collections::BTreeMap;

use gleaner_policy::{CpuId, CpuSet, VcpuPlace};
use serde::Serialize;

use crate::{KernelError, Root};

const CPUS: &str = "/sys/devices/system/cpu";

/// The location of one online CPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CpuTopology {
    /// The hardware threads of its core, itself included (`topology/thread_siblings_list`); only itself if
    /// unknown.
    pub siblings: CpuSet,
    /// The CPUs that share its last-level cache, itself included: `shared_cpu_list` of the highest-level cache.
    /// Without caches shown by the hypervisor: the CPUs of its package, which is also what the scheduler
    /// assumes (kernel: `cpus_share_cache`).
    pub llc: CpuSet,
    /// The physical package (socket); `None` if unknown or -1.
    pub package: Option<u32>,
    /// The NUMA node; `None` on kernels without NUMA.
    pub node: Option<u32>,
}

/// The CPUs of this machine. In a guest this is what the hypervisor shows, which need not be where vCPUs really
/// run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Topology {
    /// CPUs in use.
    pub online: CpuSet,
    /// CPUs that exist or could be hot-plugged, but are not in use.
    pub offline: CpuSet,
    /// Every CPU that this kernel can support.
    pub possible: CpuSet,
    /// Location of each online CPU.
    pub cpus: BTreeMap<CpuId, CpuTopology>,
}

impl Topology {
    /// Reads `/sys/devices/system/cpu`. A CPU that goes offline meanwhile is left out of [`Topology::cpus`].
    ///
    /// # Errors
    /// `online` is not readable or not a CPU list, or another file is malformed.
    pub fn read(root: &Root) -> Result<Self, KernelError> {
        let online = online(root)?;
        let list = |name| read_list(root, &format!("{CPUS}/{name}"));
        let mut cpus = BTreeMap::new();
        for cpu in online.iter() {
            if root.exists(format!("{CPUS}/cpu{cpu}")) {
                cpus.insert(cpu, read_cpu(root, cpu, &online)?);
            }
        }
        Ok(Self {
            offline: list("offline")?.unwrap_or_default(),
            possible: list("possible")?.unwrap_or_else(|| online.clone()),
            online,
            cpus,
        })
    }

    /// Where each vCPU sits, in the policy's terms.
    pub fn places(&self) -> Vec<VcpuPlace> {
        let first = |cpus: &CpuSet, own: CpuId| cpus.iter().next().unwrap_or(own);
        let place = |(cpu, at): (&CpuId, &CpuTopology)| VcpuPlace {
            cpu: *cpu,
            core: first(&at.siblings, *cpu),
            llc: first(&at.llc, *cpu),
        };
        self.cpus.iter().map(place).collect()
    }

    /// Whether two online CPUs share a last-level cache: then a wake-up between them need not send an IPI
    /// (kernel: `ttwu_queue_cond`). False for a CPU that is not online.
    pub fn share_llc(&self, a: CpuId, b: CpuId) -> bool {
        self.cpus.get(&a).is_some_and(|place| place.llc.contains(b))
    }
}

/// The online CPUs, from one file; a [`Topology`] reads several per CPU.
///
/// # Errors
/// `/sys/devices/system/cpu/online` is not readable or not a CPU list.
pub fn online(root: &Root) -> Result<CpuSet, KernelError> {
    root.parse(format!("{CPUS}/online"), "a CPU list")
}

fn read_list(root: &Root, path: &str) -> Result<Option<CpuSet>, KernelError> {
    let Some(text) = root.read_opt(path)? else { return Ok(None) };
    text.parse().map(Some).map_err(|_| KernelError::parse(root.path(path), "a CPU list", &text))
}

fn read_cpu(root: &Root, cpu: CpuId, online: &CpuSet) -> Result<CpuTopology, KernelError> {
    let dir = format!("{CPUS}/cpu{cpu}");
    // Without package information, assume a single package.
    let package_cpus =
        read_list(root, &format!("{dir}/topology/core_siblings_list"))?.unwrap_or_else(|| online.clone());
    let package = root.read_opt(format!("{dir}/topology/physical_package_id"))?;
    Ok(CpuTopology {
        siblings: read_list(root, &format!("{dir}/topology/thread_siblings_list"))?
            .unwrap_or_else(|| [cpu].into_iter().collect()),
        llc: read_llc(root, &dir)?.unwrap_or(package_cpus),
        package: package.and_then(|id| id.parse().ok()),
        node: root.list(&dir)?.iter().find_map(|name| name.strip_prefix("node")?.parse().ok()),
    })
}

/// The CPUs that share the highest-level cache; of equal levels, the highest index.
fn read_llc(root: &Root, dir: &str) -> Result<Option<CpuSet>, KernelError> {
    let cache = format!("{dir}/cache");
    if !root.exists(&cache) {
        return Ok(None);
    }
    let mut last: Option<(u32, u32)> = None;
    for name in root.list(&cache)? {
        let Some(index) = name.strip_prefix("index").and_then(|i| i.parse().ok()) else { continue };
        let level = root.parse(format!("{cache}/{name}/level"), "a cache level")?;
        last = last.max(Some((level, index)));
    }
    let Some((_, index)) = last else { return Ok(None) };
    // Some hypervisors show a cache but not its sharing: the list is missing or empty then.
    let shared = read_list(root, &format!("{cache}/index{index}/shared_cpu_list"))?;
    Ok(shared.filter(|set| !set.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{fake, put};

    fn set(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    #[test]
    fn reads_siblings_caches_packages_and_nodes() {
        let (_dir, root) = fake();
        for (name, text) in [("online", "0-2\n"), ("offline", "3\n"), ("possible", "0-3\n")] {
            put(&root, &format!("{CPUS}/{name}"), text);
        }
        for cpu in 0..3 {
            let dir = format!("{CPUS}/cpu{cpu}");
            put(&root, &format!("{dir}/topology/thread_siblings_list"), if cpu < 2 { "0-1" } else { "2" });
            put(&root, &format!("{dir}/topology/physical_package_id"), if cpu < 2 { "0" } else { "-1" });
            // index10 is listed before index2: the level decides first, then the number.
            for (index, level, shared) in
                [(0, 1, "7"), (2, 2, "7"), (10, 3, if cpu < 2 { "0-1" } else { "2" })]
            {
                put(&root, &format!("{dir}/cache/index{index}/level"), &level.to_string());
                put(&root, &format!("{dir}/cache/index{index}/shared_cpu_list"), shared);
            }
            put(&root, &format!("{dir}/node{}/cpulist", cpu / 2), "");
        }
        let topology = Topology::read(&root).unwrap();
        assert_eq!(topology.offline, set("3"));
        assert_eq!(topology.possible, set("0-3"));
        let expected = CpuTopology { siblings: set("0-1"), llc: set("0-1"), package: Some(0), node: Some(0) };
        assert_eq!(topology.cpus[&CpuId(1)], expected);
        let expected = CpuTopology { siblings: set("2"), llc: set("2"), package: None, node: Some(1) };
        assert_eq!(topology.cpus[&CpuId(2)], expected);
        assert!(topology.share_llc(CpuId(0), CpuId(1)));
        assert!(!topology.share_llc(CpuId(0), CpuId(2)) && !topology.share_llc(CpuId(3), CpuId(3)));
    }

    #[test]
    fn a_bare_guest_is_one_package_without_siblings() {
        let (_dir, root) = fake();
        put(&root, &format!("{CPUS}/online"), "0,5\n");
        std::fs::create_dir_all(root.path(format!("{CPUS}/cpu0"))).unwrap();
        let topology = Topology::read(&root).unwrap();
        assert_eq!(topology.cpus.len(), 1, "cpu5 went offline between the two reads");
        assert_eq!(topology.cpus[&CpuId(0)].siblings, set("0"));
        assert_eq!(topology.cpus[&CpuId(0)].llc, set("0,5"));
        assert_eq!(topology.possible, set("0,5"));
    }

    #[test]
    fn garbled_lists_are_errors_that_name_the_file() {
        let (_dir, root) = fake();
        assert!(Topology::read(&root).unwrap_err().is_gone());
        put(&root, &format!("{CPUS}/online"), "zero\n");
        let error = Topology::read(&root).unwrap_err().to_string();
        assert!(error.contains("cpu/online") && error.contains("a CPU list"), "{error}");
    }

    #[test]
    fn this_machine_is_consistent() {
        let topology = Topology::read(&Root::system()).unwrap();
        assert!(!topology.online.is_empty() && topology.online.is_subset(&topology.possible));
        for (cpu, place) in &topology.cpus {
            assert!(place.siblings.contains(*cpu) && place.llc.contains(*cpu), "{cpu}: {place:?}");
        }
    }
}

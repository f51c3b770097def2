//! Loads the programs, and reads their counters.

mod programs;
#[cfg(test)]
mod tests;
mod windows;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use gleaner_trace::bpf::{self, Plain, as_bytes, from_bytes};
use gleaner_trace::{NotAvailable, Reason as Why};
use libbpf_rs::skel::{OpenSkel as _, SkelBuilder as _};
use libbpf_rs::{MapCore, MapFlags};
use nix::time::{ClockId, clock_gettime};

use crate::counters::{self, counters};
use crate::error::HostError;
use crate::reading::{Cost, Lost, Reading, Steal, VcpuCounters};
use crate::skeleton::types::{self, hist_id};
use crate::skeleton::{HostSkel, HostSkelBuilder};
use crate::{Isa, PcpuSample};
use programs::{ON_APIC, PROGRAMS, Program};

const BTF: &str = "/sys/kernel/btf/vmlinux";
/// Attempts to read a vCPU's counters while they do not change. An attempt takes a microsecond, and an exit at least
/// as long.
const ATTEMPTS: u32 = 100;

/// `PROC_PID_INIT_INO` (`include/linux/proc_ns.h`)
const INITIAL_NAMESPACE: u64 = 0xefff_fffc;
/// A thread that is gone from `/proc` has been switched out for the last time after so long. The kernel leaves a program out where
/// it would interrupt itself, and then the end of a thread is not seen.
const SWITCHED_OUT: Duration = Duration::from_secs(1);

/// What is followed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Only the VM of this process.
    pub pid: Option<u32>,
}

/// Follows the vCPUs of this host until dropped, which detaches and frees everything, as does the end of the process.
pub struct HostTracer {
    skel: HostSkel<'static>,
    programs: Vec<Program>,
    missing: Vec<NotAvailable>,
    ended: Vec<VcpuCounters>,
    /// Slots whose thread is gone, although no event said so: since when, and what was counted until then.
    gone: BTreeMap<u32, (Instant, VcpuCounters)>,
    /// Whether `/proc` has the threads that the programs see: not in another PID namespace.
    sees_threads: bool,
    /// Keeps the kernel's account of BPF programs on.
    account: Option<OwnedFd>,
    keeping: Option<windows::Keeping>,
    /// VMMs with forgotten threads; what their VMs waited for, and others for them, is still counted.
    forgotten: BTreeSet<u32>,
}

impl fmt::Debug for HostTracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostTracer").field("programs", &self.programs.len()).finish_non_exhaustive()
    }
}

impl HostTracer {
    /// Attaches the programs that this kernel has events for, on processors of this kind.
    ///
    /// # Errors
    /// Exits, switches or wake-ups cannot be traced here.
    pub fn start(isa: Isa, options: Options) -> Result<Self, HostError> {
        libbpf_rs::set_print(None);
        let mut missing = Vec::new();
        let of_use = |name: &&str| *name != ON_APIC || isa == Isa::Vmx;
        let all: Vec<&str> = PROGRAMS.iter().map(|program| program.0).filter(of_use).collect();
        // Usually all programs load at once. If not, find those that fail one by one.
        let (skel, chosen) = if let Ok(skel) = load(isa, options, &all) {
            (skel, all)
        } else {
            let chosen = accepted(isa, options, &all, &mut missing)?;
            let skel = load(isa, options, &chosen)
                .map_err(|error| refused("VM exits", "on_exit", "kvm_exit", &error))?;
            (skel, chosen)
        };
        let failed = |error: libbpf_rs::Error| HostError::Read(bpf::text(&error));
        for slot in 0..skel.maps.vcpus.max_entries() {
            skel.maps.free_slots.update(&[], &slot.to_ne_bytes(), MapFlags::ANY).map_err(failed)?;
        }
        let mut programs = Vec::new();
        for (name, event, gives) in PROGRAMS {
            if !chosen.contains(&name) {
                continue;
            }
            match Program::attached(name, &skel) {
                Ok(program) => programs.push(program),
                Err(error) => {
                    let refused = refused(gives.unwrap_or("VM exits"), name, event, &error);
                    if gives.is_none() {
                        return Err(refused.into());
                    }
                    missing.push(refused);
                }
            }
        }
        let mut tracer = Self::of(skel, programs, missing);
        if let Some(data) = tracer.skel.maps.bss_data.as_deref_mut() {
            data.started_ns = now_ns();
        }
        Ok(tracer)
    }

    fn of(skel: HostSkel<'static>, programs: Vec<Program>, missing: Vec<NotAvailable>) -> Self {
        let sees_threads =
            fs::metadata("/proc/self/ns/pid").is_ok_and(|namespace| namespace.ino() == INITIAL_NAMESPACE);
        Self {
            skel,
            programs,
            missing,
            ended: Vec::new(),
            gone: BTreeMap::new(),
            sees_threads,
            account: None,
            keeping: None,
            forgotten: BTreeSet::new(),
        }
    }

    /// Leaves the kernel's account of BPF programs on until dropped, so that the cost can be measured anew without
    /// `CAP_SYS_ADMIN`. Each run of any BPF program of this host then takes longer by two readings of a clock.
    pub fn hold_account(&mut self) {
        self.account = bpf::enable_statistics();
    }

    /// What this kernel does not show.
    pub fn missing(&self) -> &[NotAvailable] {
        &self.missing
    }

    /// The counters. Ends the window where only a part of the time is followed. Frees those of threads that ended, which this and later readings still have, until
    /// [`HostTracer::forget_ended`].
    ///
    /// # Errors
    /// The maps cannot be read.
    pub fn read(&mut self) -> Result<Reading, HostError> {
        self.end_window();
        self.reading().map_err(|error| HostError::Read(bpf::text(&error)))
    }

    /// Forgets the counters of threads that have ended. The next reading is the last one that has the waiting of VMs whose
    /// process is gone, and of others for them.
    pub fn forget_ended(&mut self) {
        self.forgotten.extend(self.ended.drain(..).map(|vcpu| vcpu.pid));
    }

    fn reading(&mut self) -> libbpf_rs::Result<Reading> {
        let maps = &self.skel.maps;
        let mut vcpus = Vec::new();
        let data = maps.bss_data.as_deref();
        let taken = data.map_or(u64::MAX, |data| data.slots_taken);
        let used = u32::try_from(taken).unwrap_or(u32::MAX).min(maps.vcpus.max_entries());
        for slot in 0..used {
            let Some(read) = steady(&maps.vcpus, slot)? else { continue };
            if read.first_ns == 0 {
                continue;
            }
            // The time of the reading is taken after it: no event can be later.
            let hists = hists(&maps.hists, slot)?;
            let (window, end) = data.map_or((0, 0), |data| (data.window, windows::end_of(data, read.window)));
            let mut counters = counters(&read, &hists, window, end, self.clock());
            if counters.ended || !self.sees_threads || thread_exists(read.tgid, read.tid) {
                self.gone.remove(&slot);
            } else {
                let (since, last) = self.gone.entry(slot).or_insert_with(|| (Instant::now(), counters));
                counters = last.clone();
                counters.ended = since.elapsed() >= SWITCHED_OUT;
            }
            if counters.ended {
                self.gone.remove(&slot);
                forget_recipient(&maps.recipients, &read, slot)?;
                self.ended.push(counters);
                clear(&maps.vcpus, slot, &types::vcpu::default())?;
                for id in 0..hist_id::HISTS.0 {
                    clear(&maps.hists, slot * hist_id::HISTS.0 + id, &types::hist::default())?;
                }
                maps.free_slots.update(&[], &slot.to_ne_bytes(), MapFlags::ANY)?;
            } else {
                vcpus.push(counters);
            }
        }
        vcpus.extend(self.ended.iter().cloned());
        let lost: types::lost = bpf::sum(&maps.losses, &0_u32)?;
        // A process that still ends has the pCPUs now and then. One that has got the number of another is kept.
        let gone: BTreeSet<u32> = self.forgotten.iter().copied().filter(|pid| !exists(*pid)).collect();
        let steals = steals(&maps.steals)?;
        forget_steals(&maps.steals, steals.keys().copied(), &gone)?;
        self.forgotten.retain(|pid| !gone.contains(pid));
        // One look at the clock: without a pause both advance by the same.
        let monotonic_ns = now_ns();
        Ok(Reading {
            at_ns: self.clock_at(monotonic_ns),
            monotonic_ns,
            vcpus,
            steals,
            lost: Lost {
                vcpus: lost.vcpus,
                storage: lost.storage,
                pairs: lost.pairs,
                recipients: lost.recipients,
            },
            pcpus: self.pcpus_now()?.pcpus,
        })
    }

    /// Where the pCPUs' time went so far, by number: a part of [`HostTracer::read`] that costs little.
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn read_pcpus(&self) -> Result<PcpuSample, HostError> {
        self.pcpus_now().map_err(|error| HostError::Read(bpf::text(&error)))
    }

    fn pcpus_now(&self) -> libbpf_rs::Result<PcpuSample> {
        let (counted, at_ns) = whole_times(&self.skel.maps.pcpus, || self.clock())?;
        Ok(PcpuSample { at_ns, pcpus: counted.iter().map(|pcpu| counters::pcpu(pcpu, at_ns)).collect() })
    }

    /// What following costs by the kernel's account, if there is one, and the pCPUs that vCPUs use.
    fn measure(&self, time: Duration) -> libbpf_rs::Result<Option<(Cost, f64)>> {
        let own = self.account.is_none().then(bpf::enable_statistics).flatten();
        if own.is_none() && self.account.is_none() {
            return Ok(None);
        }
        let (before, started) = (self.vcpu_time()?, Instant::now());
        let pcpus = programs::take(&self.programs, time);
        let (elapsed, vcpus) = (started.elapsed(), self.vcpu_time()?.saturating_sub(before));
        drop(own);
        // Where hardly any vCPU runs there is nobody to be slowed down.
        let used = (vcpus.as_secs_f64() / elapsed.as_secs_f64()).max(0.1);
        Ok(Some((Cost { pcpus, share: pcpus / used }, used)))
    }

    /// ns of the clock that the programs read.
    fn clock(&self) -> u64 {
        self.clock_at(now_ns())
    }

    fn clock_at(&self, monotonic_ns: u64) -> u64 {
        self.skel.maps.bss_data.as_deref().map_or(monotonic_ns, |data| windows::clock(data, monotonic_ns))
    }

    /// Time that vCPUs had on pCPUs so far.
    fn vcpu_time(&self) -> libbpf_rs::Result<Duration> {
        Ok(Duration::from_nanos(self.pcpus_now()?.pcpus.iter().map(|pcpu| pcpu.vcpu_ns).sum()))
    }
}

/// ns of `CLOCK_MONOTONIC`.
fn now_ns() -> u64 {
    // Every Linux has this clock.
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

fn load(isa: Isa, options: Options, programs: &[&str]) -> libbpf_rs::Result<HostSkel<'static>> {
    let mut open = HostSkelBuilder::default().open(bpf::object_place())?;
    for mut program in open.open_object_mut().progs_mut() {
        let chosen = programs.iter().any(|name| program.name() == *name);
        program.set_autoload(chosen);
    }
    if let Some(data) = open.maps.rodata_data.as_deref_mut() {
        data.reason_of_code = isa.table();
        data.only_tgid = options.pid.unwrap_or_default();
    }
    open.load()
}

/// The programs that the kernel accepts, each tried alone.
fn accepted(
    isa: Isa,
    options: Options,
    wanted: &[&str],
    missing: &mut Vec<NotAvailable>,
) -> Result<Vec<&'static str>, NotAvailable> {
    let mut accepted = Vec::new();
    for (name, event, gives) in PROGRAMS.into_iter().filter(|program| wanted.contains(&program.0)) {
        match load(isa, options, &[name]) {
            Ok(_) => accepted.push(name),
            Err(error) => {
                let refused = refused(gives.unwrap_or("VM exits"), name, event, &error);
                if gives.is_none() {
                    return Err(refused);
                }
                missing.push(refused);
            }
        }
    }
    Ok(accepted)
}

/// libbpf's answer where a tracepoint does not exist.
const NO_SUCH_TYPE: &str = "(os error 3)";

fn refused(what: &str, program: &str, event: &str, error: &libbpf_rs::Error) -> NotAvailable {
    let why = if !Path::new(BTF).exists() {
        Why::NoBtf { path: BTF.to_owned() }
    } else if bpf::text(error).contains(NO_SUCH_TYPE) {
        Why::NoEvent { event: format!("tracepoint {event}") }
    } else {
        bpf::refusal(program, error)
    };
    NotAvailable::new(what, why)
}

fn value<T: Plain>(map: &dyn MapCore, key: u32) -> libbpf_rs::Result<Option<T>> {
    Ok(map.lookup(as_bytes(&key), MapFlags::ANY)?.and_then(|bytes| from_bytes(&bytes)))
}

fn clear<T: Plain>(map: &dyn MapCore, key: u32, empty: &T) -> libbpf_rs::Result<()> {
    map.update(as_bytes(&key), as_bytes(empty), MapFlags::ANY)
}

/// A slot's counters, read while they did not change: between two readings of the same, even sequence number nothing was
/// written. A vCPU that changes all the time is read as it is at last.
fn steady(map: &dyn MapCore, slot: u32) -> libbpf_rs::Result<Option<types::vcpu>> {
    let Some(mut before) = value::<types::vcpu>(map, slot)? else { return Ok(None) };
    if before.first_ns == 0 && before.seq == 0 {
        return Ok(None);
    }
    for _ in 0..ATTEMPTS {
        let (Some(read), Some(after)) = (value::<types::vcpu>(map, slot)?, value::<types::vcpu>(map, slot)?)
        else {
            return Ok(None);
        };
        if before.seq == after.seq && after.seq.is_multiple_of(2) {
            return Ok(Some(read));
        }
        before = after;
    }
    Ok(Some(before))
}

/// The times of each pCPU, and when that was. Between two readings with the same number, those that it names were not written;
/// so they hold at a time between the two, however long this thread then waits for a pCPU.
fn whole_times(
    map: &dyn MapCore,
    clock: impl Fn() -> u64,
) -> libbpf_rs::Result<(Vec<types::pcpu_times>, u64)> {
    let read = || bpf::per_vcpu::<types::pcpu>(map, &0_u32);
    let times = |pcpu: &types::pcpu| pcpu.times[usize::from(!pcpu.written.is_multiple_of(2))];
    let mut before = read()?;
    let mut found: Vec<Option<types::pcpu_times>> = vec![None; before.len()];
    let mut at = clock();
    for _ in 0..ATTEMPTS {
        let now = read()?;
        at = clock();
        let after = read()?;
        for (number, found) in found.iter_mut().enumerate() {
            if found.is_none() && before[number].written == after[number].written {
                *found = Some(times(&now[number]));
            }
        }
        before = after;
        if found.iter().all(Option::is_some) {
            break;
        }
    }
    let times = found.iter().zip(&before).map(|(found, last)| found.unwrap_or_else(|| times(last)));
    let times: Vec<_> = times.collect();
    // The clock of the programs may be a little ahead of this one.
    let latest = times.iter().map(|times| times.since_ns).max().unwrap_or(at);
    Ok((times, at.max(latest)))
}

fn hists(map: &dyn MapCore, slot: u32) -> libbpf_rs::Result<Vec<types::hist>> {
    let count = hist_id::HISTS.0;
    (0..count).map(|id| Ok(value(map, slot * count + id)?.unwrap_or_default())).collect()
}

fn steals(map: &dyn MapCore) -> libbpf_rs::Result<BTreeMap<(u32, u32), Steal>> {
    let keys: BTreeSet<Vec<u8>> = map.keys().collect();
    let mut steals = BTreeMap::new();
    for key in keys {
        let Some(key) = from_bytes::<types::steal_key>(&key) else { continue };
        let sum: types::steal = bpf::sum(map, &key)?;
        steals.insert((key.victim, key.culprit), Steal { count: sum.count, ns: sum.ns });
    }
    Ok(steals)
}

fn exists(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

/// Where the end of a thread was not seen, the vCPU is still known by its address.
fn forget_recipient(map: &dyn MapCore, vcpu: &types::vcpu, slot: u32) -> libbpf_rs::Result<()> {
    let key = types::recipient { kvm: vcpu.kvm, vcpu_id: u64::from(vcpu.vcpu_id) };
    let known = map.lookup(as_bytes(&key), MapFlags::ANY)?;
    // Another vCPU may have the address by now.
    if known.is_some_and(|known| known == slot.to_ne_bytes()) {
        map.delete(as_bytes(&key))?;
    }
    Ok(())
}

fn thread_exists(pid: u32, tid: u32) -> bool {
    Path::new("/proc").join(format!("{pid}/task/{tid}")).exists()
}

/// Frees the sums that processes which are gone have a part in: there is room for a limited number.
fn forget_steals(
    map: &dyn MapCore,
    pairs: impl Iterator<Item = (u32, u32)>,
    gone: &BTreeSet<u32>,
) -> libbpf_rs::Result<()> {
    for (victim, culprit) in pairs.filter(|(victim, culprit)| gone.contains(victim) || gone.contains(culprit))
    {
        map.delete(as_bytes(&types::steal_key { victim, culprit }))?;
    }
    Ok(())
}

//! Loads the scheduler, and says what it does.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs::File;
use std::time::Duration;

use gleaner_coordination::record::{Header, MOST_PCPUS, RECORD, VERSION};
use gleaner_coordination::{UrgentConfig, VcpuPlacement};
use gleaner_kernel::Root;
use gleaner_kernel::topology::Topology;
use gleaner_policy::{CpuId, VcpuPlace};
use gleaner_scx_control::Vectors;
use gleaner_trace::bpf::{as_bytes, from_bytes, object_place, per_vcpu, text};
use libbpf_rs::skel::{OpenSkel as _, Skel as _, SkelBuilder as _};
use libbpf_rs::{Link, MapCore, MapFlags};

use crate::options::Options;
use crate::record::{RING_BYTES, Recording, online_bits};
use crate::skeleton::types::{self, placement_rule, vector_use};
use crate::skeleton::{ScxGleanerSkel, ScxGleanerSkelBuilder};
use crate::stats::Stats;
use crate::{ScxError, check};

/// Programs at KVM's events. Without KVM there is nothing that could become urgent.
const OF_KVM: [&str; 6] = ["on_accept", "on_entry", "on_eoi", "on_halt", "on_spin", "on_load"];
/// From here on the kernel ends schedulers because of errors (`enum scx_exit_kind`).
const ERROR: i32 = 1024;
/// `SCX_ECODE_ACT_RESTART`
const RESTART: i64 = 1 << 48;

/// The scheduler of this host until dropped; then, and at the end of the process, the kernel's own takes over.
pub struct Scheduler {
    skel: ScxGleanerSkel<'static>,
    /// Detach the programs when dropped.
    links: Vec<Link>,
    sees_kvm: bool,
    recording: Option<Recording>,
}

/// Why the kernel has ended the scheduler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Whether for an error of the scheduler, such as a task that waited too long.
    pub failed: bool,
    /// Whether it is to be started again: a pCPU went offline or came back.
    pub restart: bool,
    /// The kernel's reason.
    pub reason: String,
    /// What it says beyond; empty if nothing.
    pub message: String,
}

/// A VM that the scheduler has seen run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VmSeen {
    /// Process of its VMM.
    pub pid: u32,
    /// Of its control group, 1 to 10000.
    pub weight: u32,
    /// vCPUs that have run.
    pub vcpus: u32,
    /// Those that run or wait for a pCPU.
    pub active: u32,
    /// Time for which they ran, summed up.
    pub ran: Duration,
    /// Reschedule interrupts between them.
    pub reschedules: u64,
    /// Pause-loop exits.
    pub spins: u64,
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scheduler").field("sees_kvm", &self.sees_kvm).finish_non_exhaustive()
    }
}

impl Scheduler {
    /// Takes over the scheduling of this host. What it sees and decides is written to the file `record`, at each
    /// [`Scheduler::write_record`].
    ///
    /// # Errors
    /// It cannot be had here; see [`check`]. With a `record` also on hosts with more than 64 pCPUs.
    pub fn start(root: &Root, options: &Options, record: Option<File>) -> Result<Self, ScxError> {
        check(root)?;
        libbpf_rs::set_print(None);
        let failed = |error: libbpf_rs::Error| ScxError::Load { detail: text(&error) };
        let sees_kvm = root.path("/sys/module/kvm").exists();
        let online = if record.is_some() { online_bits(root)? } else { 0 };
        // Where it cannot be read, since a pCPU comes or goes, all pCPUs are taken for neighbours.
        let places = Topology::read(root).map(|topology| topology.places()).unwrap_or_default();
        let skel = load(options, &places, sees_kvm, record.is_some()).map_err(failed)?;
        let mut scheduler = Self { skel, links: Vec::new(), sees_kvm, recording: None };
        scheduler.adopt(options)?;
        for program in scheduler.skel.object().progs_mut() {
            if sees_kvm && OF_KVM.iter().any(|name| program.name() == *name) {
                scheduler.links.push(program.attach_trace().map_err(failed)?);
            }
        }
        let link = scheduler.skel.maps.gleaner_ops.attach_struct_ops().map_err(failed)?;
        scheduler.links.push(link);
        if let Some(file) = record {
            let header = scheduler.header(root, options, online);
            scheduler.recording = Some(Recording::start(&scheduler.skel.maps.events, &header, file)?);
        }
        Ok(scheduler)
    }

    fn header(&self, root: &Root, options: &Options, online: u64) -> Header {
        // Offline ones, too: tasks were there before.
        let count = self.skel.maps.bss_data.as_deref().map_or(0, |data| data.pcpu_count).min(MOST_PCPUS);
        let fixed = self.skel.maps.rodata_data;
        Header {
            record: RECORD.to_owned(),
            version: VERSION,
            kernel: root.read("/proc/sys/kernel/osrelease").unwrap_or_default(),
            pcpus: count,
            online,
            llcs: fixed.iter().flat_map(|fixed| &fixed.llc_of).copied().take(count as usize).collect(),
            threads: fixed
                .iter()
                .filter(|fixed| fixed.symbiosis)
                .flat_map(|fixed| &fixed.next_thread)
                .copied()
                .take(count as usize)
                .collect(),
            slice_ns: options.slice_ns,
            balance_ns: fixed.map_or(0, |fixed| fixed.balance_ns),
            average_ns: fixed.map_or(0, |fixed| fixed.average_ns),
            follow_ns: fixed.map_or(0, |fixed| fixed.follow_ns),
            placement: options.placement,
            rules: options.config(options.rules),
            vms: options.vms.iter().map(|vm| (vm.pid, options.config(vm.rules))).collect::<BTreeMap<_, _>>(),
        }
    }

    /// Whether what it sees and decides is written down.
    pub fn records(&self) -> bool {
        self.recording.is_some()
    }

    /// Writes down what it has seen and decided since this was last called.
    ///
    /// # Errors
    /// The file cannot be written. The scheduler goes on, and nothing more is recorded.
    pub fn write_record(&mut self) -> Result<(), ScxError> {
        let Some(recording) = self.recording.take() else { return Ok(()) };
        recording.read()?;
        self.recording = Some(recording);
        Ok(())
    }

    /// The same, and ends the record. Returns how many events did not fit into the buffer; `None`: nothing is recorded.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn end_record(&mut self) -> Result<Option<u64>, ScxError> {
        let Some(recording) = self.recording.take() else { return Ok(None) };
        let lost = self.skel.maps.bss_data.as_deref().map_or(0, |data| data.lost);
        recording.end(lost)?;
        Ok(Some(lost))
    }

    /// Whether interrupts between vCPUs are seen: not without KVM.
    pub fn sees_kvm(&self) -> bool {
        self.sees_kvm
    }

    /// Gives VMs these rules from now on: the default ones, and those that VMs have of their own. The rest of the options
    /// is fixed from the start.
    ///
    /// # Errors
    /// There are too many VMs.
    pub fn adopt(&mut self, options: &Options) -> Result<(), ScxError> {
        if let Some(data) = self.skel.maps.bss_data.as_deref_mut() {
            data.default_rules = as_set(&options.config(options.rules));
            data.uses = uses_of(&options.rules.vectors);
            data.has_own_uses = u32::from(!options.vms.is_empty());
            data.has_own_rules = data.has_own_uses;
        }
        let (own, uses) = (&self.skel.maps.own_rules, &self.skel.maps.own_uses);
        for pid in pids(own).filter(|pid| options.own_rules(*pid).is_none()) {
            // Fails if the VM has ended meanwhile.
            let _ = own.delete(as_bytes(&pid));
            let _ = uses.delete(as_bytes(&pid));
        }
        for vm in &options.vms {
            put_rules(own, vm.pid, &options.config(vm.rules))?;
            let table = uses_of(&vm.rules.vectors);
            uses.update(as_bytes(&vm.pid), &table, MapFlags::ANY).map_err(|error| maps(&error))?;
        }
        Ok(())
    }

    /// Gives one VM these rules from now on, until [`Scheduler::adopt`] gives others.
    ///
    /// # Errors
    /// There are too many VMs.
    pub fn give(&mut self, pid: u32, rules: &UrgentConfig) -> Result<(), ScxError> {
        if let Some(data) = self.skel.maps.bss_data.as_deref_mut() {
            data.has_own_rules = 1;
        }
        put_rules(&self.skel.maps.own_rules, pid, rules)
    }

    /// The VMs that it has seen run.
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn vms(&self) -> Result<Vec<VmSeen>, ScxError> {
        let vms = &self.skel.maps.vms;
        let mut seen = Vec::new();
        for pid in pids(vms) {
            let found = vms.lookup(as_bytes(&pid), MapFlags::ANY).map_err(|error| maps(&error))?;
            // Else it has ended meanwhile.
            if let Some(vm) = found.and_then(|bytes| from_bytes::<types::vm>(&bytes)) {
                seen.push(VmSeen {
                    pid,
                    weight: vm.weight,
                    vcpus: vm.vcpus,
                    active: vm.active,
                    ran: Duration::from_nanos(vm.ran_ns),
                    reschedules: vm.reschedules,
                    spins: vm.spins,
                });
            }
        }
        Ok(seen)
    }

    /// What it has done so far.
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn stats(&self) -> Result<Stats, ScxError> {
        let of = |stat: u32| per_vcpu::<u64>(&self.skel.maps.stats, &stat);
        Stats::read(of).map_err(|error| maps(&error))
    }

    /// Why the kernel has ended it, if it has.
    pub fn ended(&self) -> Option<Ended> {
        let ended = &self.skel.maps.bss_data.as_deref()?.ended;
        // SAFETY: a number in memory that the kernel writes.
        let kind = unsafe { std::ptr::from_ref(&ended.kind).read_volatile() };
        (kind != 0).then(|| Ended {
            failed: kind >= ERROR,
            restart: kind < ERROR && ended.code & RESTART != 0,
            reason: words(&ended.reason),
            message: words(&ended.message),
        })
    }
}

/// Writes a VM's rules into `own_rules`.
fn put_rules(own: &impl MapCore, pid: u32, rules: &UrgentConfig) -> Result<(), ScxError> {
    own.update(as_bytes(&pid), as_bytes(&as_set(rules)), MapFlags::ANY).map_err(|error| maps(&error))
}

/// The keys of a map whose keys are processes.
fn pids(map: &impl MapCore) -> impl Iterator<Item = u32> {
    map.keys().filter_map(|key| from_bytes(&key))
}

fn maps(error: &libbpf_rs::Error) -> ScxError {
    ScxError::Maps { detail: text(error) }
}

/// What the kernel wrote, up to its end.
fn words(bytes: &[i8]) -> String {
    let bytes: Vec<u8> =
        bytes.iter().take_while(|byte| **byte != 0).map(|byte| byte.cast_unsigned()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

fn as_set(rules: &UrgentConfig) -> types::urgent_rules {
    let mut set = types::urgent_rules {
        resched_dp_ns: rules.resched_dp_ns,
        resched_co_ns: rules.resched_co_ns,
        slice_ns: rules.slice_ns,
        allowance_ns: rules.allowance_ns,
        ..types::urgent_rules::default()
    };
    set.tlb_co.write(rules.tlb_co);
    set.tlb_wait.write(rules.tlb_wait);
    set
}

/// `uses`.
fn uses_of(vectors: &Vectors) -> [u8; 256] {
    let number = |means: vector_use| u8::try_from(means.0).unwrap_or_default();
    let mut uses = [number(vector_use::USE_NONE); 256];
    for (vector, means) in (0..=u8::MAX).zip(&mut uses) {
        if vectors.reschedule.contains(vector) {
            *means = number(vector_use::USE_RESCHEDULE);
        } else if vectors.shootdown.contains(vector) {
            *means = number(vector_use::USE_SHOOTDOWN);
        }
    }
    uses
}

/// The next thread of each pCPU's core, in a ring.
fn next_threads(places: &[VcpuPlace]) -> BTreeMap<CpuId, CpuId> {
    let mut cores: BTreeMap<CpuId, BTreeSet<CpuId>> = BTreeMap::new();
    for place in places {
        cores.entry(place.core).or_default().insert(place.cpu);
    }
    let ring = |threads: &BTreeSet<CpuId>| {
        let next = threads.iter().chain(threads).skip(1);
        threads.iter().copied().zip(next.copied()).collect::<Vec<_>>()
    };
    cores.values().flat_map(ring).collect()
}

fn load(
    options: &Options,
    places: &[VcpuPlace],
    sees_kvm: bool,
    records: bool,
) -> libbpf_rs::Result<ScxGleanerSkel<'static>> {
    let mut open = ScxGleanerSkelBuilder::default().open(object_place())?;
    for mut program in open.open_object_mut().progs_mut() {
        if OF_KVM.iter().any(|name| program.name() == *name) {
            program.set_autoload(sees_kvm);
        }
    }
    if let Some(data) = open.maps.rodata_data.as_deref_mut() {
        data.fair_slice_ns = options.slice_ns;
        data.records = records;
        let threads = next_threads(places);
        data.symbiosis = options.symbiosis && places.iter().any(|place| threads[&place.cpu] != place.cpu);
        for place in places {
            let cpu = place.cpu.0 as usize;
            if let (Some(llc), Some(next)) = (data.llc_of.get_mut(cpu), data.next_thread.get_mut(cpu)) {
                (*llc, *next) = (place.llc.0, threads[&place.cpu].0);
            }
        }
        data.placement_rule = match options.placement {
            VcpuPlacement::Uncoordinated => placement_rule::PLACEMENT_NONE,
            VcpuPlacement::Balance => placement_rule::PLACEMENT_BALANCE,
            VcpuPlacement::LoadConscious => placement_rule::PLACEMENT_LOAD_CONSCIOUS,
        };
    }
    if records {
        open.maps.events.set_max_entries(RING_BYTES)?;
    }
    open.load()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_a_core_form_a_ring() {
        let place = |(cpu, core)| VcpuPlace { cpu: CpuId(cpu), core: CpuId(core), llc: CpuId(0) };
        let places = [(0, 0), (1, 1), (2, 2), (4, 0), (8, 0), (5, 1)].map(place);
        let next = [(0, 4), (4, 8), (8, 0), (1, 5), (5, 1), (2, 2)];
        assert_eq!(next_threads(&places), BTreeMap::from(next.map(|(cpu, next)| (CpuId(cpu), CpuId(next)))));
    }

    #[test]
    fn vectors_become_a_table() {
        let of = |vectors: &Vectors, vector: usize| vector_use(uses_of(vectors)[vector].into());
        assert_eq!(of(&Vectors::LINUX, 0xfd), vector_use::USE_RESCHEDULE);
        assert_eq!(of(&Vectors::LINUX, 0xfb), vector_use::USE_SHOOTDOWN);
        assert_eq!(of(&Vectors::LINUX, 0xf8), vector_use::USE_NONE);
        assert_eq!(of(&Vectors::FREEBSD, 0xf8), vector_use::USE_RESCHEDULE);
        assert_eq!(of(&Vectors::FREEBSD, 0xfd), vector_use::USE_NONE);
    }
}

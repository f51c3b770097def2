//! Loads the scheduler, and says what it does.

use std::fmt;
use std::time::Duration;

use gleaner_coordination::{UrgentConfig, VcpuPlacement};
use gleaner_kernel::Root;
use gleaner_trace::bpf::{as_bytes, from_bytes, object_place, per_vcpu, text};
use libbpf_rs::skel::{OpenSkel as _, Skel as _, SkelBuilder as _};
use libbpf_rs::{Link, MapCore, MapFlags};

use crate::options::Options;
use crate::skeleton::types::{self, placement_rule, vector_use};
use crate::skeleton::{ScxGleanerSkel, ScxGleanerSkelBuilder};
use crate::stats::Stats;
use crate::{ScxError, check};

/// Programs at KVM's events. Without KVM there is nothing that could become urgent.
const OF_KVM: [&str; 5] = ["on_accept", "on_eoi", "on_halt", "on_spin", "on_load"];
/// How Linux guests use their vectors (`arch/x86/include/asm/irq_vectors.h`): since Linux 3.3 TLB shootdowns are
/// function calls.
const LINUX_VECTORS: [(usize, vector_use); 3] = [
    (0xfd, vector_use::USE_RESCHEDULE),
    (0xfc, vector_use::USE_SHOOTDOWN),
    (0xfb, vector_use::USE_SHOOTDOWN),
];
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
    /// Takes over the scheduling of this host.
    ///
    /// # Errors
    /// It cannot be had here; see [`check`].
    pub fn start(root: &Root, options: &Options) -> Result<Self, ScxError> {
        check(root)?;
        libbpf_rs::set_print(None);
        let failed = |error: libbpf_rs::Error| ScxError::Load { detail: text(&error) };
        let sees_kvm = root.path("/sys/module/kvm").exists();
        let skel = load(options, sees_kvm).map_err(failed)?;
        let mut scheduler = Self { skel, links: Vec::new(), sees_kvm };
        scheduler.adopt(options)?;
        for program in scheduler.skel.object().progs_mut() {
            if sees_kvm && OF_KVM.iter().any(|name| program.name() == *name) {
                scheduler.links.push(program.attach_trace().map_err(failed)?);
            }
        }
        let link = scheduler.skel.maps.gleaner_ops.attach_struct_ops().map_err(failed)?;
        scheduler.links.push(link);
        Ok(scheduler)
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
        let own = &self.skel.maps.own_rules;
        for pid in pids(own).filter(|pid| options.own_rules(*pid).is_none()) {
            // Fails if the VM has ended meanwhile.
            let _ = own.delete(as_bytes(&pid));
        }
        for vm in &options.vms {
            self.give(vm.pid, &options.config(vm.rules))?;
        }
        if let Some(data) = self.skel.maps.bss_data.as_deref_mut() {
            data.default_rules = as_set(&options.config(options.rules));
        }
        Ok(())
    }

    /// Gives one VM these rules from now on, until [`Scheduler::adopt`] gives others.
    ///
    /// # Errors
    /// There are too many VMs.
    pub fn give(&self, pid: u32, rules: &UrgentConfig) -> Result<(), ScxError> {
        let own = &self.skel.maps.own_rules;
        own.update(as_bytes(&pid), as_bytes(&as_set(rules)), MapFlags::ANY).map_err(|error| maps(&error))
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

fn load(options: &Options, sees_kvm: bool) -> libbpf_rs::Result<ScxGleanerSkel<'static>> {
    let mut open = ScxGleanerSkelBuilder::default().open(object_place())?;
    for mut program in open.open_object_mut().progs_mut() {
        if OF_KVM.iter().any(|name| program.name() == *name) {
            program.set_autoload(sees_kvm);
        }
    }
    if let Some(data) = open.maps.rodata_data.as_deref_mut() {
        data.fair_slice_ns = options.slice_ns;
        data.placement_rule = match options.placement {
            VcpuPlacement::Uncoordinated => placement_rule::PLACEMENT_NONE,
            VcpuPlacement::Balance => placement_rule::PLACEMENT_BALANCE,
            VcpuPlacement::LoadConscious => placement_rule::PLACEMENT_LOAD_CONSCIOUS,
        };
    }
    if let Some(data) = open.maps.bss_data.as_deref_mut() {
        for (vector, means) in LINUX_VECTORS {
            data.uses[vector] = u8::try_from(means.0).unwrap_or_default();
        }
    }
    open.load()
}

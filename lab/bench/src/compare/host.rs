//! The host's record of the virtualised run: what the VM cost on pCPUs, which is the `C_v` of TPDS'21 §3.1, and its parts in
//! guest and hypervisor (Figure 4b) and by exit reason (Figure 9).
//!
//! A record is one sum over its span. So it must be of this run, and the run of one row in one mode: then what the VM cost
//! was for the units of work that the run counted, those of the warm-up rounds included.

use gleaner_host_record::{Group, Reason, RecordError, Report, VmRecord};
use gleaner_proto::result::{BenchResult, Cell, Metric, Row, Sample};
use serde::Serialize;

use super::matching::{cpu_s, units, user_s};

/// A record may be longer than the run by this factor: it starts before the run, and ends after it.
const LONGEST: f64 = 1.25;
/// Or by this much, in s: two programs on two machines are started by hand.
const LONGEST_S: f64 = 5.0;
/// Clocks of guest and host differ by less.
const SHORTEST: f64 = 0.99;
/// Between the samples the VM works for the harness, which must not pass for the cost of the work.
const LEAST_COVERED: f64 = 0.75;
/// By how much the guest's account of its CPU time may exceed the host's: ticks round it.
const ACCOUNT: f64 = 1.25;
/// The same for short runs, in s.
const ACCOUNT_S: f64 = 0.1;

/// Why a host's record says nothing about a run.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// The record, or the VM in it.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// There is nothing to compare the VM's cycles with.
    #[error(
        "a host's record gives δη_r, for which one result must be native and the other one virtualised: both are {}",
        if *virtualised {
            "of virtual machines; if A was measured on the KVM host itself, which is one, too, take it for native with --nested"
        } else {
            "native"
        }
    )]
    NoPair {
        /// What both are.
        virtualised: bool,
    },
    /// With nested virtualisation, the native side is not of the host that recorded.
    #[error(
        "with --nested, A must be measured on the host of the record itself: A had Linux {run} and {cpus} CPUs, the host has \
         Linux {recorded} and {pcpus}"
    )]
    OtherHost {
        /// The kernel of the native side.
        run: String,
        /// The CPUs that it could use.
        cpus: usize,
        /// The recording host's kernel.
        recorded: String,
        /// The recording host's pCPUs.
        pcpus: u32,
    },
    /// No row of one is in the other.
    #[error(
        "a host's record gives δη_r, but the virtualised result's row runs nothing that a native row runs: measure the same \
         command on bare metal"
    )]
    NoRow,
    /// The record cannot be divided.
    #[error(
        "the host's record is one sum, and the run measured {}: measure one row in one mode per record (gleaner bench run \
         --mode MODE)",
        if cells.is_empty() { "nothing".to_owned() } else { cells.join(", ") }
    )]
    NotOneCell {
        /// The rows and modes with samples.
        cells: Vec<String>,
    },
    /// Another VM.
    #[error(
        "the run could use {run} vCPUs, and VM `{vm}` of the host's record has {recorded}: choose the VM of the run with --vm"
    )]
    OtherVm {
        /// The VM's name.
        vm: String,
        /// Number of vCPUs in the result.
        run: usize,
        /// Number of vCPUs in the record.
        recorded: usize,
    },
    /// Another length.
    #[error(
        "the host's record spans {span_s:.1} s and the run {run_s:.1} s: start the record just before the run, with \
         gleaner-host diagnose --json --seconds {}",
        (run_s * 1.1).ceil()
    )]
    OtherSpan {
        /// Length of the record.
        span_s: f64,
        /// Length of the run.
        run_s: f64,
    },
    /// Much of the run was something else.
    #[error(
        "the samples cover {:.0} % of the run, and the host's record has the rest in it, too: take longer samples (--window)",
        100.0 * covered
    )]
    NotCovered {
        /// Share of the run.
        covered: f64,
    },
    /// Another time.
    #[error(
        "the run used {used_s:.1} s of CPU time, and by the host's record the vCPUs of VM `{vm}` wanted to run for \
         {wanted_s:.1} s: it is of another time or another VM; record while the run lasts, and choose its VM with --vm"
    )]
    OtherTime {
        /// The VM's name.
        vm: String,
        /// By the guest's account.
        used_s: f64,
        /// By the host's.
        wanted_s: f64,
    },
    /// Too short for the guest's clock.
    #[error("by its own account the run used no CPU time: take longer samples (--window)")]
    NoCpuTime,
}

/// Where a host's record comes from.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HostOrigin {
    /// The VM's name.
    pub vm: String,
    /// Length of the record, in s.
    pub span_s: f64,
    /// Share of the run in which samples were taken.
    pub covered: f64,
    /// Number of the host's pCPUs.
    pub pcpus: u32,
    /// The host's kernel.
    pub kernel: String,
}

/// A part of `C_v`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Part {
    /// CPU seconds per unit of work.
    pub cpu_s_per_op: f64,
    /// Its part of `δη_r`; what is native cycles, too, is subtracted.
    pub delta_eta_r: f64,
}

/// Exits for one reason: a part of the hypervisor's.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ReasonPart {
    /// The reason.
    pub reason: Reason,
    /// The group of Figure 9.
    pub group: Group,
    /// Exits per unit of work.
    pub exits_per_op: f64,
    /// What they cost.
    #[serde(flatten)]
    pub part: Part,
}

/// `C_v` of one instance of the workload, by the host.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Cycles {
    /// CPU seconds on pCPUs per unit of work: guest and hypervisor.
    pub cpu_s_per_op: f64,
    /// In the guest.
    pub guest: Part,
    /// In the guest's user mode, as the guest accounts it.
    pub user: Option<Part>,
    /// The rest of the guest: its kernel, interrupts, the idle loop.
    pub kernel: Option<Part>,
    /// In KVM and in the VMM's threads of vCPUs.
    pub hypervisor: Part,
    /// The hypervisor's part by exit reason, the most expensive first.
    pub reasons: Vec<ReasonPart>,
}

/// A run, and what the host recorded of it.
#[derive(Debug)]
pub(super) struct Join<'a> {
    record: &'a Report,
    vm: &'a VmRecord,
    run_s: f64,
    covered: f64,
    /// Units of work of the whole run.
    units: f64,
    /// CPU time of the whole run by the guest's account, in s.
    used_s: f64,
    /// User time of the whole run, with every instance; `None` if it was not measured.
    user_s: Option<f64>,
}

impl<'a> Join<'a> {
    /// Checks that a native side which is a virtual machine, too, can be the host that recorded.
    ///
    /// # Errors
    /// [`JoinError::OtherHost`].
    pub(super) fn check_host(native: &BenchResult, record: &Report) -> Result<(), JoinError> {
        let (environment, host) = (&native.environment, &record.host);
        let pcpus = usize::try_from(host.pcpus).unwrap_or(usize::MAX);
        if environment.kernel == host.kernel && environment.vcpus <= pcpus {
            return Ok(());
        }
        Err(JoinError::OtherHost {
            run: environment.kernel.clone(),
            cpus: environment.vcpus,
            recorded: host.kernel.clone(),
            pcpus: host.pcpus,
        })
    }

    /// Checks that the record is of this run, as far as can be seen.
    ///
    /// # Errors
    /// See [`JoinError`].
    pub(super) fn new(run: &BenchResult, record: &'a Report, vm: Option<&str>) -> Result<Self, JoinError> {
        let vm = record.vm(vm)?;
        let cells: Vec<_> = run
            .rows
            .iter()
            .flat_map(|row| row.cells.iter().map(move |cell| (row, cell)))
            .filter(|(_, cell)| !cell.samples.is_empty())
            .collect();
        let &[(row, cell)] = cells.as_slice() else {
            let name = |(row, cell): &(&Row, &Cell)| format!("{} in mode {}", row.name, cell.mode);
            return Err(JoinError::NotOneCell { cells: cells.iter().map(name).collect() });
        };
        let (have, could_use) = (vm.vcpu_count(), run.environment.vcpus);
        if could_use > have {
            return Err(JoinError::OtherVm { vm: vm.name.clone(), run: could_use, recorded: have });
        }
        let sum = |of: &dyn Fn(&Sample) -> Option<f64>| -> Option<f64> { cell.samples.iter().map(of).sum() };
        let samples = cell.samples.len() as f64;
        // A warm-up round is a round without a sample.
        let rounds = (samples + run.plan.warmup_rounds as f64) / samples;
        let wall_s = |sample: &Sample| sample.metrics.get(&Metric::WallS).copied();
        let run_s = cell.samples.iter().filter_map(|s| Some(s.start_s + wall_s(s)?)).fold(0.0, f64::max);
        let span_s = record.elapsed_s();
        if span_s < SHORTEST * run_s || span_s > (LONGEST * run_s).max(run_s + LONGEST_S) {
            return Err(JoinError::OtherSpan { span_s, run_s });
        }
        let covered = rounds * sum(&wall_s).unwrap_or_default() / run_s;
        if covered.is_nan() || covered < LEAST_COVERED {
            return Err(JoinError::NotCovered { covered });
        }
        let used_s = rounds * sum(&|sample| cpu_s(row, sample)).unwrap_or_default();
        if used_s <= 0.0 {
            return Err(JoinError::NoCpuTime);
        }
        let join = Self {
            record,
            vm,
            run_s,
            covered,
            units: rounds * sum(&|sample| Some(units(sample))).unwrap_or_default(),
            used_s,
            user_s: sum(&|sample| user_s(row, sample)).map(|user_s| rounds * user_s),
        };
        let wanted_s = record.scale() * vm.times.wanted_ns() as f64 / 1e9;
        if used_s > ACCOUNT * wanted_s + ACCOUNT_S || join.total_s() <= 0.0 {
            return Err(JoinError::OtherTime { vm: vm.name.clone(), used_s, wanted_s });
        }
        Ok(join)
    }

    pub(super) fn origin(&self) -> HostOrigin {
        HostOrigin {
            vm: self.vm.name.clone(),
            span_s: self.record.elapsed_s(),
            covered: self.covered,
            pcpus: self.record.host.pcpus,
            kernel: self.record.host.kernel.clone(),
        }
    }

    /// CPU time of the VM on pCPUs, in s.
    fn total_s(&self) -> f64 {
        self.record.scale() * (self.vm.times.guest_ns + self.vm.times.hypervisor_ns) as f64 / 1e9
    }

    /// What the VM cost on pCPUs, as a ratio to what the guest accounted.
    pub(super) fn ratio(&self) -> f64 {
        self.total_s() / self.used_s
    }

    /// The parts of `δη_r`, where `shared_by` instances of the workload share the VM and `base` is the native side.
    pub(super) fn cycles(&self, delta_eta_r: f64, shared_by: f64, base: (&Row, &Cell)) -> Cycles {
        let total_s = self.total_s();
        let per_op = total_s / self.units / shared_by;
        // A share of C_v, and one of C_p.
        let part = |share: f64, native: f64| Part {
            cpu_s_per_op: per_op * share,
            delta_eta_r: (1.0 + delta_eta_r) * share - native,
        };
        let scale = self.record.scale();
        let share = |ns: u64| scale * ns as f64 / 1e9 / total_s;
        let guest = share(self.vm.times.guest_ns);
        let user = self.user_s.map(|user_s| (user_s / total_s).min(guest));
        let split = user.zip(user_share(base.0, base.1));
        let mut reasons: Vec<ReasonPart> = self
            .vm
            .reasons
            .iter()
            .filter(|(_, sum)| sum.count > 0 || sum.run_ns > 0)
            .map(|(reason, sum)| ReasonPart {
                reason: *reason,
                group: reason.group(),
                exits_per_op: scale * sum.count as f64 / self.units / shared_by,
                part: part(share(sum.run_ns), 0.0),
            })
            .collect();
        reasons.sort_by(|a, b| {
            b.part.cpu_s_per_op.total_cmp(&a.part.cpu_s_per_op).then(a.reason.cmp(&b.reason))
        });
        Cycles {
            cpu_s_per_op: per_op,
            guest: part(guest, 1.0),
            user: split.map(|(user, native)| part(user, native)),
            kernel: split.map(|(user, native)| part(guest - user, 1.0 - native)),
            hypervisor: part(share(self.vm.times.hypervisor_ns), 0.0),
            reasons,
        }
    }

    /// Caveats, as sentences.
    pub(super) fn notes(&self) -> Vec<String> {
        let (record, times) = (self.record, &self.vm.times);
        let total_s = self.total_s();
        let mut notes = vec![
            "time on pCPUs stands for the paper's cycles: all that the VM's vCPUs used while the host recorded, for the \
             harness between the samples, too; the native side is the command's CPU time. User time is the guest's account, \
             the rest of the guest is its kernel's"
                .to_owned(),
        ];
        let scale = record.scale();
        let others_s = scale * record.pcpus.iter().map(|pcpu| pcpu.other_ns as f64).sum::<f64>() / 1e9;
        notes.push(format!(
            "threads of the host that are no vCPUs used {others_s:.2} s, {:.1} % of what the VM did; its devices' are among \
             them, and in no number above",
            100.0 * others_s / total_s
        ));
        let beside: Vec<String> = record
            .vms
            .iter()
            .filter(|vm| vm.pid != self.vm.pid)
            .map(|vm| (vm, scale * (vm.times.guest_ns + vm.times.hypervisor_ns) as f64 / 1e9))
            .filter(|(_, used_s)| *used_s > 0.05 * total_s)
            .map(|(vm, used_s)| format!("{} ({used_s:.1} s)", vm.name))
            .collect();
        if !beside.is_empty() {
            notes.push(format!(
                "other VMs used the host meanwhile: {}. If that was the same work on the same pCPUs, then what is UC above is \
                 the paper's OC: δη_r holds, and δη_t is to be taken with half of γ_v",
                beside.join(", ")
            ));
        }
        if record.elapsed_ns.is_some() {
            notes.push(format!(
                "the host followed the VM for {:.0} % of that time, to keep the cost within its budget: times and exits are \
                 scaled up",
                100.0 / scale
            ));
        }
        let span_s = record.elapsed_s();
        if span_s > self.run_s * 1.02 || self.covered < 0.95 {
            notes.push(format!(
                "the record spans {span_s:.1} s, the run {:.1} s, and samples cover {:.0} % of that: what the VM did in the \
                 rest is counted as the work's",
                self.run_s,
                100.0 * self.covered
            ));
        }
        let unknown = times.unknown_ns as f64 / times.total_ns().max(1) as f64;
        if unknown > 0.01 {
            notes
                .push(format!("where {:.0} % of the vCPUs' time went is not in the record", 100.0 * unknown));
        }
        let unpaired = self.vm.vcpus.iter().map(|vcpu| vcpu.unpaired as f64).sum::<f64>();
        let at_once = unpaired / self.vm.exits().max(1) as f64;
        if at_once > 0.01 {
            notes.push(format!(
                "{:.0} % of the exits were handled at once, which the record counts as time in the guest: the hypervisor's \
                 part is larger, and the guest's smaller",
                100.0 * at_once
            ));
        }
        if record.lost.matters() {
            notes.push(
                "the host had no room to count everything: `gleaner-host diagnose` says what".to_owned(),
            );
        }
        notes.extend(record.hidden.iter().map(|hidden| format!("on the host: {hidden}")));
        notes.extend(record.missing.iter().map(|missing| format!("not available on the host: {missing}")));
        notes
    }
}

/// User mode's share of a native cell's CPU time; `None` if it was not measured.
fn user_share(row: &Row, cell: &Cell) -> Option<f64> {
    let sum = |of: fn(&Row, &Sample) -> Option<f64>| -> Option<f64> {
        cell.samples.iter().map(|sample| of(row, sample)).sum()
    };
    let (user, all) = (sum(user_s)?, sum(cpu_s)?);
    (all > 0.0).then(|| (user / all).min(1.0))
}

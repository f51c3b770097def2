//! What exits cost: by the host's record, where one is named, else assumed.

use std::path::Path;
use std::time::Duration;

use gleaner_host_record::attribution::ReasonTimes;
use gleaner_host_record::{Reason, RecordError, Report, VmRecord};
use serde::Serialize;

/// An exit that the hypervisor handles at once, such as programming the timer. A guest cannot measure it; on current
/// processors it takes one to two microseconds.
const ASSUMED: Duration = Duration::from_micros(2);

/// Exits of the guest's own timer: TSC deadline, and the local APIC's other registers.
const TIMER: [Reason; 2] = [Reason::TscDeadline, Reason::ApicTimer];
/// Exits to send an interrupt.
const IPI: [Reason; 2] = [Reason::Ipi, Reason::PvIpi];

/// A share of exits whose time is not in the record: above it, that is said.
const FEW: f64 = 0.01;

/// What the host recorded of this machine's exits: means, `None` where there was none.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Recorded {
    /// The record.
    pub(super) file: String,
    /// The VM's name.
    pub(super) vm: String,
    /// Its vCPUs.
    pub(super) vcpus: usize,
    /// Length of the record.
    pub(super) seconds: f64,
    /// Share of exits that went back to the guest at once, and whose time is counted as the guest's.
    pub(super) uncounted: f64,
    /// Time on a pCPU for each programming of the timer.
    pub(super) timer: Option<Duration>,
    /// Time on a pCPU for each interrupt sent.
    pub(super) ipi: Option<Duration>,
    /// Time on a pCPU for each halt, KVM's polling included.
    pub(super) hlt: Option<Duration>,
    /// Waiting for a pCPU after each halt.
    pub(super) hlt_waits: Option<Duration>,
    /// From sending an interrupt until the halted vCPU enters the guest with it.
    pub(super) wake_up: Option<Duration>,
    /// From calling a function on a vCPU that runs until it takes the call.
    pub(super) call: Option<Duration>,
    /// Each exit reason.
    pub(super) reasons: Vec<ReasonCost>,
}

/// The exits for one reason.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct ReasonCost {
    pub(super) reason: Reason,
    pub(super) count: u64,
    /// Mean time on a pCPU.
    pub(super) each: Duration,
}

impl Recorded {
    /// From the record in `file`, for the VM with this name or process, or its only VM.
    ///
    /// # Errors
    /// It is no record, or has no such VM.
    pub(super) fn read(file: &Path, vm: Option<&str>) -> Result<Self, RecordError> {
        let record = Report::read(file)?;
        Ok(Self::of(file, &record, record.vm(vm)?))
    }

    pub(super) fn of(file: &Path, record: &Report, vm: &VmRecord) -> Self {
        let sum = |reasons: &[Reason]| {
            let mut sum = ReasonTimes::default();
            reasons.iter().filter_map(|reason| vm.reasons.get(reason)).for_each(|more| sum.add(more));
            sum
        };
        let run = |reasons: &[Reason]| each(sum(reasons).run_ns, sum(reasons).count);
        let hlt = sum(&[Reason::Hlt]);
        let ipi = run(&IPI);
        // What sends the interrupt exits, and then the interrupt is delivered.
        let until = |latency: gleaner_trace::Histogram| {
            ipi.filter(|_| latency.count > 0).map(|ipi| ipi + latency.mean())
        };
        let unpaired = vm.vcpus.iter().map(|vcpu| vcpu.unpaired as f64).sum::<f64>();
        let reasons = vm.reasons.iter().filter_map(|(reason, sum)| {
            Some(ReasonCost { reason: *reason, count: sum.count, each: each(sum.run_ns, sum.count)? })
        });
        Self {
            file: file.display().to_string(),
            vm: vm.name.clone(),
            vcpus: vm.vcpu_count(),
            seconds: record.span_ns as f64 / 1e9,
            uncounted: unpaired / vm.exits().max(1) as f64,
            timer: run(&TIMER),
            ipi,
            hlt: each(hlt.run_ns, hlt.count),
            hlt_waits: each(hlt.woken_ns, hlt.count),
            wake_up: until(vm.latency(|of| &of.waking)),
            call: until(vm.latency(|of| &of.call)),
            reasons: reasons.collect(),
        }
    }

    /// What it says, as sentences; `here` is the number of vCPUs of this machine.
    pub(super) fn notes(&self, here: usize) -> Vec<String> {
        let parts =
            [(self.timer, "to program the timer"), (self.ipi, "to send an interrupt"), (self.hlt, "to halt")];
        let wake_up = (self.wake_up, "from sending an interrupt until a halted vCPU runs");
        let known: Vec<String> = parts
            .iter()
            .chain([&wake_up])
            .filter_map(|(each, what)| Some(format!("{:.1?} {what}", (*each)?)))
            .collect();
        let unknown: Vec<&str> =
            parts.iter().filter(|(each, _)| each.is_none()).map(|(_, what)| *what).collect();
        let Self { file, vm, seconds, .. } = self;
        let mut notes = vec![if known.is_empty() {
            format!("The host's record {file} ({seconds:.1} s) has no exits of VM {vm} that matter here.")
        } else {
            format!(
                "Exits cost by the host's record {file} of VM {vm} ({seconds:.1} s): {}.",
                known.join(", ")
            )
        }];
        if !unknown.is_empty() {
            notes.push(format!(
                "It has none {}: what is said about these is assumed, or measured in the guest.",
                unknown.join(", none ")
            ));
        }
        if self.uncounted > FEW {
            notes.push(format!(
                "{:.0} % of its exits were handled at once, which is counted as time in the guest: exits cost more than that.",
                100.0 * self.uncounted
            ));
        }
        if self.vcpus != here {
            notes.push(format!(
                "VM {vm} of the record has {} vCPUs, and this machine {here}: is it the same one?",
                self.vcpus
            ));
        }
        notes
    }
}

/// The time for each of `count`; `None` for none.
fn each(ns: u64, count: u64) -> Option<Duration> {
    ns.checked_div(count).map(Duration::from_nanos)
}

/// What one exit to program the timer costs.
pub(super) fn timer(recorded: Option<&Recorded>) -> (Duration, &'static str) {
    recorded
        .and_then(|recorded| recorded.timer)
        .map_or((ASSUMED, "assumed"), |each| (each, "by the host's record"))
}

#[cfg(test)]
pub(super) mod tests {
    use gleaner_testing::host::RECORD;

    use super::*;

    /// Of a VM in the fixture.
    pub(in crate::diagnose) fn recorded(vm: &str) -> Recorded {
        let record: Report = serde_json::from_str(RECORD).unwrap();
        Recorded::of(Path::new("host.json"), &record, record.vm(Some(vm)).unwrap())
    }

    #[test]
    fn costs_are_the_means_of_the_vms_own_exits() {
        let ping = recorded("ping");
        let ns = Duration::from_nanos;
        assert_eq!((ping.timer, ping.ipi, ping.hlt), (Some(ns(1300)), Some(ns(2200)), Some(ns(8000))));
        assert_eq!(ping.hlt_waits, Some(ns(5000)));
        // 2.2 us for the exit, then 6.144 us for 30 % of them and 11.264 us for the others.
        assert_eq!(ping.wake_up, Some(ns(2200 + 9720)));
        assert_eq!(ping.call, Some(ns(2200 + 4096)));
        assert_eq!(ping.notes(2).len(), 1, "{:?}", ping.notes(2));
        assert!(ping.notes(2)[0].ends_with(
            "host.json of VM ping (20.0 s): 1.3µs to program the timer, 2.2µs to send an interrupt, 8.0µs to halt, \
             11.9µs from sending an interrupt until a halted vCPU runs."
        ));
    }

    #[test]
    fn what_the_record_lacks_is_assumed_and_said() {
        let quiet = recorded("quiet");
        assert_eq!((quiet.ipi, quiet.wake_up, quiet.call), (None, None, None));
        assert_eq!(timer(Some(&quiet)), (Duration::from_nanos(1500), "by the host's record"));
        assert!(quiet.notes(2)[1].starts_with("It has none to send an interrupt:"), "{:?}", quiet.notes(2));
        let none = Recorded { timer: None, ipi: None, hlt: None, ..quiet };
        assert_eq!(timer(Some(&none)), (ASSUMED, "assumed"));
        assert_eq!(timer(None), (ASSUMED, "assumed"));
        assert!(none.notes(2)[0].contains("has no exits of VM quiet"), "{:?}", none.notes(2));
    }

    #[test]
    fn another_machine_and_uncounted_time_are_noticed() {
        let mut ping = recorded("ping");
        assert!(ping.notes(4)[1].contains("has 2 vCPUs, and this machine 4"), "{:?}", ping.notes(4));
        ping.uncounted = 0.2;
        assert!(
            ping.notes(2)[1].starts_with("20 % of its exits were handled at once"),
            "{:?}",
            ping.notes(2)
        );
    }
}

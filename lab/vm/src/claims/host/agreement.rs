//! What is counted, held against KVM's own counters and the guest's.

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use gleaner_host::discover::discover;
use gleaner_host::{HostSetup, HostTracer, Reason, Report, VmRecord};
use gleaner_kernel::Root;

use super::{failed, follow, guest};
use crate::claims::Checks;
use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::vm::{Guest, Lab, Step};

/// KVM's counters over all VMs, and the reasons that each of them counts. `mmio_exits` is left out: it counts what goes to the
/// VMM for device memory, while "to VMM" also counts what goes there for a signal meanwhile, and each part of a long access.
const COUNTERS: [(&str, &[Reason]); 5] = [
    ("exits", &[]),
    ("halt_exits", &[Reason::Hlt]),
    ("irq_exits", &[Reason::Interrupt]),
    ("irq_window_exits", &[Reason::InterruptWindow]),
    (IO_EXITS, &[Reason::Pio]),
];
/// Each instruction for ports (`io_interception` of svm.c, `handle_io` of vmx.c), of which only a serial port has many here.
const IO_EXITS: &str = "io_exits";
/// Characters for the serial port. Each of them takes an instruction at least.
const CHARACTERS: u64 = 4000;
const DIRECTORY: &str = "/sys/kernel/debug/kvm";
/// Reading all counters takes some milliseconds, in which some exits pass.
const SLACK: u64 = 20;
const TIME: Duration = Duration::from_secs(10);

pub(super) fn prove(lab: &Lab, checks: &mut Checks) -> Result<()> {
    // Attached once: that patches the host's code while it runs.
    let (setup, mut tracer) = follow()?;
    let time = format!("{}ms", lab.span(TIME).as_millis());
    for kernel in [Kernel::V7, Kernel::V6_12] {
        let guest = lab.boot(guest("agreement", kernel))?;
        for workload in ["wake", "tlb", "request-response"] {
            let step = Step::new(&["gleaner", "workload", "--for", &time, workload]);
            on(&guest, workload, step, &setup, &mut tracer, checks)?;
        }
        on(&guest, SERIAL, writer(), &setup, &mut tracer, checks)?;
        guest.power_off()?;
    }
    Ok(())
}

const SERIAL: &str = "a writer to the serial port";

/// It ends when the port has got the last character: setting the terminal waits for that.
fn writer() -> Step {
    Step::shell(&format!("yes | head -c {CHARACTERS} >/dev/ttyS0; stty -F /dev/ttyS0 onlcr"))
}

fn on(
    guest: &Guest,
    workload: &str,
    step: Step,
    setup: &HostSetup,
    tracer: &mut HostTracer,
    checks: &mut Checks,
) -> Result<()> {
    let name = format!("Linux {} with {}", guest.spec().kernel, workload);
    tracer.forget_ended();
    let (by_guest, by_kvm, earlier) =
        (interrupts(guest)?, counters()?, tracer.read().map_err(|error| failed(&error))?);
    guest.succeed(step.timeout(Duration::from_secs(100)))?;
    let (kvm_then, later, guest_then) =
        (counters()?, tracer.read().map_err(|error| failed(&error))?, interrupts(guest)?);
    let report = Report::between(setup, &discover(&Root::system()), &earlier, &later, None);
    let Some(vm) = report.vms.first() else {
        checks.that(format!("{name}: the VM is found"), false, "no VM");
        return Ok(());
    };
    for (counter, reasons) in COUNTERS {
        let theirs = kvm_then[counter].saturating_sub(by_kvm[counter]);
        let ours = match reasons {
            [] => vm.exits(),
            reasons => reasons.iter().filter_map(|reason| vm.reasons.get(reason)).map(|sum| sum.count).sum(),
        };
        agrees(checks, format!("{name}: {counter} agree with KVM's within 1 %"), ours, theirs, 0.01, SLACK);
    }
    if workload == SERIAL {
        let theirs = kvm_then[IO_EXITS].saturating_sub(by_kvm[IO_EXITS]);
        let what = format!("{name}: KVM counts an exit for each character at least");
        checks.that(what, theirs >= CHARACTERS, format!("{theirs} for {CHARACTERS}"));
    }
    times(checks, &name, vm, report.span_ns);
    pcpus(checks, &name, &report);
    let injected = vm.injected();
    let ours = injected.reschedule + injected.call;
    let theirs = guest_then.saturating_sub(by_guest);
    let what = format!("{name}: interrupts between vCPUs agree with the guest's within 2 %");
    // Between the readings the guest's agent works.
    agrees(checks, what, ours, theirs, 0.02, 5 * SLACK);
    Ok(())
}

/// That the times of each vCPU add up to the span, and are known.
pub(super) fn times(checks: &mut Checks, name: &str, vm: &VmRecord, span_ns: u64) {
    for vcpu in &vm.vcpus {
        let ratio = vcpu.times.total_ns() as f64 / span_ns as f64;
        let what = format!("{name}: the times of vCPU {} add up to the wall time within 1 %", vcpu.vcpu);
        checks.that(what, (ratio - 1.0).abs() <= 0.01, format!("{:.2} % of it", 100.0 * ratio));
        let unknown = vcpu.times.unknown_ns as f64 / span_ns as f64;
        let what = format!("{name}: at most 1 % of the time of vCPU {} is unknown", vcpu.vcpu);
        let found = format!(
            "{:.2} %, {} events out of order, {} unpaired",
            100.0 * unknown,
            vcpu.disordered,
            vcpu.unpaired
        );
        checks.that(what, unknown <= 0.01, found);
    }
}

fn pcpus(checks: &mut Checks, name: &str, report: &Report) {
    let online = usize::try_from(report.host.pcpus).unwrap_or(usize::MAX);
    for (number, pcpu) in report.pcpus.iter().enumerate().take(online) {
        let ratio = (pcpu.vcpu_ns + pcpu.other_ns + pcpu.idle_ns) as f64 / report.span_ns as f64;
        let what = format!("{name}: the times of pCPU {number} add up to the wall time within 1 %");
        checks.that(what, (ratio - 1.0).abs() <= 0.01, format!("{:.2} % of it", 100.0 * ratio));
    }
}

fn agrees(checks: &mut Checks, what: String, ours: u64, theirs: u64, tolerance: f64, slack: u64) {
    let difference = ours.abs_diff(theirs);
    let holds = difference <= slack || difference as f64 <= tolerance * theirs as f64;
    checks.that(what, holds, format!("{ours} counted, {theirs} there"));
}

fn counters() -> Result<BTreeMap<&'static str, u64>> {
    let read = |name: &'static str| {
        let path = format!("{DIRECTORY}/{name}");
        let text = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
        Ok((name, text.trim().parse().unwrap_or_default()))
    };
    COUNTERS.iter().map(|(name, _)| read(name)).collect()
}

/// Reschedule and function call interrupts that the guest has counted.
fn interrupts(guest: &Guest) -> Result<u64> {
    Ok(received(&guest.read_text("/proc/interrupts")?))
}

fn received(text: &str) -> u64 {
    let of = |line: &str| -> u64 {
        let mut words = line.split_ascii_whitespace();
        let wanted = matches!(words.next(), Some("RES:" | "CAL:"));
        // Counts by vCPU come before the description.
        if wanted { words.map_while(|word| word.parse::<u64>().ok()).sum() } else { 0 }
    };
    text.lines().map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reschedule_and_function_call_interrupts_are_added_up() {
        let text = "           CPU0       CPU1\nLOC:  9  9  Local timer interrupts\n\
                    RES:         1         20   Rescheduling interrupts\nCAL:       300       4000   Function call interrupts\n\
                    TLB:  7  7  TLB shootdowns\n";
        assert_eq!(received(text), 4321);
    }
}

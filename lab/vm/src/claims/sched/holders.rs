//! Preemptions of vCPUs that hold a lock and send a reschedule interrupt (§3.1.2 of the paper), by the length of the preemption
//! delay (Figure 7a). The delay begins with the interrupt, so it cannot prevent those before.
//!
//! The sections are marked by their program ([`crate::sections`]); the host's kernel traces the marks and its own switches.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::{ENDLESS, Scheduler, Still, endless, failed, guest};
use crate::claims::{Checks, Target};
use crate::error::{Error, Result};
use crate::sections::{RELEASED, TAKEN};
use crate::vm::{Cpus, Guest, Lab, Step, VmSpec};

const ROUNDS: usize = 5;
/// Long enough for some thousand sections.
const BLOCK: Duration = Duration::from_millis(500);

/// Of the host, and vCPUs of each guest.
pub(super) const PCPUS: u32 = 2;

/// The vectors by which Linux wakes up threads on other CPUs (`arch/x86/include/asm/irq_vectors.h`): to reschedule, and for a
/// function call, which the wake-up of an idle one is.
const WAKING_VECTORS: [u8; 2] = [0xfd, 0xfb];

/// Preemption delays; 0 is none. The paper chose 500 us.
const DELAYS: [&str; 5] = ["0us", "100us", "300us", "500us", "1ms"];
const CHOSEN: usize = 3;

pub(super) fn prove(lab: &Lab, checks: &mut Checks) -> Result<()> {
    let guest = |name| VmSpec { cpus: Cpus::flat(PCPUS), ..guest(name) };
    let guests = [lab.boot(guest("holder"))?, lab.boot(guest("neighbour"))?];
    let [holder, neighbour] = &guests;
    let jobs = [
        holder.start(Step::new(&["gleaner-lab", "sections"]).timeout(ENDLESS))?,
        // Its wake-ups preempt whoever runs.
        neighbour.start(endless(&["pipeline", "--set", "granularity=50us"]))?,
    ];
    // Asked now: while they stand still they do not answer.
    let threads = holder.vcpu_threads()?;
    let rules = format!("{}=resched-dp", holder.pid());
    let mut by_kernel = Vec::new();
    let mut by_delay = [const { Vec::new() }; DELAYS.len()];
    for _ in 0..lab.rounds(ROUNDS) {
        by_kernel.push(sections(&guests, &threads, None)?);
        for (delay, found) in DELAYS.iter().zip(&mut by_delay) {
            let options = ["--rules", "off", "--vm", &rules, "--preemption-delay", delay];
            found.push(sections(&guests, &threads, Some(&options))?);
        }
    }
    let of_1000 = |sections: &[Sections], count: Count| -> Vec<f64> {
        sections.iter().map(|sections| sections.of_1000(count)).collect()
    };
    let sent: Vec<f64> = by_delay.iter().flat_map(|found| of_1000(found, |sections| sections.sent)).collect();
    checks.values("sections of 1000 in which a wake-up sends an interrupt", &sent, "", Target::Reported);
    let schedulers = DELAYS.iter().map(|delay| format!("scx_gleaner, preemption delay {delay}"));
    let schedulers = std::iter::once("the kernel's scheduler".to_owned()).chain(schedulers);
    for (who, found) in schedulers.zip(std::iter::once(&by_kernel).chain(&by_delay)) {
        let mut report = |what: &str, count: Count| {
            checks.values(
                format!("{what} of 1000 under {who}"),
                &of_1000(found, count),
                "",
                Target::Reported,
            );
        };
        report("preempted sections", |sections| sections.preempted);
        report("sections preempted after the interrupt", |sections| sections.preempted_after);
    }
    let chosen = &by_delay[CHOSEN];
    let half = Target::AtMost(0.5);
    let all: Count = |sections| sections.preempted;
    let after: Count = |sections| sections.preempted_after;
    for (what, other, count, target) in [
        ("against the kernel's scheduler", &by_kernel, all, half),
        ("against no delay, after the interrupt", &by_delay[0], after, half),
        ("against no delay", &by_delay[0], all, Target::Reported),
    ] {
        let ratios = of_1000(chosen, count).into_iter().zip(of_1000(other, count));
        // A round may have none after the interrupt, and zero has no logarithm, which `Checks::ratios` takes.
        let ratios = ratios.map(|(chosen, other)| chosen / other).filter(|ratio| ratio.is_finite());
        let ratios: Vec<f64> = ratios.collect();
        checks.values(format!("{} {what}", DELAYS[CHOSEN]), &ratios, "×", target);
    }
    for job in jobs {
        job.signal(Signal::SIGKILL)?;
        job.wait()?;
    }
    guests.into_iter().try_for_each(Guest::power_off)
}

/// The sections of the first guest, whose vCPUs are these threads, under the kernel's scheduler or ours with these options.
fn sections(guests: &[Guest; 2], threads: &[i32], options: Option<&[&str]>) -> Result<Sections> {
    let all = guests.each_ref();
    let still = Still::keep(&all);
    let scheduler = options.map(Scheduler::start).transpose()?;
    let trace = Trace::start(threads)?;
    drop(still);
    sleep(BLOCK);
    let found = trace.end().and_then(|text| Sections::of(&text));
    let _still = Still::keep(&all);
    if let Some(mut scheduler) = scheduler {
        scheduler.end(Signal::SIGTERM)?;
    }
    found
}

/// An instance of the kernel's tracing; ended when dropped.
struct Trace {
    dir: PathBuf,
}

impl Trace {
    /// Of the marks, interrupts of wake-ups, and these threads being switched out.
    fn start(threads: &[i32]) -> Result<Self> {
        let trace = Self { dir: "/sys/kernel/tracing/instances/gleaner".into() };
        fs::create_dir(&trace.dir).map_err(Error::file("make", &trace.dir))?;
        let of_threads: Vec<String> = threads.iter().map(|thread| format!("prev_pid=={thread}")).collect();
        let marks = format!("function=={TAKEN}||function=={RELEASED}");
        let wakes = WAKING_VECTORS.map(|vector| format!("vec=={vector}"));
        for (file, text) in [
            ("buffer_size_kb", "8192"),
            ("events/sched/sched_switch/filter", &of_threads.join("||")),
            ("events/kvm/kvm_cpuid/filter", &marks),
            ("events/kvm/kvm_apic_accept_irq/filter", &wakes.join("||")),
            ("events/sched/sched_switch/enable", "1"),
            ("events/kvm/kvm_cpuid/enable", "1"),
            ("events/kvm/kvm_apic_accept_irq/enable", "1"),
        ] {
            trace.write(file, text)?;
        }
        Ok(trace)
    }

    fn end(self) -> Result<String> {
        self.write("tracing_on", "0")?;
        let path = self.dir.join("trace");
        fs::read_to_string(&path).map_err(Error::file("read", path))
    }

    fn write(&self, file: &str, text: &str) -> Result<()> {
        let path = self.dir.join(file);
        fs::write(&path, text).map_err(Error::file("write", path))
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let _ = self.write("tracing_on", "0");
        let _ = self.write("events/enable", "0");
        let _ = fs::remove_dir(&self.dir);
    }
}

#[derive(Debug, Default, PartialEq)]
struct Sections {
    taken: u32,
    /// In which a wake-up sent an interrupt.
    sent: u32,
    /// How often the holder was preempted, and how often after it had sent the interrupt.
    preempted: u32,
    preempted_after: u32,
}

type Count = fn(&Sections) -> u32;

impl Sections {
    /// From the text of a trace, whose lines are in the order of time.
    fn of(trace: &str) -> Result<Self> {
        let mut found = Self::default();
        // The threads that are in a section, and whether they have sent an interrupt in it.
        let mut holding = BTreeMap::new();
        for line in trace.lines() {
            let event = |name| line.split_once(name).and_then(|(by, fields)| Some((thread_of(by)?, fields)));
            if let Some((thread, fields)) = event(": kvm_cpuid: ") {
                if fields.starts_with(&format!("func {TAKEN:x} ")) {
                    found.taken += 1;
                    holding.insert(thread, false);
                } else {
                    holding.remove(thread);
                }
            } else if let Some((thread, _)) = event(": kvm_apic_accept_irq: ") {
                if let Some(sent) = holding.get_mut(thread) {
                    found.sent += u32::from(!std::mem::replace(sent, true));
                }
            } else if let Some((_, fields)) = event(": sched_switch: ") {
                let field = |name| fields.split(name).nth(1).and_then(|rest| rest.split(' ').next());
                let is_preempted = field("prev_state=").is_some_and(|state| state.starts_with('R'));
                let sent = field("prev_pid=").and_then(|pid| holding.get(pid));
                if let Some(sent) = sent.filter(|_| is_preempted) {
                    found.preempted += 1;
                    found.preempted_after += u32::from(*sent);
                }
            }
        }
        if found.taken == 0 {
            return Err(failed(format!("no section is in the trace, of {} lines", trace.lines().count())));
        }
        Ok(found)
    }

    /// How many of 1000 sections `count` counts.
    fn of_1000(&self, count: Count) -> f64 {
        1000.0 * f64::from(count(self)) / f64::from(self.taken)
    }
}

/// The thread in the first fields of a line: `CPU 0/KVM-101     [000] .....   12.000001`.
fn thread_of(fields: &str) -> Option<&str> {
    Some(fields.split_once(" [")?.0.trim_end().rsplit_once('-')?.1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "\
# entries-in-buffer/entries-written: 10/10   #P:2
       CPU 0/KVM-101     [000] .....   12.000001: kvm_cpuid: func 676c0001 idx 0 rax 1 rbx 0 rcx 0 rdx 0, cpuid entry not found
       CPU 0/KVM-101     [000] .....   12.000050: kvm_apic_accept_irq: apicid 1 vec 253 (Fixed|edge)
       CPU 1/KVM-102     [001] .....   12.000060: kvm_apic_accept_irq: apicid 0 vec 251 (Fixed|edge)
       CPU 1/KVM-102     [001] d..2.   12.000100: sched_switch: prev_comm=CPU 1/KVM prev_pid=102 prev_prio=120 prev_state=R ==> next_comm=x next_pid=9 next_prio=120
       CPU 0/KVM-101     [000] d..2.   12.000200: sched_switch: prev_comm=CPU 0/KVM prev_pid=101 prev_prio=120 prev_state=R+ ==> next_comm=x next_pid=9 next_prio=120
       CPU 0/KVM-101     [000] d..2.   12.000300: sched_switch: prev_comm=CPU 0/KVM prev_pid=101 prev_prio=120 prev_state=S ==> next_comm=x next_pid=9 next_prio=120
       CPU 0/KVM-101     [000] .....   12.000400: kvm_cpuid: func 676c0002 idx 0 rax 1 rbx 0 rcx 0 rdx 0, cpuid entry not found
       CPU 0/KVM-101     [000] d..2.   12.000500: sched_switch: prev_comm=CPU 0/KVM prev_pid=101 prev_prio=120 prev_state=R ==> next_comm=x next_pid=9 next_prio=120
       CPU 1/KVM-102     [001] .....   12.000600: kvm_cpuid: func 676c0001 idx 0 rax 1 rbx 0 rcx 0 rdx 0, cpuid entry not found
";

    #[test]
    fn a_section_is_preempted_while_its_vcpu_waits_for_a_pcpu() {
        let found = Sections::of(TRACE).unwrap();
        assert_eq!(found, Sections { taken: 2, sent: 1, preempted: 1, preempted_after: 1 });
        assert!((found.of_1000(|sections| sections.preempted) - 500.0).abs() < 1e-9);
        assert!(Sections::of("# no events\n").is_err());
    }
}

//! The loop: wait, observe, decide, journal, apply.

use std::time::Duration;

use gleaner_policy::{Decision, Event, Evidence, Policy, Setting, Verdict};
use gleaner_proto::journal::Summary;

use crate::journal::Journal;
use crate::machine::{Machine, Wake};

/// The first look after the start: long enough for the program to be running.
const FIRST_LOOK: Duration = Duration::from_millis(10);

/// Drives `policy` on `machine` until the workload ends or the user asks to stop, and puts the machine back.
///
/// When a lever or sensor fails, the untouched setting is put in force and held for the rest of the run: a
/// setting that cannot be controlled cannot be proven either. Where nobody waits for the workload through Gleaner
/// ([`Machine::stands_by`]), the run ends there.
pub fn run<M: Machine>(machine: &mut M, policy: &mut Policy, journal: &mut Journal) -> Summary {
    let untouched = Setting::untouched(&machine.allowed());
    let mut account = Account::default();
    account.summary.fixed = policy.fixed().cloned();
    if let Err(error) = control(machine, policy, journal, &mut account, &untouched) {
        let stands_by = machine.stands_by();
        let rest = if stands_by { "and only watches from here on" } else { "and ends" };
        let text = format!("{error}; Gleaner lets go {rest}");
        journal.note(machine.now(), text.clone());
        journal.flush();
        machine.warn(&text);
        account.summary.not_in_force = Some(text);
        let _ = machine.apply(&untouched);
        if stands_by {
            hands_off(machine, &mut account, &untouched);
        }
    }
    if let Err(error) = machine.apply(&untouched) {
        journal.note(machine.now(), error.to_string());
    }
    account.summary.evidence = account.best.map(|(setting, e)| sentence(&setting, &e));
    account.summary
}

fn control<M: Machine>(
    machine: &mut M,
    policy: &mut Policy,
    journal: &mut Journal,
    account: &mut Account,
    untouched: &Setting,
) -> Result<(), M::Error> {
    let mut in_force = untouched.clone();
    let mut decision = Decision { setting: policy.setting(), next: FIRST_LOOK, ..Decision::default() };
    loop {
        if decision.setting != in_force {
            for note in machine.apply(&decision.setting)? {
                journal.note(machine.now(), note);
            }
            in_force = decision.setting;
        }
        if decision.forget {
            machine.forget()?;
        }
        let wake = machine.wait(decision.next, decision.watch)?;
        for note in machine.take_notes() {
            journal.note(machine.now(), note);
        }
        if wake != Wake::Observe {
            if let Ok(o) = machine.observe() {
                account.interval(&in_force, &o);
                journal.step(&in_force, &o, &[]);
            }
            return Ok(());
        }
        let o = machine.observe()?;
        account.interval(&in_force, &o);
        decision = policy.step(&o);
        account.events(&decision.events);
        journal.step(&in_force, &o, &decision.events);
    }
}

fn hands_off<M: Machine>(machine: &mut M, account: &mut Account, untouched: &Setting) {
    const LOOK: Duration = Duration::from_millis(500);
    while let Ok(Wake::Observe) = machine.wait(LOOK, None) {
        if let Ok(o) = machine.observe() {
            account.interval(untouched, &o);
        }
    }
}

/// What the summary is made of.
#[derive(Debug, Default)]
struct Account {
    summary: Summary,
    best: Option<(Setting, Evidence)>,
}

impl Account {
    fn interval(&mut self, in_force: &Setting, o: &gleaner_policy::Observation) {
        self.summary.count(in_force, o.period);
        self.summary.workload_cpu += o.workload.cpu_time;
        let polled: Duration = o.vcpus.iter().map(|v| v.poll_time).sum();
        // A vCPU polls on by a limit of ours until it has halted once without it.
        if in_force.retention.is_on() || !o.settled {
            self.summary.retained += polled;
        } else {
            self.summary.polled_otherwise += polled;
        }
    }

    fn events(&mut self, events: &[Event]) {
        for event in events {
            match event {
                Event::TrialEnded { candidate, verdict: Verdict::Proven(e), .. } => {
                    self.summary.proven += 1;
                    if self.best.as_ref().is_none_or(|(_, best)| e.low > best.low) {
                        self.best = Some((candidate.clone(), *e));
                    }
                }
                Event::TrialEnded { .. } => self.summary.refuted += 1,
                Event::Unfolded { .. } | Event::MajorChange { .. } => self.summary.unfolded += 1,
                _ => {}
            }
        }
    }
}

fn sentence(setting: &Setting, e: &Evidence) -> String {
    format!(
        "{setting}: {:.2} times as many {} as without ({:.2} to {:.2}, {} pairs of blocks)",
        e.ratio,
        e.signal.name(),
        e.low,
        e.high,
        e.pairs
    )
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use gleaner_policy::{
        CpuId, CpuSet, Method, Mode, Observation, PolicyConfig, Retention, VcpuInterval, Watch,
    };

    use super::*;

    const STEP: Duration = Duration::from_millis(100);

    #[derive(Debug, thiserror::Error)]
    #[error("not permitted to change the limit; run as root")]
    struct Refused;

    /// Two vCPUs that poll for a tenth of the time, with or without a limit of ours.
    struct Fake {
        now: Duration,
        refuses: bool,
        stands_by: bool,
        settled: VecDeque<bool>,
        looks: usize,
        warned: Vec<String>,
    }

    impl Fake {
        fn new(looks: usize) -> Self {
            let settled = VecDeque::new();
            Self { now: Duration::ZERO, refuses: false, stands_by: true, settled, looks, warned: Vec::new() }
        }
    }

    impl Machine for Fake {
        type Error = Refused;

        fn now(&self) -> Duration {
            self.now
        }

        fn allowed(&self) -> CpuSet {
            CpuSet::first(2)
        }

        fn wait(&mut self, _next: Duration, _watch: Option<Watch>) -> Result<Wake, Refused> {
            self.now += STEP;
            self.looks = self.looks.saturating_sub(1);
            Ok(if self.looks == 0 { Wake::Ended } else { Wake::Observe })
        }

        fn stands_by(&self) -> bool {
            self.stands_by
        }

        fn warn(&mut self, sentence: &str) {
            self.warned.push(sentence.to_owned());
        }

        fn observe(&mut self) -> Result<Observation, Refused> {
            let vcpu = |cpu| VcpuInterval {
                cpu: CpuId(cpu),
                halts: 0,
                halt_time: Duration::ZERO,
                polls: 1,
                poll_time: STEP / 10,
                steal: Duration::ZERO,
            };
            Ok(Observation {
                at: self.now,
                period: STEP,
                vcpus: vec![vcpu(0), vcpu(1)],
                workload: gleaner_policy::WorkloadInterval::default(),
                runnable: 0,
                crowd: None,
                throttled: 0.0,
                settled: self.settled.pop_front().unwrap_or(true),
                cost: Duration::ZERO,
            })
        }

        fn forget(&mut self) -> Result<(), Refused> {
            Ok(())
        }

        fn apply(&mut self, setting: &Setting) -> Result<Vec<String>, Refused> {
            if self.refuses && setting.retention.is_on() { Err(Refused) } else { Ok(Vec::new()) }
        }
    }

    fn fixed(retention: Retention) -> Policy {
        let setting = Setting { active: CpuSet::first(2), retention };
        let config = PolicyConfig { mode: Mode::Fixed(setting), ..PolicyConfig::default() };
        Policy::new(config, CpuSet::first(2)).unwrap()
    }

    const POLL: Retention = Retention { method: Method::Haltpoll, limit: Duration::from_micros(200) };

    #[test]
    fn the_administrators_own_polling_does_not_count_as_retained() {
        let mut machine = Fake::new(10);
        // The first two intervals still poll by a limit that was ours.
        machine.settled = [false, false].into();
        let summary = run(&mut machine, &mut fixed(Retention::NONE), &mut Journal::nowhere());
        assert_eq!((summary.retained, summary.polled_otherwise), (STEP / 5 * 2, STEP / 5 * 8));
        let summary = run(&mut Fake::new(10), &mut fixed(POLL), &mut Journal::nowhere());
        assert_eq!((summary.retained, summary.polled_otherwise), (STEP / 5 * 10, Duration::ZERO));
    }

    #[test]
    fn a_setting_that_is_refused_is_told_at_once_and_in_the_account() {
        for stands_by in [true, false] {
            let mut machine = Fake { refuses: true, stands_by, ..Fake::new(10) };
            let mut policy = fixed(POLL);
            let summary = run(&mut machine, &mut policy, &mut Journal::nowhere());
            let told = summary.not_in_force.unwrap();
            assert!(told.starts_with("not permitted to change the limit; run as root; "), "{told}");
            assert_eq!(machine.warned, [told]);
            assert_eq!(summary.fixed.as_ref(), policy.fixed());
            // Who waits for the command through Gleaner still does; nobody does where Gleaner attached.
            assert_eq!(summary.elapsed.is_zero(), !stands_by);
            assert!(summary.settings.iter().all(|s| !s.setting.retention.is_on()));
        }
    }
}

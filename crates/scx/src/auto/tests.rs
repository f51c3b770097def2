//! The controller on modelled VMs.

use super::*;

/// Per second of vCPU time, without the rule and with it.
#[derive(Clone, Copy)]
struct Vm {
    reschedules: (f64, f64),
    spins: (f64, f64),
    noise: f64,
}

/// Threads that spin before they block: a fifth of the wake-ups is saved.
const FRIENDLY: Vm = Vm { reschedules: (4000.0, 3200.0), spins: (0.0, 0.0), noise: 0.05 };

struct Run {
    auto: Auto,
    now: Duration,
    random: u64,
    decisions: Vec<Decision>,
    /// Time with the rule in force.
    on: Duration,
}

impl Run {
    fn new(seed: u64) -> Self {
        let random = 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed);
        Self { auto: Auto::default(), now: Duration::ZERO, random, decisions: Vec::new(), on: Duration::ZERO }
    }

    /// Between -1 and 1.
    fn uniform(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }

    /// Until the controller rests.
    fn round(&mut self, vm: &Vm) -> &mut Self {
        let before = self.decisions.len();
        while self.decisions.len() == before {
            let (period, on) = (self.auto.next(), self.auto.is_on());
            self.now += period;
            if on {
                self.on += period;
            }
            let ran = period.mul_f64(2.0 * (1.0 + 0.02 * self.uniform()));
            let mut count = |(without, with): (f64, f64)| {
                let per_second = if on { with } else { without };
                let events = per_second * ran.as_secs_f64() * (1.0 + vm.noise * self.uniform());
                Duration::from_secs_f64(events).as_secs()
            };
            let (reschedules, spins) = (count(vm.reschedules), count(vm.spins));
            let sample = Sample { period, ran, reschedules, spins };
            let decision = self.auto.step(self.now, &sample);
            self.decisions.extend(decision);
        }
        self
    }

    fn last(&self) -> Decision {
        *self.decisions.last().unwrap()
    }
}

#[test]
fn a_vm_that_blocks_less_when_coscheduled_gets_the_rule_and_loses_it_when_that_is_over() {
    let mut run = Run::new(1);
    run.round(&FRIENDLY);
    assert!(run.auto.is_on() && run.now < Duration::from_secs(10), "{:?}", run.decisions);
    let text = run.last().to_string();
    assert!(text.starts_with("resched-co is on from now on: with it 1.2"), "{text}");
    for _ in 0..5 {
        run.round(&FRIENDLY);
        assert!(run.auto.is_on());
        assert_eq!(run.auto.next(), RESTS.0, "harm must not stay unnoticed");
    }
    assert!(run.last().to_string().starts_with("resched-co stays on: "), "{}", run.last());
    let unfriendly = Vm { reschedules: (4000.0, 4400.0), ..FRIENDLY };
    run.round(&unfriendly);
    assert!(!run.auto.is_on(), "{:?}", run.decisions);
}

#[test]
fn chance_decides_rarely() {
    let neutral = Vm { reschedules: (4000.0, 4000.0), ..FRIENDLY };
    let rounds = |vm: &Vm| {
        let on = |seed| {
            let mut run = Run::new(seed);
            run.round(vm);
            run.auto.is_on()
        };
        (1..=200).filter(|seed| on(*seed)).count()
    };
    assert!(rounds(&neutral) <= 4, "{}", rounds(&neutral));
    assert!(rounds(&FRIENDLY) >= 190, "{}", rounds(&FRIENDLY));
}

#[test]
fn spinning_in_vain_is_no_help() {
    let mut run = Run::new(2);
    run.round(&Vm { spins: (2000.0, 6000.0), ..FRIENDLY });
    assert!(matches!(run.last().why, Why::Spins { .. }) && !run.auto.is_on(), "{:?}", run.decisions);
    run.round(&Vm { spins: (2000.0, 1000.0), ..FRIENDLY });
    assert!(run.auto.is_on(), "{:?}", run.decisions);
}

#[test]
fn where_it_cannot_matter_nothing_is_tried_and_rests_grow() {
    let mut run = Run::new(3);
    let idle = Vm { reschedules: (10.0, 10.0), ..FRIENDLY };
    for _ in 0..8 {
        run.round(&idle);
    }
    assert!(run.decisions.iter().all(|d| matches!(d.why, Why::Rare(_))));
    assert_eq!((run.on, run.auto.next()), (Duration::ZERO, RESTS.1));
    run.round(&FRIENDLY);
    assert_eq!((run.auto.is_on(), run.auto.next()), (true, RESTS.0));
}

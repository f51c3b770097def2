//! The controller on modelled hosts.

use super::*;
use crate::halt_poll::testing::{Host, Noise, PING_PONG, US};

/// Runs the controller for some rounds: the decisions, the limits in force outside of comparisons, and the rests.
struct Run {
    auto: Auto,
    now: Duration,
    noise: Noise,
    decisions: Vec<Decision>,
    rests: Vec<Duration>,
    limit_ns: u32,
}

impl Run {
    fn new(found_ns: u32, objective: Objective) -> Self {
        Self {
            auto: Auto::new(Config { found_ns, objective }),
            now: Duration::ZERO,
            noise: Noise(0x2545_F491_4F6C_DD1D),
            decisions: Vec::new(),
            rests: Vec::new(),
            limit_ns: found_ns,
        }
    }

    fn round(&mut self, host: &Host) -> &mut Self {
        let mut step = self.auto.start();
        for _ in 0..5000 {
            self.limit_ns = step.limit_ns;
            let time = match step.next {
                Next::Sample(time) => time,
                Next::Rest(time) => {
                    self.now += time;
                    self.rests.push(time);
                    return self;
                }
            };
            self.now += time;
            step = self.auto.step(self.now, &host.run(step.limit_ns, time, &mut self.noise));
            self.decisions.extend(step.decision.clone());
        }
        panic!("a round ends");
    }

    fn outcomes(&self) -> Vec<(u32, u32, Outcome)> {
        let outcome = |decision: &Decision| match &decision.why {
            Why::Compared { outcome, less, more } => Some((less.limit_ns, more.limit_ns, *outcome)),
            _ => None,
        };
        self.decisions.iter().filter_map(outcome).collect()
    }
}

fn run(host: &Host, found_ns: u32) -> Run {
    let mut run = Run::new(found_ns, Objective::Balanced);
    run.round(host);
    run
}

#[test]
fn polling_that_shortens_wake_ups_stays_and_no_longer_than_it_needs_to() {
    let run = run(&PING_PONG, 200_000);
    assert_eq!(run.limit_ns, 50_000, "{:?}", run.decisions);
    let outcomes = run.outcomes();
    assert_eq!(outcomes[0], (0, 200_000, Outcome::Pays), "{:?}", run.decisions);
    assert_eq!(outcomes[1], (50_000, 200_000, Outcome::DoesNotPay));
    assert!(run.now < Duration::from_secs(40), "{:?}", run.now);
    let first = run.decisions[0].to_string();
    assert!(first.contains("stays 200000: polling for up to 200 us pays against no polling"), "{first}");
}

#[test]
fn it_is_turned_on_where_it_was_off_and_pays() {
    let run = run(&Host { closed_loop: true, ..PING_PONG }, 0);
    assert_eq!(run.limit_ns, 50_000, "{:?}", run.decisions);
    assert_eq!(run.outcomes()[0], (0, 50_000, Outcome::Pays));
}

#[test]
fn the_longer_limit_is_found_where_the_shorter_one_polls_in_vain() {
    let run = run(&Host { halted: 120 * US, ..PING_PONG }, 0);
    assert_eq!(run.limit_ns, 200_000, "{:?}", run.decisions);
    assert_eq!(run.outcomes()[0], (0, 50_000, Outcome::DoesNotPay));
}

#[test]
fn polling_in_vain_is_turned_off() {
    let run = run(&Host { halted: 900 * US, wake_ups: 1000.0, ..PING_PONG }, 200_000);
    assert_eq!(run.limit_ns, 0, "{:?}", run.decisions);
    assert_eq!(run.outcomes()[0], (0, 200_000, Outcome::DoesNotPay));
}

#[test]
fn what_polling_is_worth_is_a_matter_of_the_objective() {
    // 0.14 pCPUs of polling save 2 us of 2000 wake-ups a second.
    let host = Host { halted: 70 * US, latency: (10 * US, 12 * US), ..PING_PONG };
    let limits = [Objective::Latency, Objective::Efficiency].map(|objective| {
        let mut run = Run::new(0, objective);
        run.round(&host);
        run.limit_ns
    });
    assert_eq!(limits, [200_000, 0]);
}

#[test]
fn where_all_guests_poll_themselves_the_host_does_not() {
    let mut run = run(&Host { guest_polls: 4, ..PING_PONG }, 200_000);
    assert_eq!((run.limit_ns, run.decisions.len()), (0, 1));
    assert_eq!(run.decisions[0].why, Why::GuestsPoll { vcpus: 4 });
    // One that stops: what was found counts again, and is compared.
    run.round(&Host { guest_polls: 3, ..PING_PONG });
    assert_eq!((run.limit_ns, run.outcomes()[0]), (50_000, (0, 200_000, Outcome::Pays)));
}

#[test]
fn while_vcpus_wait_for_pcpus_nobody_polls_and_the_threshold_has_hysteresis() {
    let contended = |share: f64| Host { preemption: (share, 0.0), ..PING_PONG };
    let mut run = run(&contended(0.2), 200_000);
    assert_eq!(run.limit_ns, 0);
    assert!(matches!(run.decisions[0].why, Why::Contended { preempted } if preempted > 0.15));
    // 0.06 of 0.86.
    run.round(&contended(0.06));
    assert!(matches!(run.decisions[1].why, Why::Contended { .. }) && run.limit_ns == 0);
    run.round(&contended(0.01));
    assert_eq!(run.limit_ns, 50_000, "{:?}", run.decisions);
}

#[test]
fn polling_that_makes_vcpus_wait_for_pcpus_is_turned_off() {
    // Polling takes 0.06 pCPUs, for which vCPUs of the same VM wait three times as long.
    let run = run(&Host { preemption: (0.001, 3.0), load: 3.0, ..PING_PONG }, 200_000);
    assert_eq!(run.limit_ns, 0, "{:?}", run.decisions);
    assert_eq!(run.outcomes()[0], (0, 200_000, Outcome::Harms { pid: 1 }));
}

#[test]
fn one_vm_does_not_pay_for_the_gain_of_another() {
    // Waiting of 0.06 vCPUs is saved; another VM waits 0.05 longer.
    let host = Host { beside: (0.001, 0.8), ..PING_PONG };
    let run = run(&host, 200_000);
    assert_eq!(run.limit_ns, 0, "{:?}", run.decisions);
    assert_eq!(run.outcomes()[0], (0, 200_000, Outcome::Harms { pid: 2 }));
}

#[test]
fn vms_that_hardly_halt_are_left_alone_with_ever_longer_rests() {
    let mut run = Run::new(200_000, Objective::Balanced);
    let idle = Host { wake_ups: 20.0, ..PING_PONG };
    for _ in 0..8 {
        run.round(&idle);
    }
    assert_eq!(run.limit_ns, 200_000);
    assert!(run.decisions.iter().all(|decision| matches!(decision.why, Why::Idle { .. })));
    assert!(run.rests.is_sorted() && run.rests[0] < Duration::from_secs(30), "{:?}", run.rests);
    assert_eq!(*run.rests.last().unwrap(), RESTS.1);
    // Another behaviour is noticed then, and watched more often.
    run.round(&PING_PONG);
    assert_eq!((run.limit_ns, *run.rests.last().unwrap()), (50_000, RESTS.0));
}

#[test]
fn without_a_vm_nothing_is_decided() {
    let run = run(&Host { wake_ups: 0.0, ..PING_PONG }, 200_000);
    assert_eq!((run.limit_ns, run.decisions[0].why.clone()), (200_000, Why::Idle { halts: 0.0 }));
}

#[test]
fn where_kvm_does_not_follow_that_is_said_and_nothing_changes() {
    let run = run(&Host { follows: false, ..PING_PONG }, 200_000);
    assert_eq!(run.outcomes(), [(0, 200_000, Outcome::NotFollowed { vcpus: 4 })]);
    assert_eq!(run.limit_ns, 200_000);
}

#[test]
fn what_paid_is_compared_again_and_ends_when_it_no_longer_does() {
    let mut run = run(&PING_PONG, 200_000);
    run.round(&PING_PONG);
    assert_eq!(run.limit_ns, 50_000, "{:?}", run.decisions);
    run.round(&Host { halted: 900 * US, wake_ups: 1000.0, ..PING_PONG });
    assert_eq!(run.limit_ns, 0, "{:?}", run.decisions);
}

#[test]
fn an_administrators_limit_is_a_candidate_of_its_own() {
    let run = run(&Host { halted: 400 * US, latency: (8 * US, 90 * US), ..PING_PONG }, 500_000);
    assert_eq!(run.limit_ns, 500_000, "{:?}", run.decisions);
}

#[test]
fn chance_decides_nothing() {
    let in_vain = Host { halted: 900 * US, wake_ups: 1000.0, ..PING_PONG };
    for (host, expected) in [(PING_PONG, 50_000), (in_vain, 0)] {
        let mut wrong = Vec::new();
        for seed in 1..=40 {
            let mut run = Run::new(200_000, Objective::Balanced);
            run.noise = Noise(0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(seed));
            run.round(&host).round(&host);
            if run.limit_ns != expected {
                wrong.push((seed, run.limit_ns, run.outcomes()));
            }
        }
        assert!(wrong.is_empty(), "{expected}: {} {wrong:?}", wrong.len());
    }
}

#[test]
fn blocks_are_long_where_samples_are_costly_or_wake_ups_rare() {
    let block = |cost: Duration, wake_ups: f64| {
        let mut auto = Auto::new(Config { found_ns: 200_000, objective: Objective::Balanced });
        let host = Host { wake_ups, ..PING_PONG };
        let (mut noise, mut step) = (Noise(7), auto.start());
        let mut longest = Duration::ZERO;
        while let Next::Sample(time) = step.next {
            longest = longest.max(time);
            step = auto.step(Duration::ZERO, &Sample { cost, ..host.run(step.limit_ns, time, &mut noise) });
        }
        longest
    };
    assert_eq!(block(100 * US, 5000.0), BLOCK);
    assert_eq!(block(10_000 * US, 5000.0), Duration::from_millis(300));
    assert_eq!(block(40_000 * US, 5000.0), LONGEST_BLOCK);
    let rare = block(100 * US, 150.0);
    assert!(rare > Duration::from_millis(250) && rare < LONGEST_BLOCK, "{rare:?}");
}

#[test]
fn one_time_slice_of_another_task_is_no_harm() {
    let mut auto = Auto::new(Config { found_ns: 200_000, objective: Objective::Balanced });
    let (mut noise, mut step, mut decisions) = (Noise(3), auto.start(), Vec::new());
    let mut slices = 1;
    while let Next::Sample(time) = step.next {
        let mut sample = PING_PONG.run(step.limit_ns, time, &mut noise);
        // In the first block with polling.
        if step.limit_ns == 200_000 && matches!(auto.phase, Phase::Compare(_)) && slices > 0 && time >= BLOCK
        {
            slices -= 1;
            sample.vms.entry(2).or_default().preempted += Duration::from_millis(4);
        }
        step = auto.step(Duration::ZERO, &sample);
        decisions.extend(step.decision.clone());
    }
    assert_eq!((step.limit_ns, slices), (50_000, 0), "{decisions:?}");
}

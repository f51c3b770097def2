//! Single comparisons of two poll limits, for a driver that chooses the candidates itself and needs no workload: on a KVM
//! host, where the host polls for the vCPUs of all VMs.
//!
//! A comparison is a [`Trial`] of the guard: the same interleaved blocks, the same confidence sequence, the same margins,
//! price of polling and limits for what a trial may cost.

use std::time::Duration;

use crate::guard::{Purpose, Trial, Verdict};
use crate::noise::Noise;
use crate::objective::Objective;
use crate::{CpuSet, Method, Observation, Retention, Setting};

/// What experiments on one machine have in common: the price of polling, and what equal settings differ in by chance.
#[derive(Debug, Clone)]
pub struct Laboratory {
    noise: Noise,
    poll_price: f64,
    cpus: CpuSet,
}

impl Laboratory {
    /// For a machine whose observations have these CPUs.
    pub fn new(cpus: CpuSet, objective: Objective) -> Self {
        Self { noise: Noise::new(), poll_price: objective.poll_price(), cpus }
    }

    /// Learns the noise from an observation, in which `limit` was in force, outside of experiments.
    pub fn learn(&mut self, limit: Duration, o: &Observation) {
        self.noise.observe(&self.setting(limit), o);
    }

    /// Asks whether polling for up to `more` is better than for up to `less` only. `seen` is the latest observation;
    /// blocks are at least `block` long. For [`Purpose::Reprove`], `more` is in force already, and half the margin keeps
    /// it.
    pub fn start(
        &self,
        less: Duration,
        more: Duration,
        purpose: Purpose,
        seen: &Observation,
        block: Duration,
    ) -> Experiment {
        let trial = Trial::new(self.setting(less), self.setting(more), purpose, seen)
            .with_block(block)
            .with_costs(Duration::ZERO, self.poll_price);
        Experiment { trial }
    }

    fn setting(&self, limit: Duration) -> Setting {
        let method = if limit.is_zero() { Method::Halt } else { Method::Haltpoll };
        Setting { active: self.cpus.clone(), retention: Retention { method, limit } }
    }
}

/// A comparison that goes on.
#[derive(Debug, Clone)]
pub struct Experiment {
    trial: Trial,
}

impl Experiment {
    /// The limit for the present block.
    pub fn limit(&self) -> Duration {
        self.trial.setting().retention.limit
    }

    /// Whether the present interval is not measured, since the limit has just changed.
    pub fn is_settling(&self) -> bool {
        self.trial.interval() == crate::guard::Interval::Settling
    }

    /// Time until the next observation.
    pub fn next(&self) -> Duration {
        self.trial.next()
    }

    /// Takes the observation that [`Experiment::next`] scheduled. A verdict on the longer limit ends the experiment; a
    /// proof does not while something else that speaks against it is `open`, for two seconds at most.
    pub fn observe(&mut self, laboratory: &Laboratory, o: &Observation, open: bool) -> Option<Verdict> {
        self.trial.observe(o, &laboratory.noise, open)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CpuId, VcpuInterval, Waiting, WaitingSource, WorkloadInterval};

    const US: Duration = Duration::from_micros(1);
    const LESS: Duration = Duration::ZERO;
    const MORE: Duration = Duration::from_micros(200);

    /// 2000 wake-ups a second, each of which waits so long, and polling for this share of one CPU.
    fn observed(period: Duration, wait: Duration, polling: f64) -> Observation {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small number")]
        let wake_ups = (2000.0 * period.as_secs_f64()) as u32;
        let waiting = Waiting {
            wake_ups: wake_ups.into(),
            total: wait * wake_ups,
            tail: 2 * wait,
            source: WaitingSource::Traced,
        };
        let vcpu = VcpuInterval {
            cpu: CpuId(0),
            halts: wake_ups.into(),
            halt_time: Duration::ZERO,
            polls: 0,
            poll_time: period.mul_f64(polling),
            steal: Duration::ZERO,
        };
        Observation {
            at: Duration::ZERO,
            period,
            vcpus: vec![vcpu],
            workload: WorkloadInterval {
                cpu_time: period / 4,
                switches: wake_ups.into(),
                counter: Some(period.as_secs_f64() * 1000.0),
                waiting: Some(waiting),
                ..WorkloadInterval::default()
            },
            runnable: 0,
            overload: None,
            throttled: 0.0,
            settled: true,
            cost: US * 50,
        }
    }

    fn verdict(wait_with: Duration, polling: f64) -> Verdict {
        run(wait_with, polling, |_| false).0
    }

    /// The verdict, and after which time it came.
    fn run(wait_with: Duration, polling: f64, open: impl Fn(Duration) -> bool) -> (Verdict, Duration) {
        let mut laboratory = Laboratory::new(CpuSet::first(1), Objective::Balanced);
        let block = 50_000 * US;
        let of = |limit: Duration, period| {
            if limit.is_zero() {
                observed(period, 40 * US, 0.0)
            } else {
                observed(period, wait_with, polling)
            }
        };
        for _ in 0..16 {
            laboratory.learn(LESS, &of(LESS, block));
        }
        let mut experiment = laboratory.start(LESS, MORE, Purpose::Adopt, &of(LESS, block), block);
        assert_eq!(experiment.limit(), LESS, "the shorter one first");
        let mut taken = Duration::ZERO;
        for _ in 0..500 {
            let o = of(experiment.limit(), experiment.next());
            taken += o.period;
            if let Some(verdict) = experiment.observe(&laboratory, &o, open(taken)) {
                return (verdict, taken);
            }
        }
        panic!("an experiment ends");
    }

    #[test]
    fn shorter_waiting_proves_polling_that_is_worth_its_price() {
        assert!(matches!(verdict(5 * US, 0.5), Verdict::Proven(e) if e.ratio > 5.0));
        // 2000 times 5 us saved in a second are 1 % of it, which 160 % of polling are not worth.
        assert!(!matches!(verdict(35 * US, 1.6), Verdict::Proven(_)));
    }

    #[test]
    fn a_proof_waits_for_what_is_open_but_not_for_ever() {
        let second = Duration::from_secs(1);
        let took = |open: fn(Duration) -> bool| run(5 * US, 0.5, open).1;
        assert!(took(|_| false) < second);
        assert!((second..second * 3 / 2).contains(&took(|taken| taken < Duration::from_secs(1))));
        assert!((2 * second..3 * second).contains(&took(|_| true)));
    }

    #[test]
    fn polling_that_saves_nothing_is_refuted() {
        assert!(matches!(verdict(40 * US, 0.1), Verdict::Refuted(_)));
    }
}

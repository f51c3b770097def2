//! The loop between [`Auto`], the VMs and KVM's parameter.

use std::time::Duration;

use super::{Auto, Change, Decision, HoldError, Holding, Next, Sample, Step};

/// How often it is checked whether somebody else has changed what is held.
pub const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// What the VMs do, and who is interested in what is decided.
pub trait Vms {
    /// Why they cannot be followed, or not any longer.
    type Error: From<HoldError>;

    /// Time since the start.
    fn now(&self) -> Duration;

    /// Follows them until [`Vms::leave`].
    ///
    /// # Errors
    /// They cannot be followed.
    fn follow(&mut self) -> Result<(), Self::Error>;

    /// Follows them no longer.
    fn leave(&mut self);

    /// Lets time pass. False if this is the end.
    ///
    /// # Errors
    /// Waiting failed.
    fn wait(&mut self, time: Duration) -> Result<bool, Self::Error>;

    /// What they did since the latest sample, or since they are followed, where KVM polls for up to `limit_ns`.
    ///
    /// # Errors
    /// The counters cannot be read.
    fn sample(&mut self, limit_ns: u32) -> Result<Sample, Self::Error>;

    /// Reports a decision, which is in force.
    ///
    /// # Errors
    /// Nobody can hear of it any more.
    fn report(&mut self, decision: &Decision) -> Result<(), Self::Error>;
}

/// Carries out what `auto` decides until the end. Between rounds the VMs are not followed.
///
/// # Errors
/// Those of `vms`, and those of `holding`: somebody else has changed the parameter, for one. What was changed is still held
/// then.
pub fn drive<V: Vms>(mut auto: Auto, holding: &mut Holding, vms: &mut V) -> Result<(), V::Error> {
    loop {
        let mut step = auto.start();
        carry_out(&step, holding, vms)?;
        vms.follow()?;
        let rest = loop {
            let time = match step.next {
                Next::Rest(time) => break time,
                Next::Sample(time) => time,
            };
            if !vms.wait(time)? {
                return Ok(());
            }
            let sample = vms.sample(step.limit_ns)?;
            step = auto.step(vms.now(), &sample);
            carry_out(&step, holding, vms)?;
        };
        vms.leave();
        let until = vms.now() + rest;
        while vms.now() < until {
            if !vms.wait(CHECK_INTERVAL.min(until.saturating_sub(vms.now())))? {
                return Ok(());
            }
            holding.check()?;
        }
    }
}

fn carry_out<V: Vms>(step: &Step, holding: &mut Holding, vms: &mut V) -> Result<(), V::Error> {
    holding.set(&Change::limit(step.limit_ns))?;
    step.decision.as_ref().map_or(Ok(()), |decision| vms.report(decision))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use gleaner_engine::{StateDir, UndoResult};
    use gleaner_kernel::Root;
    use gleaner_policy::Objective;
    use tempfile::TempDir;

    use super::*;
    use crate::halt_poll::testing::{Host, Noise, PING_PONG, kvm};
    use crate::halt_poll::{Config, Parameters};

    const LIMIT: &str = "/sys/module/kvm/parameters/halt_poll_ns";

    /// A modelled host whose KVM reads its parameter from the tree.
    struct Model {
        root: Root,
        host: Host,
        noise: Noise,
        now: Duration,
        waited: Duration,
        end: Duration,
        followed: bool,
        /// Every limit that was in force.
        limits: Vec<u32>,
        decisions: Vec<String>,
        /// An administrator writes this after that time.
        intrusion: Option<(Duration, &'static str)>,
    }

    impl Vms for Model {
        type Error = HoldError;

        fn now(&self) -> Duration {
            self.now
        }

        fn follow(&mut self) -> Result<(), HoldError> {
            assert!(!std::mem::replace(&mut self.followed, true));
            Ok(())
        }

        fn leave(&mut self) {
            assert!(std::mem::take(&mut self.followed));
        }

        fn wait(&mut self, time: Duration) -> Result<bool, HoldError> {
            (self.waited, self.now) = (time, self.now + time);
            if let Some((_, value)) = self.intrusion.take_if(|intrusion| intrusion.0 <= self.now) {
                fs::write(self.root.path(LIMIT), value).unwrap();
            }
            Ok(self.now < self.end)
        }

        fn sample(&mut self, limit_ns: u32) -> Result<Sample, HoldError> {
            assert!(self.followed);
            let in_force = Parameters::read(&self.root).unwrap().halt_poll_ns;
            assert!(in_force == limit_ns || in_force == 123_456);
            self.limits.push(in_force);
            Ok(self.host.run(in_force, self.waited, &mut self.noise))
        }

        fn report(&mut self, decision: &Decision) -> Result<(), HoldError> {
            self.decisions.push(decision.to_string());
            Ok(())
        }
    }

    /// The model after `seconds`, how it ended, and the holding.
    fn run(
        seconds: u64,
        intrusion: Option<(Duration, &'static str)>,
    ) -> (TempDir, Model, Result<(), HoldError>, Holding) {
        let (dir, root) = kvm();
        let state = StateDir::at(dir.path().join("state")).unwrap();
        let (mut holding, _) = Holding::open(&state, root.clone()).unwrap();
        let mut model = Model {
            root,
            host: PING_PONG,
            noise: Noise(0x2545_F491_4F6C_DD1D),
            now: Duration::ZERO,
            waited: Duration::ZERO,
            end: Duration::from_secs(seconds),
            followed: false,
            limits: Vec::new(),
            decisions: Vec::new(),
            intrusion,
        };
        let auto = Auto::new(Config { found_ns: 200_000, objective: Objective::Balanced });
        let result = drive(auto, &mut holding, &mut model);
        (dir, model, result, holding)
    }

    fn limit(model: &Model) -> u32 {
        Parameters::read(&model.root).unwrap().halt_poll_ns
    }

    #[test]
    fn what_is_decided_is_in_force_and_put_back_at_the_end() {
        let (_dir, model, result, holding) = run(12, None);
        result.unwrap();
        assert_eq!(limit(&model), 50_000, "{:?}", model.decisions);
        assert!([0, 50_000, 200_000].iter().all(|limit| model.limits.contains(limit)), "all were tried");
        assert_eq!(model.decisions.len(), 2, "{:?}", model.decisions);
        assert_eq!(holding.close()[0].undone, UndoResult::Restored);
        assert_eq!(limit(&model), 200_000);
    }

    #[test]
    fn rounds_are_repeated_and_nothing_is_followed_between_them() {
        let (_dir, model, result, _holding) = run(60, None);
        result.unwrap();
        assert!(model.decisions.len() >= 4, "{:?}", model.decisions);
        assert!(model.limits.len() < 600, "{}", model.limits.len());
    }

    #[test]
    fn an_administrators_value_ends_it_during_a_round_and_between_rounds() {
        // While nothing was changed yet, in a comparison, and in a rest.
        for after in [100, 1400, 8000].map(Duration::from_millis) {
            let (_dir, model, result, holding) = run(60, Some((after, "123456\n")));
            assert!(result.unwrap_err().is_theirs());
            assert!(model.now < after + Duration::from_secs(2), "{:?}", model.now);
            assert!(holding.close().iter().all(|outcome| outcome.undone == UndoResult::Theirs));
            assert_eq!(limit(&model), 123_456);
        }
    }
}

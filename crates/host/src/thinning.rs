//! How much of the time vCPUs are followed where following all of it would cost more than the budget.
//!
//! Following goes on in windows, with pauses in between that are as long as the budget wants. What a window costs is measured
//! in two ways, of which the larger counts: the kernel's account of the programs, and how many fewer exits there are while they
//! follow than while they return at once. The account leaves out what the programs delay: a vCPU spins until another one has
//! answered, and a turn that is passed on too late for KVM's polling costs a halt. Detaching and attaching the programs costs
//! something, too: it patches the kernel's code on all pCPUs.

use std::time::Duration;

/// Length of a window: many times that of a wake-up and of a tick, by which it is seen who runs.
pub(crate) const WINDOW: Duration = Duration::from_millis(100);
/// Windows, each with a pause of the same length, by which it is seen at first how many exits following costs.
pub(crate) const FIRST_WINDOWS: u32 = 30;
/// Length of these.
pub(crate) const FIRST_WINDOW: Duration = Duration::from_millis(50);
/// What is aimed at, as a share of the budget: what windows cost is an estimate, and measuring it is following, too.
const AIM: f64 = 0.5;
/// The least part of the time that is followed: with less there would be too few windows to say anything.
const LEAST: f64 = 0.01;
/// Standard errors beyond which fewer exits in windows are no chance.
const SURE: f64 = 2.0;

/// Windows and pauses.
#[derive(Debug, Clone)]
pub(crate) struct Thinning {
    budget: f64,
    account: f64,
    /// What detaching and attaching takes from the vCPUs, in seconds of all those that run.
    switching: f64,
    /// Windows that were compared with pauses, and sums of the exits per second in pauses, of what is missing to these in
    /// windows, and of its square.
    windows: f64,
    paused: f64,
    missing: f64,
    squares: f64,
    /// Whether all of the time would cost too much.
    needed: bool,
}

impl Thinning {
    /// For programs that take `account` of the vCPUs' time while they follow, by the kernel's account.
    pub(crate) fn new(budget: f64, account: f64) -> Self {
        let needed = account > budget;
        Self {
            budget,
            account,
            switching: 0.0,
            windows: 0.0,
            paused: 0.0,
            missing: 0.0,
            squares: 0.0,
            needed,
        }
    }

    /// Takes in the exits per second in one of the first windows, and in the pause after it.
    pub(crate) fn seen(&mut self, followed: f64, paused: f64) {
        let missing = paused - followed;
        self.windows += 1.0;
        self.paused += paused;
        self.missing += missing;
        self.squares += missing * missing;
    }

    /// Decides after the first windows whether there have to be pauses.
    pub(crate) fn decide(&mut self) {
        let (lost, error) = self.lost();
        self.needed = self.account > self.budget || lost - SURE * error > self.budget;
    }

    /// Takes in how long the programs took to be detached and attached, while vCPUs used as many pCPUs. Meanwhile one pCPU is
    /// lost to them at most.
    pub(crate) fn switched(&mut self, time: Duration, used: f64) {
        self.switching = time.as_secs_f64() / used.max(1.0);
    }

    /// Whether there have to be pauses.
    pub(crate) fn is_needed(&self) -> bool {
        self.needed
    }

    /// Exits that are missing in windows, as a share of those in pauses, and its standard error.
    fn lost(&self) -> (f64, f64) {
        if self.windows < 2.0 || self.paused <= 0.0 {
            return (0.0, 0.0);
        }
        let mean = self.missing / self.windows;
        let variance = (self.squares / self.windows - mean * mean).max(0.0);
        let paused = self.paused / self.windows;
        (mean / paused, (variance / self.windows).sqrt() / paused)
    }

    /// What following costs while it lasts, as a share of the vCPUs' work. Where there need not be pauses, what exits seem to
    /// be missing is chance.
    pub(crate) fn cost(&self) -> f64 {
        if self.needed { self.account.max(self.lost().0) } else { self.account }
    }

    /// How long to pause after each window.
    pub(crate) fn pause(&self) -> Duration {
        let window = WINDOW.as_secs_f64();
        let period = (window * self.cost() + self.switching) / (AIM * self.budget);
        Duration::from_secs_f64(period.clamp(window, window / LEAST) - window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After the first windows, in which exits vary by a fifth by themselves.
    fn after_first(account: f64, followed: f64) -> Thinning {
        let mut thinning = Thinning::new(0.03, account);
        for number in 0..FIRST_WINDOWS {
            let chance = [0.8, 1.0, 1.2][number as usize % 3];
            thinning.seen(followed * chance, 10_000.0);
        }
        thinning.decide();
        thinning
    }

    #[test]
    fn within_the_budget_nothing_is_left_out() {
        assert!(!after_first(0.03, 10_000.0).is_needed());
        assert!(after_first(0.031, 10_000.0).is_needed());
        // A few exits less are chance.
        let little = after_first(0.02, 9700.0);
        assert!(!little.is_needed() && (little.cost() - 0.02).abs() < 1e-9);
        assert!(after_first(0.02, 8000.0).is_needed());
    }

    #[test]
    fn windows_and_pauses_cost_half_the_budget() {
        let thinning = after_first(0.06, 10_000.0);
        assert!(thinning.pause().abs_diff(3 * WINDOW) < WINDOW / 100, "{:?}", thinning.pause());
        // Exits show that it costs more than the account says.
        let delayed = after_first(0.06, 7000.0);
        assert!((delayed.cost() - 0.3).abs() < 1e-9, "{}", delayed.cost());
        assert!(delayed.pause().abs_diff(19 * WINDOW) < WINDOW / 100, "{:?}", delayed.pause());
    }

    #[test]
    fn to_detach_and_attach_is_part_of_it() {
        let mut thinning = after_first(0.06, 10_000.0);
        // 1.5 ms of both pCPUs, as a quarter of a window costs.
        thinning.switched(WINDOW * 3 / 100, 2.0);
        assert!(thinning.pause().abs_diff(4 * WINDOW) < WINDOW / 100, "{:?}", thinning.pause());
        // Where hardly any vCPU runs, it takes nobody's time.
        thinning.switched(WINDOW * 3 / 100, 0.1);
        assert!(thinning.pause().abs_diff(5 * WINDOW) < WINDOW / 100, "{:?}", thinning.pause());
    }

    #[test]
    fn pauses_end_whatever_was_seen() {
        for (followed, paused) in [(0.0, 0.0), (0.0, 1e9), (1e9, 0.0)] {
            for (budget, account) in [(0.001, 1e9), (1.0, f64::INFINITY), (0.001, 0.0)] {
                let mut thinning = Thinning::new(budget, account);
                for _ in 0..FIRST_WINDOWS {
                    thinning.seen(followed, paused);
                }
                thinning.decide();
                thinning.switched(Duration::from_secs(1), 1e-9);
                assert!(thinning.pause() <= 100 * WINDOW, "{thinning:?}");
            }
        }
    }
}

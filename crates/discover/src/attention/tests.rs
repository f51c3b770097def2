use gleaner_kernel::idle::IdleSource;
use proptest::prelude::*;

use super::*;

const MS: Duration = Duration::from_millis(1);
const WAKE_COST: Duration = Duration::from_micros(30);
const VCPUS: u32 = 2;
/// Together with a watchdog's two a minute less than 2.
const PER_S_WITHOUT_ALARM: f64 = 1.0 / 0.6;

/// A machine whose context switches per second and vCPU change from time to time, each with so many idle periods.
struct Machine {
    attention: Attention,
    has_alarm: bool,
    now: Duration,
    next: Next,
    read_at: Duration,
    switches: f64,
    idle_per_switch: f64,
    /// Switches of one vCPU until the alarm fires.
    armed: Option<f64>,
    readings: u32,
    surveys: Vec<Duration>,
    survey_wait: Duration,
    is_undecided: bool,
}

impl Machine {
    fn new(has_alarm: bool) -> Self {
        let next = Next { read_at: Duration::ZERO, survey: false, arm: None };
        Self {
            attention: Attention::new(WAKE_COST, has_alarm),
            has_alarm,
            now: Duration::ZERO,
            next,
            read_at: Duration::ZERO,
            switches: 0.0,
            idle_per_switch: 0.5,
            armed: None,
            readings: 0,
            surveys: Vec::new(),
            survey_wait: Duration::from_millis(100),
            is_undecided: false,
        }
    }

    /// The machine runs like this until `end`.
    fn run(&mut self, per_vcpu: f64, end: Duration) {
        while self.now < end {
            let mut step = self.next.read_at.saturating_sub(self.now).min(end.saturating_sub(self.now));
            let mut fires = false;
            if let Some(left) = self.armed.filter(|_| per_vcpu > 0.0) {
                let until = Duration::from_secs_f64(left / per_vcpu);
                (step, fires) = (step.min(until), until <= step);
            }
            self.now += step;
            let switched = per_vcpu * step.as_secs_f64();
            self.switches += switched * f64::from(VCPUS);
            self.armed = self.armed.map(|left| (left - switched).max(0.0));
            if fires {
                self.armed = None;
                self.next = self.attention.alarm(self.now);
                assert!(self.next.arm.is_none() && !self.next.survey);
            }
            if self.now >= self.next.read_at {
                self.read();
            }
        }
    }

    fn read(&mut self) {
        let interval = self.now.saturating_sub(self.read_at).max(Duration::from_micros(1));
        let switches_per_s = self.switches / interval.as_secs_f64();
        let reading = Reading {
            interval,
            idle_periods_per_s: switches_per_s * self.idle_per_switch,
            source: IdleSource::Cpuidle,
            switches_per_s,
            switches: 0,
            idle_share: 0.5,
            vcpus: VCPUS,
        };
        (self.switches, self.read_at) = (0.0, self.now);
        self.readings += 1;
        self.next = self.attention.read(self.now, &reading);
        if self.next.survey {
            self.surveys.push(self.now);
            self.attention.surveyed(self.now + self.survey_wait, self.is_undecided);
        }
        if let Some(switches) = self.next.arm {
            assert!(self.has_alarm);
            self.armed = Some(switches as f64);
        }
    }

    /// Runs for so many seconds; readings per second.
    fn readings_per_s(&mut self, per_vcpu: f64, seconds: u32) -> f64 {
        let before = self.readings;
        self.run(per_vcpu, self.now + Duration::from_secs(seconds.into()));
        f64::from(self.readings - before) / f64::from(seconds)
    }

    /// Surveys since `start`.
    fn surveys_since(&self, start: Duration) -> Vec<Duration> {
        self.surveys.iter().filter(|at| **at > start).map(|at| at.saturating_sub(start)).collect()
    }
}

#[test]
fn an_idle_machine_is_left_asleep() {
    let mut machine = Machine::new(true);
    machine.run(20.0, 6000 * MS);
    for per_vcpu in [0.0, 20.0, 100.0, 400.0] {
        let readings_per_s = machine.readings_per_s(per_vcpu, 600);
        assert!(readings_per_s < 0.5, "{readings_per_s} at {per_vcpu} switches a second");
    }
    let mut machine = Machine::new(false);
    machine.run(20.0, 6000 * MS);
    assert!((machine.readings_per_s(20.0, 600) - PER_S_WITHOUT_ALARM).abs() < 0.01);
}

#[test]
fn a_machine_that_switches_often_is_read_instead_of_counted() {
    let mut machine = Machine::new(true);
    machine.idle_per_switch = 0.0;
    machine.run(50_000.0, 6000 * MS);
    assert!((machine.readings_per_s(50_000.0, 60) - 5.0).abs() < 0.1);
    assert_eq!(machine.armed, None);
    // A second load that does wait is noticed at the next reading.
    machine.idle_per_switch = 0.5;
    let start = machine.now;
    machine.run(60_000.0, start + 1000 * MS);
    assert!(machine.surveys_since(start)[0] <= 200 * MS);
    machine.run(20.0, machine.now + 6000 * MS);
    assert_eq!(machine.next.read_at.checked_sub(machine.read_at), Some(WITH_ALARM), "asleep");
    assert!(machine.armed.is_some());
}

#[test]
fn while_a_decision_is_pending_surveys_follow_each_other_as_fast_as_they_may() {
    let mut machine = Machine::new(true);
    machine.run(20_000.0, 60_000 * MS);
    let from = machine.now;
    machine.is_undecided = true;
    machine.run(20_000.0, from + 4000 * MS);
    let surveys = machine.surveys_since(from);
    assert!((20..=40).contains(&surveys.len()), "{surveys:?}");
    machine.is_undecided = false;
    let from = machine.now;
    machine.run(20_000.0, from + 4000 * MS);
    let surveys = machine.surveys_since(from);
    assert!(surveys.len() <= 3, "{surveys:?}");
}

#[test]
fn a_load_that_begins_is_surveyed_twice_within_200_ms() {
    for (per_vcpu, within_ms) in [(1000.0, 360), (5000.0, 155), (20_000.0, 125), (100_000.0, 120)] {
        let mut machine = Machine::new(true);
        machine.run(20.0, 60_007 * MS);
        let start = machine.now;
        machine.run(per_vcpu, start + 3000 * MS);
        let surveys = machine.surveys_since(start);
        // The first one is the baseline of the second.
        assert!(surveys[1] < within_ms * MS, "{per_vcpu}: {surveys:?}");
        assert!(surveys.len() >= 4 && surveys[3] < Duration::from_secs(1), "{surveys:?}");
        // The baseline, one for each 0.1 s of the second after the change, and one later.
        assert!(surveys.len() <= 13, "and then there is no hurry: {surveys:?}");
    }
}

#[test]
fn without_an_alarm_it_takes_half_a_second() {
    let mut machine = Machine::new(false);
    machine.run(20.0, 60_007 * MS);
    let start = machine.now;
    machine.run(5000.0, start + 3000 * MS);
    assert!(machine.surveys_since(start)[1] <= 600 * MS);
}

#[test]
fn alarms_in_vain_become_rare_and_a_load_is_noticed_all_the_same() {
    let mut machine = Machine::new(true);
    machine.run(20.0, 60_000 * MS);
    for _ in 0..60 {
        // A job every second that wakes nobody for long.
        machine.run(5000.0, machine.now + 60 * MS);
        machine.run(20.0, machine.now + 940 * MS);
    }
    let per_s = machine.readings_per_s(300.0, 600);
    assert!(per_s < 0.5, "{per_s}");
    let start = machine.now;
    machine.run(25_000.0, start + 1000 * MS);
    assert!(machine.surveys_since(start)[1] <= 300 * MS, "{:?}", machine.surveys_since(start));
}

#[test]
fn a_second_load_is_noticed_beside_the_first() {
    let mut machine = Machine::new(true);
    machine.run(5000.0, 60_000 * MS);
    let calm = machine.surveys.len();
    machine.run(5000.0, 120_000 * MS);
    assert!(machine.surveys.len() - calm <= 31, "every two seconds");
    let start = machine.now;
    machine.run(12_000.0, start + 1000 * MS);
    let surveys = machine.surveys_since(start);
    assert!(surveys[1] <= 300 * MS, "{surveys:?}");
    // When all of it ends, the machine is left asleep.
    machine.run(20.0, machine.now + 10_000 * MS);
    assert!(machine.readings_per_s(20.0, 60) < 0.5);
}

#[test]
fn a_service_that_is_restarted_is_surveyed_as_one_that_begins() {
    let mut machine = Machine::new(true);
    machine.run(20_000.0, 20_100 * MS);
    // It ends and begins between two readings.
    let from = machine.now;
    machine.next.read_at = machine.attention.released(from);
    machine.run(20_000.0, from + 1000 * MS);
    let surveys = machine.surveys_since(from);
    assert!(surveys.len() >= 8 && surveys[0] <= 100 * MS, "{surveys:?}");
}

#[test]
fn a_broken_alarm_is_replaced_by_reading_often() {
    let mut machine = Machine::new(true);
    machine.run(20.0, 10_000 * MS);
    machine.attention.lost_alarm();
    machine.has_alarm = false;
    machine.armed = None;
    machine.run(20.0, 60_000 * MS);
    assert!((machine.readings_per_s(20.0, 60) - PER_S_WITHOUT_ALARM).abs() < 0.05);
}

proptest! {
    /// Whatever the machine does: never more than ten readings a second, no survey before its time, and after a while
    /// of next to nothing it is asleep.
    #[test]
    fn attention_is_bounded(
        loads in proptest::collection::vec((0.0..50_000.0f64, 10u64..3000), 1..100),
        survey_wait_ms in 100u64..3000,
        has_alarm in any::<bool>(),
    ) {
        let mut machine = Machine::new(has_alarm);
        machine.survey_wait = Duration::from_millis(survey_wait_ms);
        for (per_vcpu, ms) in loads {
            machine.run(per_vcpu, machine.now + Duration::from_millis(ms));
        }
        // An alarm is one more reading between two others.
        let most = 2.0 + 11.0 * machine.now.as_secs_f64();
        prop_assert!(f64::from(machine.readings) <= most, "{} in {:?}", machine.readings, machine.now);
        for pair in machine.surveys.windows(2) {
            prop_assert!(pair[1] >= pair[0] + machine.survey_wait);
        }
        machine.run(10.0, machine.now + Duration::from_secs(40));
        let most = if has_alarm { 0.2 } else { 2.01 };
        prop_assert!(machine.readings_per_s(10.0, 60) <= most);
        let is_asleep = matches!(machine.attention.mode, Mode::Asleep(_));
        prop_assert!(is_asleep);
    }
}

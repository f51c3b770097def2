//! When to take the machine's pulse, when to survey, and when to sleep until the alarm: pure, without I/O and clock.

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::Reading;

/// Wake-ups that cost the whole machine less than this cannot be worth a trial for anybody, in vCPUs.
const WORTH_A_SURVEY: f64 = 0.025;
/// How often the machine is read while nothing happens: without an alarm (with the watchdog of systemd, that is less than
/// twice a second)...
const WITHOUT_ALARM: Duration = Duration::from_millis(600);
/// ...and with one, in case that it misses something.
const WITH_ALARM: Duration = Duration::from_secs(30);
/// From an alarm to the reading that decides: what happened before the alarm is in the reading at the alarm.
const AFTER_ALARM: Duration = Duration::from_millis(100);
/// How often the machine is read while wake-ups cost it something: while a decision about somebody is pending, and after a
/// change...
const AFTER_CHANGE: Duration = Duration::from_millis(100);
/// ...for so long...
const CHANGING: Duration = Duration::from_secs(1);
/// ...and later, or while counting switches would cost more.
const STEADY: Duration = Duration::from_millis(200);
/// How often it is surveyed while nothing changes.
const STEADY_SURVEY: Duration = Duration::from_secs(2);
/// Switches or idle periods that differ by this factor are a change...
const CHANGE: f64 = 1.5;
/// ...if they differ by so many per second.
const LEAST_CHANGE: f64 = 500.0;
/// For so long wake-ups cost next to nothing before it is left asleep again.
const QUIET: Duration = Duration::from_secs(5);
/// Counting a switch takes some 0.1 us. Where a vCPU switches more often than this per second, that is more than reading the
/// machine takes.
const MOST_COUNTED: f64 = 1000.0;
/// The alarm's least number of switches on a vCPU. The cheapest load that is worth a trial takes about 0.2 s for them.
const LEAST_SWITCHES: u64 = 250;
/// The alarm does not fire more often than this by what the machine does all the time.
const BETWEEN_ALARMS: Duration = Duration::from_secs(5);
/// An alarm that fires sooner and leads to nothing doubles the number, up to this or to what `BETWEEN_ALARMS` takes:
/// loads that switch 25,000 times a second are noticed within 0.2 s all the same.
const MOST_SWITCHES: u64 = 4000;

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Next {
    /// When to take the next reading.
    pub read_at: Duration,
    /// Whether to take a survey now.
    pub survey: bool,
    /// Arm the alarm with this many context switches per vCPU now; `None` leaves it as it is.
    pub arm: Option<u64>,
}

/// How closely the machine is watched. Times are since any fixed moment.
#[derive(Debug)]
pub struct Attention {
    wake_cost: Duration,
    has_alarm: bool,
    mode: Mode,
    read_at: Duration,
    /// No survey before that: they would cost too much.
    survey_from: Duration,
    /// Whether the last survey could not decide about somebody.
    is_undecided: bool,
    /// When the last survey was due, and what the machine did then.
    surveyed: (Duration, Rates),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Mode {
    /// Nothing happens; the alarm is armed.
    Asleep(Armed),
    /// Wake-ups cost next to nothing, but threads switch so often that reading the machine is cheaper than the alarm,
    /// which is to be armed with this many switches once they do not.
    Busy { switches: u64 },
    /// The alarm fired: the next reading is at the alarm, and the one after it decides.
    Alert { armed: Armed, fired_at: Duration, is_read: bool },
    /// Wake-ups cost the machine something.
    Awake {
        /// When it woke up or what it does changed.
        changed_at: Duration,
        /// Since when wake-ups have cost next to nothing.
        quiet_since: Option<Duration>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Armed {
    at: Duration,
    switches: u64,
}

/// What the machine does, per second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Rates {
    idle_periods: f64,
    switches: f64,
}

impl Attention {
    /// Starts awake, at the time zero: what runs already is to be found. `wake_cost` is what waking a thread on a
    /// halted vCPU costs.
    pub fn new(wake_cost: Duration, has_alarm: bool) -> Self {
        Self {
            wake_cost,
            has_alarm,
            mode: Mode::Awake { changed_at: Duration::ZERO, quiet_since: None },
            read_at: Duration::ZERO,
            survey_from: Duration::ZERO,
            is_undecided: false,
            surveyed: (Duration::ZERO, Rates::default()),
        }
    }

    /// The alarm is broken: from now on without.
    pub fn lost_alarm(&mut self) {
        self.has_alarm = false;
    }

    /// The alarm fired at `now`.
    pub fn alarm(&mut self, now: Duration) -> Next {
        if let Mode::Asleep(armed) = self.mode {
            self.mode = Mode::Alert { armed, fired_at: now, is_read: false };
            self.read_at = now;
        }
        Next { read_at: self.read_at, survey: false, arm: None }
    }

    /// A survey was taken, and the next one must not be before `from` ([`Survey::wait`](crate::Survey::wait)). Where it
    /// could not decide about somebody ([`Changes`](crate::Changes)), the next one is due as soon as possible.
    pub fn surveyed(&mut self, from: Duration, is_undecided: bool) {
        (self.survey_from, self.is_undecided) = (from, is_undecided);
    }

    /// An engaged workload was released at `now`. If that is a service that is restarted, it goes on as before, and no reading
    /// shows a change. Returns when to take the next reading at the latest.
    pub fn released(&mut self, now: Duration) -> Duration {
        if let Mode::Awake { quiet_since, .. } = self.mode {
            self.mode = Mode::Awake { changed_at: now, quiet_since };
            self.read_at = self.read_at.min(now + AFTER_CHANGE);
        }
        self.read_at
    }

    /// A reading was taken at `now`.
    pub fn read(&mut self, now: Duration, reading: &Reading) -> Next {
        let rates = Rates { idle_periods: reading.idle_periods_per_s, switches: reading.switches_per_s };
        let is_worth = reading.lost(self.wake_cost) >= WORTH_A_SURVEY;
        let next = match self.mode {
            Mode::Asleep(_) | Mode::Busy { .. } | Mode::Alert { .. } if is_worth => self.wake(now, rates),
            Mode::Asleep(_) => self.sleep(now, LEAST_SWITCHES, reading),
            Mode::Busy { switches } => self.sleep(now, switches, reading),
            Mode::Alert { armed, fired_at, is_read: false } => {
                self.mode = Mode::Alert { armed, fired_at, is_read: true };
                // The baseline: what this load uses shows at the next survey.
                self.plan(now, AFTER_ALARM, true, rates)
            }
            Mode::Alert { armed, fired_at, .. } => self.sleep(now, armed.after_nothing(fired_at), reading),
            Mode::Awake { changed_at, quiet_since } => {
                self.stay_awake(now, is_worth, changed_at, quiet_since, rates, reading)
            }
        };
        self.read_at = next.read_at;
        next
    }

    fn wake(&mut self, now: Duration, rates: Rates) -> Next {
        self.mode = Mode::Awake { changed_at: now, quiet_since: None };
        self.plan(now, AFTER_CHANGE, true, rates)
    }

    fn stay_awake(
        &mut self,
        now: Duration,
        is_worth: bool,
        changed_at: Duration,
        quiet_since: Option<Duration>,
        rates: Rates,
        reading: &Reading,
    ) -> Next {
        let quiet_since = if is_worth { None } else { Some(quiet_since.unwrap_or(now)) };
        if quiet_since.is_some_and(|since| now.saturating_sub(since) >= QUIET) {
            return self.sleep(now, LEAST_SWITCHES, reading);
        }
        let (surveyed_at, before) = self.surveyed;
        let changed_at = if rates.differ_from(before) { now } else { changed_at };
        self.mode = Mode::Awake { changed_at, quiet_since };
        let is_close = self.is_undecided || now.saturating_sub(changed_at) < CHANGING;
        let is_due = is_close || now.saturating_sub(surveyed_at) >= STEADY_SURVEY;
        let pause = if is_close { AFTER_CHANGE } else { STEADY };
        self.plan(now, pause, is_due, rates)
    }

    /// Until the alarm after so many switches, or for as long as it takes without one.
    fn sleep(&mut self, now: Duration, switches: u64, reading: &Reading) -> Next {
        let of_one = reading.switches_per_s / f64::from(reading.vcpus.max(1));
        if of_one > MOST_COUNTED {
            self.mode = Mode::Busy { switches };
            return Next { read_at: now + STEADY, survey: false, arm: None };
        }
        let switches = switches.max(constant_load(of_one));
        self.mode = Mode::Asleep(Armed { at: now, switches });
        let pause = if self.has_alarm { WITH_ALARM } else { WITHOUT_ALARM };
        let arm = self.has_alarm.then_some(switches);
        Next { read_at: now + pause, survey: false, arm }
    }

    fn plan(&mut self, now: Duration, pause: Duration, is_survey_due: bool, rates: Rates) -> Next {
        let survey = is_survey_due && self.survey_from <= now;
        if survey {
            self.surveyed = (now, rates);
        }
        Next { read_at: now + pause, survey, arm: None }
    }
}

impl Armed {
    /// With how many switches to arm it after it fired and led to nothing: with twice as many, if it fired soon.
    fn after_nothing(self, fired_at: Duration) -> u64 {
        if fired_at.saturating_sub(self.at) >= BETWEEN_ALARMS {
            return self.switches;
        }
        self.switches.saturating_mul(2).min(MOST_SWITCHES)
    }
}

impl Rates {
    fn differ_from(self, before: Self) -> bool {
        let differ = |one: f64, other: f64| {
            let (less, more) = (one.min(other), one.max(other));
            more > less * CHANGE && more - less > LEAST_CHANGE
        };
        differ(self.idle_periods, before.idle_periods) || differ(self.switches, before.switches)
    }
}

/// As many switches on a vCPU as a machine that goes on like this has between two alarms, even where one vCPU has twice
/// as many as the average, `of_one` per second.
fn constant_load(of_one: f64) -> u64 {
    // Finite and not negative: a quotient of a difference of counters and a time.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let switches = (2.0 * of_one * BETWEEN_ALARMS.as_secs_f64()) as u64;
    switches
}

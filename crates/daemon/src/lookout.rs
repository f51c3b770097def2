//! Looks out for workloads: sleeps until the alarm where that is possible, takes the pulse, surveys, and says whom to
//! engage and whom to release.

use std::os::fd::{AsFd as _, BorrowedFd};
use std::time::Instant;

use gleaner_discover::{
    Alarm, Attention, Candidate, Changes, EngageConfig, Engagement, Key, Next, Pulse, Reading, Seen,
    Standing, Subject, Survey,
};
use gleaner_kernel::{KernelError, Root};

/// Finds workloads and decides which of them to engage.
#[derive(Debug)]
pub(crate) struct Lookout {
    pulse: Pulse,
    alarm: Option<Alarm>,
    survey: Survey,
    attention: Attention,
    engagement: Engagement,
    start: Instant,
    read_at: Instant,
    reading: Option<Reading>,
}

/// What a look at the machine needs to ask.
pub(crate) trait Judge {
    /// Whether the configuration lets Gleaner look into a workload.
    fn allows(&mut self, subject: &Subject<'_>) -> bool;
    /// Whether a setting paid for this program in an earlier run.
    fn is_known(&mut self, candidate: &Candidate) -> bool;
    /// Whether a workload is left alone, whatever it loses.
    fn refuses(&self, candidate: &Candidate) -> bool;
    /// Whether anything is in force or on trial for this workload.
    fn in_force(&self, key: &Key) -> bool;
}

impl Lookout {
    /// Starts to look out. A sentence says what is missing.
    ///
    /// # Errors
    /// The kernel's counters cannot be read.
    pub(crate) fn new(root: &Root, config: EngageConfig) -> Result<(Self, Option<String>), KernelError> {
        let (alarm, limit) = match Alarm::new(root) {
            Ok(alarm) => (Some(alarm), None),
            Err(error) => (None, Some(format!("{error}; the machine is read every 0.6 s instead"))),
        };
        let start = Instant::now();
        let lookout = Self {
            pulse: Pulse::new(root)?,
            attention: Attention::new(config.wake_cost, alarm.is_some()),
            alarm,
            survey: Survey::new(root)?,
            engagement: Engagement::new(config),
            start,
            read_at: start,
            reading: None,
        };
        Ok((lookout, limit))
    }

    /// From now on with this configuration.
    pub(crate) fn reconfigure(&mut self, config: EngageConfig) {
        self.engagement.reconfigure(config);
        self.survey.rules_changed();
        self.read_at = Instant::now();
    }

    /// Readable when the alarm has fired.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.alarm.as_ref().map(Alarm::as_fd)
    }

    /// When to look next at the latest.
    pub(crate) fn next(&self) -> Instant {
        self.read_at
    }

    /// Looks, if the alarm has fired or it is time to. Whom to engage and whom to release now; `None` if no survey was
    /// taken.
    ///
    /// # Errors
    /// The kernel's counters cannot be read.
    pub(crate) fn look(&mut self, judge: &mut dyn Judge) -> Result<Option<Changes>, KernelError> {
        let now = Instant::now();
        if let Some(alarm) = &mut self.alarm
            && alarm.has_fired()
        {
            let next = self.attention.alarm(now - self.start);
            self.plan(next);
        }
        if now < self.read_at {
            return Ok(None);
        }
        let reading = self.pulse.read()?;
        let next = self.attention.read(now - self.start, &reading);
        self.plan(next);
        let idle_periods_per_s = reading.idle_periods_per_s;
        self.reading = Some(reading);
        if !next.survey {
            return Ok(None);
        }
        self.survey.take(&mut |subject| judge.allows(subject))?;
        let mut all = Vec::new();
        for candidate in self.survey.candidates() {
            if !judge.refuses(candidate) {
                all.push(seen(candidate, judge));
            }
        }
        let changes = self.engagement.step(now - self.start, idle_periods_per_s, &all);
        changes.engage.iter().for_each(|key| self.survey.expect(key));
        self.attention.surveyed(self.start.elapsed() + self.survey.wait(), changes.is_undecided);
        Ok(Some(changes))
    }

    /// An engaged workload was released.
    pub(crate) fn released(&mut self, key: &Key) {
        self.engagement.released(key);
        let read_at = self.attention.released(self.start.elapsed());
        self.read_at = self.read_at.min(self.start + read_at);
    }

    /// A workload cannot be engaged now: it is left alone for a while.
    pub(crate) fn failed(&mut self, key: &Key) {
        self.engagement.failed(key, self.start.elapsed());
    }

    /// The workloads of the latest survey, each with how it stands.
    pub(crate) fn standings<'a>(
        &'a self,
        judge: &'a mut dyn Judge,
    ) -> impl Iterator<Item = (&'a Candidate, Standing)> {
        let now = self.start.elapsed();
        let idle_periods_per_s = self.reading.map_or(0.0, |reading| reading.idle_periods_per_s);
        self.survey.candidates().map(move |candidate| {
            (candidate, self.engagement.standing(now, idle_periods_per_s, &seen(candidate, judge)))
        })
    }

    /// A workload of the latest survey.
    pub(crate) fn get(&self, key: &Key) -> Option<&Candidate> {
        self.survey.get(key)
    }

    /// The survey itself, which knows where things are.
    pub(crate) fn survey(&self) -> &Survey {
        &self.survey
    }

    fn plan(&mut self, next: Next) {
        self.read_at = self.start + next.read_at;
        if let (Some(alarm), Some(switches)) = (&mut self.alarm, next.arm)
            && alarm.arm(switches).is_err()
        {
            // As if there had never been one: the machine is read at a fixed pace, from now on.
            self.alarm = None;
            self.attention.lost_alarm();
            self.read_at = Instant::now();
        }
    }
}

fn seen<'a>(candidate: &'a Candidate, judge: &mut dyn Judge) -> Seen<'a> {
    Seen {
        key: &candidate.key,
        load: candidate.load,
        switches_per_s: candidate.switches_per_s(),
        known: judge.is_known(candidate),
        in_force: judge.in_force(&candidate.key),
    }
}

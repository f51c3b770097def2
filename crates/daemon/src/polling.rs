//! Why nothing may poll at present, whatever would pay.

use std::fmt;
use std::time::Instant;

/// A reason for which no vCPU of the machine is kept from halting. Sets of active vCPUs are not concerned.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Rest {
    /// Somebody else changed what Gleaner had set.
    TakenOver(String),
    /// A lever failed: it is tried again soon.
    Failed(String),
    /// The configuration's quiet hours, as they are written.
    QuietHours(String),
    /// Fewer CPU credits are left than the configuration asks for.
    FewCredits {
        /// What is left.
        left: f64,
        /// The least that the configuration names.
        least: f64,
    },
    /// The source of the CPU credits cannot be read: they could be low.
    UnknownCredits(String),
}

impl fmt::Display for Rest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TakenOver(what) => {
                write!(f, "{what}; Gleaner keeps away from it until `gleaner resume`")
            }
            Self::Failed(why) => write!(f, "{why}; it is tried again soon"),
            Self::QuietHours(hours) => write!(f, "quiet hours: {hours}"),
            Self::FewCredits { left, least } => {
                write!(f, "{left} CPU credits are left, fewer than the {least} of the configuration")
            }
            Self::UnknownCredits(why) => write!(f, "the number of CPU credits is not known: {why}"),
        }
    }
}

/// What is known of the reasons to rest.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rests {
    /// What somebody else changed.
    pub(crate) taken_over: Option<String>,
    /// Why a lever failed, and until when it is left alone.
    pub(crate) failed: Option<(String, Instant)>,
    /// The quiet hours that hold now.
    pub(crate) quiet: Option<String>,
    /// CPU credits left, or why that is not known, and the least that the configuration names; `None` if it names no
    /// source.
    pub(crate) credits: Option<(Result<f64, String>, f64)>,
}

impl Rests {
    /// Forgets a failure whose time is over.
    pub(crate) fn try_again(&mut self, now: Instant) {
        self.failed.take_if(|(_, until)| now >= *until);
    }

    /// The reason that holds, if one does: first what only a person can end.
    pub(crate) fn reason(&self) -> Option<Rest> {
        if let Some(what) = &self.taken_over {
            return Some(Rest::TakenOver(what.clone()));
        }
        if let Some((why, _)) = &self.failed {
            return Some(Rest::Failed(why.clone()));
        }
        if let Some(hours) = &self.quiet {
            return Some(Rest::QuietHours(hours.clone()));
        }
        match &self.credits {
            Some((Ok(left), least)) if left < least => Some(Rest::FewCredits { left: *left, least: *least }),
            Some((Err(why), _)) => Some(Rest::UnknownCredits(why.clone())),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn few_or_unknown_credits_forbid_polling() {
        let credits = |left| Rests { credits: Some((left, 10.0)), ..Rests::default() }.reason();
        assert_eq!(credits(Ok(10.0)), None);
        assert_eq!(credits(Ok(9.5)), Some(Rest::FewCredits { left: 9.5, least: 10.0 }));
        let text = credits(Err("no such file".to_owned())).unwrap().to_string();
        assert_eq!(text, "the number of CPU credits is not known: no such file");
    }

    #[test]
    fn a_lever_that_failed_rests_until_its_time_is_over() {
        let now = Instant::now();
        let until = now + Duration::from_secs(30);
        let mut rests = Rests { failed: Some(("the disk is full".to_owned(), until)), ..Rests::default() };
        rests.try_again(now);
        assert_eq!(rests.reason().unwrap().to_string(), "the disk is full; it is tried again soon");
        rests.try_again(until);
        assert_eq!(rests.reason(), None);
    }

    #[test]
    fn what_only_a_person_can_end_is_reported_first() {
        let mut rests = Rests {
            credits: Some((Ok(0.0), 1.0)),
            quiet: Some("22:00-06:00".to_owned()),
            ..Rests::default()
        };
        assert_eq!(rests.reason().unwrap().to_string(), "quiet hours: 22:00-06:00");
        rests.taken_over = Some("the limit is 5 now".to_owned());
        assert!(matches!(rests.reason(), Some(Rest::TakenOver(_))));
    }
}

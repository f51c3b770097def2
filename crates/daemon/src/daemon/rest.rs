//! When nothing may poll: quiet hours and CPU credits.

use std::time::{Duration, Instant};

use gleaner_metrics::Pause;
use gleaner_policy::Forbidden;
use tracing::info;

use super::Daemon;
use crate::polling::Rest;

/// How often clock and credits are looked at.
const INTERVAL: Duration = Duration::from_secs(10);

impl Daemon {
    /// Whether there is anything that can forbid polling with time.
    pub(super) fn has_rests(&self) -> bool {
        let config = &self.loaded.config;
        !config.quiet_hours.is_empty() || config.credit_guard().is_some() || self.rests.reason().is_some()
    }

    /// Looks at the clock and the credits, from time to time.
    pub(super) fn rest_if_due(&mut self) {
        if !self.has_rests() || Instant::now() < self.rests_due {
            return;
        }
        self.rests_due = Instant::now() + INTERVAL;
        let config = &self.loaded.config;
        // The first question for the local time loads the list of time zones, 150 KiB.
        let local = (!config.quiet_hours.is_empty()).then(|| jiff::Zoned::now().datetime());
        let quiet = local.and_then(|local| config.quiet_at(local));
        self.rests.quiet = quiet.map(|hours| hours.to_string());
        self.rests.credits =
            config.credit_guard().map(|guard| (crate::credits::read(guard.source), guard.least));
        self.rests.try_again(Instant::now());
        self.apply_rests();
    }

    /// Forbids or allows polling by the reasons that hold.
    pub(super) fn apply_rests(&mut self) {
        let reason = self.rests.reason();
        let pause = reason.as_ref().map(|rest| match rest {
            Rest::TakenOver(_) => Pause::LeverTaken,
            Rest::Failed(_) => Pause::LeverFailed,
            Rest::QuietHours(_) => Pause::QuietHours,
            Rest::FewCredits { .. } | Rest::UnknownCredits(_) => Pause::CreditsLow,
        });
        let paused = self.paused.is_some().then_some(Pause::Administrator);
        self.metrics.paused(&pause.into_iter().chain(paused).collect::<Vec<_>>());
        let forbidden = reason.as_ref().map(|rest| match rest {
            Rest::TakenOver(_) => Forbidden::LeverTaken,
            Rest::Failed(_) => Forbidden::LeverFailed,
            Rest::QuietHours(_) => Forbidden::QuietHours,
            Rest::FewCredits { .. } | Rest::UnknownCredits(_) => Forbidden::FewCredits,
        });
        if self.arbiter.forbid_polling(forbidden) {
            let text = reason.map_or_else(|| "polling is allowed again".to_owned(), |rest| rest.to_string());
            info!("{text}");
            self.note(None, text);
        }
        self.settle();
    }
}

//! Where the daemon's messages go: to the journal with fields, where that is what its stderr leads to, else to stderr
//! as text. A decision is one message.

use std::collections::HashMap;
use std::fmt::Debug;
use std::io;
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use gleaner_metrics::{event_name, verdict_name};
use gleaner_policy::{Event as Decision, Verdict};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber, error, info, warn};
use tracing_journald::{Priority, PriorityMappings};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Fields in the journal start with this: `journalctl GLEANER_WORKLOAD=redis-server`.
const FIELD_PREFIX: &str = "GLEANER";
/// Of warnings that differ in numbers at most, so many are written...
const MOST: u32 = 5;
/// ...in this time.
const WINDOW: Duration = Duration::from_secs(300);
/// Kinds of warnings that are counted; with one more, the oldest is forgotten.
const MOST_KINDS: usize = 128;
/// The target of a warning that says how many others were left out. It is never left out itself.
const COUNTED: &str = "gleanerd::counted";

/// From now on messages up to the level `most` are written. To be called once.
pub(crate) fn start(most: LevelFilter) {
    let messages = tracing_subscriber::registry().with(most).with(Repeats::default());
    let journal = stderr_is_journal().then(tracing_journald::layer).and_then(Result::ok);
    // Fails if there is a subscriber already, which is then as good.
    let _ = match journal {
        Some(journal) => {
            let journal = journal.with_field_prefix(Some(FIELD_PREFIX.to_owned()));
            messages.with(journal.with_priority_mappings(priorities())).try_init()
        }
        None => messages.with(text(io::stderr)).try_init(),
    };
}

/// A decision about a workload: the `sentence` that says it, and its numbers as fields.
pub(crate) fn decision(workload: &str, decision: &Decision, sentence: &str) {
    let (mut candidate, mut setting, mut verdict) = (None, None, None);
    match decision {
        Decision::TrialStarted { candidate: tried, .. } => candidate = Some(tried),
        Decision::TrialEnded { candidate: tried, kept, verdict: ended, .. } => {
            (candidate, setting, verdict) = (Some(tried), Some(kept), Some(ended));
        }
        Decision::Resumed { setting: resumed, .. } => setting = Some(resumed),
        _ => {}
    }
    let evidence = verdict.and_then(Verdict::evidence);
    info!(
        workload,
        event = event_name(decision),
        candidate = candidate.map(tracing::field::display),
        setting = setting.map(tracing::field::display),
        verdict = verdict.map(verdict_name),
        ratio = evidence.map(|e| e.ratio),
        ratio_low = evidence.map(|e| e.low),
        ratio_high = evidence.map(|e| e.high),
        "{workload}: {sentence}"
    );
}

/// A warning that is a whole sentence.
pub(crate) fn warn_sentence(sentence: &str) {
    warn!("{sentence}");
}

fn priorities() -> PriorityMappings {
    PriorityMappings { info: Priority::Informational, debug: Priority::Debug, ..PriorityMappings::new() }
}

/// Lines with time, level and message. Messages are sentences that hold all that their fields do.
fn text<S, W>(writer: W) -> impl Layer<S>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    W: for<'writer> tracing_subscriber::fmt::MakeWriter<'writer> + 'static,
{
    let message_alone =
        format::debug_fn(
            |writer, field, value| {
                if field.name() == "message" { write!(writer, "{value:?}") } else { Ok(()) }
            },
        );
    tracing_subscriber::fmt::layer()
        .fmt_fields(message_alone)
        .with_target(false)
        // Its report of a stderr that cannot be written would panic.
        .log_internal_errors(false)
        .with_writer(writer)
}

/// Whether stderr leads to the journal, by the device and inode that systemd passes on.
fn stderr_is_journal() -> bool {
    let passed = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    nix::sys::stat::fstat(io::stderr().as_fd()).is_ok_and(|stat| names(&passed, stat.st_dev, stat.st_ino))
}

fn names(stream: &str, device: u64, inode: u64) -> bool {
    let number = |text: &str| text.parse::<u64>().ok();
    stream.split_once(':').is_some_and(|(d, i)| number(d) == Some(device) && number(i) == Some(inode))
}

/// Leaves out warnings that repeat themselves.
#[derive(Debug, Default)]
struct Repeats(Mutex<Kinds>);

#[derive(Debug)]
struct Kinds {
    window: Duration,
    /// By the message without its numbers.
    seen: HashMap<String, Kind>,
}

impl Default for Kinds {
    fn default() -> Self {
        Self { window: WINDOW, seen: HashMap::new() }
    }
}

#[derive(Debug)]
struct Kind {
    since: Instant,
    written: u32,
    left_out: u32,
}

impl Kinds {
    /// Whether to write a `message`; if so, how many of its kind were left out before it.
    fn admit(&mut self, message: &str, now: Instant) -> Option<u32> {
        let key = without_numbers(message);
        if let Some(kind) = self.seen.get_mut(&key) {
            let is_over = now.saturating_duration_since(kind.since) >= self.window;
            if !is_over && kind.written >= MOST {
                kind.left_out += 1;
                return None;
            }
            if is_over {
                let left_out = kind.left_out;
                *kind = Kind { since: now, written: 1, left_out: 0 };
                return Some(left_out);
            }
            kind.written += 1;
            return Some(0);
        }
        if self.seen.len() >= MOST_KINDS
            && let Some(oldest) =
                self.seen.iter().min_by_key(|(_, kind)| kind.since).map(|(key, _)| key.clone())
        {
            self.seen.remove(&oldest);
        }
        self.seen.insert(key, Kind { since: now, written: 1, left_out: 0 });
        Some(0)
    }
}

fn without_numbers(message: &str) -> String {
    message.split(|c: char| c.is_ascii_digit()).filter(|part| !part.is_empty()).collect::<Vec<_>>().join("#")
}

impl<S: Subscriber> Layer<S> for Repeats {
    fn event_enabled(&self, event: &Event<'_>, _context: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if *metadata.level() > Level::WARN || metadata.target() == COUNTED {
            return true;
        }
        let mut message = Message::default();
        event.record(&mut message);
        let Message(message) = message;
        let admitted = self.0.lock().unwrap_or_else(PoisonError::into_inner).admit(&message, Instant::now());
        match admitted {
            None => false,
            Some(0) => true,
            // Written in place of this one, with the number.
            Some(n) if *metadata.level() == Level::ERROR => {
                error!(target: COUNTED, left_out = n, "{message} ({n} similar messages suppressed)");
                false
            }
            Some(n) => {
                warn!(target: COUNTED, left_out = n, "{message} ({n} similar messages suppressed)");
                false
            }
        }
    }
}

/// The message of an event.
#[derive(Default)]
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

#[cfg(test)]
mod tests;

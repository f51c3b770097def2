//! What the daemon does: the machine, and a line for each workload, with what is on trial or was proven for it.

use gleaner_control::{Mode, State, Status, Workload};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::{Page, Palette};
use crate::status;

/// The share of the screen that workloads take at most, and the fewest lines that they have.
const PART: u16 = 3;
const FEWEST: usize = 4;
/// The width of the column of names.
const NAME: usize = 24;

pub(super) fn draw(page: &mut Page<'_>, daemon: &Status) {
    let colour = if daemon.mode == Mode::Running { Color::Green } else { Color::Yellow };
    let style = page.palette.of(colour).add_modifier(Modifier::BOLD);
    let head = Span::styled(format!("gleanerd, {}: ", status::age(daemon.uptime_ms)), Palette::heading());
    let machine = &daemon.machine;
    let polling = format!(
        "polling {} of the time, {} allowed",
        status::percent(machine.polling_share),
        status::percent(machine.polling_share_allowed)
    );
    if daemon.mode == Mode::Running && daemon.mode_reason.is_none() {
        page.line(Line::from(vec![head, Span::styled("running", style), Span::raw(format!("; {polling}"))]));
    } else {
        page.paragraph(Line::from(vec![head, Span::styled(status::mode(daemon), style)]), 3);
    }
    workloads(page, &daemon.workloads);
}

fn workloads(page: &mut Page<'_>, workloads: &[Workload]) {
    if workloads.is_empty() {
        page.line("  no workload is running");
        return;
    }
    let head = row("Workload", "state", "vCPUs", "wake-ups/s", "load", "retention");
    page.line(Line::styled(head, Palette::heading()));
    let Room { shown, detailed } = Room::new(workloads, usize::from(page.left.height / PART).max(FEWEST));
    for (index, workload) in workloads[..shown].iter().enumerate() {
        let style = match workload.state {
            State::Engaged => Style::new(),
            State::Watched | State::LeftAlone => Style::new().add_modifier(Modifier::DIM),
        };
        let line = row(
            &shortened(&workload.name),
            status::state(workload.state),
            &status::vcpus(workload),
            &format!("{:.0}", workload.wakeups_per_s),
            &format!("{:.2}", workload.load),
            workload.stake.map_or("", status::stake),
        );
        page.line(Line::styled(line, style));
        if let Some(detail) = detail(workload).filter(|_| index < detailed) {
            page.line(format!("  {detail}"));
        }
    }
    let hidden = workloads.len() - shown;
    if hidden > 0 {
        page.line(format!("  and {hidden} more: `gleaner status`"));
    }
}

/// How many workloads have a line, and how many of these a second one.
struct Room {
    shown: usize,
    detailed: usize,
}

impl Room {
    /// For the lines of the screen that workloads have. The engaged ones come first, then what is on trial for them, then
    /// the others.
    fn new(workloads: &[Workload], lines: usize) -> Self {
        let engaged = workloads.iter().filter(|workload| workload.state == State::Engaged).count();
        let others = workloads.len() - engaged;
        let free = lines.checked_sub(engaged + usize::from(others > 0));
        let Some(free) = free else { return Self { shown: lines - 1, detailed: 0 } };
        let detailed = engaged.min(free);
        let left = lines - engaged - detailed;
        let of_others = if others > left { left.saturating_sub(1) } else { others };
        Self { shown: engaged + of_others, detailed }
    }
}

/// What is on trial for a workload, or else what it has gained.
fn detail(workload: &Workload) -> Option<String> {
    let trial = workload.trial.as_ref().map(|trial| format!("on trial: {trial}"));
    trial.or_else(|| workload.evidence.clone())
}

/// A name that fits its column.
fn shortened(name: &str) -> String {
    if name.chars().count() <= NAME {
        return name.to_owned();
    }
    name.chars().take(NAME - 3).chain("...".chars()).collect()
}

fn row(name: &str, state: &str, vcpus: &str, wakeups: &str, load: &str, retention: &str) -> String {
    format!("{name:<NAME$} {state:<11} {vcpus:<9} {wakeups:>11} {load:>8}  {retention}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many have a line, and how many a second one, if there are so many engaged and other ones.
    fn room(engaged: usize, others: usize, lines: usize) -> (usize, usize) {
        let status: Status =
            serde_json::from_str(include_str!("../../../../control/tests/status.json")).unwrap();
        let (of_engaged, other) = (&status.workloads[0], &status.workloads[2]);
        let all: Vec<_> = std::iter::repeat_n(of_engaged, engaged)
            .chain(std::iter::repeat_n(other, others))
            .cloned()
            .collect();
        let Room { shown, detailed } = Room::new(&all, lines);
        // One more line says that there are others.
        assert!(shown + detailed + usize::from(shown < all.len()) <= lines, "{engaged} {others} {lines}");
        (shown, detailed)
    }

    #[test]
    fn the_engaged_ones_come_first_then_their_trials_then_the_others() {
        assert_eq!(room(3, 28, 7), (3, 3));
        assert_eq!(room(3, 0, 7), (3, 3));
        assert_eq!(room(1, 28, 7), (5, 1));
        assert_eq!(room(2, 1, 7), (3, 2));
        assert_eq!(room(5, 1, 7), (6, 1));
        assert_eq!(room(7, 0, 7), (7, 0));
        assert_eq!(room(7, 5, 7), (6, 0));
        assert_eq!(room(30, 2, 7), (6, 0));
        assert_eq!(room(0, 3, 4), (3, 0));
        assert_eq!(room(0, 9, 4), (3, 0));
    }
}

//! What the daemon does: a line for the machine, and one for each workload that it helps.

use gleaner_control::{Mode, State, Status};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};

use super::{Page, Palette};
use crate::status;

/// The share of the screen that workloads take at most.
const PART: u16 = 4;

pub(super) fn draw(page: &mut Page<'_>, daemon: &Status) {
    let colour = if daemon.mode == Mode::Running { Color::Green } else { Color::Yellow };
    let mode = page.palette.of(colour).add_modifier(Modifier::BOLD);
    page.line(Line::from(vec![
        Span::styled(format!("gleanerd, {}: ", status::age(daemon.uptime_ms)), Palette::heading()),
        Span::styled(status::mode(daemon), mode),
    ]));
    let machine = &daemon.machine;
    page.line(format!(
        "  {}; polling {} of the time, {} allowed",
        status::retention(machine.retention),
        status::percent(machine.polling_share),
        status::percent(machine.polling_share_allowed),
    ));
    workloads(page, daemon);
}

fn workloads(page: &mut Page<'_>, daemon: &Status) {
    if daemon.workloads.is_empty() {
        page.line("  no workload is running");
        return;
    }
    let head = row("Workload", "state", "vCPUs", "wake-ups/s", "load", "retention");
    page.line(Line::styled(head, Palette::heading()));
    let room = usize::from((page.left.height / PART).max(3));
    let shown = if daemon.workloads.len() > room { room - 1 } else { daemon.workloads.len() };
    for workload in &daemon.workloads[..shown] {
        let style = match workload.state {
            State::Engaged => Style::new(),
            State::Watched | State::LeftAlone => Style::new().add_modifier(Modifier::DIM),
        };
        let line = row(
            &workload.name,
            status::state(workload.state),
            &status::vcpus(workload),
            &format!("{:.0}", workload.wakeups_per_s),
            &format!("{:.2}", workload.load),
            workload.stake.map_or("", status::stake),
        );
        page.line(Line::styled(line, style));
        if let Some(trial) = &workload.trial {
            page.line(format!("  on trial: {trial}"));
        }
    }
    let hidden = daemon.workloads.len() - shown;
    if hidden > 0 {
        page.line(format!("  and {hidden} more: `gleaner status`"));
    }
}

fn row(name: &str, state: &str, vcpus: &str, wakeups: &str, load: &str, retention: &str) -> String {
    format!("{name:<24} {state:<11} {vcpus:<9} {wakeups:>11} {load:>8}  {retention}")
}

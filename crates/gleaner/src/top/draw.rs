//! Draws a view, from top to bottom. Whatever a colour means is also said in words.

mod daemon;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use ratatui::widgets::{Paragraph, Widget as _, Wrap};

use super::keys::{Controls, HELP};
use super::view::{Latency, Status, Vcpu, View, Wakes, Workload};

/// Lines kept for decisions; vCPUs give way.
const MIN_DECISION_LINES: u16 = 3;
/// A wider screen shows one more column.
const WIDE_COLUMNS: u16 = 100;

/// Text styles, with or without colour.
#[derive(Debug, Clone, Copy)]
pub(super) struct Palette {
    /// False if `NO_COLOR` is set.
    pub(super) colours: bool,
}

impl Palette {
    fn of(self, colour: Color) -> Style {
        if self.colours { Style::new().fg(colour) } else { Style::new() }
    }

    fn heading() -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }
}

/// Draws `view` into `area`, with the keys at the bottom unless `controls` is `None`.
pub(super) fn draw(
    view: &View,
    controls: Option<&Controls>,
    palette: Palette,
    area: Rect,
    buffer: &mut Buffer,
) {
    let foot = u16::from(controls.is_some());
    let body = Rect { height: area.height.saturating_sub(foot), ..area };
    let mut page = Page { left: body, palette, buffer };
    title(&mut page, view, controls);
    if let Some(status) = &view.daemon {
        daemon::draw(&mut page, status);
    }
    workloads(&mut page, view);
    let all_kinds = page.has_room(view);
    vcpus(&mut page, view, all_kinds);
    wakes(&mut page, &view.wakes, all_kinds);
    for missing in &view.missing {
        page.paragraph(format!("not available: {missing}"), 2);
    }
    decisions(&mut page, view, controls);
    if controls.is_some() && area.height > 0 {
        let bottom = Rect { y: area.bottom() - 1, height: 1, ..area };
        Line::styled(HELP, Style::new().add_modifier(Modifier::REVERSED)).render(bottom, buffer);
    }
}

/// The part of the area that is still free. What does not fit is left out.
struct Page<'a> {
    left: Rect,
    palette: Palette,
    buffer: &'a mut Buffer,
}

impl Page<'_> {
    fn line<'a>(&mut self, line: impl Into<Line<'a>>) {
        if self.left.height > 0 {
            line.into().render(Rect { height: 1, ..self.left }, self.buffer);
            self.skip(1);
        }
    }

    /// Draws text on as many lines as it takes, but no more than `most`.
    fn paragraph<'a>(&mut self, text: impl Into<Text<'a>>, most: u16) {
        let space = Rect { height: self.left.height.min(most), ..self.left };
        Paragraph::new(text).wrap(Wrap { trim: true }).render(space, self.buffer);
        let used = space
            .rows()
            .filter(|row| row.columns().any(|cell| self.buffer[(cell.x, cell.y)].symbol() != " "));
        self.skip(u16::try_from(used.count()).unwrap_or(space.height));
    }

    /// Whether what is left holds every vCPU, every kind of wake-up and some decisions.
    fn has_room(&self, view: &View) -> bool {
        let lines = 1 + view.vcpus.len() + below_vcpus(view, true);
        lines <= usize::from(self.left.height)
    }

    fn skip(&mut self, lines: u16) {
        let lines = lines.min(self.left.height);
        self.left.y += lines;
        self.left.height -= lines;
    }
}

fn title(page: &mut Page<'_>, view: &View, controls: Option<&Controls>) {
    let mut parts = vec![format!("gleaner top: {} vCPUs", view.vcpus.len())];
    if let Some(limit) = view.haltpoll_us {
        parts.push(if limit > 0.0 {
            format!("idle ones poll up to {:.0} us (haltpoll)", limit.trunc())
        } else {
            "idle ones halt at once (haltpoll is off)".to_owned()
        });
    }
    if view.interval_s > 0.0 {
        parts.push(format!("in {:.1} s", view.interval_s));
    }
    let mut line = Line::styled(parts.join(", "), Palette::heading());
    if controls.is_some_and(|controls| controls.paused) {
        line.push_span(Span::styled("  PAUSED", page.palette.of(Color::Yellow)));
    }
    page.line(line);
}

fn workloads(page: &mut Page<'_>, view: &View) {
    if let Some(journal) = &view.journal {
        page.paragraph(format!("Workload: {journal}"), 3);
    }
    for workload in &view.workloads {
        let (state, colour) = match (workload.status, workload.gleaner_pid) {
            (Status::Running, Some(pid)) => (format!("running, gleaner is pid {pid}"), Color::Green),
            (Status::Running, None) => ("running".to_owned(), Color::Green),
            (Status::Ended, _) => ("ended, everything was put back".to_owned(), Color::Reset),
            (Status::Killed, _) => ("gleaner was killed: `gleaner restore`".to_owned(), Color::Red),
        };
        let head = format!("Workload, {:.1} s: ", workload.seconds);
        let state = Span::styled(state, page.palette.of(colour).add_modifier(Modifier::BOLD));
        page.line(Line::from(vec![Span::styled(head, Palette::heading()), state]));
        page.line(format!("  {}", workload.name));
        if workload.status != Status::Ended {
            in_force(page, workload);
        }
    }
}

fn in_force(page: &mut Page<'_>, workload: &Workload) {
    let inactive = match workload.inactive.to_string() {
        none if none.is_empty() => "none".to_owned(),
        some => some,
    };
    let limit = workload.limit_us.map_or_else(String::new, |us| format!(", limit {:.0} us", us.trunc()));
    page.line(format!(
        "  active vCPUs {}, inactive {inactive}; retention {}{limit}",
        workload.active, workload.method
    ));
    page.line(match &workload.trial {
        Some(trial) => format!("  on trial: {} against {}", trial.candidate, trial.baseline),
        None => "  nothing is on trial".to_owned(),
    });
    if let Some(doing) = workload.doing {
        page.line(format!(
            "  load {:.2} vCPUs, {} threads, {:.0} switches/s, {:.2} threads waiting for a vCPU",
            doing.load, doing.threads, doing.switches_per_s, doing.run_delay
        ));
    }
}

fn vcpus(page: &mut Page<'_>, view: &View, all_kinds: bool) {
    let wide = page.left.width >= WIDE_COLUMNS;
    let halts = if view.idle_estimated { "halts/s<=" } else { "halts/s" };
    let timer = if wide { "   timer/s" } else { "" };
    let head = format!(
        "{:<4} {:<11} {:>6} {:>6} {:>8} {:>9} {halts:>9} {:>8}{timer}",
        "vCPU", "state", "busy", "steal", "polling", "idle/s", "IPIs/s"
    );
    page.line(Line::styled(head, Palette::heading()));
    let room = usize::from(page.left.height).saturating_sub(below_vcpus(view, all_kinds)).max(1);
    let shown = if view.vcpus.len() > room { room - 1 } else { view.vcpus.len() };
    for vcpu in &view.vcpus[..shown] {
        let style = match vcpu.active {
            Some(false) => Style::new().add_modifier(Modifier::DIM),
            _ => Style::new(),
        };
        page.line(Line::styled(row(vcpu, wide), style));
    }
    if shown < view.vcpus.len() {
        page.line(format!("     and {} more, which a higher screen shows", view.vcpus.len() - shown));
    }
    page.line(row(&view.all, wide));
}

fn row(vcpu: &Vcpu, wide: bool) -> String {
    let name = vcpu.cpu.map_or_else(|| "all".to_owned(), |cpu| cpu.to_string());
    let state = match vcpu.active {
        Some(true) => "active",
        Some(false) => "inactive",
        None => "",
    };
    let percent = |share: Option<f64>| or_dash(share, |share| format!("{:.1} %", 100.0 * share));
    let count = |rate: Option<f64>| or_dash(rate, |rate| format!("{rate:.0}"));
    let timer = if wide { format!(" {:>9}", count(vcpu.timer_per_s)) } else { String::new() };
    format!(
        "{name:<4} {state:<11} {:>6} {:>6} {:>8} {:>9} {:>9} {:>8}{timer}",
        percent(vcpu.busy),
        percent(vcpu.steal),
        percent(vcpu.polling),
        count(vcpu.idle_per_s),
        count(vcpu.halts_per_s),
        count(vcpu.ipis_per_s),
    )
}

/// The lines that follow the vCPUs: their sums, the wake-ups, what is missing, and some decisions.
fn below_vcpus(view: &View, all_kinds: bool) -> usize {
    let wakes = match &view.wakes {
        Wakes::Traced { kinds, .. } => 2 + kinds.iter().filter(|kind| all_kinds || is_seen(kind)).count(),
        Wakes::NotAvailable { .. } => 2,
    };
    1 + wakes + view.missing.len() + 1 + usize::from(MIN_DECISION_LINES)
}

/// Whether there were wake-ups of this kind.
fn is_seen(kind: &Latency) -> bool {
    kind.p50_us.is_some()
}

/// The kinds of wake-ups: on a small screen only those that there were.
fn wakes(page: &mut Page<'_>, wakes: &Wakes, all_kinds: bool) {
    match wakes {
        Wakes::Traced { scope, kinds, tracing_cost, one_in } => {
            page.line(Line::styled(
                format!(
                    "{:<24} {:>9} {:>9} {:>9} {:>9}",
                    "Wake-up until run, us", "per s", "median", "p90", "p99"
                ),
                Palette::heading(),
            ));
            for latency in kinds.iter().filter(|kind| all_kinds || is_seen(kind)) {
                page.line(latency_row(latency));
            }
            let sample =
                if *one_in > 1 { format!(", follows 1/{one_in} of the time") } else { String::new() };
            page.line(format!(
                "  of {scope}; tracing costs {:.1} % of the CPU{sample}",
                100.0 * tracing_cost
            ));
        }
        Wakes::NotAvailable { why } => {
            page.paragraph(format!("Wake-up latencies are not available: {why}"), 2);
        }
    }
}

fn latency_row(latency: &Latency) -> String {
    let us = |us: Option<f64>| or_dash(us, |us| format!("{us:.1}"));
    format!(
        "{:<24} {:>9} {:>9} {:>9} {:>9}",
        latency.kind,
        or_dash(latency.per_s, |rate| format!("{rate:.0}")),
        us(latency.p50_us),
        us(latency.p90_us),
        us(latency.p99_us),
    )
}

fn decisions(page: &mut Page<'_>, view: &View, controls: Option<&Controls>) {
    let skipped = controls.map_or(0, |controls| controls.skipped).min(view.decisions.len());
    let newer = if skipped > 0 { format!(" ({skipped} newer ones above)") } else { String::new() };
    page.line(Line::styled(format!("Decisions, newest first{newer}"), Palette::heading()));
    if view.decisions.is_empty() {
        page.line("  none yet");
    }
    for decision in &view.decisions[skipped..] {
        if page.left.height == 0 {
            return;
        }
        page.paragraph(decision.to_string(), u16::MAX);
    }
}

fn or_dash(number: Option<f64>, text: impl FnOnce(f64) -> String) -> String {
    number.map_or_else(|| "-".to_owned(), text)
}

//! The report as text.

use std::fmt::Write as _;
use std::time::Duration;

use gleaner_proto::trace_file::{Pattern, PatternThread};

use super::Report;

/// How many threads and wake-ups are shown; `--json` has all of them.
const MAX_SHOWN: usize = 10;

pub(super) fn text(report: &Report) -> String {
    let mut text = String::new();
    for sentence in &report.story {
        let _ = writeln!(text, "{sentence}");
    }
    if report.decisions.is_empty() {
        text += "nothing would have been tried: wake-ups cost this program too little\n";
    }
    let _ = writeln!(
        text,
        "\n{:.2} s with {} events{}",
        report.elapsed.as_secs_f64(),
        report.events,
        if report.lost > 0 {
            format!("; {} more are lost, so the numbers are too low", report.lost)
        } else {
            String::new()
        }
    );
    threads(&mut text, report);
    edges(&mut text, &report.pattern);
    text
}

fn threads(text: &mut String, report: &Report) {
    let mut threads: Vec<&PatternThread> = report.pattern.threads.iter().collect();
    threads.sort_by_key(|thread| std::cmp::Reverse(thread.cpu_time));
    if threads.is_empty() {
        return;
    }
    let _ = writeln!(
        text,
        "\n{:<16} {:>8} {:>7} {:>10} {:>12} {:>12}",
        "thread", "tid", "CPU", "waits/s", "computes", "then waits"
    );
    for thread in threads.iter().take(MAX_SHOWN) {
        let seconds = report.elapsed.as_secs_f64().max(1e-9);
        let _ = writeln!(
            text,
            "{:<16} {:>8} {:>5.1} % {:>10.0} {:>12} {:>12}",
            named(thread),
            thread.tid,
            100.0 * thread.cpu_time.as_secs_f64() / seconds,
            thread.waits as f64 / seconds,
            mean(thread.cpu_time, thread.waits),
            mean(thread.wait_time, thread.waits),
        );
    }
    more(text, threads.len());
}

fn edges(text: &mut String, pattern: &Pattern) {
    let name = |thread: u32| pattern.threads.get(thread as usize).map_or("?", named);
    if !pattern.edges.is_empty() {
        text.push('\n');
    }
    for edge in pattern.edges.iter().take(MAX_SHOWN) {
        let waker = edge.waker.map_or("an interrupt or somebody else", name);
        let _ = writeln!(text, "{waker} wakes {}: {} times", name(edge.wakee), edge.count);
    }
    more(text, pattern.edges.len());
}

fn more(text: &mut String, all: usize) {
    if all > MAX_SHOWN {
        let _ = writeln!(text, "... and {} more: --json has them", all - MAX_SHOWN);
    }
}

fn named(thread: &PatternThread) -> &str {
    if thread.name.is_empty() { "?" } else { &thread.name }
}

fn mean(time: Duration, n: u64) -> String {
    if n == 0 { "-".to_owned() } else { format!("{:.1} us", time.as_secs_f64() * 1e6 / n as f64) }
}

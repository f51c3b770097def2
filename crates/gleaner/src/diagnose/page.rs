//! The report as a page, drawn by `gleaner_report::diagnosis`.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use gleaner_proto::diagnosis as page;
use gleaner_trace::{Edge, Histogram, Snapshot, ThreadStats};

use super::notes::notes;
use super::rank::spun;
use super::report::{Cause, Report};

/// The program that draws the page.
pub(super) const PAGE_PROGRAM: &str = "gleaner-bench";

/// Writes the report as a page, drawn by the program `page_program`.
///
/// # Errors
/// The program cannot be started, or cannot write the file.
pub(super) fn write(report: &Report, file: &Path, page_program: &Path) -> anyhow::Result<()> {
    let page = page::Page { diagnosis: diagnosis(report), counted: serde_json::to_string(report)? };
    let mut drawing = Command::new(page_program)
        .arg("diagnosis-page")
        .arg(file)
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {}", page_program.display()))?;
    // One that has failed reads no further; its own message says why.
    let written = drawing.stdin.take().map(|mut input| input.write_all(&serde_json::to_vec(&page)?));
    let output = drawing.wait_with_output()?;
    if !output.status.success() {
        bail!("the page was not drawn: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(written.unwrap_or(Ok(()))?)
}

/// The page's description of a report.
fn diagnosis(report: &Report) -> page::Diagnosis {
    let snapshot = &report.counted;
    let seconds = seconds(snapshot);
    let lengths = |label: &str, histogram: &Histogram| page::Lengths::of(label, histogram, seconds);
    page::Diagnosis {
        target: report.target.clone(),
        seconds,
        matters: report.verdict.is_some(),
        causes: report.causes.iter().map(cause).collect(),
        wakes: snapshot.wakes.kinds().map(|(name, histogram)| lengths(name, histogram)).into(),
        waits: snapshot.waits.kinds().map(|(name, histogram)| lengths(name, histogram)).into(),
        edges: snapshot.edges.iter().map(|edge| wake(edge, seconds)).collect(),
        threads: snapshot.threads.iter().map(|stats| thread(stats, seconds)).collect(),
        vcpus: snapshot
            .vcpus
            .iter()
            .map(|vcpu| page::Vcpu {
                number: vcpu.cpu.0,
                delays: lengths("run-queue delay", &vcpu.delays),
                halts: lengths("halted", &vcpu.halts),
                polls: lengths("polled", &vcpu.polls),
            })
            .collect(),
        timeline: report.timeline.clone(),
        timeline_note: timeline_note(report),
        notes: notes(report),
    }
}

fn seconds(snapshot: &Snapshot) -> f64 {
    snapshot.elapsed.as_secs_f64().max(1e-9)
}

fn cause(cause: &Cause) -> page::Cause {
    page::Cause {
        name: cause.name.to_owned(),
        category: cause.source.to_owned(),
        lost_s: cause.lost_us_per_second / 1e6,
        per_second: cause.per_second,
        unit: cause.kind.unit().to_owned(),
        estimate: cause.estimate.clone(),
        behind: cause.behind.clone(),
        advice: cause.advice.iter().map(ToString::to_string).collect(),
    }
}

fn wake(edge: &Edge, seconds: f64) -> page::Wake {
    let share = |of: u64| of as f64 / edge.count.max(1) as f64;
    page::Wake {
        waker: edge.waker.clone(),
        wakee: edge.wakee.clone(),
        per_second: edge.count as f64 / seconds,
        mean_s: edge.total.as_secs_f64() / edge.count.max(1) as f64,
        halted: share(edge.halted),
        polling: share(edge.polling),
    }
}

fn thread(stats: &ThreadStats, seconds: f64) -> page::Thread {
    let mean = |sum: Duration, n: u64| (n > 0).then(|| sum.as_secs_f64() / n as f64);
    let cpu = stats.cpu_time.as_secs_f64();
    page::Thread {
        name: stats.name.clone(),
        cpu: cpu / seconds,
        spinning: if cpu > 0.0 { spun(stats).as_secs_f64() / cpu } else { 0.0 },
        woken_per_second: stats.woken as f64 / seconds,
        woken_s: mean(stats.woken_time, stats.woken),
        computes_s: mean(stats.segment_time, stats.segments),
    }
}

fn timeline_note(report: &Report) -> String {
    let estimate = if report.counted.one_in > 1 {
        " Threads were followed in windows only: what ran is estimated from ticks, idle time is exact."
    } else {
        ""
    };
    format!(
        "Sums of the kernel's events, read every {:.0} ms; running threads are accounted at each switch and tick, steal by \
         the host in steps of 10 ms.{estimate}",
        1e3 * report.timeline.resolution_s()
    )
}

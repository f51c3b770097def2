//! Runs a workload in its own process, and measures what the machine spent on it.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use gleaner_bench::mode::Mode;
use gleaner_bench::runner::interrupted_by;
use gleaner_bench::sensors::Sensors;
use gleaner_bench::workload::{Outcome, Workload};
use gleaner_print::sibling;
use gleaner_proto::result::Metric;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::kill;
use nix::unistd::Pid;
use serde::Serialize;

/// The kernel counts a vCPU's busy time in ticks, so a shorter run says nothing about other programs.
const MIN_JUDGED_TIME: Duration = Duration::from_millis(500);

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(super) struct Sample {
    /// Operations per second.
    pub(super) ops_per_s: f64,
    /// CPU seconds of the whole machine per operation, including yield threads and polling.
    pub(super) cpu_s_per_op: f64,
    /// Share of the vCPUs' time (0..=1) spent on unrelated programs; `None` if the run was too short for that.
    pub(super) others: Option<f64>,
}

/// Runs `workload` for `time`: plain, or under `gleaner run` if a `journal` is named. A
/// [watched](gleaner_bench::runner::watch) signal ends it early with an error, after Gleaner has restored the machine.
pub(super) fn measure(
    workload: Workload,
    time: Duration,
    journal: Option<&Path>,
    sensors: &mut Sensors,
) -> anyhow::Result<Sample> {
    let this = std::env::current_exe().context("cannot find this program")?;
    let mut words = match journal {
        Some(journal) => Mode::Gleaner.wrapper_with_journal(&sibling("gleaner")?, journal),
        None => Vec::new(),
    };
    words.push(this.clone().into());
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    command.args(["workload", workload.name(), "--json", "--seconds", &time.as_secs_f64().to_string()]);
    let before = sensors.read()?;
    let output = output(&mut command).with_context(|| format!("cannot run {}", this.display()))?;
    let after = sensors.read()?;
    if let Some(signal) = interrupted_by() {
        bail!("interrupted by {signal}");
    }
    if !output.status.success() {
        bail!("{}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    let outcome: Outcome = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("not an outcome: {}", String::from_utf8_lossy(&output.stdout).trim()))?;
    let operations = outcome.operations as f64;
    if outcome.operations == 0 {
        bail!("not one operation was done");
    }
    let metrics = after.since(&before);
    let awake_s: f64 = [Metric::CpuBusyS, Metric::CpuPollingS].iter().filter_map(|m| metrics.get(m)).sum();
    let long_enough = after.elapsed_since(&before) >= MIN_JUDGED_TIME;
    Ok(Sample {
        ops_per_s: operations / outcome.elapsed.as_secs_f64(),
        cpu_s_per_op: awake_s / operations,
        others: long_enough.then(|| after.others_since(&before)),
    })
}

/// The output of `command`, which always runs to its end: a signal to this process is passed on, so that the command
/// can restore what it has changed before this returns.
fn output(command: &mut Command) -> io::Result<Output> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let outputs = [child.stdout.take().map(OwnedFd::from), child.stderr.take().map(OwnedFd::from)];
    let read = read(Pid::from_raw(child.id().cast_signed()), outputs.map(Stream::new));
    let status = child.wait()?;
    let [stdout, stderr] = read?;
    Ok(Output { status, stdout, stderr })
}

/// One output stream of a child.
struct Stream {
    /// `None` once it is closed.
    pipe: Option<File>,
    bytes: Vec<u8>,
}

impl Stream {
    fn new(pipe: Option<OwnedFd>) -> Self {
        Self { pipe: pipe.map(File::from), bytes: Vec::new() }
    }

    /// Reads what is available, up to 4 KiB.
    fn take(&mut self) -> io::Result<()> {
        let mut chunk = [0; 4096];
        if let Some(pipe) = &mut self.pipe {
            let length = pipe.read(&mut chunk)?;
            self.bytes.extend_from_slice(&chunk[..length]);
            if length == 0 {
                self.pipe = None;
            }
        }
        Ok(())
    }
}

/// Reads the outputs of the child `pid`, which has not been waited for, until both are closed.
fn read(pid: Pid, mut streams: [Stream; 2]) -> io::Result<[Vec<u8>; 2]> {
    /// Milliseconds until a signal is noticed that comes just before the wait.
    const CHECK_EVERY_MS: u8 = 100;
    let mut passed_on = false;
    while streams.iter().any(|stream| stream.pipe.is_some()) {
        if let Some(signal) = interrupted_by().filter(|_| !passed_on) {
            // Not waited for, so the PID is still the child's. One that has ended needs no signal.
            let _ = kill(pid, signal);
            passed_on = true;
        }
        let open: Vec<_> = streams.iter_mut().filter(|stream| stream.pipe.is_some()).collect();
        let pipes = open.iter().filter_map(|stream| stream.pipe.as_ref());
        let mut polled: Vec<_> = pipes.map(|pipe| PollFd::new(pipe.as_fd(), PollFlags::POLLIN)).collect();
        match poll(&mut polled, PollTimeout::from(CHECK_EVERY_MS)) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let ready: Vec<_> = polled.iter().map(|fd| fd.any().unwrap_or(false)).collect();
        open.into_iter().zip(ready).filter(|(_, ready)| *ready).try_for_each(|(stream, _)| stream.take())?;
    }
    Ok(streams.map(|stream| stream.bytes))
}

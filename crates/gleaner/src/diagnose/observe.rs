//! Observes: starts the command, samples for the time asked for, reads the counters.

use std::ffi::OsString;
use std::os::fd::AsFd as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use gleaner_engine::live::SpawnError;
use gleaner_kernel::Root;
use gleaner_kernel::stat::StatSensor;
use gleaner_proto::diagnosis::Timeline;
use gleaner_trace::{Parts, Scope, Snapshot, Tracer};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use super::timeline::Readings;

/// How long to observe something that already runs, by default; also how long a command has to end after SIGTERM.
const DEFAULT_TIME: Duration = Duration::from_secs(5);
/// Sampling interval.
const SAMPLING_INTERVAL: Duration = Duration::from_millis(50);

/// What the observation found.
pub(super) struct Observed {
    pub(super) snapshot: Snapshot,
    /// Steal, in vCPUs.
    pub(super) stolen: f64,
    /// Where the vCPUs' time went.
    pub(super) timeline: Timeline,
    /// Set if the target no longer exists, as a sentence.
    pub(super) vanished: Option<String>,
    /// Gleaner's own exit status: the command's, if it failed on its own.
    pub(super) exit: ExitCode,
}

/// Traces the scope for `time`, while `command` runs if there is one.
///
/// # Errors
/// Tracing is not possible here, the command cannot be started, or the counters cannot be read.
pub(super) fn observe(
    scope: &Scope,
    command: &[OsString],
    time: Option<Duration>,
) -> anyhow::Result<Observed> {
    let signals = Signals::block()?;
    let tracer = Tracer::start(scope, &Parts::all())?;
    let mut stat = StatSensor::new(&Root::system())?;
    let before = stolen(&mut stat)?;
    let started = Instant::now();
    let mut readings = Readings::new();
    readings.add(Duration::ZERO, &tracer.vcpu_times()?, &stat.read()?.cpus);
    let mut child = spawn(command, &signals)?;
    let limit = time.or_else(|| child.is_none().then_some(DEFAULT_TIME));
    let mut ended: Option<ExitStatus> = None;
    while ended.is_none() && limit.is_none_or(|limit| started.elapsed() < limit) {
        let left = limit.map_or(SAMPLING_INTERVAL, |limit| {
            limit.saturating_sub(started.elapsed()).min(SAMPLING_INTERVAL)
        });
        if signals.wait(left)?.is_some_and(|signal| signal != Signal::SIGCHLD) {
            break;
        }
        if readings.is_due(started.elapsed()) {
            readings.add(started.elapsed(), &tracer.vcpu_times()?, &stat.read()?.cpus);
        }
        if let Some(child) = &mut child {
            ended = child.try_wait().context("cannot wait for the command")?;
        }
    }
    readings.add(started.elapsed(), &tracer.vcpu_times()?, &stat.read()?.cpus);
    let snapshot = tracer.snapshot()?;
    drop(tracer);
    let stolen = (stolen(&mut stat)?.saturating_sub(before)).as_secs_f64() / started.elapsed().as_secs_f64();
    if let (Some(child), None) = (&mut child, ended) {
        end(child, &signals)?;
    }
    Ok(Observed {
        snapshot,
        stolen,
        timeline: readings.timeline(),
        vanished: vanished(scope),
        exit: exit_code(ended),
    })
}

/// A sentence if the target no longer exists.
fn vanished(scope: &Scope) -> Option<String> {
    match scope {
        Scope::Tree(pid) if !Path::new(&format!("/proc/{pid}")).exists() => {
            Some(format!("Process {pid} ended while it was observed."))
        }
        Scope::Cgroup(path) if !path.exists() => {
            Some(format!("The group {} was removed while it was observed.", path.display()))
        }
        _ => None,
    }
}

/// The exit status for a command that ended with `ended`, or was stopped (`None`).
pub(crate) fn exit_code(ended: Option<ExitStatus>) -> ExitCode {
    let failed = ended.filter(|status| !status.success());
    let code = failed.map(|status| status.code().or_else(|| status.signal().map(|n| 128 + n)).unwrap_or(1));
    code.map_or(ExitCode::SUCCESS, |code| ExitCode::from(u8::try_from(code & 0xff).unwrap_or(1)))
}

fn stolen(stat: &mut StatSensor) -> anyhow::Result<Duration> {
    Ok(stat.read()?.cpus.iter().map(|(_, times)| times.steal).sum())
}

/// Starts the command, if there is one. Its output goes to standard error, since standard output is the report's.
pub(crate) fn spawn(command: &[OsString], signals: &Signals) -> anyhow::Result<Option<Child>> {
    let Some((program, arguments)) = command.split_first() else { return Ok(None) };
    let mask = signals.before;
    let mut child = Command::new(program);
    child.args(arguments).stdout(std::io::stderr().as_fd().try_clone_to_owned()?);
    // SAFETY: between fork and exec the closure only calls sigprocmask(2), which is async-signal-safe.
    unsafe { child.pre_exec(move || Ok(mask.thread_set_mask()?)) };
    let started = child.spawn().map_err(|error| SpawnError::new(program, error))?;
    Ok(Some(started))
}

/// Stops a command that is still running at the end of the observation.
pub(crate) fn end(child: &mut Child, signals: &Signals) -> anyhow::Result<()> {
    // Not waited for yet, so the PID is still its own.
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).context("cannot end the command")?;
    let deadline = Instant::now() + DEFAULT_TIME;
    while Instant::now() < deadline {
        if child.try_wait()?.is_some() {
            return Ok(());
        }
        signals.wait(deadline.saturating_duration_since(Instant::now()))?;
    }
    child.kill().context("cannot kill the command")?;
    child.wait()?;
    Ok(())
}

/// Ctrl-C and SIGTERM end the observation but not the report; SIGCHLD reports the command's end.
pub(crate) struct Signals {
    fd: SignalFd,
    before: SigSet,
}

impl Signals {
    pub(crate) fn block() -> anyhow::Result<Self> {
        let set: SigSet = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGCHLD].into_iter().collect();
        let before = set.thread_swap_mask(SigmaskHow::SIG_BLOCK).context("cannot block signals")?;
        let fd = SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
            .context("cannot open a signal descriptor")?;
        Ok(Self { fd, before })
    }

    /// The next signal, if one comes within `time`.
    pub(crate) fn wait(&self, time: Duration) -> anyhow::Result<Option<Signal>> {
        let timeout = PollTimeout::try_from(time).unwrap_or(PollTimeout::MAX);
        poll(&mut [PollFd::new(self.fd.as_fd(), PollFlags::POLLIN)], timeout)
            .context("cannot wait for signals")?;
        let signal = self.fd.read_signal().context("cannot read a signal")?;
        Ok(signal.and_then(|info| Signal::try_from(info.ssi_signo.cast_signed()).ok()))
    }
}

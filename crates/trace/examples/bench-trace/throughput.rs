//! What tracing costs real servers. One load runs throughout under `gleaner run` with a fixed setting: a search for a
//! better one would change the rate by more than tracing does. Blocks with and without tracing alternate in the order B
//! T T B, so that drift affects both alike.

use std::error::Error;
use std::fs::{self, Permissions};
use std::io::{BufRead as _, BufReader, Lines};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use gleaner_bench::stats;
use gleaner_trace::{Part, Parts, Scope, Snapshot, Tracer};
use tempfile::TempDir;

use crate::Outcome;

const PAIRS: usize = 16;
/// Measured seconds per block.
const MEASURED: usize = 3;
/// Seconds before each block: for the server to warm up, and for tracing to measure itself and settle.
const WARM_UP: usize = 5;
const PLAIN_SETTLING: usize = 1;
const TRACED_SETTLING: usize = 3;

/// A single chain of wake-ups is the worst case: on one vCPU each is a context switch, and no time is spent waiting for
/// another vCPU.
pub(crate) fn redis() -> Outcome {
    let mut load = Load::start("redis-1", "consolidate:1")?;
    compare(&mut load, "as gleaner diagnose", &Parts::all())?;
    compare(&mut load, "as gleaner top", &Parts::of([Part::Idle]))
}

pub(crate) fn mariadb() -> Outcome {
    let mut load = Load::start("point-select-16", "haltpoll:200us")?;
    compare(&mut load, "as gleaner diagnose", &Parts::all())
}

fn compare(load: &mut Load, what: &str, parts: &Parts) -> Outcome {
    let (mut ratios, mut rates, mut last) = (Vec::new(), Vec::new(), None);
    for pair in 0..PAIRS {
        let mut rate = [0.0; 2];
        let order = if pair % 2 == 0 { [false, true] } else { [true, false] };
        for traced in order {
            let tracer = if traced { Some(Tracer::start(&Scope::System, parts)?) } else { None };
            load.seconds(if traced { TRACED_SETTLING } else { PLAIN_SETTLING })?;
            rate[usize::from(traced)] = load.seconds(MEASURED)?;
            if let Some(tracer) = tracer {
                last = Some(tracer.snapshot()?);
            }
        }
        rates.push(rate[0]);
        ratios.push(rate[1] / rate[0]);
    }
    let ratio = stats::median(&ratios).ok_or("nothing was measured")?;
    let (low, high) = stats::ratio(&ratios).map_or((f64::NAN, f64::NAN), |r| (r.low, r.high));
    println!(
        "  {what}: {ratio:.4} of the untraced rate ({low:.4} to {high:.4}, {PAIRS} pairs; {:.0} a second untraced)",
        stats::median(&rates).unwrap_or_default()
    );
    if let Some(last) = last {
        print_cost(&last);
    }
    Ok(())
}

/// Prints what tracing reports about its own cost.
fn print_cost(seen: &Snapshot) {
    println!(
        "    tracing itself reports {:.2} % ({:.2} % for windows); it followed threads for 1/{} of the time; {:.0} \
         runs a second while it did",
        100.0 * seen.cost.share,
        100.0 * seen.cost.windows,
        seen.one_in,
        seen.cost.runs_per_second
    );
    let costliest: Vec<String> = seen
        .cost
        .programs
        .iter()
        .take(4)
        .map(|(name, share)| format!("{name} {:.2} %", 100.0 * share))
        .collect();
    println!("    costliest: {}", costliest.join(", "));
    for missing in &seen.missing {
        println!("    not available: {missing}");
    }
}

/// A server and its client under `gleaner run`, until dropped.
pub(crate) struct Load {
    child: Child,
    rates: Lines<BufReader<ChildStdout>>,
    _state: TempDir,
}

impl Load {
    pub(crate) fn start(row: &str, setting: &str) -> Result<Self, Box<dyn Error>> {
        let state = tempfile::tempdir()?;
        // Servers run as their own users and need access to their directories below this one.
        fs::set_permissions(state.path(), Permissions::from_mode(0o755))?;
        let mut child = Command::new(beside("gleaner")?)
            // Without Gleaner's own sensors, which would be in both kinds of blocks.
            .args(["run", "--quiet", "--no-bpf", "--fixed", setting, "--"])
            .arg(beside("gleaner-bench")?)
            .args(["rate", row, "--state"])
            .arg(state.path())
            .stdout(Stdio::piped())
            .spawn()?;
        let output = child.stdout.take().ok_or("the load has no output")?;
        let mut load = Self { child, rates: BufReader::new(output).lines(), _state: state };
        load.seconds(WARM_UP)?;
        Ok(load)
    }

    /// PID of `gleaner run`.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Mean rate over the next `seconds` seconds.
    pub(crate) fn seconds(&mut self, seconds: usize) -> Result<f64, Box<dyn Error>> {
        let mut sum = 0.0;
        for _ in 0..seconds {
            let line = self.rates.next().ok_or("the load ended by itself: its messages are above")??;
            sum += line.parse::<f64>()?;
        }
        Ok(sum / seconds as f64)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        // Gleaner passes the signal on to the load, waits for its end and restores the machine.
        let pid = nix::unistd::Pid::from_raw(self.child.id().cast_signed());
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let _ = self.child.wait();
    }
}

/// A program of this build; examples are one directory further down.
fn beside(name: &str) -> Result<PathBuf, Box<dyn Error>> {
    let own = std::env::current_exe()?;
    let path =
        own.parent().and_then(|dir| dir.parent()).map(|dir| dir.join(name)).filter(|path| path.exists());
    path.ok_or_else(|| format!("there is no {name} beside this program: make build").into())
}

//! Records the progress of a running program in blocks of 10 ms, for replay by `make bench-guard`.
//!
//! usage: record-noise SECONDS PID...    (prints lines of microseconds and bytes read and written since then)

use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;

const BLOCK: Duration = Duration::from_millis(10);

fn moved(pids: &[String]) -> anyhow::Result<u64> {
    let mut sum = 0;
    for pid in pids {
        let path = format!("/proc/{pid}/io");
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let field = |name: &str| {
            text.lines().find_map(|l| l.strip_prefix(name)).and_then(|n| n.trim().parse::<u64>().ok())
        };
        sum += field("rchar:").unwrap_or(0) + field("wchar:").unwrap_or(0);
    }
    Ok(sum)
}

fn record(seconds: u64, pids: &[String]) -> anyhow::Result<()> {
    let (start, first) = (Instant::now(), moved(pids)?);
    let mut rows = Vec::new();
    while start.elapsed() < Duration::from_secs(seconds) {
        rows.push((start.elapsed().as_micros(), moved(pids)? - first));
        let next = BLOCK * u32::try_from(rows.len())?;
        std::thread::sleep(next.saturating_sub(start.elapsed()));
    }
    let mut out = std::io::stdout().lock();
    Ok(rows.iter().try_for_each(|(us, bytes)| writeln!(out, "{us} {bytes}"))?)
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let seconds = args.first().and_then(|s| s.parse().ok());
    let result = match (seconds, &args[..]) {
        (Some(seconds), [_, pids @ ..]) if !pids.is_empty() => record(seconds, pids),
        _ => Err(anyhow::anyhow!("usage: record-noise SECONDS PID...")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "record-noise: {error:#}");
            ExitCode::FAILURE
        }
    }
}

//! What a scheduler did, printed by another process.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use gleaner_print::outln;
use gleaner_scx::Stats;
use gleaner_scx_control::{Client, SOCKET, values};

/// Prints the counts of the scheduler that runs, each `interval`, until it has ended.
pub(crate) fn watch(interval: Duration, json: bool) -> anyhow::Result<ExitCode> {
    let mut client = Client::connect(Path::new(SOCKET))?.ok_or_else(|| {
        anyhow::anyhow!("no scx_gleaner answers at {SOCKET}: start one with `gleaner-host sched start`")
    })?;
    loop {
        let stats = client.status()?.stats;
        if json {
            outln!("{}", serde_json::to_string(&values(&stats))?)?;
        } else {
            outln!("{}", Stats::of(&stats).text())?;
        }
        std::thread::sleep(interval);
    }
}

/// Prints what each count says.
pub(crate) fn describe() -> anyhow::Result<ExitCode> {
    for stat in Stats::default().described() {
        outln!("{:20} {:18} {}", stat.name, stat.unit, stat.description)?;
    }
    Ok(ExitCode::SUCCESS)
}

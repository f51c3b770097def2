//! Rows without a server: `perf bench sched pipe` and sysbench's own tests.

use std::time::Duration;

use gleaner_kernel::Root;

use super::error::{Result, ServersError};
use super::launch::Launch;
use super::machine::Meter;
use super::sample::Measured;
use super::window::{Window, number_after};

/// Assumed speed for the pipe's first run, in round trips per second. Real ones are 10,000-1,000,000.
const FIRST_GUESS: f64 = 20_000.0;

/// Round trips of the pipe over some time.
struct PipeRounds {
    round_trips: u64,
    time: Duration,
    command: String,
}

impl PipeRounds {
    fn speed(&self) -> f64 {
        self.round_trips as f64 / self.time.as_secs_f64()
    }
}

pub(super) fn pipe(window: Window) -> Result<Measured> {
    let warm = fill(window.warmup, FIRST_GUESS)?;
    let meter = Meter::start(&Root::system())?;
    let piped = fill(window.length, warm.speed())?;
    Ok(Measured { sample: meter.stop()?.with_rate(piped.speed()), commands: vec![piped.command] })
}

/// Runs the pipe for about `length`, assuming the given `speed`. perf takes a number of round trips, not a
/// time, so if it turns out faster and most of the time is left, another run at the last observed speed fills
/// the rest.
fn fill(length: Duration, mut speed: f64) -> Result<PipeRounds> {
    let mut all = PipeRounds { round_trips: 0, time: Duration::ZERO, command: String::new() };
    loop {
        let left = length.saturating_sub(all.time);
        if all.round_trips > 0 && left <= length / 10 {
            return Ok(all);
        }
        let rounds = whole(left.as_secs_f64() * speed).max(1_000);
        let launch = Launch::new("perf")
            .args(["bench", "--format=simple", "sched", "pipe", "--loop"])
            .args([rounds.to_string()]);
        let output = launch.output()?;
        let time = output.trim().parse().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
        let time =
            time.filter(|t| !t.is_zero()).ok_or(ServersError::Answer { program: "perf", answer: output })?;
        speed = rounds as f64 / time.as_secs_f64();
        all.round_trips += rounds;
        all.time += time;
        all.command = launch.line();
    }
}

/// A count from the product of a time and a rate.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, which is right here"
)]
fn whole(count: f64) -> u64 {
    count as u64
}

pub(super) fn sysbench(test: &str, args: &[&str], window: Window) -> Result<Measured> {
    let args = [args, &["--time=0", "--report-interval=1", "run"]].concat();
    let client = Launch::new("sysbench").args([test]).args(args);
    let sample = window.of_lines(&client, |line| number_after(line, "eps: "))?;
    Ok(Measured { sample, commands: vec![client.line()] })
}

#[cfg(test)]
mod tests {
    use gleaner_proto::result::Metric;

    use super::*;
    use crate::servers::launch::find_program;

    #[test]
    fn the_pipe_fills_its_window_even_without_a_warmup() {
        if find_program("perf").is_none() {
            return gleaner_testing::skipped("there is no perf; `scripts/setup test` installs linux-perf");
        }
        let window = Window { warmup: Duration::ZERO, length: Duration::from_millis(200) };
        let Measured { sample, commands } = pipe(window).unwrap();
        let wall_s = sample.get(Metric::WallS);
        assert!(wall_s >= 0.18, "{sample:?}");
        // The speed depends on the machine, but a run has at least 1,000 round trips.
        assert!(sample.rate() * wall_s > 999.5, "{sample:?}");
        assert!(commands[0].contains("bench --format=simple sched pipe --loop"), "{commands:?}");
    }
}

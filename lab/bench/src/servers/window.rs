//! The measured window: between two readings of the counters, after the warm-up.

use std::io::{BufRead, BufReader};
use std::thread;
use std::time::{Duration, Instant};

use gleaner_kernel::Root;
use gleaner_proto::result::Metric;
use nix::errno::Errno;
use nix::poll::PollTimeout;

use super::error::{Result, ServersError};
use super::launch::Launch;
use super::machine::Meter;
use super::running::Running;
use super::sample::Sample;
use crate::client::{self, Address, Pace, Protocol};
use crate::runner::{arrival, interrupted};

/// All cells have the same arrivals, so that their effect on latency cancels out in a ratio. With this seed,
/// the number of arrivals in the rows' windows is within 0.5 % of their rate; a random seed would deviate by
/// 1 % or 2 %.
const ARRIVALS: u64 = 273;

/// Most operations that one reading of a server's counter adds to it: Redis counts the query and `QUIT`.
const OWN_OPERATIONS: u64 = 2;

/// Timing of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// How long the load runs before the measurement, in every mode alike.
    pub warmup: Duration,
    /// The measured time. Loads that report once per second round it up to whole seconds.
    pub length: Duration,
}

impl Window {
    /// Timeout of a cell, with the time that starting and stopping its server can take.
    pub(crate) fn timeout(self) -> Duration {
        self.warmup + self.length + Duration::from_secs(90)
    }

    /// Measures a running load by a counter of operations, which is only read at both ends of the window: the
    /// harness sleeps in between. The warm-up starts once the client is working.
    pub(super) fn of_counter(
        self,
        client: &mut Running,
        mut counter: impl FnMut() -> Result<u64>,
    ) -> Result<Sample> {
        let (idle, mut readings) = (counter()?, 0);
        client.wait_ready(|| {
            readings += 1;
            counter().is_ok_and(|now| now > idle + readings * OWN_OPERATIONS)
        })?;
        sleep(self.warmup)?;
        let (meter, before) = (Meter::start(&Root::system())?, counter()?);
        sleep(self.length)?;
        let after = counter()?;
        let sample = meter.stop()?;
        if let Some(status) = client.wait(Duration::ZERO)? {
            return Err(client.ended(status));
        }
        let rate = after.saturating_sub(before) as f64 / sample.get(Metric::WallS);
        Ok(sample.with_rate(rate))
    }

    /// Measures with our own client, in a thread of this process; returns the sample and an equivalent
    /// command line.
    pub(super) fn of_client(
        self,
        protocol: Protocol,
        address: Address,
        pace: Pace,
        connections: u32,
    ) -> Result<(Sample, String)> {
        let options = client::Options {
            protocol,
            address,
            pace,
            connections: connections as usize,
            warmup: self.warmup,
            window: self.length,
            seed: ARRIVALS,
            timeout: client::TIMEOUT,
        };
        let (outcome, sample) = thread::scope(|scope| {
            let client = scope.spawn(|| client::run(&options));
            sleep(self.warmup)?;
            let meter = Meter::start(&Root::system())?;
            sleep(self.length)?;
            let sample = meter.stop()?;
            let outcome = client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            Ok::<_, ServersError>((outcome, sample))
        })?;
        outcome.check(&options)?;
        let mut sample = sample.with_rate(outcome.rate);
        if let Some(send) = outcome.from_send.filter(|_| pace != Pace::Closed) {
            let client_s = outcome.client_cpu * sample.get(Metric::WallS);
            sample.metrics.extend([
                (Metric::MeanUs, send.mean_us),
                (Metric::P99Us, send.p99_us),
                (Metric::CpuClientS, client_s),
            ]);
            let due = outcome.from_due.iter();
            let due = due.flat_map(|due| [(Metric::DueMeanUs, due.mean_us), (Metric::DueP99Us, due.p99_us)]);
            sample.metrics.extend(due);
        }
        Ok((sample, options.command_line()))
    }

    /// Warm-up and length in whole seconds, rounded up; the length is at least one.
    pub(super) fn whole_seconds(self) -> (u64, u64) {
        let whole = |time: Duration| u64::try_from(time.as_millis().div_ceil(1000)).unwrap_or(u64::MAX);
        (whole(self.warmup), whole(self.length).max(1))
    }

    /// Measures by the rates that `client` prints once per second: drops those of the warm-up, averages the
    /// rest, and stops the client.
    pub(super) fn of_lines(self, client: &Launch, rate: impl Fn(&str) -> Option<f64>) -> Result<Sample> {
        let whole =
            |time: Duration| usize::try_from(time.as_millis().div_ceil(1000)).unwrap_or(usize::MAX).max(1);
        let (skip, count) = (whole(self.warmup), whole(self.length));
        let (running, output) = client.start_piped()?;
        let (mut log, mut rates, mut meter) = (String::new(), Vec::new(), None::<Meter>);
        for line in BufReader::new(output).lines() {
            let line = line.map_err(ServersError::system("read a client's output"))?;
            if interrupted() {
                return Err(ServersError::Interrupted);
            }
            if let Some(value) = rate(&line) {
                rates.push(value);
            } else {
                log.push_str(&line);
                log.push('\n');
            }
            if rates.len() == skip && meter.is_none() {
                meter = Some(Meter::start(&Root::system())?);
            }
            if let Some(meter) = meter.take_if(|_| rates.len() == skip + count) {
                let sample = meter.stop()?;
                running.stop()?;
                return Ok(sample.with_rate(rates[skip..].iter().sum::<f64>() / count as f64));
            }
        }
        running.failed(&log)
    }
}

/// Sleeps; a signal interrupts it.
pub(super) fn sleep(time: Duration) -> Result<()> {
    let end = Instant::now() + time;
    loop {
        if interrupted() {
            return Err(ServersError::Interrupted);
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        // Round up to whole milliseconds: rounding down would spin during the last one.
        let millis = i32::try_from(left.as_micros().div_ceil(1000)).unwrap_or(i32::MAX);
        let timeout = PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX);
        match nix::poll::poll(arrival().as_mut_slice(), timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(errno) => return Err(ServersError::system("sleep")(errno)),
        }
    }
}

/// The number after `label` in `line`.
pub(super) fn number_after(line: &str, label: &str) -> Option<f64> {
    let rest = line.split_once(label)?.1.trim_start();
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    rest[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_behind_their_labels() {
        let line = "[ 1s ] thds: 2 eps: 1836.18 lat (ms,95%): 1.58";
        assert_eq!(number_after(line, "eps: "), Some(1836.18));
        assert_eq!(number_after(line, "tps: "), None);
        assert_eq!(number_after("eps: none", "eps: "), None);
    }

    #[test]
    fn a_client_that_reports_every_second_is_measured_after_its_warmup() {
        let script = "echo hello; for i in 1 2 3 4; do echo tps: $i; done; exec sleep 60";
        let client = Launch::new("sh").args(["-c", script]);
        let window = Window { warmup: Duration::from_secs(1), length: Duration::from_secs(2) };
        let began = Instant::now();
        let sample = window.of_lines(&client, |line| number_after(line, "tps: ")).unwrap();
        assert!((sample.rate() - 2.5).abs() < 1e-9, "the mean of 2 and 3: {sample:?}");
        assert!(began.elapsed() < Duration::from_secs(20), "the client was stopped, not waited for");
    }

    #[test]
    fn a_client_that_fails_is_quoted() {
        let client = Launch::new("sh").args(["-c", "echo no such table; exit 3"]);
        let window = Window { warmup: Duration::ZERO, length: Duration::ZERO };
        let error = window.of_lines(&client, |_| None).unwrap_err().to_string();
        assert!(error.contains("no such table") && error.contains("exit status: 3"), "{error}");
    }
}

//! Measures the delay of fast expansion.

use std::error::Error;
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gleaner_policy::CpuSet;
use gleaner_trace::OverloadSensor;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sched::sched_setaffinity;
use nix::unistd::Pid;

use crate::Outcome;

/// Prints the delay over 200 steps. In each, a second spinning thread joins the first on its vCPU.
pub(crate) fn overload() -> Outcome {
    const STEPS: usize = 200;
    let mut sensor = OverloadSensor::load()?;
    let persistence = Duration::from_millis(1);
    let stop = AtomicBool::new(false);
    let (mut delays, mut arming, mut disturbed) = (Vec::new(), Vec::new(), 0);
    // Measure from another vCPU, which is not overloaded.
    pin(1)?;
    thread::scope(|scope| -> Result<(), Box<dyn Error>> {
        let _stop = Stop(&stop);
        scope.spawn(|| spin_on_first(&stop));
        while delays.len() < STEPS {
            let start = Instant::now();
            sensor.arm(&CpuSet::first(1), 2, persistence)?;
            arming.push(start.elapsed());
            // Vary the phase relative to the tick.
            thread::sleep(Duration::from_micros(3000 + 137 * (delays.len() as u64 % 29)));
            if sensor.read().is_some() {
                // Another program was waiting in the meantime.
                disturbed += 1;
                continue;
            }
            delays.push(step(&sensor)?);
            sensor.read();
        }
        Ok(())
    })?;
    delays.sort();
    arming.sort();
    let (median, p99) = (delays[STEPS / 2], delays[STEPS * 99 / 100]);
    println!(
        "  persistence {persistence:?}: median {median:.2?}, p99 {p99:.2?}, longest {:.2?} over {STEPS} steps, \
         {disturbed} more were disturbed",
        delays[STEPS - 1]
    );
    println!(
        "  arming takes {:.2?} in the median, {:.2?} at most",
        arming[arming.len() / 2],
        arming[arming.len() - 1]
    );
    Ok(())
}

/// Delay from the second thread's arrival on the vCPU to the event.
fn step(sensor: &OverloadSensor) -> Result<Duration, Box<dyn Error>> {
    let (over, joined, zero) = (AtomicBool::new(false), AtomicU64::new(0), Instant::now());
    thread::scope(|scope| -> Result<Duration, Box<dyn Error>> {
        let _over = Stop(&over);
        scope.spawn(|| {
            joined.store(elapsed_ns(&zero), Ordering::Release);
            spin_on_first(&over);
        });
        let ready = poll(&mut [PollFd::new(sensor.fd(), PollFlags::POLLIN)], PollTimeout::from(2000_u16))?;
        let arrived = elapsed_ns(&zero);
        match joined.load(Ordering::Acquire) {
            joined if ready > 0 && joined > 0 => Ok(Duration::from_nanos(arrived.saturating_sub(joined))),
            _ => Err("no event within 2 s, or one before the step".into()),
        }
    })
}

fn elapsed_ns(zero: &Instant) -> u64 {
    u64::try_from(zero.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// Ends a spinning thread, even if a step fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn pin(cpu: usize) -> nix::Result<()> {
    let mut set = nix::sched::CpuSet::new();
    set.set(cpu)?;
    sched_setaffinity(Pid::from_raw(0), &set)
}

fn spin_on_first(stop: &AtomicBool) {
    // If vCPU 0 is not allowed, the step ends without an event.
    let _ = pin(0);
    let mut n = 1_u64;
    while !stop.load(Ordering::Acquire) {
        n = black_box(n.wrapping_mul(3).wrapping_add(1));
    }
}

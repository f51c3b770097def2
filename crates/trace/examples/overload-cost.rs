//! Run by `make bench-trace`: what armed fast expansion costs a workload consolidated on one vCPU. Run it as root on an
//! otherwise idle machine. `make promises` judges the number.

#![allow(clippy::print_stdout, reason = "a measurement for developers: the end of its output may end it")]

use std::error::Error;
use std::time::{Duration, Instant};

use gleaner_bench::stats::{estimate, median};
use gleaner_bench::workload::{Amount, Parameters, Workload};
use gleaner_policy::CpuSet;
use gleaner_trace::OverloadSensor;
use nix::sched::sched_setaffinity;
use nix::unistd::Pid;

/// Pairs of a block with and one without, in the order B C C B, so that drift affects both alike.
const PAIRS: usize = 20;
const BLOCK: Duration = Duration::from_secs(1);

fn main() -> Result<(), Box<dyn Error>> {
    let start = Instant::now();
    let mut sensor = OverloadSensor::load()?;
    let loaded = start.elapsed();
    let one = CpuSet::first(1);
    let mut there = nix::sched::CpuSet::new();
    there.set(0)?;
    sched_setaffinity(Pid::from_raw(0), &there)?;
    let start = Instant::now();
    arm(&mut sensor, &one)?;
    let first = start.elapsed();
    let start = Instant::now();
    arm(&mut sensor, &one)?;
    let again = start.elapsed();
    println!("\nFast expansion beside a chain of requests on one vCPU, interleaved");
    println!("  loading takes {loaded:.2?}, arming {first:.2?}, arming again {again:.2?}");
    let mut ratios = Vec::new();
    let mut plain = Vec::new();
    for pair in 0..PAIRS {
        let mut rates = [0.0; 2];
        for armed in if pair % 2 == 0 { [false, true] } else { [true, false] } {
            if armed {
                arm(&mut sensor, &one)?;
            } else {
                stop(&mut sensor);
            }
            rates[usize::from(armed)] = rate()?;
        }
        ratios.push(rates[1] / rates[0]);
        plain.push(rates[0]);
    }
    let reported = sensor.read().is_some();
    let Some(ratio) = estimate(&ratios) else { return Err("no blocks".into()) };
    println!(
        "  {:.4} of the rate without ({:.4} to {:.4}, {PAIRS} pairs; {:.0} requests/s)",
        ratio.median,
        ratio.low,
        ratio.high,
        median(&plain).unwrap_or_default()
    );
    if reported {
        println!("  disturbed: other programs queued up on the vCPU, and the watch ended");
    }
    Ok(())
}

/// Arms as the engine does for a pair on one vCPU, but with a threshold that is never reached.
fn arm(sensor: &mut OverloadSensor, active: &CpuSet) -> Result<(), Box<dyn Error>> {
    Ok(sensor.arm(active, 64, Duration::from_micros(600))?)
}

/// Waits for the timer to stop, which goes on for a while after disarming.
fn stop(sensor: &mut OverloadSensor) {
    sensor.disarm();
    let end = Instant::now() + Duration::from_secs(5);
    while sensor.is_ticking() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn rate() -> Result<f64, Box<dyn Error>> {
    Ok(Workload::RequestResponse.run(Amount::Time(BLOCK), &Parameters::default())?.throughput())
}

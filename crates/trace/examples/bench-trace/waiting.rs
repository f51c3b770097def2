//! What measuring wake-up latencies costs: a chain of requests consolidated on one vCPU, where each wake-up is a
//! context switch, and a real server.

use std::error::Error;
use std::time::{Duration, Instant};

use gleaner_bench::stats::median;
use gleaner_bench::workload::{Amount, Parameters, Workload};
use gleaner_trace::{LatencySensor, Scope};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::Outcome;
use crate::interleaved::{compare, scope, timed};
use crate::throughput::Load;

const PAIRS: usize = 8;
/// Short blocks, since other load varies over time.
const SHORT_PAIRS: usize = 40;
const BLOCK: Duration = Duration::from_millis(200);
const SETTLING: Duration = Duration::from_millis(30);

/// Compared with programs that are not attached.
#[derive(Clone, Copy)]
enum Arm {
    Armed,
    /// Attached but not armed.
    Idle,
}

pub(crate) fn waiting() -> Outcome {
    let start = Instant::now();
    let mut sensor = LatencySensor::load(&Scope::Tree(std::process::id()))?;
    let loaded = start.elapsed();
    let start = Instant::now();
    sensor.arm()?;
    let first = start.elapsed();
    let reads: Vec<f64> = (0..200).map(|_| timed(|| drop(sensor.read()))).collect();
    let again: Vec<f64> = (0..200)
        .map(|_| {
            sensor.disarm();
            timed(|| drop(sensor.arm()))
        })
        .collect();
    println!(
        "  loading takes {loaded:.2?}, arming {first:.2?}, arming again {:.0} us, a reading {:.0} us",
        1e6 * median(&again).unwrap_or_default(),
        1e6 * median(&reads).unwrap_or_default()
    );
    consolidated(&mut sensor)?;
    drop(sensor);
    server("redis-1, vCPUs halt", "halt")?;
    server("redis-1, haltpoll", "haltpoll:200us")?;
    server("redis-1, one vCPU", "consolidate:1")
}

/// Prints the cost per event, which shows best where there is little else.
fn consolidated(sensor: &mut LatencySensor) -> Outcome {
    let before = sched_getaffinity(Pid::from_raw(0))?;
    let mut one = CpuSet::new();
    one.set(0)?;
    sched_setaffinity(Pid::from_raw(0), &one)?;
    let mut rate = |block| {
        let amount = Amount::Time(if block == Block::Settling { SETTLING } else { BLOCK });
        Ok(Workload::RequestResponse.run(amount, &Parameters::default())?.throughput())
    };
    with_sensor("chain of requests on one vCPU, armed", SHORT_PAIRS, sensor, Arm::Armed, &mut rate)?;
    with_sensor("chain of requests on one vCPU, attached only", SHORT_PAIRS, sensor, Arm::Idle, &mut rate)?;
    sched_setaffinity(Pid::from_raw(0), &before)?;
    Ok(())
}

fn server(what: &str, setting: &str) -> Outcome {
    let mut load = Load::start("redis-1", setting)?;
    let mut sensor = LatencySensor::load(&scope(&load)?)?;
    let mut rate = |_| load.seconds(1);
    with_sensor(what, PAIRS, &mut sensor, Arm::Armed, &mut rate)
}

/// What a block is run for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Block {
    /// Lets the effects of the previous block pass, and the sensor learn the rate of wake-ups.
    Settling,
    Measured,
}

type Rate<'a> = dyn FnMut(Block) -> Result<f64, Box<dyn Error>> + 'a;

fn with_sensor(
    what: &str,
    pairs: usize,
    sensor: &mut LatencySensor,
    arm: Arm,
    rate: &mut Rate<'_>,
) -> Outcome {
    let mut seen = None;
    compare(what, pairs, &mut |with| {
        sensor.detach();
        if with {
            sensor.arm()?;
            if matches!(arm, Arm::Idle) {
                sensor.disarm();
            }
        }
        rate(Block::Settling)?;
        sensor.read();
        let measured = rate(Block::Measured)?;
        seen = sensor.read().or(seen.take());
        Ok(measured)
    })?;
    if let Some(seen) = seen {
        let tail = seen.known.quantile(0.99).unwrap_or_default();
        println!(
            "    {} wake-ups in the last block, {} latencies known: mean {:.2?}, p99 {tail:.2?}",
            seen.wake_ups,
            seen.known.count,
            seen.known.mean()
        );
    }
    Ok(())
}

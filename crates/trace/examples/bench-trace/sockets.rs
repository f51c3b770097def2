//! What counting socket traffic costs a real server, and how much traffic there is per answer. Traffic measures
//! progress if that ratio is the same under every setting.

use std::error::Error;
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Instant;

use gleaner_bench::stats::{estimate, median};
use gleaner_kernel::Root;
use gleaner_kernel::cgroup::CgroupSetup;
use gleaner_trace::{Directions, Scope, SocketSensor, SocketTraffic};

use crate::Outcome;
use crate::interleaved::{compare, scope, timed};
use crate::throughput::Load;

const PAIRS: usize = 8;
/// Pairs of short blocks, each of so many messages.
const SHORT_PAIRS: usize = 40;
const ROUNDS: u32 = 20_000;
/// Measured seconds per block, and seconds before them.
const MEASURED: usize = 3;
const SETTLING: usize = 1;

/// The cost to redis with one connection.
pub(crate) fn cost() -> Outcome {
    server("redis-1, haltpoll", "haltpoll:200us")?;
    server("redis-1, one vCPU", "consolidate:1")
}

/// Prints the cost of each direction.
pub(crate) fn messages() -> Outcome {
    let start = Instant::now();
    let mut sensor = SocketSensor::start(&Scope::Tree(std::process::id()), Directions::Sent)?;
    let started = start.elapsed();
    let reading = |_| {
        timed(|| {
            sensor.read();
        })
    };
    let reads: Vec<f64> = (0..200).map(reading).collect();
    println!(
        "  starting takes {started:.2?}, a reading {:.1} us, ending {:.2} ms",
        1e6 * median(&reads).unwrap_or_default(),
        1e3 * timed(|| drop(sensor))
    );
    println!("  a message, of a tree: {}", message(&Scope::Tree(std::process::id()))?);
    let root = Root::system();
    let setup = CgroupSetup::detect(&root)?;
    for hierarchy in setup.v1.get("cpuset").into_iter().chain(&setup.v2) {
        let place = hierarchy.own.display().to_string();
        println!("  of group {place}: {}", message(&Scope::Cgroup(hierarchy.own.clone()))?);
    }
    println!("  of an unwatched process: {}", message(&Scope::Children)?);
    Ok(())
}

/// Prints the traffic per answer. The client is in the scope, so both ends are counted.
pub(crate) fn answers() -> Outcome {
    for row in ["redis-1", "redis-8", "point-select-1", "point-select-16"] {
        for setting in ["halt", "haltpoll:200us"] {
            let mut load = Load::start(row, setting)?;
            let mut sensor = SocketSensor::start(&scope(&load)?, Directions::Both)?;
            // A second ends with its line of output, so whatever is read then belongs to it.
            load.seconds(1)?;
            sensor.read();
            let rate = load.seconds(2 * MEASURED)?;
            let seen = sensor.read().ok_or("the kernel reports no traffic")?;
            println!("  {row}, {setting}: {}", per_answer(&seen, rate * (2 * MEASURED) as f64));
        }
    }
    Ok(())
}

fn per_answer(seen: &SocketTraffic, answers: f64) -> String {
    let [sent_messages, sent_bytes, received_messages, received_bytes] =
        [seen.sent_messages, seen.sent_bytes, seen.received_messages, seen.received_bytes]
            .map(|amount| amount as f64 / answers);
    format!(
        "{sent_messages:.3} messages of {sent_bytes:.1} bytes sent, {received_messages:.3} of {received_bytes:.1} \
         received, for each of {answers:.0} answers"
    )
}

/// What counting adds to a message that is sent and received at once, system calls included.
fn message(scope: &Scope) -> Result<String, Box<dyn Error>> {
    let (mut near, mut far) = UnixStream::pair()?;
    let mut rounds = || -> Result<f64, Box<dyn Error>> {
        let start = Instant::now();
        for _ in 0..ROUNDS {
            near.write_all(&[7; 32])?;
            far.read_exact(&mut [0; 32])?;
        }
        Ok(start.elapsed().as_secs_f64() / f64::from(ROUNDS))
    };
    let (mut plain, mut added) = (Vec::new(), Vec::new());
    for pair in 0..SHORT_PAIRS {
        let mut times = [0.0; 2];
        for with in if pair % 2 == 0 { [false, true] } else { [true, false] } {
            let _sensor = if with { Some(SocketSensor::start(scope, Directions::Sent)?) } else { None };
            times[usize::from(with)] = rounds()?;
        }
        plain.push(times[0]);
        added.push(times[1] - times[0]);
    }
    let added = estimate(&added).ok_or("nothing was measured")?;
    let plain = median(&plain).unwrap_or_default();
    let [median, low, high, plain] = [added.median, added.low, added.high, plain].map(|time| 1e9 * time);
    Ok(format!("{median:.0} ns ({low:.0} to {high:.0}) on top of {plain:.0} ns for sending and receiving it"))
}

fn server(what: &str, setting: &str) -> Outcome {
    let mut load = Load::start("redis-1", setting)?;
    let scope = scope(&load)?;
    let mut seen = SocketTraffic::default();
    compare(what, PAIRS, &mut |with| {
        let mut sensor = if with { Some(SocketSensor::start(&scope, Directions::Sent)?) } else { None };
        load.seconds(SETTLING)?;
        let rate = load.seconds(MEASURED)?;
        seen = sensor.as_mut().and_then(SocketSensor::read).unwrap_or(seen);
        Ok(rate)
    })?;
    println!("    {seen:?} in the last block");
    Ok(())
}

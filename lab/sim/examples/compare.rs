//! How fast the simulator is compared to SimGrid: the same loads, alternating. Run by `make bench-sim`; `make promises`
//! judges the numbers.
//!
//! usage: compare PROGRAM, the built lab/sim/simgrid/load.cpp
//!
//! The unit is an *action*: a thread's completed computation, post, wait or arrival at a barrier. Both sides
//! perform the same actions but model them differently: SimGrid has actors on hosts and semaphores; here each
//! post is a futex call under its queue's lock, an interrupt, and a vCPU that halts and is rescheduled.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a measurement for developers: the end of its output may end it"
)]

use std::process::{Command, ExitCode};
use std::time::Instant;

use gleaner_sim::{
    BarrierKind, ChannelKind, Costs, Dist, End, HostSpec, ObjectKind, Op, Program, Spec, VmSpec, World,
};

/// Runs of each load on each side.
const ROUNDS: usize = 5;

/// A load: the arguments for SimGrid's side, and ours.
struct Load {
    arguments: Vec<String>,
    program: Program,
    vcpus: u32,
    actions: u64,
}

fn ping_pong(rounds: u64) -> Load {
    let mut program = Program::new("ping-pong");
    let there = program.object(ObjectKind::Channel(ChannelKind::Futex));
    let back = program.object(ObjectKind::Channel(ChannelKind::Futex));
    let work = Op::Compute(Dist::Constant(1_000));
    program.role("ping", 1, vec![Op::Repeat(rounds), work, Op::Send(there), Op::Receive(back), Op::Again]);
    program.role("pong", 1, vec![Op::Repeat(rounds), Op::Receive(there), work, Op::Send(back), Op::Again]);
    let arguments = vec!["ping-pong".to_owned(), rounds.to_string()];
    Load { arguments, program, vcpus: 2, actions: 6 * rounds }
}

fn barrier(threads: u32, rounds: u64) -> Load {
    let mut program = Program::new("barrier");
    let meet = program.object(ObjectKind::Barrier { parties: threads, kind: BarrierKind::Block });
    for i in 0..threads {
        let work = Op::Compute(Dist::Constant(50_000 + 1_000 * u64::from(i)));
        program.role("thread", 1, vec![Op::Repeat(rounds), work, Op::Barrier(meet), Op::Again]);
    }
    let arguments = vec!["barrier".to_owned(), threads.to_string(), rounds.to_string()];
    Load { arguments, program, vcpus: threads, actions: 2 * u64::from(threads) * rounds }
}

/// Wall-clock seconds and the number of events.
fn here(load: &Load) -> Option<(f64, u64)> {
    let vm = VmSpec::new("vm", load.vcpus, Costs::THIS_VM).running(load.program.clone());
    let host = HostSpec { cores: load.vcpus, ..HostSpec::default() };
    let mut world = World::new(&Spec::new(host, vec![vm])).ok()?;
    let start = Instant::now();
    let end = world.run().clone();
    let seconds = start.elapsed().as_secs_f64();
    (end == End::Finished).then(|| (seconds, world.events()))
}

fn there(program: &str, load: &Load) -> Result<f64, String> {
    let output = Command::new(program).args(&load.arguments).output();
    let output = output.map_err(|e| format!("cannot start {program}: {e}; `make bench-sim` builds it"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let seconds = text.split_whitespace().next().and_then(|word| word.parse().ok());
    seconds.filter(|_| output.status.success()).ok_or_else(|| {
        format!(
            "{program} {}: {}: {}",
            load.arguments.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stderr)
        )
    })
}

/// Median, minimum and maximum.
fn spread(values: &mut [f64]) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[0], values[values.len() - 1])
}

fn compare(program: &str, load: &Load) -> Result<(), String> {
    let (mut ours, mut theirs, mut ratios, mut events) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for _ in 0..ROUNDS {
        let (seconds, handled) = here(load).ok_or("the load did not come to its end here")?;
        let other = there(program, load)?;
        events = handled;
        ours.push(load.actions as f64 / seconds / 1e6);
        theirs.push(load.actions as f64 / other / 1e6);
        ratios.push(other / seconds);
    }
    let (ours, theirs, (ratio, least, most)) = (spread(&mut ours), spread(&mut theirs), spread(&mut ratios));
    println!(
        "{}: {} actions; here {:.2} million actions/s (of {:.1} events each: {:.1} million events/s), SimGrid {:.2} million \
         actions/s: {ratio:.1} times as fast ({least:.1} to {most:.1}, {ROUNDS} rounds in turns)",
        load.arguments.join(" "),
        load.actions,
        ours.0,
        events as f64 / load.actions as f64,
        ours.0 * events as f64 / load.actions as f64,
        theirs.0
    );
    Ok(())
}

fn main() -> ExitCode {
    let Some(program) = std::env::args().nth(1) else {
        eprintln!("usage: compare PROGRAM, the built lab/sim/simgrid/load.cpp");
        return ExitCode::from(2);
    };
    for load in [ping_pong(300_000), barrier(16, 20_000), barrier(128, 2_000)] {
        if let Err(message) = compare(&program, &load) {
            eprintln!("{message}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

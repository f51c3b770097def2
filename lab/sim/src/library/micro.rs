//! Micro-benchmarks: those of `gleaner workload`, and the co-runners of the ATC'14 paper.

use super::{Entry, Parameters};
use crate::ids::Ns;
use crate::program::{BarrierKind, ChannelKind, ObjectKind, Op, Program};
use crate::random::Dist;

const US: Ns = 1_000;

/// How long Rust's mutex spins before it sleeps: 100 pauses of about 20 ns each (measured here).
const STD_SPIN: Ns = 2 * US;

pub(super) const ENTRIES: [Entry; 8] = [
    Entry {
        name: "ping-pong",
        about: "two threads hand a turn to each other through futexes",
        source: "ATC'14 §3.1 (Table 2 measures it)",
        threads: 2,
        make: ping_pong,
    },
    Entry {
        name: "request-response",
        about: "clients ask servers over sockets and block for each reply; threads: pairs",
        source: "measured here: about 1 us of work and two reads per side (`gleaner workload request-response`)",
        threads: 1,
        make: request_response,
    },
    Entry {
        name: "pipeline",
        about: "items pass stages through bounded queues of 2 with a mutex and condition variables; threads: stages",
        source: "as `gleaner workload pipeline`: 5 us per stage",
        threads: 3,
        make: pipeline,
    },
    Entry {
        name: "barrier",
        about: "threads compute and meet at a blocking barrier",
        source: "as `gleaner workload barrier`: 50 us per phase",
        threads: 0,
        make: barrier,
    },
    Entry {
        name: "convoy",
        about: "threads take one mutex, yield inside and lock again at once",
        source: "as `gleaner workload convoy`; the computation inside is assumed (50 ns)",
        threads: 2,
        make: convoy,
    },
    Entry {
        name: "matmul",
        about: "plain computation",
        source: "ATC'14 §2, footnote 2",
        threads: 0,
        make: matmul,
    },
    Entry {
        name: "freqsleep",
        about: "each thread calls nanosleep(1) again and again",
        source: "ATC'14 §3.2; the kernel's timer slack of 50 us makes the sleep; 5 us of work between are assumed",
        threads: 0,
        make: freqsleep,
    },
    super::oltp::MYSQL_OLTP,
];

/// Iterations of a loop of `each` ns per thread until `work` is done; 0: endless.
pub(super) fn times(p: Parameters, each: Ns) -> u64 {
    if p.work == 0 { 0 } else { (p.work / u64::from(p.threads.max(1)) / each.max(1)).max(1) }
}

pub(super) fn grain(p: Parameters, default: Ns) -> Ns {
    if p.grain == 0 { default } else { p.grain }
}

fn repeated(times: u64, body: &[Op]) -> Vec<Op> {
    let mut code = vec![Op::Repeat(times)];
    code.extend_from_slice(body);
    code.push(Op::Again);
    code
}

fn ping_pong(p: Parameters) -> Program {
    let g = grain(p, US);
    let n = times(p, g);
    let mut program = Program::new("ping-pong");
    let there = program.object(ObjectKind::Channel(ChannelKind::Futex));
    let back = program.object(ObjectKind::Channel(ChannelKind::Futex));
    let work = Op::Compute(Dist::Constant(g));
    program.role("ping", 1, repeated(n, &[work, Op::Send(there), Op::Receive(back), Op::Done(1)]));
    program.role("pong", 1, repeated(n, &[Op::Receive(there), work, Op::Send(back)]));
    program
}

fn request_response(p: Parameters) -> Program {
    let g = grain(p, US);
    let n = times(p, 2 * g);
    let mut program = Program::new("request-response");
    for _ in 0..p.threads {
        let request = program.object(ObjectKind::Channel(ChannelKind::Socket));
        let reply = program.object(ObjectKind::Channel(ChannelKind::Socket));
        let work = Op::Compute(Dist::Constant(g));
        let client = [Op::Send(request), Op::Receive(reply), work, Op::Moved(72), Op::Done(1)];
        program.role("client", 1, repeated(n, &client));
        program.role("server", 1, repeated(n, &[Op::Receive(request), work, Op::Send(reply), Op::Moved(72)]));
    }
    program
}

fn pipeline(p: Parameters) -> Program {
    let g = grain(p, 5 * US);
    let stages = p.threads.max(2);
    let n = times(p, g);
    let mut program = Program::new("pipeline");
    let queue = ObjectKind::Queue { capacity: 2, producers: 1, spin: STD_SPIN, always_signals: true };
    let queues: Vec<u16> = (1..stages).map(|_| program.object(queue)).collect();
    let work = Op::Compute(Dist::Constant(g));
    let mut feed = repeated(n, &[work, Op::Put(queues[0])]);
    feed.push(Op::Close(queues[0]));
    program.role("feed", 1, feed);
    for pair in queues.windows(2) {
        // Once its queue is closed, a stage jumps to its last step.
        let code =
            vec![Op::Repeat(0), Op::Take(pair[0], 5), work, Op::Put(pair[1]), Op::Again, Op::Close(pair[1])];
        program.role("stage", 1, code);
    }
    let last = queues[queues.len() - 1];
    program.role("collect", 1, vec![Op::Repeat(0), Op::Take(last, 5), work, Op::Done(1), Op::Again]);
    program
}

fn barrier(p: Parameters) -> Program {
    let g = grain(p, 50 * US);
    let threads = p.threads.max(2);
    let mut program = Program::new("barrier");
    let meet = program.object(ObjectKind::Barrier { parties: threads, kind: BarrierKind::Block });
    let work = Op::Compute(Dist::Constant(g));
    let n = times(Parameters { threads, ..p }, g);
    program.role("first", 1, repeated(n, &[work, Op::Barrier(meet), Op::Done(1)]));
    program.role("other", threads - 1, repeated(n, &[work, Op::Barrier(meet)]));
    program
}

fn convoy(p: Parameters) -> Program {
    let g = grain(p, 50);
    let mut program = Program::new("convoy");
    let mutex = program.object(ObjectKind::Mutex { spin: 0, handoff: false });
    let work = Op::Compute(Dist::Constant(g));
    let body = [Op::Lock(mutex), Op::Yield, work, Op::Unlock(mutex), Op::Done(1)];
    program.role("thread", p.threads, repeated(times(p, g), &body));
    program
}

fn matmul(p: Parameters) -> Program {
    let g = grain(p, 1_000 * US);
    let mut program = Program::new("matmul");
    program.role("matmul", p.threads, repeated(times(p, g), &[Op::Compute(Dist::Constant(g)), Op::Done(1)]));
    program
}

fn freqsleep(p: Parameters) -> Program {
    let g = grain(p, 5 * US);
    let mut program = Program::new("freqsleep");
    let body = [Op::Compute(Dist::Constant(g)), Op::Sleep(Dist::Constant(50 * US)), Op::Done(1)];
    program.role("sleeper", p.threads, repeated(times(p, g), &body));
    program
}

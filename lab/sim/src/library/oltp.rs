//! A database server under `SysBench`'s OLTP load, client and server in one VM.

use super::micro::{grain, times};
use super::{Entry, Parameters};
use crate::ids::Ns;
use crate::program::{ChannelKind, ObjectKind, Op, Program};
use crate::random::Dist;

const US: Ns = 1_000;
/// Statements per transaction: `SysBench`'s `oltp_read_write` has begin, 14 reads, 4 writes, commit.
const STATEMENTS: u64 = 20;
/// The client's CPU time per statement: assumed.
const CLIENT: Ns = 6 * US;

pub(super) const MYSQL_OLTP: Entry = Entry {
    name: "mysql-oltp",
    about: "clients send transactions of 20 statements over sockets to a server thread each; threads: connections",
    source: "ATC'14 Figure 8 (SysBench, 20 connections are its peak); 32 us of CPU per statement measured here (read-write-16 in \
             docs/benchmarks.md: 61 k statements/s on 1.95 vCPUs), a fifth of it the client's; one shared latch and the log's \
             write are assumed",
    threads: 20,
    make: mysql_oltp,
};

fn mysql_oltp(p: Parameters) -> Program {
    let g = grain(p, 24 * US);
    let n = times(p, STATEMENTS * (g + CLIENT));
    let mut program = Program::new("mysql-oltp");
    // It spins before it sleeps, like InnoDB's latches.
    let latch = program.object(ObjectKind::Mutex { spin: 5 * US, handoff: false });
    let log = program.object(ObjectKind::Mutex { spin: 0, handoff: false });
    let compute = |mean| Op::Compute(Dist::Exponential { mean });
    for _ in 0..p.threads {
        let request = program.object(ObjectKind::Channel(ChannelKind::Socket));
        let reply = program.object(ObjectKind::Channel(ChannelKind::Socket));
        let client = vec![
            Op::Repeat(n),
            Op::Repeat(STATEMENTS),
            Op::Compute(Dist::Constant(CLIENT)),
            Op::Send(request),
            Op::Receive(reply),
            Op::Moved(300),
            Op::Again,
            Op::Done(1),
            Op::Again,
        ];
        let mut server = vec![
            Op::Repeat(n),
            Op::Repeat(STATEMENTS - 1),
            Op::Receive(request),
            compute(g - g / 24),
            Op::Lock(latch),
            compute(g / 24),
            Op::Unlock(latch),
            Op::Send(reply),
            Op::Again,
        ];
        // A commit writes the log; concurrent commits wait for it.
        server.extend([Op::Receive(request), compute(g / 2), Op::Lock(log), compute(g / 4)]);
        server.extend([Op::Io(Dist::Constant(30 * US)), Op::Unlock(log), Op::Send(reply), Op::Again]);
        program.role("client", 1, client);
        program.role("server", 1, server);
    }
    program
}

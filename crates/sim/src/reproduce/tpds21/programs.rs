//! What runs: the library's programs, changed where this paper says more of them.

use crate::ids::Ns;
use crate::library::{self, Parameters, Shape};
use crate::program::{BarrierKind, ObjectKind, Op, Program};
use crate::random::Dist;

/// CPU time of each thread of a program. The paper's "native" inputs take minutes; all its numbers are ratios.
const WORK: Ns = 150_000_000;
/// The same for volrend, whose threads spin: it takes much more simulated time.
const SPINNING: Ns = 40_000_000;
/// The part of a phase's work that its first thread does alone, while the others wait, in programs that fork and join:
/// assumed.
const SERIAL: f64 = 0.02;
/// A thread's computation between two changes of the address space where the paper finds shootdowns but the library has none:
/// assumed.
const SHOOTDOWN_EVERY: Ns = 10_000_000;
/// dedup's computation between two changes of its address space. The library's is that of the ATC'14 paper's systems; how
/// often the memory allocator gives memory back (§6.2.2) depends on its version. Fitted to `δη_t` of about 50 % in OC2
/// (§6.2.3).
const DEDUP_GRAIN: Ns = 9_000_000;

/// The program called `name` for so many threads; `blocking` replaces volrend's spinning barrier (§7.1.1).
pub(super) fn make(name: &'static str, threads: u32, blocking: bool) -> Option<Program> {
    match library::by_name(name)?.shape {
        _ if name == "dedup" => Some(dedup(threads)),
        Shape::Phases { grain, imbalance, kind } => {
            let phases = Phases { threads, grain, imbalance, kind };
            Some(match name {
                "volrend" if blocking => phases.frames(BarrierKind::Block),
                "volrend" => phases.frames(BarrierKind::Spin),
                "bodytrack" | "facesim" => phases.program(name, SERIAL, None),
                "lu_cb" | "x264" => phases.program(name, 0.0, Some(SHOOTDOWN_EVERY)),
                _ => phases.program(name, 0.0, None),
            })
        }
        _ => {
            let p = Parameters { threads, work: WORK * u64::from(threads), grain: 0 };
            library::make(name, p, threads)
        }
    }
}

/// Phases between barriers.
struct Phases {
    threads: u32,
    /// A thread's computation per phase.
    grain: Ns,
    imbalance: f64,
    kind: BarrierKind,
}

impl Phases {
    fn compute(&self, ns: Ns) -> Op {
        Op::Compute(Dist::LogNormal { mean: ns, cv: self.imbalance })
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a positive time")]
    fn split(&self, serial: f64) -> (Ns, Ns) {
        let all = self.grain * u64::from(self.threads);
        let alone = (all as f64 * serial) as Ns;
        (alone, (all - alone) / u64::from(self.threads))
    }

    /// Its first thread does the share `serial` of each phase's work alone; each thread changes the address space after so
    /// much computation as `shootdown` says.
    fn program(&self, name: &str, serial: f64, shootdown: Option<Ns>) -> Program {
        let mut program = Program::new(name);
        let meet = program.object(ObjectKind::Barrier { parties: self.threads, kind: self.kind });
        let (alone, together) = self.split(serial);
        let again = rounds(WORK, self.grain);
        let mut common = vec![self.compute(together), Op::Barrier(meet), Op::Done(1)];
        if alone > 0 {
            let mut first = vec![again, self.compute(alone), Op::Barrier(meet)];
            first.extend(common.iter().copied().chain([Op::Again]));
            program.role("first", 1, first);
            common.insert(0, Op::Barrier(meet));
        }
        let workers = self.threads - u32::from(alone > 0);
        let mut code = vec![again];
        if let Some(every) = shootdown {
            let inner = (every / self.grain.max(1)).max(1);
            code = vec![rounds(WORK, self.grain * inner), Op::Repeat(inner)];
            common.extend([Op::Again, Op::Shootdown]);
        }
        code.extend(common);
        code.push(Op::Again);
        if workers > 0 {
            program.role("worker", workers, code);
        }
        program
    }

    /// volrend as this paper has it: phases that end in blocking barriers, as in the library, and between them one that ends in
    /// the spinning barrier of Listing 1. In the program's source a frame has a blocking barrier before and after it;
    /// that the three are equally long is assumed.
    fn frames(&self, kind: BarrierKind) -> Program {
        let mut program = Program::new("volrend");
        let block = program.object(ObjectKind::Barrier { parties: self.threads, kind: BarrierKind::Block });
        let traced = program.object(ObjectKind::Barrier { parties: self.threads, kind });
        let work = self.compute(self.grain);
        let (phase, spun) = ([work, Op::Barrier(block)], [work, Op::Barrier(traced)]);
        let frame = [phase, spun, phase].concat();
        let mut code = vec![rounds(SPINNING, 3 * self.grain)];
        code.extend(frame);
        code.extend([Op::Done(1), Op::Again]);
        program.role("worker", self.threads, code);
        program
    }
}

/// As many as make `work`, at least one.
fn rounds(work: Ns, each: Ns) -> Op {
    Op::Repeat((work / each.max(1)).max(1))
}

/// dedup as this paper has it: half of the time its threads wait for the device (§7.1.1: its halts are by I/O; how much is
/// assumed), and each task ends with a change of the address space.
fn dedup(threads: u32) -> Program {
    let mut program = Program::new("dedup");
    let lock = program.object(ObjectKind::Mutex { spin: 0, handoff: false });
    let each = Dist::Exponential { mean: DEDUP_GRAIN };
    let code = vec![
        Op::Repeat(WORK / DEDUP_GRAIN),
        Op::Compute(each),
        Op::Io(each),
        Op::Lock(lock),
        Op::Compute(Dist::Constant(500)),
        Op::Shootdown,
        Op::Unlock(lock),
        Op::Done(1),
        Op::Again,
    ];
    program.role("worker", threads, code);
    program
}

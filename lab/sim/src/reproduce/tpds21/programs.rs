//! The programs of the study: those of the library, changed where this paper states more about them.

use crate::ids::Ns;
use crate::library::{self, Parameters, Shape, Tlb};
use crate::program::{BarrierKind, ObjectKind, Op, Program};
use crate::random::Dist;

/// Total CPU time of a program's threads; the input is the same for every size (§4.2). The paper's "native"
/// inputs take minutes; all its numbers are ratios.
const WORK: Ns = 6_400_000_000;
/// Number of threads for which the library's grains are given: the ATC'14 paper's 16 cores.
const LIBRARY_THREADS: u32 = 16;
/// Assumed share of a phase's work that a fork-join program's first thread does while the others wait.
const SERIAL: f64 = 0.02;
/// A thread's computation between two address-space changes where only the paper finds shootdowns: assumed.
const SHOOTDOWN_EVERY: Ns = 10_000_000;
/// dedup's computation between two address-space changes. The library's value is for the ATC'14 paper's
/// systems; how often the allocator returns memory (§6.2.2) depends on its version. Fitted to `δη_t` of about
/// 50 % in OC2 (§6.2.3).
const DEDUP_GRAIN: Ns = 9_000_000;
/// Phases per frame of volrend. Fitted to the 60 % of the cycles that a blocking barrier saves (§7.1.1).
const FRAME: u64 = 6;

/// The program called `name` with this many threads; `blocking` replaces volrend's spinning barrier (§7.1.1).
pub(super) fn make(name: &'static str, threads: u32, blocking: bool) -> Option<Program> {
    match library::by_name(name)?.shape.as_phases() {
        _ if name == "dedup" => Some(dedup(threads)),
        Shape::Phases { grain, imbalance, kind } => {
            let phases = Phases::divided(threads, grain, imbalance, kind);
            Some(match name {
                "volrend" if blocking => phases.frames(BarrierKind::Block),
                "volrend" => phases.frames(BarrierKind::Spin),
                "bodytrack" | "facesim" => phases.program(name, SERIAL, None),
                "lu_cb" | "x264" => phases.program(name, 0.0, Some(SHOOTDOWN_EVERY)),
                _ => phases.program(name, 0.0, None),
            })
        }
        // The paper finds no shootdowns in ferret (§6.2.2, §6.3.1).
        Shape::Stages { grain, .. } => {
            let p = Parameters { threads, work: WORK, grain: 0 };
            Some(Shape::Stages { grain, tlb: Tlb::Never }.program(name, p))
        }
        _ => of_the_library(name, threads),
    }
}

/// The library's version; for dedup, that of the ATC'14 paper's systems.
pub(super) fn of_the_library(name: &'static str, threads: u32) -> Option<Program> {
    library::make(name, Parameters { threads, work: WORK, grain: 0 }, threads)
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
    /// Divides a phase's work among more or fewer threads than in the library. The work consists of
    /// independent pieces: the fewer a thread has, the more its time deviates from the others'.
    fn divided(threads: u32, grain: Ns, imbalance: f64, kind: BarrierKind) -> Self {
        let imbalance = imbalance * (f64::from(threads) / f64::from(LIBRARY_THREADS)).sqrt();
        let grain = grain * u64::from(LIBRARY_THREADS) / u64::from(threads);
        Self { threads, grain, imbalance, kind }
    }

    /// Iterations per thread of a loop body that takes `each`.
    fn rounds(&self, each: Ns) -> Op {
        rounds(self.threads, each)
    }

    fn compute(&self, ns: Ns) -> Op {
        Op::Compute(Dist::LogNormal { mean: ns, cv: self.imbalance })
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a positive time")]
    fn split(&self, serial: f64) -> (Ns, Ns) {
        let all = self.grain * u64::from(self.threads);
        let alone = (all as f64 * serial) as Ns;
        (alone, (all - alone) / u64::from(self.threads))
    }

    /// The first thread does the share `serial` of each phase's work alone; each thread changes the address
    /// space after every `shootdown` of computation, in the middle of a phase.
    fn program(&self, name: &str, serial: f64, shootdown: Option<Ns>) -> Program {
        let mut program = Program::new(name);
        let meet = program.object(ObjectKind::Barrier { parties: self.threads, kind: self.kind });
        let (alone, together) = self.split(serial);
        let phase = [self.compute(together), Op::Barrier(meet), Op::Done(1)];
        let again = self.rounds(self.grain);
        if let Some(every) = shootdown {
            let phases = (every / self.grain.max(1)).max(1);
            let half = self.compute(together / 2);
            let mut code = vec![self.rounds(self.grain * phases)];
            if phases > 1 {
                code.push(Op::Repeat(phases - 1));
                code.extend(phase);
                code.push(Op::Again);
            }
            code.extend([half, Op::Shootdown, half, Op::Barrier(meet), Op::Done(1), Op::Again]);
            program.role("worker", self.threads, code);
            return program;
        }
        let first = u32::from(alone > 0);
        let forked = (alone > 0).then_some(Op::Barrier(meet));
        for (name, count, before) in
            [("first", first, Some(self.compute(alone))), ("worker", self.threads - first, None)]
        {
            if count > 0 {
                let code = [again].into_iter().chain(before).chain(forked).chain(phase).chain([Op::Again]);
                program.role(name, count, code.collect());
            }
        }
        program
    }

    /// volrend as in this paper: phases that end in blocking barriers, as in the library, and one per frame
    /// that ends in the spinning barrier of Listing 1.
    fn frames(&self, kind: BarrierKind) -> Program {
        let mut program = Program::new("volrend");
        let block = program.object(ObjectKind::Barrier { parties: self.threads, kind: BarrierKind::Block });
        let traced = program.object(ObjectKind::Barrier { parties: self.threads, kind });
        let work = self.compute(self.grain);
        let mut code = vec![self.rounds(FRAME * self.grain), Op::Repeat(FRAME - 1)];
        code.extend([work, Op::Barrier(block), Op::Again]);
        code.extend([work, Op::Barrier(traced), Op::Done(1), Op::Again]);
        program.role("worker", self.threads, code);
        program
    }
}

/// Iterations per thread of a loop body that takes `each`; at least one.
fn rounds(threads: u32, each: Ns) -> Op {
    Op::Repeat((WORK / u64::from(threads) / each.max(1)).max(1))
}

/// dedup as in this paper: its threads wait for the device half of the time (its halts are due to I/O,
/// §7.1.1; the share is assumed), and each task ends with an address-space change.
fn dedup(threads: u32) -> Program {
    let mut program = Program::new("dedup");
    let lock = program.object(ObjectKind::Mutex { spin: 0, handoff: false });
    let each = Dist::Exponential { mean: DEDUP_GRAIN };
    let code = vec![
        rounds(threads, DEDUP_GRAIN),
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

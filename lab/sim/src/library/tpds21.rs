//! The suites' programs as the TPDS'21 paper has them: changed where it states more about them.

use super::micro::times;
use super::{Parameters, Shape, SuiteProgram, Tlb};
use crate::ids::Ns;
use crate::program::{BarrierKind, ObjectKind, Op, Program};
use crate::random::Dist;

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

/// `program` as in the paper; `blocking` replaces volrend's spinning barrier (§7.1.1).
pub(super) fn make(program: &SuiteProgram, p: Parameters, blocking: bool) -> Program {
    let name = program.name;
    match program.shape.as_phases() {
        _ if name == "dedup" => dedup(p),
        Shape::Phases { grain, imbalance, kind } => {
            let phases = Phases::divided(p, grain, imbalance, kind);
            match name {
                "volrend" if blocking => phases.frames(BarrierKind::Block),
                "volrend" => phases.frames(BarrierKind::Spin),
                "bodytrack" | "facesim" => phases.program(name, SERIAL, None),
                "lu_cb" | "x264" => phases.program(name, 0.0, Some(SHOOTDOWN_EVERY)),
                _ => phases.program(name, 0.0, None),
            }
        }
        // The paper finds no shootdowns in ferret (§6.2.2, §6.3.1).
        Shape::Stages { grain, .. } => Shape::Stages { grain, tlb: Tlb::Never }.program(name, p),
        shape => shape.program(name, p),
    }
}

/// Phases between barriers.
struct Phases {
    parameters: Parameters,
    /// A thread's computation per phase.
    grain: Ns,
    imbalance: f64,
    kind: BarrierKind,
}

impl Phases {
    /// Divides a phase's work among more or fewer threads than in the library. The work consists of
    /// independent pieces: the fewer a thread has, the more its time deviates from the others'.
    fn divided(parameters: Parameters, grain: Ns, imbalance: f64, kind: BarrierKind) -> Self {
        let threads = parameters.threads;
        let imbalance = imbalance * (f64::from(threads) / f64::from(LIBRARY_THREADS)).sqrt();
        let grain =
            super::micro::grain(parameters, grain * u64::from(LIBRARY_THREADS) / u64::from(threads.max(1)));
        Self { parameters, grain, imbalance, kind }
    }

    /// Iterations per thread of a loop body that takes `each`.
    fn rounds(&self, each: Ns) -> Op {
        Op::Repeat(times(self.parameters, each))
    }

    fn compute(&self, ns: Ns) -> Op {
        Op::Compute(Dist::LogNormal { mean: ns, cv: self.imbalance })
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a positive time")]
    fn split(&self, serial: f64) -> (Ns, Ns) {
        let all = self.grain * u64::from(self.parameters.threads);
        let alone = (all as f64 * serial) as Ns;
        (alone, (all - alone) / u64::from(self.parameters.threads))
    }

    /// The first thread does the share `serial` of each phase's work alone; each thread changes the address
    /// space after every `shootdown` of computation, in the middle of a phase.
    fn program(&self, name: &str, serial: f64, shootdown: Option<Ns>) -> Program {
        let mut program = Program::new(name);
        let meet = program.object(ObjectKind::Barrier { parties: self.parameters.threads, kind: self.kind });
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
            program.role("worker", self.parameters.threads, code);
            return program;
        }
        let first = u32::from(alone > 0);
        let forked = (alone > 0).then_some(Op::Barrier(meet));
        for (name, count, before) in
            [("first", first, Some(self.compute(alone))), ("worker", self.parameters.threads - first, None)]
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
        let block = program
            .object(ObjectKind::Barrier { parties: self.parameters.threads, kind: BarrierKind::Block });
        let traced = program.object(ObjectKind::Barrier { parties: self.parameters.threads, kind });
        let work = self.compute(self.grain);
        let mut code = vec![self.rounds(FRAME * self.grain), Op::Repeat(FRAME - 1)];
        code.extend([work, Op::Barrier(block), Op::Again]);
        code.extend([work, Op::Barrier(traced), Op::Done(1), Op::Again]);
        program.role("worker", self.parameters.threads, code);
        program
    }
}

/// dedup as in this paper: its threads wait for the device half of the time (its halts are due to I/O,
/// §7.1.1; the share is assumed), and each task ends with an address-space change.
fn dedup(p: Parameters) -> Program {
    let mut program = Program::new("dedup");
    let lock = program.object(ObjectKind::Mutex { spin: 0, handoff: false });
    let grain = super::micro::grain(p, DEDUP_GRAIN);
    let each = Dist::Exponential { mean: grain };
    let code = vec![
        Op::Repeat(times(p, grain)),
        Op::Compute(each),
        Op::Io(each),
        Op::Lock(lock),
        Op::Compute(Dist::Constant(500)),
        Op::Shootdown,
        Op::Unlock(lock),
        Op::Done(1),
        Op::Again,
    ];
    program.role("worker", p.threads, code);
    program
}

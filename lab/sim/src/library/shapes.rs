//! Shapes: the few patterns in which the threads of the suites' programs wait for each other.

use super::Parameters;
use crate::ids::Ns;
use crate::program::{BarrierKind, ObjectKind, Op, Program};
use crate::random::Dist;

/// How often a program changes its address space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tlb {
    /// Never, or so rarely that it does not matter.
    Never,
    /// In each critical section (of `mm`'s semaphore).
    EachSection,
    /// After this much computation of a thread.
    Every(Ns),
}

/// A synchronisation pattern. Grains are means per thread.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Shape {
    /// Almost no synchronisation: a barrier now and then.
    Plain,
    /// Phases between barriers.
    Phases {
        /// Computation per phase.
        grain: Ns,
        /// Standard deviation of a phase's computation divided by its mean.
        imbalance: f64,
        /// How threads wait at the barrier.
        kind: BarrierKind,
    },
    /// Tasks, each with a critical section under one shared lock.
    Sections {
        /// Computation per task.
        grain: Ns,
        /// Computation with the lock held.
        section: Ns,
        /// How long waiters spin for the lock before they sleep.
        spin: Ns,
        /// Whether a release passes the lock to the first waiter.
        handoff: bool,
        /// When it changes its address space.
        tlb: Tlb,
        /// Whether more threads mean more sections: `grain` is then divided by the thread count of a pipeline
        /// with three pools of that many threads and a single thread at each end.
        pools: bool,
    },
    /// A pipeline of four stages, each with a quarter of the threads, and bounded queues of 100 items.
    Stages {
        /// Computation per item and stage.
        grain: Ns,
        /// When it changes its address space.
        tlb: Tlb,
    },
}

impl Shape {
    /// The same shape with another grain.
    #[must_use]
    pub fn with_grain(mut self, new: Ns) -> Self {
        match &mut self {
            Self::Plain => {}
            Self::Phases { grain, .. } | Self::Stages { grain, .. } => *grain = new,
            Self::Sections { grain, pools, .. } => (*grain, *pools) = (new, false),
        }
        self
    }

    /// Its grain with this many threads.
    pub fn grain(self, threads: u32) -> Ns {
        match self.as_phases() {
            Self::Sections { grain, pools: true, .. } => grain / u64::from(3 * threads + 2),
            Self::Phases { grain, .. } | Self::Stages { grain, .. } | Self::Sections { grain, .. } => grain,
            Self::Plain => 0,
        }
    }

    /// Turns `Plain` into long, even phases.
    #[must_use]
    pub fn as_phases(self) -> Self {
        match self {
            Self::Plain => Self::Phases { grain: 20_000_000, imbalance: 0.05, kind: BarrierKind::Block },
            other => other,
        }
    }

    /// The same shape with locks that a release passes to the first waiter.
    #[must_use]
    pub fn with_handoff(mut self) -> Self {
        if let Self::Sections { handoff, .. } = &mut self {
            *handoff = true;
        }
        self
    }

    /// The same shape with barriers of a mutex and a condition at which waiters block without spinning.
    #[must_use]
    pub fn blocking(mut self) -> Self {
        if let Self::Phases { kind: kind @ BarrierKind::Condition(_), .. } = &mut self {
            *kind = BarrierKind::Condition(0);
        }
        self
    }

    /// A program of this shape.
    pub fn program(self, name: &str, p: Parameters) -> Program {
        let shape = if p.grain == 0 { self } else { self.with_grain(p.grain) };
        let each_thread = p.work / u64::from(p.threads.max(1));
        // 0: endless.
        let rounds = |each: Ns| if p.work == 0 { 0 } else { (each_thread / each.max(1)).max(1) };
        match shape.as_phases() {
            Self::Phases { grain, imbalance, kind } => {
                phases(name, p.threads, rounds(grain), grain, imbalance, kind)
            }
            Self::Plain => Program::new(name),
            Self::Sections { section, spin, handoff, tlb, .. } => {
                let grain = shape.grain(p.threads);
                let mut program = Program::new(name);
                let lock = program.object(ObjectKind::Mutex { spin, handoff });
                let mut body = vec![Op::Compute(Dist::Exponential { mean: grain }), Op::Lock(lock)];
                body.push(Op::Compute(Dist::Constant(section)));
                if tlb == Tlb::EachSection {
                    body.push(Op::Shootdown);
                }
                body.extend([Op::Unlock(lock), Op::Done(1)]);
                let code = with_shootdowns(tlb, grain, body, rounds(grain + section));
                program.role("worker", p.threads, code);
                program
            }
            Self::Stages { grain, tlb } => stages(name, p, grain, tlb),
        }
    }
}

fn phases(name: &str, threads: u32, rounds: u64, grain: Ns, imbalance: f64, kind: BarrierKind) -> Program {
    let mut program = Program::new(name);
    let meet = program.object(ObjectKind::Barrier { parties: threads, kind });
    let work = Op::Compute(Dist::LogNormal { mean: grain, cv: imbalance });
    let code = vec![Op::Repeat(rounds), work, Op::Barrier(meet), Op::Done(1), Op::Again];
    program.role("worker", threads, code);
    program
}

/// `body` in a loop; with [`Tlb::Every`], a shootdown after as many rounds as take that long.
fn with_shootdowns(tlb: Tlb, grain: Ns, mut body: Vec<Op>, rounds: u64) -> Vec<Op> {
    let mut code = vec![Op::Repeat(rounds)];
    if let Tlb::Every(every) = tlb {
        let inner = (every / grain.max(1)).max(1);
        code[0] = Op::Repeat(if rounds == 0 { 0 } else { (rounds / inner).max(1) });
        code.push(Op::Repeat(inner));
        body.extend([Op::Again, Op::Shootdown]);
    }
    code.append(&mut body);
    code.push(Op::Again);
    code
}

fn stages(name: &str, p: Parameters, grain: Ns, tlb: Tlb) -> Program {
    const STAGES: u32 = 4;
    let mut program = Program::new(name);
    let each = (p.threads / STAGES).max(1);
    let queue = ObjectKind::Queue { capacity: 100, producers: each, spin: 0, always_signals: false };
    let queues: Vec<u16> = (1..STAGES).map(|_| program.object(queue)).collect();
    let items = if p.work == 0 { 0 } else { (p.work / u64::from(STAGES * each) / grain.max(1)).max(1) };
    let work = Op::Compute(Dist::Exponential { mean: grain });
    let flush = matches!(tlb, Tlb::Every(_)).then_some(Op::Shootdown);
    let stage = |first: Option<u16>, next: Option<u16>| {
        let repeat = if first.is_some() { 0 } else { items };
        let mut body = vec![work];
        body.extend(flush);
        body.push(next.map_or(Op::Done(1), Op::Put));
        let end = u16::try_from(body.len()).unwrap_or(0) + 3;
        let mut code = vec![Op::Repeat(repeat)];
        code.extend(first.map(|q| Op::Take(q, end)));
        code.append(&mut body);
        code.push(Op::Again);
        code.extend(next.map(Op::Close));
        code
    };
    program.role("first", each, stage(None, Some(queues[0])));
    program.role("second", each, stage(Some(queues[0]), Some(queues[1])));
    program.role("third", each, stage(Some(queues[1]), Some(queues[2])));
    program.role("last", each, stage(Some(queues[2]), None));
    program
}

//! A host, and what is expected of its scheduler next.

use std::collections::BTreeMap;

use gleaner_coordination::record::{Decision, Header, Line, Task, What};

use super::host::Host;
use super::queue::Wait;

/// One order of what happened. Several pCPUs send interrupts, put tasks back into their queues and decide at the same time:
/// what follows from what one of them is doing, another one that decides meanwhile has seen or not.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct World {
    host: Host,
    expected: BTreeMap<u32, Expected>,
}

/// A decision that is to be made, and the line of the record from which it follows.
pub(super) type Open = (usize, Decision);

/// What is expected of one pCPU.
#[derive(Debug, Clone, Default, PartialEq)]
struct Expected {
    /// Decisions that were not seen yet.
    open: Vec<Open>,
    /// The lines of the last two events there. An event can interrupt another one, before that is decided on.
    last: [usize; 2],
    /// A woken task whose place the kernel chooses.
    by_kernel: Option<Task>,
    /// What has begun, an interrupt, a question or a task's way back into a queue, and has no consequence yet; each interrupted
    /// the one before.
    begun: Vec<What>,
}

impl World {
    pub(super) fn new(header: Header) -> Self {
        Self { host: Host::new(header), expected: BTreeMap::new() }
    }

    fn expected(&mut self, on: u32) -> &mut Expected {
        self.expected.entry(on).or_default()
    }

    /// The same world, in which nothing follows yet from this line, the one with this number.
    pub(super) fn with_open(&self, number: usize, line: &Line) -> Self {
        let mut world = self.clone();
        let expected = world.expected(line.on);
        expected.begun.push(line.what);
        expected.last = [expected.last[1], number];
        world
    }

    /// The same world, in which the questions on other pCPUs than this one are answered now; `None`: there are none.
    pub(super) fn answered(&self, number: usize, on: u32) -> Option<Self> {
        self.ended(number, |cpu, begun| cpu != on && matches!(begun, What::Asks { .. }))
    }

    /// The same world, in which interrupts for this task that have begun have their consequences now; `None`: there are none.
    pub(super) fn interrupted(&self, number: usize, task: Task) -> Option<Self> {
        self.ended(number, |_, begun| matches!(begun, What::Interrupt { to, .. } if *to == task))
    }

    /// The same world, in which what follows from some of what has begun, the last on each pCPU, does so now.
    fn ended(&self, number: usize, is_it: impl Fn(u32, &What) -> bool) -> Option<Self> {
        let has = |(cpu, expected): (&u32, &Expected)| {
            expected.begun.iter().any(|begun| is_it(*cpu, begun)).then_some(*cpu)
        };
        let cpus: Vec<u32> = self.expected.iter().filter_map(has).collect();
        let mut world = (!cpus.is_empty()).then(|| self.clone())?;
        for cpu in cpus {
            world.ends(cpu, number, |begun| is_it(cpu, begun));
        }
        Some(world)
    }

    /// A decision that was to be made on this pCPU before, if any.
    ///
    /// # Errors
    /// That decision.
    pub(super) fn overdue(&mut self, on: u32) -> Result<(), Vec<Open>> {
        let expected = self.expected(on);
        match expected.open.iter().position(|(since, _)| *since < expected.last[0]) {
            Some(late) => Err(vec![expected.open.remove(late)]),
            None => Ok(()),
        }
    }

    /// Whether the task is next on this pCPU, or is there already.
    ///
    /// # Errors
    /// It still waits for others, or is next on another one; there is nothing that was expected instead.
    pub(super) fn may_run(&mut self, task: Task, cpu: u32) -> Result<(), Vec<Open>> {
        match self.host.task(task).waits {
            Wait::Nowhere => Ok(()),
            Wait::Next(next) if next == cpu => Ok(()),
            Wait::Next(_) | Wait::Fair { .. } => Err(Vec::new()),
        }
    }

    /// Something happened, on line `number`.
    pub(super) fn happens(&mut self, number: usize, line: &Line) {
        // It is in the queue before anything else happens on this pCPU.
        self.ends(line.on, number, |begun| matches!(begun, What::Queued { .. }));
        if let What::Sent { from } = line.what {
            let sends =
                |begun: &What| matches!(begun, What::Interrupt { from: sender, .. } if *sender == from);
            self.ends(line.on, number, sends);
        }
        let decisions = self.host.happens(&line.what);
        let expected = self.expected(line.on);
        expected.last = [expected.last[1], number];
        expected.open.extend(decisions.into_iter().map(|decision| (number, decision)));
        if let What::Woken { task, ours: false, .. } = line.what {
            expected.by_kernel = Some(task);
        }
    }

    /// From what has begun on this pCPU follows what does.
    fn ends(&mut self, on: u32, number: usize, is_it: impl Fn(&What) -> bool) {
        let begun = &mut self.expected(on).begun;
        if let Some(found) = begun.iter().rposition(is_it) {
            let what = begun.remove(found);
            let decisions = self.host.happens(&what);
            self.expected(on).open.extend(decisions.into_iter().map(|decision| (number, decision)));
        }
    }

    /// Whether the kernel decided this, where the scheduler leaves it to the kernel.
    pub(super) fn is_by_kernel(&self, on: u32, decision: &Decision) -> bool {
        let by_kernel = self.expected.get(&on).and_then(|expected| expected.by_kernel);
        matches!(decision, Decision::Placed { task, .. } if by_kernel == Some(*task))
    }

    /// A decision was made.
    ///
    /// # Errors
    /// Decisions of this kind that were to be made, if it was not.
    pub(super) fn decided(&mut self, on: u32, decision: &Decision) -> Result<(), Vec<Open>> {
        if let (Decision::Placed { task, cpu, idle }, true) = (*decision, self.is_by_kernel(on, decision)) {
            self.expected(on).by_kernel = None;
            self.host.placed(task, cpu, idle);
            return Ok(());
        }
        if !self.is_open(on, decision) {
            let number = self.expected(on).last[1];
            let asks = matches!(decision, Decision::Chose { .. } | Decision::Timed { .. });
            self.ends(on, number, |begun| matches!(begun, What::Asks { .. }) == asks);
        }
        let open = &mut self.expected(on).open;
        let found = open.iter().position(|(_, expected)| expected == decision);
        // Those that follow from the same event come in their order.
        if let Some(found) =
            found.filter(|found| open[..*found].iter().all(|(since, _)| *since != open[*found].0))
        {
            open.remove(found);
            return Ok(());
        }
        let alike =
            |(_, expected): &mut Open| std::mem::discriminant(expected) == std::mem::discriminant(decision);
        Err(open.extract_if(.., alike).collect())
    }

    fn is_open(&mut self, on: u32, decision: &Decision) -> bool {
        self.expected(on).open.iter().any(|(_, expected)| expected == decision)
    }
}

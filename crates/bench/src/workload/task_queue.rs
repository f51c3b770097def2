//! `task-queue`: many small tasks under one mutex, as in cholesky of SPLASH-2x.
//!
//! Synchronisation: a stack of tasks that are ready, one mutex, and a condition variable for threads that find
//! none. The tasks form a tree, as the columns of a factorisation do: a task is ready when both tasks below it are
//! done, so there is plenty to do at the leaves and less and less towards the root, where threads go to sleep; when
//! the root is done, the next tree's leaves wake them up. Self-check: the value of a root depends on every task of
//! its tree, and must be what one thread alone computes.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::amount::{Gauge, Share};
use super::spec::{Granularity, Spec, Threads, Variant};
use super::work::{check, mix, rounds, run_threads, uneven};
use super::{Amount, Outcome, Settings, WorkloadError};

pub(super) const SPEC: Spec = Spec {
    name: "task-queue",
    about: "threads take tasks of 5 us from one queue under one mutex; a task waits for the two below it in a tree \
            of 31; one operation is one tree",
    variants: &[Variant {
        kind: None,
        threads: Threads::per_vcpu("threads that take tasks", 1),
        granularity: Some(Granularity::us("a task", 5)),
        imbalance: Some("between the tasks of a tree"),
    }],
};

/// Nodes are numbered from the root, 1; the children of node n are 2n and 2n + 1.
const LEAVES: usize = 16;
const ROOT: usize = 1;

/// How long each task computes, in rounds of [`mix`], by node.
struct Tasks {
    rounds: [u32; 2 * LEAVES],
}

impl Tasks {
    fn new(settings: &Settings) -> Self {
        // Steps of 13 through the nodes, so that neighbours differ.
        let place = |node: usize| node * 13 % (2 * LEAVES);
        let time = |node| uneven(settings.granularity, settings.imbalance, place(node), 2 * LEAVES);
        Self { rounds: std::array::from_fn(|node| rounds(time(node))) }
    }

    /// Does a task: its value from the values of the two below it.
    fn run(&self, node: usize, below: [u64; 2]) -> u64 {
        let seed = (node as u64).wrapping_add(below[0]).wrapping_add(below[1].rotate_left(1));
        mix(seed, self.rounds[node])
    }

    /// The root's value, computed by one thread.
    fn root(&self) -> u64 {
        let mut values = [0; 2 * LEAVES];
        for node in (ROOT..2 * LEAVES).rev() {
            values[node] = self.run(node, below(&values, node));
        }
        values[ROOT]
    }
}

/// The values of the two nodes below; zeros for a leaf.
fn below(values: &[u64; 2 * LEAVES], node: usize) -> [u64; 2] {
    [2 * node, 2 * node + 1].map(|child| values.get(child).copied().unwrap_or(0))
}

/// What the mutex protects.
struct Progress {
    ready: Vec<usize>,
    values: [u64; 2 * LEAVES],
    /// How many of the two tasks below a node are done.
    done_below: [u8; LEAVES],
    trees: u64,
    over: bool,
}

impl Progress {
    fn new() -> Self {
        let ready = (LEAVES..2 * LEAVES).collect();
        Self { ready, values: [0; 2 * LEAVES], done_below: [0; LEAVES], trees: 0, over: false }
    }

    /// Records a task's value; what that makes ready is. How many tasks that are.
    fn finish(&mut self, node: usize, value: u64) -> usize {
        self.values[node] = value;
        if node == ROOT {
            self.done_below = [0; LEAVES];
            self.trees += 1;
            self.ready.extend(LEAVES..2 * LEAVES);
            return LEAVES;
        }
        let parent = node / 2;
        self.done_below[parent] += 1;
        let ready = self.done_below[parent] == 2;
        self.ready.extend(ready.then_some(parent));
        usize::from(ready)
    }
}

/// The queue.
struct Queue {
    tasks: Tasks,
    expected: u64,
    progress: Mutex<Progress>,
    not_empty: Condvar,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the work of all threads.
    fn close(&self, mut progress: MutexGuard<'_, Progress>) {
        progress.over = true;
        drop(progress);
        self.not_empty.notify_all();
    }

    /// One thread's work, until the gauge says that it is done or another thread ends it. How many trees' roots
    /// it checked.
    fn work(&self, gauge: &Gauge) -> Result<u64, WorkloadError> {
        let mut checks = 0;
        loop {
            let idle = |progress: &mut Progress| progress.ready.is_empty() && !progress.over;
            let mut progress =
                self.not_empty.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
            if progress.over {
                return Ok(checks);
            }
            if !gauge.more(progress.trees) {
                self.close(progress);
                return Ok(checks);
            }
            let Some(node) = progress.ready.pop() else { continue };
            let below = below(&progress.values, node);
            drop(progress);

            let value = self.tasks.run(node, below);
            if node == ROOT {
                if let Err(error) = check(SPEC.name, "value of a root", self.expected, value) {
                    self.close(self.lock());
                    return Err(error);
                }
                checks += 1;
            }
            // Each task that became ready is announced, whether or not this thread will take it itself.
            match self.lock().finish(node, value) {
                0 => {}
                1 => self.not_empty.notify_one(),
                _ => self.not_empty.notify_all(),
            }
        }
    }
}

pub(super) fn run(amount: Amount, settings: &Settings) -> Result<Outcome, WorkloadError> {
    let tasks = Tasks::new(settings);
    let expected = tasks.root();
    run_tasks(tasks, expected, amount.whole(), settings.threads)
}

fn run_tasks(tasks: Tasks, expected: u64, share: Share, threads: usize) -> Result<Outcome, WorkloadError> {
    let queue = Queue { tasks, expected, progress: Mutex::new(Progress::new()), not_empty: Condvar::new() };
    let (checks, elapsed) = run_threads(SPEC.name, threads, |_| queue.work(&share.start(1)))?;
    let checks = checks.iter().sum();
    let operations = queue.lock().trees;
    check(SPEC.name, "number of roots", operations, checks)?;
    Ok(Outcome { operations, elapsed, checks })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tasks() -> Tasks {
        Tasks::new(&SPEC.settings(&"granularity=1us imbalance=0.5".parse().unwrap()).unwrap())
    }

    #[test]
    fn a_task_is_ready_when_both_below_it_are_done() {
        let mut progress = Progress::new();
        assert_eq!((progress.finish(16, 1), progress.finish(18, 1), progress.finish(17, 1)), (0, 0, 1));
        assert_eq!(progress.ready.last(), Some(&8));
    }

    #[test]
    fn notices_a_wrong_root() {
        let right = tasks().root();
        assert!(run_tasks(tasks(), right, Share::Operations(5), 2).is_ok());
        let error = run_tasks(tasks(), right ^ 1, Share::Operations(5), 2).unwrap_err().to_string();
        assert!(error.contains("wrong value of a root"), "{error}");
    }

    #[test]
    fn every_task_matters() {
        let right = tasks().root();
        for node in ROOT..2 * LEAVES {
            let mut wrong = tasks();
            wrong.rounds[node] += 1;
            assert_ne!(wrong.root(), right, "task {node}");
        }
    }
}

//! `task-queue`: many small tasks under one mutex, as in SPLASH-2x's cholesky.
//!
//! The tasks form a binary tree, like the columns of a factorisation: a task is ready when both of its
//! children are done, so there is plenty to do at the leaves and less and less towards the root; when the
//! root is done, the next tree starts. Each task belongs to one thread, like cholesky's blocks, and only that
//! executes it.
//!
//! Synchronisation: one mutex around all ready tasks, and a condition variable per thread, on which it sleeps
//! while none of its own is ready. Self-check: the value of a root depends on every task of its tree, and
//! must equal that computed by a single thread.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::amount::{Share, WorkMeter};
use super::spec::{Granularity, Spec, Threads, Variant};
use super::work::{check, mix, rounds, run_threads, uneven};
use super::{Amount, Outcome, Settings, WorkloadError};

pub(super) const SPEC: Spec = Spec {
    name: "task-queue",
    about: "threads take tasks of 5 us from queues under one mutex; a task waits for the two below it in a tree of \
            31, or more with over 16 threads; one operation is one tree",
    variants: &[Variant {
        kind: None,
        threads: Threads::per_vcpu("threads that share the tasks", 1),
        granularity: Some(Granularity::us("a task", 5)),
        imbalance: Some("between the tasks of a tree"),
    }],
};

/// The tree has as many leaves as there are threads, but no fewer than this.
const MIN_LEAVES: usize = 16;

/// Nodes are numbered from the root; the children of node n are 2n and 2n + 1; the second half are leaves.
const ROOT: usize = 1;

/// The tasks of a tree.
struct Tasks {
    /// Computation of each task in rounds of [`mix`], by node. There is no node 0.
    rounds: Vec<u32>,
    threads: usize,
}

impl Tasks {
    fn new(settings: &Settings) -> Self {
        let nodes = 2 * settings.threads.max(MIN_LEAVES);
        // Steps of 13 through the nodes, so that neighbours differ.
        let time = |node| uneven(settings.granularity, settings.imbalance, node * 13 % nodes, nodes);
        Self { rounds: (0..nodes).map(|node| rounds(time(node))).collect(), threads: settings.threads }
    }

    fn nodes(&self) -> usize {
        self.rounds.len()
    }

    fn leaves(&self) -> std::ops::Range<usize> {
        self.nodes() / 2..self.nodes()
    }

    /// The thread that a task belongs to: parents and children are spread over all of them.
    fn owner(&self, node: usize) -> usize {
        node % self.threads
    }

    /// Executes a task: computes its value from its children's values.
    fn run(&self, node: usize, below: [u64; 2]) -> u64 {
        let seed = (node as u64).wrapping_add(below[0]).wrapping_add(below[1].rotate_left(1));
        mix(seed, self.rounds[node])
    }

    /// The root's value, computed by one thread.
    fn root(&self) -> u64 {
        let mut values = vec![0; self.nodes()];
        for node in (ROOT..self.nodes()).rev() {
            values[node] = self.run(node, below(&values, node));
        }
        values[ROOT]
    }
}

/// The values of the two children; zeros for a leaf.
fn below(values: &[u64], node: usize) -> [u64; 2] {
    [2 * node, 2 * node + 1].map(|child| values.get(child).copied().unwrap_or(0))
}

/// State protected by the mutex.
struct Progress {
    /// Ready tasks, by owner.
    ready: Vec<Vec<usize>>,
    values: Vec<u64>,
    /// Number of finished children of each node.
    done_below: Vec<u8>,
    trees: u64,
    over: bool,
}

impl Progress {
    fn new(tasks: &Tasks) -> Self {
        let mut progress = Self {
            ready: vec![Vec::new(); tasks.threads],
            values: vec![0; tasks.nodes()],
            done_below: vec![0; tasks.nodes()],
            trees: 0,
            over: false,
        };
        progress.start_tree(tasks);
        progress
    }

    fn start_tree(&mut self, tasks: &Tasks) {
        self.done_below.fill(0);
        tasks.leaves().for_each(|leaf| self.ready[tasks.owner(leaf)].push(leaf));
    }

    /// Records a task's value. Returns its parent, if that is ready now.
    fn finish(&mut self, tasks: &Tasks, node: usize, value: u64) -> Option<usize> {
        self.values[node] = value;
        let parent = node / 2;
        self.done_below[parent] += 1;
        (self.done_below[parent] == 2).then(|| {
            self.ready[tasks.owner(parent)].push(parent);
            parent
        })
    }
}

struct Queues {
    tasks: Tasks,
    expected: u64,
    progress: Mutex<Progress>,
    /// By owner.
    not_empty: Vec<Condvar>,
}

impl Queues {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wake_all(&self) {
        self.not_empty.iter().for_each(Condvar::notify_one);
    }

    /// Ends the work of all threads.
    fn close(&self, mut progress: MutexGuard<'_, Progress>) {
        progress.over = true;
        drop(progress);
        self.wake_all();
    }

    /// Thread `me`'s work, until the meter or another thread ends it. Returns the number of checked roots.
    fn work(&self, me: usize, meter: &WorkMeter) -> Result<u64, WorkloadError> {
        let mut checks = 0;
        loop {
            let idle = |progress: &mut Progress| progress.ready[me].is_empty() && !progress.over;
            let mut progress =
                self.not_empty[me].wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
            if progress.over {
                return Ok(checks);
            }
            if !meter.more(progress.trees) {
                self.close(progress);
                return Ok(checks);
            }
            let Some(node) = progress.ready[me].pop() else { continue };
            let below = below(&progress.values, node);
            drop(progress);

            let value = self.tasks.run(node, below);
            if node == ROOT {
                if let Err(error) = check(SPEC.name, "value of a root", self.expected, value) {
                    self.close(self.lock());
                    return Err(error);
                }
                checks += 1;
                let mut progress = self.lock();
                progress.trees += 1;
                progress.start_tree(&self.tasks);
                drop(progress);
                self.wake_all();
                continue;
            }
            let ready = self.lock().finish(&self.tasks, node, value);
            if let Some(ready) = ready {
                // Signalled even to this thread itself: a queue does not know which thread asks next.
                self.not_empty[self.tasks.owner(ready)].notify_one();
            }
        }
    }
}

pub(super) fn run(amount: Amount, settings: &Settings) -> Result<Outcome, WorkloadError> {
    let tasks = Tasks::new(settings);
    let expected = tasks.root();
    run_tasks(tasks, expected, amount.whole())
}

fn run_tasks(tasks: Tasks, expected: u64, share: Share) -> Result<Outcome, WorkloadError> {
    let threads = tasks.threads;
    let progress = Mutex::new(Progress::new(&tasks));
    let not_empty = (0..threads).map(|_| Condvar::new()).collect();
    let queues = Queues { tasks, expected, progress, not_empty };
    let (checks, elapsed) =
        run_threads(SPEC.name, threads, |me, start| queues.work(me, &share.since(start, 1)))?;
    let checks = checks.iter().sum();
    let operations = queues.lock().trees;
    check(SPEC.name, "number of roots", operations, checks)?;
    Ok(Outcome { operations, elapsed, checks })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tasks(parameters: &str) -> Tasks {
        Tasks::new(&SPEC.settings(&parameters.parse().unwrap()).unwrap())
    }

    const FEW: &str = "threads=2 granularity=1us imbalance=0.5";

    #[test]
    fn a_task_is_ready_when_both_below_it_are_done() {
        let tasks = tasks(FEW);
        let mut progress = Progress::new(&tasks);
        assert_eq!(progress.ready.concat().len(), MIN_LEAVES);
        let ready = [16, 18, 17].map(|node| progress.finish(&tasks, node, 1));
        assert_eq!(ready, [None, None, Some(8)]);
        assert_eq!(progress.ready[0].last(), Some(&8));
    }

    #[test]
    fn notices_a_wrong_root() {
        let right = tasks(FEW).root();
        assert!(run_tasks(tasks(FEW), right, Share::Operations(5)).is_ok());
        let error = run_tasks(tasks(FEW), right ^ 1, Share::Operations(5)).unwrap_err().to_string();
        assert!(error.contains("wrong value of a root"), "{error}");
    }

    #[test]
    fn every_task_matters() {
        let right = tasks(FEW).root();
        for node in ROOT..2 * MIN_LEAVES {
            let mut wrong = tasks(FEW);
            wrong.rounds[node] += 1;
            assert_ne!(wrong.root(), right, "task {node}");
        }
    }

    #[test]
    fn many_threads_have_a_larger_tree() {
        let many = tasks("threads=33 granularity=1us");
        assert_eq!((many.leaves(), many.nodes()), (33..66, 66));
        let root = many.root();
        assert_eq!(run_tasks(many, root, Share::Operations(3)).unwrap().operations, 3);
    }
}

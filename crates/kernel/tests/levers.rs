//! Levers on the running machine that need no privilege: they only change threads of this test.

#![allow(clippy::print_stdout, reason = "a test says what it skips and measures")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use gleaner_kernel::Root;
use gleaner_kernel::lever::affinity::Affinity;
use gleaner_kernel::lever::sched_policy::Batch;
use gleaner_kernel::lever::yield_threads::{YieldKind, YieldStats, YieldThreads};
use gleaner_kernel::lever::{
    LeverError, SchedAttr, SchedPolicy, Target, ThreadKey, ThreadPlan, Value, WalkOutcome, walk,
};
use gleaner_policy::{CpuId, CpuSet};
use gleaner_testing::has_two_vcpus;

fn gettid() -> u32 {
    // SAFETY: takes no argument.
    unsafe { libc::gettid() }.cast_unsigned()
}

/// A thread that waits until it is dropped, and can start others meanwhile.
struct Waiter {
    key: ThreadKey,
    orders: Option<mpsc::Sender<Box<dyn FnOnce() + Send>>>,
    handle: Option<thread::JoinHandle<()>>,
}

impl Waiter {
    fn new() -> Self {
        let (orders, inbox) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        let (born, birth) = mpsc::channel();
        let handle = thread::spawn(move || {
            born.send(gettid()).unwrap();
            for order in inbox {
                order();
            }
        });
        let key = ThreadKey::of(&Root::system(), birth.recv().unwrap()).unwrap();
        Self { key, orders: Some(orders), handle: Some(handle) }
    }

    fn run<T: Send + 'static>(&self, order: impl FnOnce() -> T + Send + 'static) -> T {
        let (done, result) = mpsc::channel();
        let order = Box::new(move || done.send(order()).unwrap());
        self.orders.as_ref().unwrap().send(order).unwrap();
        result.recv().unwrap()
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.orders.take();
        self.handle.take().unwrap().join().unwrap();
    }
}

fn apply(plan: &ThreadPlan) {
    for write in &plan.writes {
        write.target.write(&Root::system(), &write.value).unwrap();
    }
}

/// This machine's vCPUs, or `None` if there is only one.
fn several_cpus() -> Option<CpuSet> {
    let cpus = Affinity::of_caller().unwrap();
    has_two_vcpus().then_some(cpus)
}

fn one(cpu: CpuId) -> CpuSet {
    [cpu].into_iter().collect()
}

#[test]
fn affinity_moves_the_default_threads_respects_the_others_and_comes_back() {
    let root = Root::system();
    let Some(all) = several_cpus() else { return };
    let (first, last) = (all.iter().next().unwrap(), all.iter().next_back().unwrap());
    let (ordinary, pinned) = (Waiter::new(), Waiter::new());
    Target::Affinity(pinned.key).write(&root, &Value::Cpus(one(last))).unwrap();

    let mut affinity = Affinity::new(all.clone());
    affinity.set_active(&one(first));
    let plan = affinity.plan(&root, &[ordinary.key, pinned.key]).unwrap();
    assert_eq!((plan.writes.len(), plan.respected.as_slice()), (1, &[pinned.key][..]));
    apply(&plan);
    assert_eq!(Target::Affinity(ordinary.key).read(&root).unwrap(), Value::Cpus(one(first)));

    // A child started now has the small set, and must get the whole one back.
    let child = ordinary.run(Waiter::new);
    let plan = affinity.plan(&root, &[child.key]).unwrap();
    assert!(plan.writes.is_empty());
    assert_eq!(plan.inherited[0].original, Value::Cpus(all.clone()));

    affinity.set_active(&all);
    apply(&affinity.plan(&root, &[ordinary.key, child.key, pinned.key]).unwrap());
    for key in [ordinary.key, child.key] {
        assert_eq!(Target::Affinity(key).read(&root).unwrap(), Value::Cpus(all.clone()));
    }
    assert_eq!(Target::Affinity(pinned.key).read(&root).unwrap(), Value::Cpus(one(last)));
}

#[test]
fn a_walk_reaches_a_child_that_is_born_during_it() {
    let root = Root::system();
    let Some(all) = several_cpus() else { return };
    let mut affinity = Affinity::new(all.clone());
    let small = affinity.set_active(&one(all.iter().next().unwrap()));
    let parent = Waiter::new();
    let mut children = Vec::new();
    let mut tids = vec![parent.key.tid];
    let mut listed = 0;
    let walked = walk::<LeverError>(
        &root,
        || {
            listed += 1;
            let now = tids.clone();
            if listed == 1 {
                // Started after the listing and before the parent is moved: it has the whole set.
                children.push(parent.run(Waiter::new));
                tids.push(children[0].key.tid);
            }
            Ok(now)
        },
        |new| {
            apply(&affinity.plan(&root, new)?);
            Ok(())
        },
    );
    assert_eq!(walked.unwrap(), WalkOutcome { threads: 2, settled: true });
    for key in [parent.key, children[0].key] {
        assert_eq!(Target::Affinity(key).read(&root).unwrap(), Value::Cpus(small.clone()));
    }
}

#[test]
fn batch_and_back_with_nice_kept_and_others_alone() {
    let root = Root::system();
    let read = |waiter: &Waiter| match Target::Scheduling(waiter.key).read(&root).unwrap() {
        Value::Scheduling(attr) => attr,
        other => panic!("{other}"),
    };
    let (ordinary, idle) = (Waiter::new(), Waiter::new());
    let before = read(&ordinary);
    assert_eq!(before.policy, SchedPolicy::Other);
    let niced = SchedAttr { nice: before.nice + 3, ..before };
    Target::Scheduling(ordinary.key).write(&root, &Value::Scheduling(niced)).unwrap();
    let lowest = SchedAttr { policy: SchedPolicy::Idle, ..read(&idle) };
    Target::Scheduling(idle.key).write(&root, &Value::Scheduling(lowest)).unwrap();

    let mut batch = Batch::new();
    let plan = batch.plan(&root, &[ordinary.key, idle.key]).unwrap();
    assert_eq!((plan.writes.len(), plan.respected.as_slice()), (1, &[idle.key][..]));
    apply(&plan);
    assert_eq!(read(&ordinary), SchedAttr { policy: SchedPolicy::Batch, ..niced });
    assert_eq!(read(&idle), lowest);

    let child = ordinary.run(Waiter::new);
    let plan = batch.plan(&root, &[child.key, ordinary.key]).unwrap();
    assert!(plan.writes.is_empty());
    assert_eq!(plan.inherited[0].original, Value::Scheduling(niced));
    Target::Scheduling(ordinary.key).write(&root, &Value::Scheduling(niced)).unwrap();
    assert_eq!(read(&ordinary), niced);
}

#[test]
fn a_thread_that_ended_is_gone() {
    let root = Root::system();
    let waiter = Waiter::new();
    let (target, key) = (Target::Scheduling(waiter.key), waiter.key);
    drop(waiter);
    // The thread's directory disappears slightly after it can be joined.
    until_gone(key);
    assert!(target.read(&root).unwrap_err().is_gone());
    let plan = Affinity::new(CpuSet::first(1)).plan(&root, &[key]).unwrap();
    assert_eq!(plan, ThreadPlan::default());
}

/// Serialises tests of yield threads: threads of the same vCPU have the same name, and compete for CPU time.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    // Those of the previous test are joined, but their directories can still exist.
    let deadline = Instant::now() + Duration::from_secs(30);
    while named("gleaner-yield/").is_some() {
        assert!(Instant::now() < deadline, "a yield thread does not go");
        thread::yield_now();
    }
    turn
}

/// Waits until the thread has disappeared from `/proc`.
fn until_gone(key: ThreadKey) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while Path::new(&format!("/proc/self/task/{}", key.tid)).exists() {
        assert!(Instant::now() < deadline, "thread {} does not go", key.tid);
        thread::yield_now();
    }
}

/// Waits until the statistics of the only thread satisfy `wanted`; for long, since a compiler can occupy the
/// vCPU.
fn until(threads: &YieldThreads, what: &str, wanted: impl Fn(&YieldStats) -> bool) -> YieldStats {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let stats = threads.stats()[0].1;
        if wanted(&stats) {
            return stats;
        }
        assert!(Instant::now() < deadline, "no {what} in 30 s: {stats:?}");
        // Without a pause this thread would itself be the workload that the yield thread gives way to.
        thread::sleep(Duration::from_millis(1));
    }
}

/// The thread of this process whose name starts with `name`.
fn named(name: &str) -> Option<ThreadKey> {
    std::fs::read_dir("/proc/self/task").unwrap().flatten().find_map(|task| {
        let comm = std::fs::read_to_string(task.path().join("comm")).ok()?;
        let tid = task.file_name().to_str()?.parse().ok()?;
        // It might have ended since.
        comm.starts_with(name).then(|| ThreadKey::of(&Root::system(), tid).ok()).flatten()
    })
}

#[test]
fn yield_threads_are_pinned_poll_sleep_and_end() {
    let _turn = turn();
    let root = Root::system();
    let cpu = Affinity::of_caller().unwrap().iter().next().unwrap();
    let name = format!("gleaner-yield/{cpu}");
    for (kind, policy, nice) in
        [(YieldKind::Classic, SchedPolicy::Idle, 0), (YieldKind::IpiFree, SchedPolicy::Other, 19)]
    {
        let threads = YieldThreads::start(&one(cpu), kind).unwrap();
        let key = named(&name).expect("the thread has its name");
        assert_eq!(Target::Affinity(key).read(&root).unwrap(), Value::Cpus(one(cpu)));
        let attr = SchedAttr { policy, nice, rt_priority: 0, reset_on_fork: false };
        assert_eq!(Target::Scheduling(key).read(&root).unwrap(), Value::Scheduling(attr));

        threads.set_limit(Duration::from_micros(10));
        assert_eq!(threads.stats()[0].1.yields, 0, "nothing runs before it is active");
        threads.set_active(&one(cpu));
        let stats = until(&threads, "sleep", |stats| stats.sleeps > 3);
        assert!(stats.immediate > 10 && stats.yields >= stats.immediate + stats.switches, "{stats:?}");
        assert!(stats.cpu_time > Duration::from_micros(10), "{stats:?}");

        // Asleep until it is activated again: its CPU time and counters stay the same.
        threads.set_active(&CpuSet::new());
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut before = threads.stats();
        loop {
            thread::sleep(Duration::from_millis(20));
            let now = threads.stats();
            if now == before {
                break;
            }
            assert!(Instant::now() < deadline, "still running: {now:?}");
            before = now;
        }
        threads.stop();
        // Joined, but its directory can exist for another moment.
        until_gone(key);
    }
}

#[test]
fn a_yield_thread_sees_the_workload_run() {
    let _turn = turn();
    let cpu = Affinity::of_caller().unwrap().iter().next_back().unwrap();
    let threads = YieldThreads::start(&one(cpu), YieldKind::IpiFree).unwrap();
    threads.set_limit(Duration::from_millis(200));
    threads.set_active(&one(cpu));
    let worker = Waiter::new();
    Target::Affinity(worker.key).write(&Root::system(), &Value::Cpus(one(cpu))).unwrap();
    let before = until(&threads, "yield", |stats| stats.immediate > 1000);
    // Each order wakes the worker on the yield thread's vCPU, where it runs and blocks again.
    until(&threads, "switch", |stats| {
        (0..10).for_each(|_| worker.run(|| ()));
        stats.switches >= before.switches + 50
    });
}

#[test]
fn on_a_busy_vcpu_yield_threads_end() {
    let _turn = turn();
    let cpu = Affinity::of_caller().unwrap().iter().next().unwrap();
    let done = AtomicBool::new(false);
    let compute = || {
        Affinity::set_caller(&one(cpu)).unwrap();
        while !done.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    };
    // They compute until the yield thread has ended, which is what the test must see. Each yield lets both run
    // for a while, a fraction of a second beside a thread of the lowest priority.
    thread::scope(|scope| {
        scope.spawn(compute);
        scope.spawn(compute);
        let threads = YieldThreads::start(&one(cpu), YieldKind::Classic).unwrap();
        let before = threads.stats()[0].1.cpu_time;
        threads.set_limit(Duration::from_millis(1));
        threads.set_active(&one(cpu));
        until(&threads, "yield", |stats| stats.cpu_time > before + Duration::from_micros(20));
        let (stopped, notified) = mpsc::channel();
        scope.spawn(move || {
            threads.stop();
            stopped.send(()).unwrap();
        });
        let ends = notified.recv_timeout(Duration::from_secs(30));
        done.store(true, Ordering::Relaxed);
        assert_eq!(ends, Ok(()), "it does not end while others compute");
    });
}

#[test]
fn a_vcpu_that_does_not_exist_is_an_error_that_names_it() {
    let error = YieldThreads::start(&one(CpuId(8000)), YieldKind::Classic).unwrap_err().to_string();
    assert!(error.contains("vCPU 8000"), "{error}");
}

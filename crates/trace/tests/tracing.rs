//! The BPF programs on this machine's kernel: compares their counts with known numbers. Needs root.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use common::{ROUNDS, assert_woken, online, own_tree, pin, ping_pong, slept, turn, unlimited, woken};
use gleaner_kernel::Root;
use gleaner_kernel::stat::StatSensor;
use gleaner_testing::has_two_vcpus;
use gleaner_trace::{Budget, Part, Parts, Reason, Scope, Snapshot, ThreadStats, TraceError, Tracer};
use nix::time::{ClockId, clock_gettime};

#[test]
fn wake_ups_on_one_vcpu_are_counted_as_such() {
    let Some(_turn) = turn() else { return };
    let tracer = Tracer::start_within(unlimited(), &own_tree(), &Parts::of([])).unwrap();
    let slept = ping_pong("same", [0, 0]);
    let seen = tracer.snapshot().unwrap();
    assert_woken(&seen, "same", slept);
    let same = seen.wakes.same_vcpu.count;
    assert!(same >= slept * 95 / 100, "{same} of {slept}");
    assert_eq!(seen.wakes.same_vcpu.buckets.values().sum::<u64>(), same);
}

#[test]
fn wake_ups_across_vcpus_are_counted_and_make_edges() {
    let Some(_turn) = turn() else { return };
    if !has_two_vcpus() {
        return;
    }
    let tracer = Tracer::start_within(unlimited(), &own_tree(), &Parts::all()).unwrap();
    let slept = ping_pong("cross", [0, 1]);
    let seen = tracer.snapshot().unwrap();
    assert_woken(&seen, "cross", slept);
    let across = seen.wakes.awake.count + seen.wakes.polling.count + seen.wakes.halted.count;
    assert!(across >= slept * 95 / 100, "{across} of {slept}");
    for (waker, wakee) in [("cross0", "cross1"), ("cross1", "cross0")] {
        let edge = seen.edges.iter().find(|e| e.waker == waker && e.wakee == wakee).unwrap();
        assert!(edge.count >= ROUNDS * 9 / 10, "{edge:?}");
        assert!(edge.halted + edge.polling <= edge.count);
    }
    // Each wake-up ends a wait for a channel's futex.
    assert!(seen.waits.futex.count >= slept * 9 / 10, "{} of {slept}", seen.waits.futex.count);
    assert!(seen.futexes.wake >= slept * 9 / 10, "{:?}, slept {slept} times", seen.futexes);
    assert_eq!(seen.lost, gleaner_trace::Lost::default());
}

/// Runs `body` in a thread called `name` until its statistics satisfy `enough`. Returns them.
fn watch(
    name: &'static str,
    body: impl FnOnce(&AtomicBool) + Send + 'static,
    enough: impl Fn(&ThreadStats) -> bool,
) -> ThreadStats {
    let tracer = Tracer::start_within(unlimited(), &own_tree(), &Parts::of([])).unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let stop = Arc::clone(&over);
    let thread = thread::Builder::new().name(name.to_owned()).spawn(move || body(&stop)).unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    let found = loop {
        let seen = tracer.snapshot().unwrap().threads.into_iter().find(|t| t.name == name);
        let found = seen.filter(&enough);
        if found.is_some() || Instant::now() > deadline {
            break found;
        }
        thread::yield_now();
    };
    over.store(true, Ordering::Release);
    thread.join().unwrap();
    found.unwrap_or_else(|| panic!("{name} was hardly seen"))
}

#[test]
fn a_thread_that_only_computes_is_never_woken_and_still_seen() {
    let Some(_turn) = turn() else { return };
    let compute = |over: &AtomicBool| {
        let mut n = 1_u64;
        while !over.load(Ordering::Acquire) {
            n = std::hint::black_box(n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
        }
    };
    let seen = watch("computes", compute, |t| t.cpu_time > Duration::from_millis(100) && t.user_ticks > 10);
    assert!(seen.woken <= 2 && seen.spin_ticks == 0, "{seen:?}");
    assert!(seen.ticks >= seen.user_ticks, "{seen:?}");
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_thread_that_waits_in_a_loop_is_seen_to_spin() {
    let Some(_turn) = turn() else { return };
    // No spin_loop(), like programs that do not use PAUSE.
    #[allow(clippy::missing_spin_loop, reason = "that is what must be seen")]
    let wait = |over: &AtomicBool| while !over.load(Ordering::Acquire) {};
    let seen = watch("spins", wait, |t| t.user_ticks > 20);
    assert!(seen.spin_ticks >= seen.user_ticks * 8 / 10, "{seen:?}");
}

#[test]
fn where_the_time_of_a_vcpu_goes_agrees_with_the_kernels_own_account() {
    let Some(_turn) = turn() else { return };
    let mut stat = StatSensor::new(&Root::system()).unwrap();
    let tracer = Tracer::start_within(unlimited(), &own_tree(), &Parts::of([Part::Idle])).unwrap();
    // In seconds: idle time of all vCPUs by the kernel's account and by the tracer's, and time of the last vCPU spent
    // on this process.
    let last = online() - 1;
    let mut sample = || {
        let counted: Duration = stat.read().unwrap().cpus.iter().map(|(_, times)| times.not_busy()).sum();
        let times = tracer.vcpu_times().unwrap();
        let idle: Duration = times.iter().map(|time| time.polling + time.halted).sum();
        [counted, idle, times[last].scope].map(|time| time.as_secs_f64())
    };
    let (before, started) = (sample(), Instant::now());
    let computed = thread::spawn(move || {
        pin(last);
        let clock = || Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap());
        while clock() < Duration::from_millis(200) {
            std::hint::black_box(0);
        }
        clock().as_secs_f64()
    });
    let computed = computed.join().unwrap();
    thread::sleep(Duration::from_millis(200));
    let (after, elapsed) = (sample(), started.elapsed().as_secs_f64());
    let [counted, idle, seen] = [0, 1, 2].map(|index| after[index] - before[index]);
    assert!(seen >= computed * 0.9 && seen <= elapsed, "{seen} of {computed} in {elapsed}");
    // The kernel rounds each vCPU's account to 10 ms at both ends, and its idle time includes the entry and exit
    // overhead.
    let rounding = 0.02 * online() as f64;
    assert!((idle - counted).abs() <= rounding + counted / 10.0, "{idle} seen, {counted} counted");
}

#[test]
fn the_scope_of_children_holds_them_and_not_their_parent() {
    let Some(_turn) = turn() else { return };
    let tracer = Tracer::start_within(unlimited(), &Scope::Children, &Parts::of([])).unwrap();
    ping_pong("parent", [0, 0]);
    let status = Command::new("sh").args(["-c", "sleep 0.05; true"]).status().unwrap();
    assert!(status.success());
    let seen = tracer.snapshot().unwrap();
    assert_eq!(woken(&seen, "parent"), 0);
    assert!(seen.threads.iter().any(|t| t.name == "sleep" || t.name == "sh"), "{:?}", seen.threads);
    assert!(seen.waits.sleep.quantile(1.0) >= Some(Duration::from_millis(40)), "{:?}", seen.waits.sleep);
}

#[test]
fn more_names_than_there_is_room_for_are_counted() {
    let Some(_turn) = turn() else { return };
    let tracer = Tracer::start(&own_tree(), &Parts::of([])).unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut born = 0..;
    // Threads that live between two windows are not seen.
    let seen = loop {
        for index in born.by_ref().take(1100) {
            let name = format!("storm-{index}");
            let sleep = || thread::sleep(Duration::from_micros(1));
            thread::Builder::new().name(name).stack_size(64 << 10).spawn(sleep).unwrap().join().unwrap();
        }
        let seen = tracer.snapshot().unwrap();
        if seen.lost.names > 0 {
            break seen;
        }
        assert!(Instant::now() < deadline, "{:?}", seen.lost);
    };
    assert_eq!(seen.lost.tasks, 0);
    assert!(seen.threads.iter().any(|t| t.name == "(other)"));
    assert!(seen.threads.iter().filter(|t| t.name.starts_with("storm-")).count() > 900);
}

/// Timeout: decisions take several windows, and each can stand for more than five seconds.
const TIMEOUT: Duration = Duration::from_secs(300);

/// Keeps threads waking each other until `over` holds.
fn busy_until(tracer: &Tracer, over: impl Fn(&Tracer) -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !over(tracer) {
        assert!(Instant::now() < deadline, "{:?}", tracer.cost());
        ping_pong("busy", [0, 0]);
    }
}

fn too_expensive(tracer: &Tracer) -> Option<String> {
    let missing = tracer.missing();
    missing.iter().find(|m| matches!(m.why, Reason::TooExpensive { .. })).map(ToString::to_string)
}

/// Two threads called `paced` wake each other while `body` runs, which gets the number of their sleeps so far. As
/// real-time threads they keep their pace whatever else runs, and they leave some of their vCPU to it.
fn paced(body: impl FnOnce(&AtomicU64)) {
    let (sleeps, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let (call, called) = channel();
    let (answer, answered) = channel();
    let prepare = || {
        pin(0);
        let own = nix::unistd::gettid().to_string();
        assert!(Command::new("chrt").args(["--fifo", "--pid", "1", &own]).status().unwrap().success());
    };
    let (stop, counted) = (&over, &sleeps);
    let calls = move || {
        prepare();
        let before = slept();
        while !stop.load(Ordering::Acquire) {
            for _ in 0..500 {
                call.send(()).unwrap();
                answered.recv().unwrap();
            }
            thread::sleep(Duration::from_millis(1));
            counted.store(2 * (slept() - before), Ordering::Release);
        }
    };
    let answers = move || {
        prepare();
        while called.recv().is_ok() {
            answer.send(()).unwrap();
        }
    };
    thread::scope(|scope| {
        let start = |name: &str| thread::Builder::new().name(name.to_owned());
        start("paced-caller").spawn_scoped(scope, calls).unwrap();
        start("paced-callee").spawn_scoped(scope, answers).unwrap();
        // Ends them even if the body fails.
        let _over = Over(&over);
        body(&sleeps);
    });
}

/// Sets its flag when dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn windows_stand_for_the_time_around_them() {
    let Some(_turn) = turn() else { return };
    // Windows are always cheap enough, tracing all the time is not.
    let budget = Budget { sample_above: 0.05, detach_above: 1e9 };
    let tracer = Tracer::start_within(budget, &own_tree(), &Parts::of([])).unwrap();
    paced(|sleeps| {
        let until = |enough: &dyn Fn(&Snapshot) -> bool| {
            let deadline = Instant::now() + TIMEOUT;
            loop {
                let seen = tracer.snapshot().unwrap();
                if enough(&seen) {
                    return (seen, sleeps.load(Ordering::Acquire));
                }
                assert!(Instant::now() < deadline, "{:?}", tracer.cost());
                thread::sleep(Duration::from_millis(100));
            }
        };
        let (before, slept_before) = until(&|seen| seen.one_in > 1 && woken(seen, "paced") > 0);
        // Twenty windows of 50 ms, each of which stands for `one_in` times that.
        let covered = |seen: &Snapshot| seen.covered.saturating_sub(before.covered);
        let (after, slept_after) = until(&|seen| covered(seen) > Duration::from_secs(1) * seen.one_in);
        let (elapsed, covered) = (after.elapsed.saturating_sub(before.elapsed), covered(&after));
        // The first and the last sample can each be off by a period.
        assert!(elapsed.abs_diff(covered) <= covered / 4, "{elapsed:?}, {covered:?}");
        let slept = slept_after - slept_before;
        let wakes = woken(&after, "paced") - woken(&before, "paced");
        assert!((slept * 6 / 10..=slept * 14 / 10).contains(&wakes), "{wakes} estimated, {slept} were");
        // A wait that spans two windows would be as long as the time between them.
        let all = |seen: &Snapshot| {
            let wakes = &seen.wakes;
            wakes.same_vcpu.plus(&wakes.awake).plus(&wakes.polling).plus(&wakes.halted)
        };
        let longest = all(&after).since(&all(&before)).quantile(0.999).unwrap();
        assert!(longest < Duration::from_millis(20), "{longest:?}");
    });
}

#[test]
fn what_costs_too_much_is_given_up_and_says_so() {
    let Some(_turn) = turn() else { return };
    // Nothing is cheap enough, and nothing too expensive.
    let budget = Budget { sample_above: 0.0, detach_above: 1e9 };
    let tracer = Tracer::start_within(budget, &own_tree(), &Parts::all()).unwrap();
    busy_until(&tracer, |tracer| too_expensive(tracer).is_some());
    let said = too_expensive(&tracer).unwrap();
    assert!(said.contains("was given up") && !said.contains("cost 0.00 %"), "{said}");
    assert!(tracer.is_attached());
}

#[test]
fn what_costs_too_much_in_windows_too_ends_and_says_so() {
    let Some(_turn) = turn() else { return };
    let budget = Budget { sample_above: 0.0, detach_above: 0.0 };
    let tracer = Tracer::start_within(budget, &own_tree(), &Parts::of([])).unwrap();
    busy_until(&tracer, |tracer| !tracer.is_attached());
    let said = too_expensive(&tracer).unwrap();
    assert!(said.contains("has ended"), "{said}");
    let seen = tracer.snapshot().unwrap();
    ping_pong("after", [0, 0]);
    assert_eq!(woken(&tracer.snapshot().unwrap(), "after"), 0);
    assert_eq!(tracer.snapshot().unwrap().elapsed, seen.elapsed);
}

#[test]
fn what_is_traced_ends_with_the_tracer() {
    let Some(_turn) = turn() else { return };
    let own = || {
        let fds = fs::read_dir("/proc/self/fd").unwrap().flatten();
        let links = fds.filter_map(|fd| fs::read_link(fd.path()).ok());
        links.filter(|to| to.to_string_lossy().contains("bpf")).count()
    };
    let before = own();
    let tracer = Tracer::start(&own_tree(), &Parts::all()).unwrap();
    assert!(own() > before);
    drop(tracer);
    assert_eq!(own(), before);
}

#[test]
fn a_scope_that_does_not_exist_is_an_error() {
    let error = Tracer::start(&Scope::Tree(u32::MAX), &Parts::all()).unwrap_err();
    assert!(matches!(error, TraceError::Scope(_)), "{error}");
}

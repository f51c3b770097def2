//! Programs defined in the scenario file.

use gleaner_engine::Journal;

use crate::scenario::Scenario;
use crate::{BarrierKind, Category, Dist, End, ObjectKind, Op, Report};

const EVERYTHING: &str = r#"
title = "every segment once"
time = "1s"
[[vm]]
name = "a"
vcpus = 4
costs = "this-vm"
[[vm.program]]
name = "own"
[vm.program.objects]
door = { kind = "mutex", spin = "1us", handoff = true }
meet = { kind = "barrier", spin = "5us" }
jobs = { kind = "queue", capacity = 3 }
more = { kind = "condition" }
turn = { kind = "futex" }
wire = { kind = "socket" }
go = { kind = "flag" }
[[vm.program.thread]]
name = "feeder"
code = [
    { repeat = { times = 10, code = [
        { compute = "exponential(20us)" },
        { put = "jobs" },
        { done = 1 },
    ] } },
    { close = "jobs" },
    { lock = "door" }, { broadcast = "more" }, { unlock = "door" },
    { post = "turn" }, { post = "wire" }, { post = "go" },
    { barrier = "meet" },
]
[[vm.program.thread]]
name = "worker"
count = 2
code = [
    { repeat = { code = [{ take = "jobs" }, { compute = "uniform(1us, 9us)" }, "shootdown", "yield"] } },
    { io = "30us" }, { sleep = "lognormal(20us, 0.3)" }, { moved = 100 },
    { barrier = "meet" },
]
[[vm.program.thread]]
name = "waiter"
code = [
    { lock = "door" }, { wait = { condition = "more", mutex = "door" } }, { unlock = "door" },
    { await = "turn" }, { await = "wire" }, { spin_until = "go" },
    { done = 1 },
    { barrier = "meet" },
]
"#;

fn run(text: &str) -> (End, Report) {
    let scenario = Scenario::parse("x.toml", text).unwrap();
    let outcome = scenario.run(None, &mut Journal::disabled()).unwrap();
    (outcome.end, outcome.report)
}

#[test]
fn every_segment_can_be_written_and_runs() {
    let scenario = Scenario::parse("x.toml", EVERYTHING).unwrap();
    let program = &scenario.spec.vms[0].tasks[0].program;
    assert_eq!(program.threads(), 4);
    assert_eq!(program.objects[0], ObjectKind::Mutex { spin: 1_000, handoff: true });
    // All four threads have the barrier in their code; one closes the queue.
    assert_eq!(
        program.objects[1],
        ObjectKind::Barrier { parties: 4, kind: BarrierKind::SpinThenBlock(5_000) }
    );
    let queue = ObjectKind::Queue { capacity: 3, producers: 1, spin: 0, always_signals: false };
    assert_eq!(program.objects[2], queue);
    assert_eq!(program.roles[0].code[1], Op::Compute(Dist::Exponential { mean: 20_000 }));
    // A closed queue exits the loop.
    assert_eq!(program.roles[1].code[1], Op::Take(2, 6));
    assert_eq!(program.roles[1].code[5], Op::Again);
    let (end, report) = run(EVERYTHING);
    assert_eq!(end, End::Finished);
    let totals = &report.vms[0].tasks[0].totals;
    assert_eq!((totals.operations, totals.moved), (11, 200));
}

/// Two VM lines with the same program around `objects` and `threads`.
fn file(objects: &str, threads: &str) -> String {
    format!(
        "title = 't'\ntime = '1s'\n[host]\ncores = 2\n[[vm]]\nname = 'a'\nvcpus = 2\ncosts = 'this-vm'\n\
         [[vm.program]]\nname = 'own'\n[vm.program.objects]\n{objects}\n{threads}"
    )
}

fn thread(name: &str, code: &str) -> String {
    format!("[[vm.program.thread]]\nname = '{name}'\ncode = [{code}]\n")
}

#[test]
fn a_signal_is_kept_and_each_releases_one_waiter() {
    let objects = "door = { kind = 'mutex' }\nmore = { kind = 'condition' }";
    let late = "{ sleep = '1ms' }, { lock = 'door' }, { wait = { condition = 'more', mutex = 'door' } }, \
                { unlock = 'door' }, { done = 1 }";
    let early = "{ lock = 'door' }, { signal = 'more' }, { unlock = 'door' }, { done = 1 }";
    let (end, _) = run(&file(objects, &(thread("late", late) + &thread("early", early))));
    assert_eq!(end, End::Finished);
    // One signal for two waiters: the other one waits forever, and is named along with what it waits for.
    let two = thread("late", late).replace("code", "count = 2\ncode");
    let (end, report) = run(&file(objects, &(two + &thread("early", early))));
    let End::Deadlock(blocked) = end else { panic!("{end}") };
    assert_eq!(report.vms[0].tasks[0].totals.operations, 2);
    let waits: Vec<String> = blocked.iter().map(ToString::to_string).collect();
    assert_eq!(waits.len(), 1);
    assert!(
        waits[0].starts_with("own/late.") && waits[0].ends_with("waits at condition `more` for a signal")
    );
}

#[test]
fn a_broadcast_releases_all_waiters() {
    let objects = "door = { kind = 'mutex' }\nmore = { kind = 'condition' }";
    let wait = "{ lock = 'door' }, { wait = { condition = 'more', mutex = 'door' } }, { unlock = 'door' }, { done = 1 }";
    let waiters = thread("waiter", wait).replace("code", "count = 7\ncode");
    let caller =
        thread("caller", "{ sleep = '5ms' }, { lock = 'door' }, { broadcast = 'more' }, { unlock = 'door' }");
    let (end, report) = run(&file(objects, &(waiters + &caller)));
    assert_eq!((end, report.vms[0].tasks[0].totals.operations), (End::Finished, 7));
}

#[test]
fn deadlocks_of_every_kind_name_thread_object_and_partner() {
    for (objects, code, expected) in [
        (
            "q = { kind = 'queue', capacity = 1 }",
            "{ take = 'q' }",
            "own/t.0 waits at queue `q` for an item or room",
        ),
        (
            "b = { kind = 'barrier', parties = 2 }",
            "{ barrier = 'b' }",
            "own/t.0 waits at barrier `b` for 1 more",
        ),
        ("f = { kind = 'futex' }", "{ await = 'f' }", "own/t.0 waits at channel `f` for a post"),
        (
            "m = { kind = 'mutex' }\nc = { kind = 'condition' }",
            "{ lock = 'm' }, { wait = { condition = 'c', mutex = 'm' } }",
            "own/t.0 waits at condition `c` for a signal",
        ),
        // On one pCPU nothing can progress; a spinning thread is named, too.
        ("f = { kind = 'flag' }", "{ spin_until = 'f' }", "own/t.0 waits at channel `f` for a post"),
    ] {
        let text = file(objects, &thread("t", code))
            .replace("cores = 2", "cores = 1")
            .replace("vcpus = 2", "vcpus = 1");
        let (end, _) = run(&text);
        assert!(end.to_string().contains(expected), "{code}: {end}");
    }
    let (end, _) = run(&file("", &thread("t", "{ repeat = { code = [{ done = 1 }] } }")));
    assert!(matches!(end, End::NoProgress(ref t) if t == "own/t.0"), "{end}");
}

#[test]
fn a_spinning_thread_takes_user_time_until_the_flag() {
    let flag = "go = { kind = 'flag' }";
    let threads = thread("spinner", "{ spin_until = 'go' }")
        + &thread("poster", "{ compute = '10ms' }, { post = 'go' }");
    let (end, report) = run(&file(flag, &threads));
    assert_eq!(end, End::Finished);
    let spun = report.vms[0].time(Category::UserSpin);
    assert!((9_000_000..11_000_000).contains(&spun), "{spun}");
}

#[test]
fn mistakes_are_reported_with_file_line_and_nearest_name() {
    for (from, to, expected) in [
        ("{ put = \"jobs\" }", "{ put = \"jbos\" }", "there is no object `jbos`; did you mean `jobs`?"),
        ("{ put = \"jobs\" }", "{ putt = \"jobs\" }", "unknown variant `putt`; did you mean `put`?"),
        ("{ put = \"jobs\" }", "{ put = \"door\" }", "`door` is a mutex; a queue is needed here"),
        ("exponential(20us)", "exponental(20us)", "`exponental` is not a distribution; did you mean"),
        ("\"shootdown\"", "\"shotdown\"", "unknown variant `shotdown`; did you mean `shootdown`?"),
        ("times = 10", "tiems = 10", "unknown field `tiems`; did you mean `times`?"),
        ("times = 10", "times = 0", "a loop runs at least once"),
        ("kind = \"barrier\"", "kind = \"barier\"", "`barier` is no kind of object; did you mean `barrier`?"),
        ("capacity = 3", "parties = 3", "`parties` means nothing for a queue"),
        (", capacity = 3", "", "no thread can put an item into a queue without `capacity`"),
        ("handoff = true", "handof = true", "unknown field `handof`; did you mean `handoff`?"),
        ("count = 2", "cuont = 2", "unknown field `cuont`; did you mean `count`?"),
        ("name = \"own\"", "name = \"own\"\nthreads = 3", "`threads`, `work`, `grain` and `variant` are for"),
        ("spin_until = \"go\"", "spin_until = \"turn\"", "`turn` is a futex; a flag is needed here"),
    ] {
        assert!(EVERYTHING.contains(from), "{from}");
        let before = EVERYTHING.split(from).next().unwrap();
        // In the last inserted line.
        let line = 1 + (before.to_owned() + to).matches('\n').count();
        let error = Scenario::parse("x.toml", &EVERYTHING.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.starts_with(&format!("x.toml:{line}: {expected}")), "{to}: {error}");
    }
    let unknown =
        "title = 't'\n[[vm]]\nname = 'a'\nvcpus = 1\ncosts = 'this-vm'\n[[vm.program]]\nname = 'mine'\n";
    let error = Scenario::parse("x.toml", unknown).unwrap_err().to_string();
    assert!(
        error.starts_with("x.toml:7: there is no program `mine`") && error.contains("[[vm.program.thread]]"),
        "{error}"
    );
}

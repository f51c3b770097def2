//! What can go wrong around the tracer: exits, reused PIDs, vCPUs going offline, missing rights.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use std::ffi::CString;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{fs, ptr, thread};

use common::{assert_woken, online, own_tree, pin, ping_pong, turn, unlimited, until_asleep};
use gleaner_testing::left_out;
use gleaner_trace::{Lost, NotAvailable, OverloadSensor, Parts, Reason, Recorder, Scope, TraceError, Tracer};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;

const MAYFLIES: u64 = 20_000;

#[test]
fn a_storm_of_exits_leaves_nothing_behind() {
    let Some(_turn) = turn() else { return };
    let tracer = Tracer::start_within(unlimited(), &own_tree(), &Parts::all()).unwrap();
    let mut joined = 0;
    while joined < MAYFLIES {
        let born =
            || thread::Builder::new().name("mayfly".to_owned()).stack_size(64 << 10).spawn(thread::yield_now);
        let threads: Vec<_> = (0..50).map(|_| born().unwrap()).collect();
        joined += u64::try_from(threads.len()).unwrap();
        for thread in threads {
            thread.join().unwrap();
        }
    }
    let slept = ping_pong("later", [0, 0]);
    let seen = tracer.snapshot().unwrap();
    // The kernel can refuse storage to a thread that is woken while another one exits; the loss is counted.
    assert!(seen.lost.tasks <= MAYFLIES / 100, "{:?}", seen.lost);
    assert_eq!(Lost { tasks: 0, ..seen.lost }, Lost::default());
    let mayflies = seen.threads.iter().find(|t| t.name == "mayfly").unwrap();
    // Each ran from its creation to its exit without waiting.
    assert!(mayflies.segments + seen.lost.tasks >= MAYFLIES / 2, "{mayflies:?}");
    assert_woken(&seen, "later", slept);
}

/// Starts `sleep 1000` with the PID `pid`.
fn sleep_as(pid: Pid) -> nix::Result<Pid> {
    let program = CString::new("/bin/sleep").unwrap();
    let argument = CString::new("1000").unwrap();
    let arguments = [program.as_ptr(), argument.as_ptr(), ptr::null()];
    let wanted = [pid.as_raw()];
    // SAFETY: all zeros are valid for this struct of integers.
    let mut how: libc::clone_args = unsafe { std::mem::zeroed() };
    how.exit_signal = u64::try_from(libc::SIGCHLD).unwrap();
    how.set_tid = wanted.as_ptr() as u64;
    how.set_tid_size = 1;
    // SAFETY: as for fork(2); the child only calls execv(2) and _exit(2), on memory prepared before.
    let child = unsafe { libc::syscall(libc::SYS_clone3, &raw mut how, size_of::<libc::clone_args>()) };
    if child == 0 {
        // SAFETY: in the child, with strings that end in NUL and a list that ends in null.
        unsafe {
            libc::execv(program.as_ptr(), arguments.as_ptr());
            libc::_exit(127);
        }
    }
    nix::errno::Errno::result(child).map(|child| Pid::from_raw(i32::try_from(child).unwrap()))
}

#[test]
fn a_number_that_is_used_again_is_somebody_else() {
    let Some(_turn) = turn() else { return };
    let mut first = Command::new("sleep").arg("1000").process_group(0).spawn().unwrap();
    let pid = Pid::from_raw(first.id().cast_signed());
    let tracer = Tracer::start_within(unlimited(), &Scope::Tree(first.id()), &Parts::of([])).unwrap();
    first.kill().unwrap();
    first.wait().unwrap();
    // Its last switch can come after wait(2) has returned: running on each vCPU makes sure that it is over.
    (0..online()).for_each(pin);
    let before = tracer.snapshot().unwrap();
    // The PID was free just now; it is unlikely that another process takes it.
    let second = sleep_as(pid).unwrap();
    assert_eq!(second, pid, "the kernel was asked for this number");
    until_asleep(second.as_raw().unsigned_abs());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).unwrap();
    waitpid(pid, None).unwrap();
    let after = tracer.snapshot().unwrap();
    assert_eq!(after.wakes.count(), before.wakes.count(), "{:?}", after.threads);
    let time = |threads: &[gleaner_trace::ThreadStats]| threads.iter().map(|t| t.cpu_time).sum::<Duration>();
    assert_eq!(time(&after.threads), time(&before.threads));
}

/// Runs only the test `name` of this test program, in a child started through `words`.
fn again(name: &str, words: &[&str]) -> Child {
    let own = std::env::current_exe().unwrap();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).arg(own).args(["--exact", name, "--nocapture", "--test-threads", "1"]);
    command.env("GLEANER_TEST_CHILD", "1").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn in_child() -> bool {
    std::env::var_os("GLEANER_TEST_CHILD").is_some()
}

fn absence(error: TraceError) -> NotAvailable {
    match error {
        TraceError::NotAvailable(absence) => absence,
        other => panic!("{other}"),
    }
}

#[test]
fn without_the_right_to_load_programs_each_of_them_says_so() {
    if in_child() {
        for absence in [
            absence(Tracer::start(&own_tree(), &Parts::all()).unwrap_err()),
            absence(Recorder::start(&own_tree()).unwrap_err()),
            OverloadSensor::load().unwrap_err(),
        ] {
            assert!(matches!(absence.why, Reason::NotPermitted), "{absence:?}");
            assert!(absence.to_string().contains("CAP_BPF and CAP_PERFMON"), "{absence}");
        }
        println!("refused as it should be");
        return;
    }
    let Some(_turn) = turn() else { return };
    // Still UID 0, as in a container.
    let name = "without_the_right_to_load_programs_each_of_them_says_so";
    let drop = "--bounding-set=-sys_admin,-bpf,-perfmon";
    let output = again(name, &["setpriv", drop, "--"]).wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("refused as it should be"), "{said}");
}

#[test]
fn a_vcpu_that_goes_and_comes_back_does_not_disturb() {
    if std::env::var_os("GLEANER_TEST_HOTPLUG").is_none() {
        return left_out("takes a vCPU offline; set GLEANER_TEST_HOTPLUG=1 on a machine that may be changed");
    }
    let Some(_turn) = turn() else { return };
    let last = online() - 1;
    let file = format!("/sys/devices/system/cpu/cpu{last}/online");
    let set = |value: &str| fs::write(&file, value).unwrap();
    let tracer = Tracer::start_within(unlimited(), &Scope::System, &Parts::all()).unwrap();
    let before = ping_pong("before", [0, 0]);
    set("0");
    // Assert only after the vCPU is back online.
    let without = tracer.snapshot();
    let during = ping_pong("without", [0, 0]);
    set("1");
    let after = ping_pong("after", [last, last]);
    let (without, seen) = (without.unwrap(), tracer.snapshot().unwrap());
    assert_eq!(without.vcpus.len(), last);
    assert_eq!(seen.vcpus.len(), last + 1);
    for (name, slept) in [("before", before), ("without", during), ("after", after)] {
        assert_woken(&seen, name, slept);
    }
    assert!(tracer.is_attached());
}

//! A process with many threads, which is this test binary started again.

use std::collections::BTreeMap;
use std::io::BufRead as _;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::{env, fs, io};

use gleaner_policy::{CpuId, CpuSet};
use nix::sched::sched_setaffinity;
use nix::unistd::Pid;

use super::process::Running;

const COUNT: &str = "GLEANER_TEST_THREADS";
const PIN: &str = "GLEANER_TEST_PIN";
/// With which status the process ends.
pub(crate) const STATUS: i32 = 7;

/// `before` and then the command of a process with `count` more threads, each of which wakes the next; the first of
/// them chooses to run on `pin` only. It is there when it has printed `ready`; it makes a round through all threads
/// and prints `round` for each line that it reads, and ends with [`STATUS`] when its input does.
pub(crate) fn command(before: &[&str], count: usize, pin: Option<CpuId>) -> Command {
    let own = env::current_exe().unwrap();
    let mut command = match before {
        [] => Command::new(own),
        [program, arguments @ ..] => {
            let mut command = Command::new(program);
            command.args(arguments).arg(own);
            command
        }
    };
    command.args(["common::threads::many_threads", "--exact", "--ignored", "--nocapture"]);
    command.env(COUNT, count.to_string());
    if let Some(cpu) = pin {
        command.env(PIN, cpu.to_string());
    }
    command
}

/// Waits until the process has printed `word`; the test harness may have written before it.
#[track_caller]
pub(crate) fn wait_for(process: &mut Running, word: &str) {
    loop {
        let line = process.line();
        assert!(!line.is_empty() || !process.has_ended(), "no `{word}` in its output");
        if line.ends_with(word) {
            return;
        }
    }
}

/// The CPUs that each thread of process `pid` may run on.
pub(crate) fn masks(pid: u32) -> BTreeMap<u32, CpuSet> {
    let mask = |tid: u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
        Some((tid, line.trim().parse().ok()?))
    };
    let tids = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tids.filter_map(|entry| mask(entry.file_name().to_str()?.parse().ok()?)).collect()
}

#[test]
#[ignore = "is the process with many threads that other tests start"]
fn many_threads() {
    let number = |name| env::var(name).ok().and_then(|text| text.parse::<usize>().ok());
    // Somebody runs all ignored tests.
    let Some(count) = number(COUNT) else { return };
    let (first, last) = ring(count, number(PIN));
    let round = |word: &str| {
        first.send(0).unwrap();
        assert_eq!(last.recv(), Ok(count));
        println!("{word}");
    };
    round("ready");
    io::stdin().lock().lines().for_each(|_| round("round"));
    std::process::exit(STATUS);
}

/// Threads that pass a number on, each adding one.
fn ring(count: usize, pin: Option<usize>) -> (Sender<usize>, Receiver<usize>) {
    let (first, mut last) = channel();
    for index in 0..count {
        let (next, receiver) = channel();
        let previous = std::mem::replace(&mut last, receiver);
        let pin = pin.filter(|_| index == 0);
        let body = move || {
            if let Some(cpu) = pin {
                let mut mask = nix::sched::CpuSet::new();
                mask.set(cpu).unwrap();
                sched_setaffinity(Pid::from_raw(0), &mask).unwrap();
            }
            while let Ok(number) = previous.recv() {
                if next.send(number + 1).is_err() {
                    return;
                }
            }
        };
        thread::Builder::new().stack_size(64 << 10).spawn(body).unwrap();
    }
    (first, last)
}

//! A process with many threads: this test binary, run again.

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
/// Exit status of the process.
pub(crate) const STATUS: i32 = 7;

/// `before`, followed by the command of a process with `count` more threads in a ring, each of which wakes the next.
/// The first one binds itself to `pin`. The process prints `ready`, then runs once round the ring and prints `round`
/// for each line of input, and exits with [`STATUS`] at the end of its input.
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

/// Waits until the process prints `word`. The test harness can print something before it.
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

/// The CPUs on which each thread of process `pid` is allowed to run.
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
    // Run directly, as one of all ignored tests.
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

/// A ring of threads that pass a number on, each adding one.
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

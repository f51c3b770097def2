//! Everything that happens to a host, for a long time, at once.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::{Scheduler, failed, state};
use crate::claims::host::churn::guests::{Guests, Tally};
use crate::claims::{Checks, soak};
use crate::error::{Error, Result};
use crate::vm::Lab;

/// VMs at a time.
const AT_ONCE: usize = 2;
/// How long each scheduler runs.
const TERM: Duration = Duration::from_secs(20);
const RULES: [&str; 4] = ["resched-dp,tlb-co", "resched-co", "off", "resched-dp,tlb-co,resched-co"];
/// The VMMs move between these, and are for a while in none.
const GROUPS: [(&str, &str); 2] = [("/sys/fs/cgroup/light", "50"), ("/sys/fs/cgroup/heavy", "300")];
const MOVE: Duration = Duration::from_secs(1);
/// A pCPU that is off line for half of this time.
const HOTPLUG: Duration = Duration::from_secs(4);
const PCPU: &str = "/sys/devices/system/cpu/cpu3/online";
const CONTROLLERS: &str = "/sys/fs/cgroup/cgroup.subtree_control";

pub(super) fn prove(lab: &Lab, checks: &mut Checks) -> Result<()> {
    let least = soak::time()?;
    write(Path::new(CONTROLLERS), "+cpu")?;
    for (group, weight) in GROUPS {
        fs::create_dir_all(group).map_err(Error::file("make", group))?;
        write(&Path::new(group).join("cpu.weight"), weight)?;
    }
    let started = Instant::now();
    let (guests, over) = (Guests::new(least), AtomicBool::new(false));
    let (tally, terms, moves, switches) = thread::scope(|scope| {
        let vms: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(|| guests.live(lab))).collect();
        let terms = scope.spawn(|| terms(&over));
        let moves = scope.spawn(|| repeat(&over, MOVE, moved));
        let switches = scope.spawn(|| {
            repeat(&over, HOTPLUG / 2, |turn| {
                write(Path::new(PCPU), if turn.is_multiple_of(2) { "0" } else { "1" })?;
                Ok(1)
            })
        });
        let mut tally = Ok(Tally::default());
        for vm in vms {
            let ended = vm.join().map_err(|_| panicked()).and_then(|ended| ended);
            tally = tally.and_then(|mut sum: Tally| {
                sum.add(&ended?);
                Ok(sum)
            });
        }
        // The others end whatever became of the VMs.
        over.store(true, Ordering::Relaxed);
        (tally, terms.join(), moves.join(), switches.join())
    });
    write(Path::new(PCPU), "1")?;
    let (tally, terms) = (tally?, terms.map_err(|_| panicked())??);
    let moves = moves.map_err(|_| panicked())??;
    let switches = switches.map_err(|_| panicked())??;
    checks.that(
        "VMs came, worked and went",
        tally.off > 0 && tally.killed > 0,
        format!(
            "{} powered off, {} killed, in {:.0} s; {moves} moves between control groups, {switches} times a pCPU went or came",
            tally.off,
            tally.killed,
            started.elapsed().as_secs_f64()
        ),
    );
    checks.that(
        "schedulers ran, and each until it was ended",
        terms.ended > 0 && terms.failures.is_empty(),
        format!("{} of them; {}", terms.ended, terms.failures.join("; ")),
    );
    checks.that("the last of them says", true, terms.counts);
    checks.equal("the kernel's state", &state(), &"disabled".to_owned());
    let complaints = complaints()?;
    checks.that("the kernel complains of nothing", complaints.is_empty(), complaints.join("; "));
    Ok(())
}

/// What became of the schedulers.
#[derive(Default)]
struct Terms {
    ended: usize,
    failures: Vec<String>,
    counts: String,
}

/// One after another, ended by SIGTERM and by SIGKILL in turn.
fn terms(over: &AtomicBool) -> Result<Terms> {
    let mut terms = Terms::default();
    while !over.load(Ordering::Relaxed) {
        let rules = RULES[terms.ended % RULES.len()];
        let mut scheduler = Scheduler::start(&["--rules", rules])?;
        let until = Instant::now() + TERM;
        while Instant::now() < until && scheduler.runs() && !over.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(100));
        }
        terms.counts = scheduler.counts();
        let alive = scheduler.runs();
        let signal = if terms.ended.is_multiple_of(2) { Signal::SIGTERM } else { Signal::SIGKILL };
        let (status, said) = scheduler.end(signal)?;
        if !alive || (signal == Signal::SIGTERM && !status.success()) {
            terms.failures.push(format!("{rules}: {status}: {}", said.trim()));
        }
        terms.ended += 1;
    }
    Ok(terms)
}

/// Counts what was done, from time to time until the end.
fn repeat(over: &AtomicBool, each: Duration, mut act: impl FnMut(usize) -> Result<usize>) -> Result<usize> {
    let mut done = 0;
    for turn in 0.. {
        if over.load(Ordering::Relaxed) {
            break;
        }
        done += act(turn)?;
        thread::sleep(each);
    }
    Ok(done)
}

/// Puts each VMM into another group.
fn moved(turn: usize) -> Result<usize> {
    let groups = ["/sys/fs/cgroup", GROUPS[0].0, GROUPS[1].0];
    let mut moves = 0;
    for (number, pid) in vmms()?.into_iter().enumerate() {
        let group = groups[(turn + number) % groups.len()];
        // Unless it has just ended.
        moves += usize::from(fs::write(Path::new(group).join("cgroup.procs"), pid).is_ok());
    }
    Ok(moves)
}

fn vmms() -> Result<Vec<String>> {
    let entries = fs::read_dir("/proc").map_err(Error::file("read", "/proc"))?;
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let is_vmm = |path: &PathBuf| {
        fs::read_to_string(path.join("comm")).is_ok_and(|name| name.starts_with("qemu-system"))
    };
    Ok(paths.filter(is_vmm).filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect())
}

/// What the kernel says of tasks that waited for too long, and of a scheduler that it ended.
fn complaints() -> Result<Vec<String>> {
    let output = std::process::Command::new("dmesg").output().map_err(Error::system("run dmesg"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let signs = ["stall", "watchdog", "hung task", "blocked for more than", "runtime error", "BUG:", "Oops"];
    Ok(text.lines().filter(|line| signs.iter().any(|sign| line.contains(sign))).map(str::to_owned).collect())
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(Error::file("write", path))
}

fn panicked() -> Error {
    failed("a thread panicked".to_owned())
}

//! Everything that happens to a host, at once, for as long as is asked for.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use gleaner_host::discover::discover;
use gleaner_kernel::Root;
use nix::sys::signal::Signal;

use super::{Scheduler, failed, guest, state};
use crate::claims::guests::{Guests, Tally};
use crate::claims::{Checks, soak};
use crate::error::{Error, Result};
use crate::vm::{Guest, Lab, Step};

/// VMs that come and go, beside the one that stays.
const AT_ONCE: usize = 2;
/// So many come at least.
const VMS: usize = 4;
/// How long each scheduler runs.
const TERM: Duration = Duration::from_secs(20);
const RULES: [&str; 6] = [
    "resched-dp,tlb-co",
    "resched-co",
    "off",
    "resched-dp,tlb-co,resched-co",
    "tlb-co,tlb-wait",
    "tlb-co,resched-co-auto",
];
/// The VMMs move between these and the root.
const GROUPS: [(&str, &str); 2] = [("/sys/fs/cgroup/light", "50"), ("/sys/fs/cgroup/heavy", "300")];
const MOVE: Duration = Duration::from_secs(1);
/// Half the time from one loss of the pCPU to the next.
const HOTPLUG: Duration = Duration::from_secs(6);
const PCPU: usize = 3;
const ONLINE: &str = "/sys/devices/system/cpu/cpu3/online";
const CONTROLLERS: &str = "/sys/fs/cgroup/cgroup.subtree_control";
/// Of the scheduler's counts.
const FIRST: &str = "urgent vCPUs run first";
/// What the kernel says of tasks that wait for too long, of a scheduler that it ends for an error, and of its own errors.
const COMPLAINTS: [&str; 8] = [
    "runnable task stall",
    "runtime error",
    "watchdog failed to check in",
    "soft lockup",
    "self-detected stall",
    "blocked for more than",
    "BUG:",
    "WARNING:",
];

pub(super) fn prove(lab: &Lab, checks: &mut Checks) -> Result<()> {
    let least = soak::time()?;
    write(Path::new(CONTROLLERS), "+cpu")?;
    for (group, weight) in GROUPS {
        fs::create_dir_all(group).map_err(Error::file("make", group))?;
        write(&Path::new(group).join("cpu.weight"), weight)?;
    }
    let stays = lab.boot(guest("stays").without("kvm-pv-tlb-flush"))?;
    let job = stays.start(work(least))?;
    // The earlier ones are no concern of this claim.
    complaints()?;
    let done = everything(lab, least, &stays);
    // Whatever became of it, the pCPU comes back.
    write(Path::new(ONLINE), "1")?;
    let Done { tally, terms, moves, switches, took } = done?;
    checks.that(
        "VMs came, worked, moved and went, beside one that stays",
        tally.off > 0 && tally.killed > 0 && moves > 0,
        format!(
            "{} powered off, {} killed, {} more because they hung at boot, in {:.0} s; {moves} moves between control groups",
            tally.off,
            tally.killed,
            tally.hung,
            took.as_secs_f64()
        ),
    );
    checks.that(
        "each scheduler ran until it was ended",
        terms.ended > 0 && terms.failures.is_empty(),
        format!("{} of them; {}", terms.ended, terms.failures.join("; ")),
    );
    checks.that(
        "they restarted themselves when a pCPU went offline or came back",
        terms.restarts > 0,
        format!(
            "{} times; it went and came {switches} times, sometimes between two schedulers",
            terms.restarts
        ),
    );
    checks.that("they put urgent vCPUs first", terms.counts.contains(FIRST), terms.counts);
    checks.equal("the kernel's state", &state(), &"disabled".to_owned());
    let complaints = complaints()?;
    checks.that("the kernel complains of nothing", complaints.is_empty(), complaints.join("; "));
    let works = job.signal(Signal::SIGKILL).and_then(|()| job.wait());
    let found = works.as_ref().err().map(ToString::to_string).unwrap_or_default();
    checks.that("the VM that stays answers at the end", works.is_ok(), found);
    Ok(())
}

/// Interrupts between vCPUs for longer than everything else takes.
fn work(least: Duration) -> Step {
    let time = least + Duration::from_secs(900);
    let words = ["gleaner", "workload", "--for", &format!("{}s", time.as_secs()), "tlb"];
    Step::new(&words).timeout(time + Duration::from_secs(100))
}

struct Done {
    tally: Tally,
    terms: Terms,
    moves: usize,
    switches: usize,
    took: Duration,
}

fn everything(lab: &Lab, least: Duration, stays: &Guest) -> Result<Done> {
    let started = Instant::now();
    let (guests, over) = (Guests::new(VMS, least), AtomicBool::new(false));
    thread::scope(|scope| {
        let vms: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(|| guests.live(lab))).collect();
        let terms = scope.spawn(|| terms(&over));
        let moves = scope.spawn(|| repeat(&over, MOVE, |turn| Ok(move_vmms(turn))));
        let switches = scope.spawn(|| repeat(&over, HOTPLUG, |turn| switch_pcpu(turn, stays)));
        let tallies: Vec<_> = vms.into_iter().map(thread::ScopedJoinHandle::join).collect();
        // The others end whatever became of the VMs.
        over.store(true, Ordering::Relaxed);
        let (terms, moves, switches) = (terms.join(), moves.join(), switches.join());
        let mut tally = Tally::default();
        for ended in tallies {
            tally.add(&joined(ended)?);
        }
        Ok(Done {
            tally,
            terms: joined(terms)?,
            moves: joined(moves)?,
            switches: joined(switches)?,
            took: started.elapsed(),
        })
    })
}

fn joined<T>(ended: thread::Result<Result<T>>) -> Result<T> {
    ended.map_err(|_| failed("a thread panicked".to_owned()))?
}

/// What became of the schedulers.
#[derive(Default)]
struct Terms {
    ended: usize,
    failures: Vec<String>,
    /// How often one started anew.
    restarts: usize,
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
        let counts = scheduler.counts();
        if counts.contains(FIRST) {
            terms.counts = counts;
        }
        let alive = scheduler.runs();
        let signal = if terms.ended.is_multiple_of(2) { Signal::SIGTERM } else { Signal::SIGKILL };
        let (status, said) = scheduler.end(signal)?;
        if !alive || (signal == Signal::SIGTERM && !status.success()) {
            terms.failures.push(format!("{rules}: {status}: {}", said.trim()));
        }
        terms.restarts += said.matches("it starts again").count();
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

/// Gives the pCPU back and pins vCPUs to it, or takes it away, at which the kernel moves them.
fn switch_pcpu(turn: usize, stays: &Guest) -> Result<usize> {
    if turn.is_multiple_of(2) {
        write(Path::new(ONLINE), "0")?;
    } else {
        write(Path::new(ONLINE), "1")?;
        stays.pin(&[vec![PCPU], vec![PCPU], vec![0, 1, 2], vec![0, 1, 2]])?;
    }
    Ok(1)
}

/// Puts each VMM into another group.
fn move_vmms(turn: usize) -> usize {
    let groups = ["/sys/fs/cgroup", GROUPS[0].0, GROUPS[1].0];
    let mut moves = 0;
    for (number, vm) in discover(&Root::system()).into_iter().enumerate() {
        let group = groups[(turn + number) % groups.len()];
        // Unless it has just ended.
        moves += usize::from(fs::write(Path::new(group).join("cgroup.procs"), vm.pid.to_string()).is_ok());
    }
    moves
}

/// The lines of the kernel's log that have one of [`COMPLAINTS`], since this was last asked for.
fn complaints() -> Result<Vec<String>> {
    let output = Command::new("dmesg").arg("-c").output().map_err(Error::system("run dmesg"))?;
    if !output.status.success() {
        return Err(failed(format!("dmesg: {}", String::from_utf8_lossy(&output.stderr))));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let is_complaint = |line: &&str| COMPLAINTS.iter().any(|sign| line.contains(sign));
    Ok(text.lines().filter(is_complaint).map(str::to_owned).collect())
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(Error::file("write", path))
}

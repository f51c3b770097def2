//! VMs that come and go while they are followed: their times add up, and nothing is left of them.

mod kernel;
mod ledger;

use std::fs;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use gleaner_host::{HostTracer, Lost, Reading, Report, VcpuCounters};

use self::kernel::{Contents, Objects, files};
use self::ledger::{Ledger, Seen, Taken};
use super::{failed, follow};
use crate::claims::guests::{Guests, MANY, SHORT, Tally, boot, work};
use crate::claims::{Checks, soak};
use crate::error::{Error, Result};
use crate::vm::{Guest, Lab};

/// VMs at a time, on 4 pCPUs.
const AT_ONCE: usize = 3;
/// From one reading to the next.
const INTERVAL: Duration = Duration::from_secs(2);
/// For the kernel to free what nobody uses any more.
const FREED: Duration = Duration::from_secs(20);
const LAST_PID: &str = "/proc/sys/kernel/ns_last_pid";
/// Another process can take the number first.
const ATTEMPTS: usize = 3;

pub(super) fn prove(lab: &Lab, checks: &mut Checks) -> Result<()> {
    let least = soak::time()?;
    let bare = Objects::now();
    let mut watch = Watch::new(follow()?.1);
    watch.look()?;
    let before = (Objects::now(), files()?);
    let (mut tally, second) = come_and_go(lab, least, &mut watch)?;
    tally.add(&reused(lab, &mut watch, checks)?);
    // What has ended is read, then forgotten, and then no more in the sums.
    for _ in 0..3 {
        watch.look()?;
    }
    // The last two are those with one PID.
    followed(checks, &tally, &watch, lab.rounds(MANY) + 2);
    instance(checks, second.as_ref());
    let after = settled(|| Ok((Objects::now(), files()?)), &before)?;
    checks.equal("programs, maps, links of all, and this process' files, after the last VM", &after, &before);
    checks.equal("in the maps after the last VM", &Contents::at_the_end()?, &Contents::NONE);
    drop(watch);
    let freed = settled(|| Ok(Objects::now()), &bare)?;
    checks.equal("programs, maps and links of all after the tracer", &freed, &bare);
    Ok(())
}

/// The tracer, and what it said so far.
struct Watch {
    tracer: HostTracer,
    started: Instant,
    ledger: Ledger,
    lost: Lost,
}

impl Watch {
    fn new(tracer: HostTracer) -> Self {
        Self { tracer, started: Instant::now(), ledger: Ledger::default(), lost: Lost::default() }
    }

    /// Reads as `gleaner-host serve` does.
    fn look(&mut self) -> Result<Reading> {
        self.tracer.forget_ended();
        let from_ns = self.now_ns();
        let reading = self.tracer.read().map_err(|error| failed(&error))?;
        let taken = Taken { from_ns, until_ns: self.now_ns() };
        self.ledger.add(taken, reading.vcpus.iter().map(seen));
        self.lost = reading.lost;
        Ok(reading)
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

fn seen(vcpu: &VcpuCounters) -> Seen {
    let times = &vcpu.attribution;
    let reasons = times.reasons.iter();
    let elsewhere: u64 = reasons.map(|sum| sum.run_ns + sum.sleep_ns + sum.woken_ns + sum.preempted_ns).sum();
    Seen {
        identity: (vcpu.pid, vcpu.tid, times.first_ns),
        ended: vcpu.ended,
        total_ns: times.unknown_ns + times.guest_ns + elsewhere,
    }
}

/// Several at a time, for `least` and until enough have ended; a second instance comes and goes, too.
fn come_and_go(lab: &Lab, least: Duration, watch: &mut Watch) -> Result<(Tally, Option<Output>)> {
    let guests = Guests::new(lab.rounds(MANY), least);
    thread::scope(|scope| {
        let members: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(|| guests.live(lab))).collect();
        let mut second = None;
        while members.iter().any(|member| !member.is_finished()) {
            thread::sleep(INTERVAL);
            let alive = processes(&watch.look()?);
            if second.is_none() && alive > 1 {
                second = Some(scope.spawn(|| {
                    let args = ["diagnose", "--json", "--seconds", "3", "--budget", "100"];
                    Command::new("gleaner-host").args(args).output()
                }));
            }
        }
        let mut tally = Tally::default();
        for member in members {
            tally.add(&member.join().map_err(|_| panicked("a VM's"))??);
        }
        let second =
            second.map(|second| second.join().map_err(|_| panicked("gleaner-host's"))).transpose()?;
        Ok((tally, second.transpose().map_err(Error::system("run gleaner-host"))?))
    })
}

fn panicked(whose: &str) -> Error {
    Error::Guest { vm: "host".to_owned(), error: format!("{whose} thread panicked") }
}

/// Processes with vCPUs that have not ended.
fn processes(reading: &Reading) -> usize {
    let alive = reading.vcpus.iter().filter(|vcpu| !vcpu.ended);
    alive.map(|vcpu| vcpu.pid).collect::<std::collections::BTreeSet<_>>().len()
}

/// One is killed, and the next one gets its PID before anybody looks.
fn reused(lab: &Lab, watch: &mut Watch, checks: &mut Checks) -> Result<Tally> {
    let mut tally = Tally::default();
    let first = boot(lab, MANY, &mut tally, || Ok(()))?;
    let (pid, vcpus) = (first.pid(), first.spec().cpus.count() as usize);
    work(&first, MANY, SHORT)?;
    watch.look()?;
    tally.killed(&first);
    drop(first);
    let (second, started) = with_pid(lab, pid, &mut tally)?;
    work(&second, MANY + 1, SHORT)?;
    checks.equal("the PID of a VM, and that of a killed one before", &second.pid(), &pid);
    let reading = watch.look()?;
    let most = started.elapsed();
    let (ended, alive): (Vec<_>, Vec<_>) =
        reading.vcpus.iter().filter(|vcpu| vcpu.pid == pid).partition(|vcpu| vcpu.ended);
    checks.equal(
        "vCPUs of the killed VM and of that with its PID",
        &(ended.len(), alive.len()),
        &(vcpus, second.spec().cpus.count() as usize),
    );
    let longest = alive.iter().map(|vcpu| seen(vcpu).total_ns).max().unwrap_or_default();
    let longest = Duration::from_nanos(longest);
    checks.that(
        "no vCPU of the later one has time from before its start",
        longest <= most && !longest.is_zero(),
        format!(
            "at most {:.2} s, and it was started {:.2} s before",
            longest.as_secs_f64(),
            most.as_secs_f64()
        ),
    );
    tally.powered_off(&second);
    second.power_off()?;
    Ok(tally)
}

/// Boots a VM whose VMM gets this PID, which is free. Returns also when.
fn with_pid(lab: &Lab, pid: u32, tally: &mut Tally) -> Result<(Guest, Instant)> {
    let mut attempts = ATTEMPTS;
    loop {
        attempts -= 1;
        let mut started = Instant::now();
        let guest = boot(lab, MANY + 1, tally, || {
            started = Instant::now();
            fs::write(LAST_PID, (pid - 1).to_string()).map_err(Error::file("write", LAST_PID))
        })?;
        if guest.pid() == pid || attempts == 0 {
            return Ok((guest, started));
        }
        tally.killed(&guest);
    }
}

fn followed(checks: &mut Checks, tally: &Tally, watch: &Watch, least: usize) {
    let (vms, ledger) = (tally.off + tally.killed, &watch.ledger);
    checks.that(
        format!("at least {least} VMs came and went"),
        vms >= least && tally.off > 0 && tally.killed > 0,
        format!(
            "{} powered off, {} killed, {} more because they hung at boot, in {:.0} s",
            tally.off,
            tally.killed,
            tally.hung,
            watch.started.elapsed().as_secs_f64()
        ),
    );
    checks.equal(
        "vCPUs followed to their end, and not",
        &(ledger.ended(), ledger.alive()),
        &(tally.vcpus, 0),
    );
    checks.that(
        "the times of each vCPU add up to the wall time within 1 %, at each reading",
        ledger.worst <= 0.01 && ledger.compared >= tally.vcpus,
        format!(
            "at most {:.2} % beside it, {} times; a reading took up to {:.0} ms",
            100.0 * ledger.worst,
            ledger.compared,
            ledger.longest_ns as f64 / 1e6
        ),
    );
    let Lost { vcpus, storage, pairs, recipients } = watch.lost;
    checks.that(
        "nothing is lost",
        !watch.lost.matters(),
        format!("{vcpus} vCPUs, {storage} threads, {pairs} pairs; interrupts for vCPUs that had not run: {recipients}"),
    );
}

fn instance(checks: &mut Checks, second: Option<&Output>) {
    const WHAT: &str = "a second instance follows the VMs meanwhile";
    let Some(output) = second else {
        checks.that(WHAT, false, "there were never two VMs");
        return;
    };
    match serde_json::from_slice::<Report>(&output.stdout) {
        Ok(report) => {
            let busy = report.vms.iter().filter(|vm| vm.exits() > 0).count();
            let holds = output.status.success() && busy > 1 && !report.lost.matters();
            checks.that(WHAT, holds, format!("{busy} VMs with exits"));
        }
        Err(error) => {
            checks.that(WHAT, false, format!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
        }
    }
}

/// What there is, as soon as that is as expected, or else after a while.
fn settled<T: PartialEq>(now: impl Fn() -> Result<T>, expected: &T) -> Result<T> {
    let started = Instant::now();
    loop {
        let found = now()?;
        if found == *expected || started.elapsed() > FREED {
            return Ok(found);
        }
        thread::sleep(Duration::from_millis(100));
    }
}

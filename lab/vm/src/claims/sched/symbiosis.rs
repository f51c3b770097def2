//! On a host whose cores have two threads each: with whom vCPUs that compute share a core (HP3C'20, §5).
//!
//! The emulated threads of a core do not slow each other down. What is shown is who runs beside whom, not what that is worth.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use gleaner_coordination::record::{Decision, Header, Line, Task, What};
use gleaner_kernel::Root;
use gleaner_kernel::topology::Topology;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::signal::Signal;
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

use super::{Scheduler, Still, endless, failed, guest};
use crate::claims::nested::RECORDS;
use crate::claims::{Checks, Target};
use crate::error::{Error, Result};
use crate::vm::{Cpus, Guest, Lab, VmSpec};

const ROUNDS: usize = 3;
const BLOCK: Duration = Duration::from_secs(2);
/// How long those that compute are kept on one core before that.
const TOGETHER: Duration = Duration::from_millis(100);
/// Of the host; each guest has as many vCPUs as the host has cores.
pub(super) const CORES: u32 = 2;

/// They wait now and then, so that they are placed now and then. Of the others one waits while the other runs: a thread is idle then.
const COMPUTES: &[&str] = &["barrier", "--kind", "block", "--set", "granularity=10ms"];
const WAITS: &[&str] = &["request-response", "--set", "granularity=100us"];

pub(super) fn prove(lab: &Lab, checks: &mut Checks) -> Result<()> {
    fs::create_dir_all(RECORDS).map_err(Error::file("make", RECORDS))?;
    let places = Topology::read(&Root::system()).map(|topology| topology.places());
    let places = places.map_err(|error| failed(error.to_string()))?;
    let cores: Vec<u32> = places.iter().map(|place| place.core.0).collect();
    let boot = |name| lab.boot(VmSpec { cpus: Cpus::flat(CORES), ..guest(name) });
    let guests = [boot("computes")?, boot("waits")?];
    let jobs = [guests[0].start(endless(COMPUTES))?, guests[1].start(endless(WAITS))?];
    // Asked now: while they stand still they do not answer.
    let computing = guests[0].vcpu_threads()?;
    let mut found = [const { Vec::new() }; 2];
    for _ in 0..lab.rounds(ROUNDS) {
        for (found, options) in found.iter_mut().zip([&["--no-symbiosis"][..], &[]]) {
            let (record, since) = record(&guests, &computing, &cores, options)?;
            found.push(company(&record, guests[0].pid(), &cores, since)?);
        }
    }
    for job in jobs {
        job.signal(Signal::SIGKILL)?;
        job.wait()?;
    }
    for (found, how) in found.iter().zip(["without", "with"]) {
        let parts = |part: fn(&Company) -> f64| found.iter().map(part).collect::<Vec<_>>();
        let what = |part| format!("{how} symbiosis: {part}");
        let target = if how == "with" { Target::AtLeast(0.8) } else { Target::Reported };
        let chosen = "where idle threads are beside both, woken vCPUs put beside the other VM";
        let choices: Vec<f64> = found.iter().filter_map(|company| company.chosen).collect();
        // Without symbiosis those that compute can stay on one core, so that nobody has a choice.
        if how == "with" || !choices.is_empty() {
            checks.values(what(chosen), &choices, "", target);
        }
        let alike = "part of the computing VM's time beside itself";
        checks.values(what(alike), &parts(|company| company.alike), "", Target::Reported);
        let other = "part of the computing VM's time beside the waiting VM";
        checks.values(what(other), &parts(|company| company.other), "", Target::Reported);
    }
    guests.into_iter().try_for_each(Guest::power_off)
}

/// Records the scheduler with these options. At first those threads that compute share one core; returns, too, when they may go
/// elsewhere, in ns of the monotonic clock.
fn record(guests: &[Guest; 2], computing: &[i32], cores: &[u32], options: &[&str]) -> Result<(String, u64)> {
    let path = Path::new(RECORDS).join("symbiosis.jsonl");
    let all = guests.each_ref();
    let still = Still::keep(&all);
    let file = path.to_string_lossy();
    let mut scheduler = Scheduler::start(&[options, &["--record", &file]].concat())?;
    drop(still);
    allow(computing, cores, |core| core == cores[0])?;
    sleep(TOGETHER);
    allow(computing, cores, |_| true)?;
    let since = monotonic_ns()?;
    sleep(BLOCK);
    let still = Still::keep(&all);
    scheduler.end(Signal::SIGTERM)?;
    drop(still);
    Ok((fs::read_to_string(&path).map_err(Error::file("read", &path))?, since))
}

fn monotonic_ns() -> Result<u64> {
    let now =
        clock_gettime(ClockId::CLOCK_MONOTONIC).map_err(|error| failed(format!("no clock: {error}")))?;
    Ok(u64::try_from(Duration::from(now).as_nanos()).unwrap_or(u64::MAX))
}

/// Lets these threads run on those cores.
fn allow(threads: &[i32], cores: &[u32], may: impl Fn(u32) -> bool) -> Result<()> {
    let mut set = CpuSet::new();
    let unset = |error: nix::Error| failed(format!("affinity cannot be set: {error}"));
    for (cpu, _) in cores.iter().enumerate().filter(|(_, core)| may(**core)) {
        set.set(cpu).map_err(unset)?;
    }
    threads.iter().try_for_each(|tid| sched_setaffinity(Pid::from_raw(*tid), &set).map_err(unset))
}

/// With whom vCPUs share a core.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Company {
    /// Part of the time for which the VM's vCPUs ran, in which another one of it ran on the same core.
    alike: f64,
    /// The same, in which one of another VM did.
    other: f64,
    /// Of the woken vCPUs of all VMs that could go beside a vCPU of their own VM or beside one of another VM, and to no idle core:
    /// those that went beside another VM's. `None`: there were none.
    chosen: Option<f64>,
}

/// How woken vCPUs chose.
#[derive(Debug, Default)]
struct Choices {
    /// The task that was woken last on each pCPU, if it had a choice, and the idle pCPUs beside another VM.
    open: BTreeMap<u32, (Task, BTreeSet<u32>)>,
    all: u32,
    other: u32,
}

impl Choices {
    /// `beside`: the VMs on the other threads of the core, for each idle pCPU.
    fn woken(&mut self, on: u32, task: Task, own: u32, beside: &BTreeMap<u32, Vec<u32>>) {
        let is_apart = |vms: &&Vec<u32>| !vms.contains(&own);
        let has_choice = beside.values().all(|vms| !vms.is_empty())
            && beside.values().any(|vms| vms.contains(&own))
            && beside.values().any(|vms| is_apart(&vms));
        self.open.remove(&on);
        if has_choice {
            let apart = beside.iter().filter(|(_, vms)| is_apart(vms)).map(|(cpu, _)| *cpu).collect();
            self.open.insert(on, (task, apart));
        }
    }

    fn placed(&mut self, on: u32, task: Task, cpu: u32) {
        if let Some((_, apart)) = self.open.remove(&on).filter(|(woken, _)| *woken == task) {
            self.all += 1;
            self.other += u32::from(apart.contains(&cpu));
        }
    }
}

/// With whom the vCPUs of `vm` shared a core from `since` on, by the record of a scheduler. `cores`: of each pCPU.
fn company(record: &str, vm: u32, cores: &[u32], since: u64) -> Result<Company> {
    let mut lines = record.lines();
    let unread = |error: serde_json::Error| failed(format!("the record cannot be read: {error}"));
    let _: Header = serde_json::from_str(lines.next().unwrap_or_default()).map_err(unread)?;
    let (mut vms, mut runs) = (BTreeMap::<Task, u32>::new(), BTreeMap::<u32, Task>::new());
    let (mut last, [mut all, mut alike, mut other]) = (since, [0_u64; 3]);
    let mut choices = Choices::default();
    for line in lines {
        let line: Line = serde_json::from_str(line).map_err(unread)?;
        let vm_on = |cpu: u32| runs.get(&cpu).and_then(|task| vms.get(task)).copied();
        let beside = |cpu: u32| -> Vec<u32> {
            let same_core =
                |other: &u32| *other != cpu && cores.get(*other as usize) == cores.get(cpu as usize);
            runs.keys().copied().filter(same_core).filter_map(vm_on).collect()
        };
        if let What::Runs { at, .. } | What::Stops { at, .. } | What::Vcpu { at, .. } = line.what {
            let span = at.saturating_sub(last);
            last = last.max(at);
            for cpu in runs.keys().copied().filter(|cpu| vm_on(*cpu) == Some(vm)) {
                let beside = beside(cpu);
                all += span;
                if beside.contains(&vm) {
                    alike += span;
                } else if !beside.is_empty() {
                    other += span;
                }
            }
        }
        match line.what {
            What::Runs { task, cpu, .. } => {
                runs.insert(cpu, task);
            }
            What::Stops { task, .. } => runs.retain(|_, runs| *runs != task),
            What::Vcpu { task, vm, .. } => {
                vms.insert(task, vm);
            }
            What::Woken { task, idle, ours: true, .. } if last > since => {
                let Some(own) = vms.get(&task) else { continue };
                let idle = (0..64).filter(|cpu| idle & 1 << cpu != 0);
                let beside = idle.map(|cpu| (cpu, beside(cpu))).collect();
                choices.woken(line.on, task, *own, &beside);
            }
            What::Decides(Decision::Placed { task, cpu, .. }) => choices.placed(line.on, task, cpu),
            _ => {}
        }
    }
    if all == 0 {
        return Err(failed(format!("no vCPU of process {vm} ran")));
    }
    let part = |span: u64| span as f64 / all as f64;
    let chosen = (choices.all > 0).then(|| f64::from(choices.other) / f64::from(choices.all));
    Ok(Company { alike: part(alike), other: part(other), chosen })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CORES_OF: &[u32] = &[0, 0, 2, 2, 4, 4, 6];

    #[test]
    fn company_is_counted_while_both_run() {
        let header = include_str!("../../../../sim/tests/scx/balance.jsonl").lines().next().unwrap();
        let mut record = header.to_owned();
        for event in [
            r#""vcpu":{"at":0,"task":11,"vm":1,"cpu":0}"#,
            r#""vcpu":{"at":0,"task":12,"vm":1,"cpu":1}"#,
            r#""vcpu":{"at":0,"task":21,"vm":2,"cpu":1}"#,
            r#""runs":{"at":0,"task":11,"cpu":0,"weight":100,"burst":5000000}"#,
            r#""runs":{"at":10,"task":12,"cpu":1,"weight":100,"burst":5000000}"#,
            // Both ran beside each other for 20 ns.
            r#""stops":{"at":30,"task":12}"#,
            r#""runs":{"at":30,"task":21,"cpu":1,"weight":100,"burst":20000}"#,
            r#""runs":{"at":40,"task":12,"cpu":2,"weight":100,"burst":5000000}"#,
            // Woken twice with a choice, once beside the other VM; then it could go to an idle core.
            r#""vcpu":{"at":40,"task":22,"vm":2,"cpu":4}"#,
            r#""vcpu":{"at":40,"task":23,"vm":2,"cpu":4}"#,
            r#""runs":{"at":40,"task":22,"cpu":4,"weight":100,"burst":20000}"#,
            r#""woken":{"at":40,"task":23,"waker":11,"cpu":0,"last":4,"allowed":63,"idle":40,"burst":1,"ours":true}"#,
            r#""decides":{"placed":{"task":23,"cpu":3,"idle":true}}"#,
            r#""woken":{"at":40,"task":23,"waker":11,"cpu":0,"last":4,"allowed":63,"idle":40,"burst":1,"ours":true}"#,
            r#""decides":{"placed":{"task":23,"cpu":5,"idle":true}}"#,
            r#""woken":{"at":40,"task":23,"waker":11,"cpu":0,"last":4,"allowed":255,"idle":104,"burst":1,"ours":true}"#,
            r#""decides":{"placed":{"task":23,"cpu":6,"idle":true}}"#,
            r#""stops":{"at":60,"task":11}"#,
            r#""stops":{"at":60,"task":12}"#,
        ] {
            record.push_str("\n{\"on\":0,");
            record.push_str(event);
            record.push('}');
        }
        let found = company(&record, 1, CORES_OF, 0).unwrap();
        assert_eq!(found, Company { alike: 0.4, other: 0.3, chosen: Some(0.5) });
        let later = company(&record, 1, CORES_OF, 30).unwrap();
        assert_eq!(later, Company { alike: 0.0, other: 0.6, chosen: Some(0.5) });
        assert!(company(&record, 3, CORES_OF, 0).is_err());
    }
}

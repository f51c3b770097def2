//! What happened between two readings: times, exits and interrupts by VM and vCPU, and the causes in order.

use std::collections::{BTreeMap, BTreeSet};

use gleaner_proto::histogram::Histogram;
use gleaner_proto::unavailable::NotAvailable;
use serde::{Deserialize, Serialize};

use crate::attribution::{ReasonTimes, Times};
use crate::cause::{self, CauseCost};
use crate::discover::{Vm, Vmm};
use crate::reading::{Cost, Interrupts, Lost, Pcpu, Reading, Steal, VcpuCounters};
use crate::setup::HostSetup;
use crate::timeline::Interval;
use crate::{Group, Reason};

/// The version of the format that this crate writes and reads.
pub const FORMAT: u32 = 1;

/// The record of a span of time on a host, as `gleaner-host diagnose --json` prints it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// Version of the format.
    pub format: u32,
    /// How KVM is set up.
    pub host: HostSetup,
    /// For how long the vCPUs were followed, in ns: the span of all times and counts here.
    pub span_ns: u64,
    /// From the first reading to the last, in ns, if following was paused in between to keep within the budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub elapsed_ns: Option<u64>,
    /// What the processor does without the host, and so is not in the numbers.
    pub hidden: Vec<String>,
    /// What this kernel does not show.
    pub missing: Vec<NotAvailable>,
    /// What found no room.
    pub lost: Lost,
    /// What following the vCPUs cost, if it was measured.
    pub cost: Option<Cost>,
    /// Where the pCPUs' time went.
    pub pcpus: Vec<Pcpu>,
    /// The same, interval by interval; empty where it was not sampled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub timeline: Vec<Interval>,
    /// The VMs, by process.
    pub vms: Vec<VmRecord>,
}

/// A VM in a report.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VmRecord {
    /// The VMM's process.
    pub pid: u32,
    /// The VM's name.
    pub name: String,
    /// The VMM; `None` if the VM ended before it was looked at.
    pub vmm: Option<Vmm>,
    /// vCPUs without an event in the span: halted throughout, or never started.
    pub silent_vcpus: BTreeSet<u32>,
    /// Sums over the vCPUs.
    pub times: Times,
    /// Sums over the vCPUs, by reason.
    pub reasons: BTreeMap<Reason, ReasonTimes>,
    /// Time on pCPUs outside of the guest by group, in ns.
    pub groups: BTreeMap<Group, u64>,
    /// What costs the VM time, the most expensive first.
    pub causes: Vec<CauseCost>,
    /// Waiting for a pCPU by who had it just before.
    pub waited_for: Vec<StealBy>,
    /// The vCPUs that had an event.
    pub vcpus: Vec<VcpuRecord>,
}

/// A VM's waiting for one other user of the pCPUs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StealBy {
    /// The other VM's name, `host` for threads that are no vCPUs, or `idle pCPU`.
    pub who: String,
    /// How often.
    pub count: u64,
    /// How long, in ns.
    pub ns: u64,
}

/// A vCPU in a report.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct VcpuRecord {
    /// Its number in the VM.
    pub vcpu: u32,
    /// Its thread.
    pub tid: u32,
    /// Whether the thread has ended.
    pub ended: bool,
    /// Where its time went.
    pub times: Times,
    /// The same by reason, and the exits.
    pub reasons: BTreeMap<Reason, ReasonTimes>,
    /// Its halts.
    pub halts: Halts,
    /// Exits for an interrupt of the host that led to the injection of one into the guest, by that one.
    pub exits_injecting: Interrupts,
    /// Exits at the opening of an interrupt window, by what was injected.
    pub windows_injecting: Interrupts,
    /// Interrupts that woke another, halted vCPU of the VM.
    pub waking: u64,
    /// Interrupts for other vCPUs of the VM that were not halted.
    pub to_running: Interrupts,
    /// Interrupts that reached its APIC from its VM's vCPUs.
    pub delivered: Interrupts,
    /// Interrupts with which it entered the guest.
    pub injected: Interrupts,
    /// Its waits.
    pub latencies: Latencies,
    /// Changes of its pCPU.
    pub migrations: u64,
    /// Exits that followed no entry.
    pub unpaired: u64,
    /// Events out of order.
    pub disordered: u64,
}

/// A vCPU's halts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Halts {
    /// Ended while KVM polled.
    pub polled: u64,
    /// The pCPU was given away.
    pub blocked: u64,
    /// By the interrupt that ended them.
    pub ended_by: Interrupts,
    /// Polling that ended with a wake-up, in ns.
    pub poll_success_ns: u64,
    /// Polling in vain, in ns.
    pub poll_fail_ns: u64,
    /// KVM's limit for polling at the end, in ns.
    pub poll_limit_ns: u64,
    /// Whether the guest polls itself, and asked the host not to.
    pub guest_polls: bool,
}

/// A vCPU's waits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latencies {
    /// From the delivery of an interrupt of another vCPU until this one, halted, enters the guest with it.
    pub waking: Histogram,
    /// The same of reschedule interrupts, not halted.
    pub reschedule: Histogram,
    /// The same of function calls, not halted.
    pub call: Histogram,
    /// From the wake-up of the vCPU's thread until the vCPU, halted, enters the guest with the timer interrupt that ended the
    /// halt. Halts that ended while KVM polled have no wake-up. Empty in records of earlier versions.
    #[serde(default)]
    pub timer: Histogram,
    /// The same of devices' interrupts.
    #[serde(default)]
    pub device: Histogram,
    /// Waits for a pCPU after a wake-up.
    pub woken: Histogram,
    /// Waits for a pCPU after preemption.
    pub preempted: Histogram,
    /// From a reschedule or function-call interrupt of another vCPU for this one, halted and without a pCPU, until it gets one.
    /// Empty in records of earlier versions.
    #[serde(default)]
    pub pcpu_halted: Histogram,
    /// The same of reschedule interrupts, not halted.
    #[serde(default)]
    pub pcpu_reschedule: Histogram,
    /// The same of function calls, not halted.
    #[serde(default)]
    pub pcpu_call: Histogram,
}

impl Report {
    /// The difference of two readings, for these VMs, or for all if `only` is `None`.
    pub fn between(
        setup: &HostSetup,
        vms: &[Vm],
        earlier: &Reading,
        later: &Reading,
        only: Option<u32>,
    ) -> Self {
        let before: BTreeMap<_, &VcpuCounters> =
            earlier.vcpus.iter().map(|vcpu| (vcpu.identity(), vcpu)).collect();
        let mut vcpus: BTreeMap<u32, Vec<VcpuRecord>> = BTreeMap::new();
        for vcpu in &later.vcpus {
            let was_over = before.get(&vcpu.identity()).is_some_and(|before| before.ended);
            if !was_over && only.is_none_or(|pid| pid == vcpu.pid) {
                let record = VcpuRecord::since(vcpu, before.get(&vcpu.identity()).copied());
                vcpus.entry(vcpu.pid).or_default().push(record);
            }
        }
        // A VM without any event is there, too.
        for vm in vms.iter().filter(|vm| only.is_none_or(|pid| pid == vm.pid)) {
            vcpus.entry(vm.pid).or_default();
        }
        let names: BTreeMap<u32, &str> = vms.iter().map(|vm| (vm.pid, vm.name.as_str())).collect();
        let steals = steals(earlier, later, &names);
        let vms = vcpus
            .into_iter()
            .map(|(pid, vcpus)| {
                let vm = vms.iter().find(|vm| vm.pid == pid);
                VmRecord::of(pid, vm, vcpus, steals.get(&pid).cloned().unwrap_or_default(), setup)
            })
            .collect();
        let span_ns = later.at_ns.saturating_sub(earlier.at_ns);
        let elapsed_ns = later.monotonic_ns.saturating_sub(earlier.monotonic_ns);
        let pcpus = later.pcpus.iter().enumerate().map(|(number, pcpu)| {
            let old = earlier.pcpus.get(number).copied().unwrap_or_default();
            pcpu.since(&old)
        });
        Self {
            format: FORMAT,
            host: setup.clone(),
            span_ns,
            elapsed_ns: (elapsed_ns > span_ns).then_some(elapsed_ns),
            hidden: setup.hidden(),
            missing: Vec::new(),
            lost: later.lost,
            cost: None,
            pcpus: pcpus.collect(),
            timeline: Vec::new(),
            vms,
        }
    }

    /// From the first reading to the last, in s.
    pub fn elapsed_s(&self) -> f64 {
        self.elapsed_ns.unwrap_or(self.span_ns) as f64 / 1e9
    }

    /// What a time or a count would be if the vCPUs had been followed all of the time.
    pub fn scaled(&self, counted: u64) -> u64 {
        let Some(elapsed_ns) = self.elapsed_ns else { return counted };
        let scaled = u128::from(counted) * u128::from(elapsed_ns) / u128::from(self.span_ns.max(1));
        u64::try_from(scaled).unwrap_or(u64::MAX)
    }

    /// By how much larger times and counts would be then: 1, or more.
    pub fn scale(&self) -> f64 {
        self.elapsed_ns.map_or(1.0, |elapsed_ns| elapsed_ns as f64 / self.span_ns.max(1) as f64)
    }
}

impl VmRecord {
    fn of(
        pid: u32,
        vm: Option<&Vm>,
        vcpus: Vec<VcpuRecord>,
        waited_for: Vec<StealBy>,
        setup: &HostSetup,
    ) -> Self {
        let mut times = Times::default();
        let mut reasons: BTreeMap<Reason, ReasonTimes> = BTreeMap::new();
        for vcpu in &vcpus {
            times.add(&vcpu.times);
            for (reason, sum) in &vcpu.reasons {
                reasons.entry(*reason).or_default().add(sum);
            }
        }
        let mut groups = BTreeMap::new();
        for (reason, sum) in &reasons {
            *groups.entry(reason.group()).or_default() += sum.run_ns;
        }
        let seen: BTreeSet<u32> = vcpus.iter().map(|vcpu| vcpu.vcpu).collect();
        let known = vm.map(|vm| vm.vcpus.clone()).unwrap_or_default();
        let causes = cause::rank(&times, &reasons, &vcpus, setup);
        Self {
            pid,
            name: vm.map_or_else(|| format!("pid-{pid}"), |vm| vm.name.clone()),
            vmm: vm.map(|vm| vm.vmm),
            silent_vcpus: known.difference(&seen).copied().collect(),
            times,
            reasons,
            groups,
            causes,
            waited_for,
            vcpus,
        }
    }

    /// Interrupts that its vCPUs took.
    pub fn injected(&self) -> Interrupts {
        let mut sum = Interrupts::default();
        self.vcpus.iter().for_each(|vcpu| sum.add(&vcpu.injected));
        sum
    }

    /// The exits of all vCPUs.
    pub fn exits(&self) -> u64 {
        self.reasons.values().map(|sum| sum.count).sum()
    }

    /// One kind of wait of all vCPUs.
    pub fn latency(&self, of: impl Fn(&Latencies) -> &Histogram) -> Histogram {
        self.vcpus.iter().fold(Histogram::default(), |sum, vcpu| sum.plus(of(&vcpu.latencies)))
    }
}

impl VcpuRecord {
    fn since(now: &VcpuCounters, then: Option<&VcpuCounters>) -> Self {
        let number = |now: u64, of: fn(&VcpuCounters) -> u64| now.saturating_sub(then.map_or(0, of));
        let interrupts = |now: &Interrupts, of: fn(&VcpuCounters) -> &Interrupts| {
            then.map_or(*now, |then| now.since(of(then)))
        };
        let histogram = |now: &Histogram, of: fn(&VcpuCounters) -> &Histogram| {
            then.map_or_else(|| now.clone(), |then| now.since(of(then)))
        };
        let mut reasons = BTreeMap::new();
        for (number, sum) in (0..).zip(&now.attribution.reasons) {
            let old = then.and_then(|then| then.attribution.reasons.get(number as usize));
            let grown = old.map_or(*sum, |old| sum.since(old));
            if grown != ReasonTimes::default() {
                reasons.insert(Reason::from_number(number), grown);
            }
        }
        let times = Times::of(
            number(now.attribution.unknown_ns, |then| then.attribution.unknown_ns),
            number(now.attribution.guest_ns, |then| then.attribution.guest_ns),
            &reasons,
        );
        Self {
            vcpu: now.vcpu,
            tid: now.tid,
            ended: now.ended,
            times,
            reasons,
            halts: Halts {
                polled: number(now.halts_polled, |then| then.halts_polled),
                blocked: number(now.halts_blocked, |then| then.halts_blocked),
                ended_by: interrupts(&now.halts_ended, |then| &then.halts_ended),
                poll_success_ns: number(now.poll_success_ns, |then| then.poll_success_ns),
                poll_fail_ns: number(now.poll_fail_ns, |then| then.poll_fail_ns),
                poll_limit_ns: now.poll_limit_ns,
                guest_polls: now.guest_polls,
            },
            exits_injecting: interrupts(&now.exits_injecting, |then| &then.exits_injecting),
            windows_injecting: interrupts(&now.windows_injecting, |then| &then.windows_injecting),
            waking: number(now.waking, |then| then.waking),
            to_running: interrupts(&now.to_running, |then| &then.to_running),
            delivered: interrupts(&now.delivered, |then| &then.delivered),
            injected: interrupts(&now.injected, |then| &then.injected),
            latencies: Latencies {
                waking: histogram(&now.waking_latency, |then| &then.waking_latency),
                reschedule: histogram(&now.reschedule_latency, |then| &then.reschedule_latency),
                call: histogram(&now.call_latency, |then| &then.call_latency),
                timer: histogram(&now.timer_latency, |then| &then.timer_latency),
                device: histogram(&now.device_latency, |then| &then.device_latency),
                woken: histogram(&now.woken, |then| &then.woken),
                preempted: histogram(&now.preempted, |then| &then.preempted),
                pcpu_halted: histogram(&now.pcpu_halted, |then| &then.pcpu_halted),
                pcpu_reschedule: histogram(&now.pcpu_reschedule, |then| &then.pcpu_reschedule),
                pcpu_call: histogram(&now.pcpu_call, |then| &then.pcpu_call),
            },
            migrations: number(now.migrations, |then| then.migrations),
            unpaired: number(now.attribution.unpaired, |then| then.attribution.unpaired),
            disordered: number(now.attribution.disordered, |then| then.attribution.disordered),
        }
    }
}

/// Culprits that are no processes, as in `enum steal_culprit`.
const IDLE: u32 = 0;
const HOST: u32 = 1;

fn steals(earlier: &Reading, later: &Reading, names: &BTreeMap<u32, &str>) -> BTreeMap<u32, Vec<StealBy>> {
    let mut found: BTreeMap<u32, Vec<StealBy>> = BTreeMap::new();
    for ((victim, culprit), sum) in &later.steals {
        let old = earlier.steals.get(&(*victim, *culprit)).copied().unwrap_or_default();
        let grown = Steal { count: sum.count.saturating_sub(old.count), ns: sum.ns.saturating_sub(old.ns) };
        if grown.count == 0 {
            continue;
        }
        let who = match *culprit {
            IDLE => "idle pCPU".to_owned(),
            HOST => "host".to_owned(),
            pid => names.get(&pid).map_or_else(|| format!("pid-{pid}"), |name| (*name).to_owned()),
        };
        found.entry(*victim).or_default().push(StealBy { who, count: grown.count, ns: grown.ns });
    }
    for by in found.values_mut() {
        by.sort_by(|a, b| b.ns.cmp(&a.ns).then_with(|| a.who.cmp(&b.who)));
    }
    found
}

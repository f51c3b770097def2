//! What the VMs of a host spend their time on, as metrics: sums that grow from reading to reading. docs/host.md explains
//! them to their readers.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use gleaner_host_record::attribution::Times;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

use crate::{Cost, Group, Lost, Pcpu, Reason, Report, VmRecord};

/// VMs with a label of their own; the rest share [`OTHER`].
const MOST_VMS: usize = 128;
/// The label of VMs beyond [`MOST_VMS`].
const OTHER: &str = "other";
/// The label of VMs to which neither libvirt nor a command line gives a name. Their processes are no labels: each start of
/// a VM would make new series.
const UNNAMED: &str = "unnamed";
/// Longest label, in characters: a command line can be any length.
const LONGEST_NAME: usize = 64;
/// How long the series of a VM stay after it has ended: a Prometheus that scrapes once a minute, and misses some scrapes,
/// still sees the last values.
const KEPT: Duration = Duration::from_secs(15 * 60);

/// What is counted, from the start on.
#[derive(Debug, Default)]
pub struct Totals {
    vms: BTreeMap<String, VmTotals>,
    pcpus: Pcpu,
    lost: Lost,
    running: usize,
    /// The part of the time that is followed.
    followed: f64,
}

/// What is counted of the VMs that share a label.
#[derive(Debug, Default)]
struct VmTotals {
    times: Times,
    groups: BTreeMap<Group, u64>,
    exits: BTreeMap<Reason, u64>,
    polled: u64,
    blocked: u64,
    poll_success_ns: u64,
    poll_fail_ns: u64,
    /// When a VM with the label was last there, since the start.
    seen: Duration,
}

impl VmTotals {
    /// Adds what was counted, scaled up to all of the time.
    fn add(&mut self, vm: &VmRecord, scaled: impl Fn(u64) -> u64) {
        self.times.add(&vm.times.scaled(&scaled));
        for (group, ns) in &vm.groups {
            *self.groups.entry(*group).or_default() += scaled(*ns);
        }
        for (reason, sum) in &vm.reasons {
            *self.exits.entry(*reason).or_default() += scaled(sum.count);
        }
        for halts in vm.vcpus.iter().map(|vcpu| &vcpu.halts) {
            self.polled += scaled(halts.polled);
            self.blocked += scaled(halts.blocked);
            self.poll_success_ns += scaled(halts.poll_success_ns);
            self.poll_fail_ns += scaled(halts.poll_fail_ns);
        }
    }
}

impl Totals {
    /// Adds what happened since the last report, which ends at `now` since the start, and drops VMs that ended long ago.
    pub fn add(&mut self, report: &Report, now: Duration) {
        let scaled = |counted| report.scaled(counted);
        for vm in &report.vms {
            let label = self.label(vm);
            let totals = self.vms.entry(label).or_default();
            totals.add(vm, scaled);
            totals.seen = now;
        }
        self.vms.retain(|_, totals| now.saturating_sub(totals.seen) < KEPT);
        for pcpu in &report.pcpus {
            self.pcpus.vcpu_ns += scaled(pcpu.vcpu_ns);
            self.pcpus.other_ns += scaled(pcpu.other_ns);
            self.pcpus.idle_ns += scaled(pcpu.idle_ns);
        }
        self.followed = 1.0 / report.scale();
        // These are counted from the start on already.
        self.lost = report.lost;
        self.running = report.vms.len();
    }

    fn label(&self, vm: &VmRecord) -> String {
        let name: String = if vm.name == format!("pid-{}", vm.pid) {
            UNNAMED.to_owned()
        } else {
            vm.name.chars().take(LONGEST_NAME).collect()
        };
        if self.vms.contains_key(&name) || self.vms.len() < MOST_VMS { name } else { OTHER.to_owned() }
    }

    /// All metrics in the OpenMetrics text format.
    pub fn encode(&self, own: &Own) -> String {
        let mut exposition = String::new();
        // Writing to a string does not fail.
        let _ = text::encode(&mut exposition, &self.registry(own));
        exposition
    }

    fn registry(&self, own: &Own) -> Registry {
        let mut registry = Registry::default();
        let series = VmSeries::default();
        for (vm, totals) in &self.vms {
            series.fill(vm, totals);
        }
        series.register(&mut registry);
        let pcpus = Amounts::<OfUser>::default();
        for (user, ns) in
            [("vcpu", self.pcpus.vcpu_ns), ("other", self.pcpus.other_ns), ("idle", self.pcpus.idle_ns)]
        {
            pcpus.get_or_create(&OfUser { user }).inc_by(seconds(ns));
        }
        registry.register_with_unit(
            "gleaner_host_pcpu",
            "Time of the pCPUs, by who had them: threads of vCPUs, other threads, nobody",
            Unit::Seconds,
            pcpus,
        );
        let running = Level::default();
        running.set(self.running as f64);
        registry.register("gleaner_host_vms", "VMs that run here", running);
        let followed = Level::default();
        followed.set(self.followed);
        registry.register_with_unit(
            "gleaner_host_followed",
            "Share of the time in which the vCPUs are followed, from which times and counts are scaled up",
            Unit::Other("ratio".into()),
            followed,
        );
        let lost = Counts::<OfWhat>::default();
        for (what, count) in
            [("vcpu", self.lost.vcpus), ("thread", self.lost.storage), ("pair", self.lost.pairs)]
        {
            lost.get_or_create(&OfWhat { what }).inc_by(count);
        }
        registry.register("gleaner_host_lost", "What was not counted for want of room", lost);
        own.register(&mut registry);
        registry
    }
}

/// What `gleaner-host` itself is, and costs.
#[derive(Debug, Clone, Default)]
pub struct Own {
    /// Its version.
    pub version: String,
    /// What the BPF programs cost, if the kernel let it be measured.
    pub cost: Option<Cost>,
    /// Kinds of events that are not followed.
    pub missing: usize,
    /// CPU time of the process so far.
    pub cpu: Duration,
}

impl Own {
    fn register(&self, registry: &mut Registry) {
        registry.register(
            "gleaner_host_build",
            "The version of gleaner-host",
            Info::new(OfBuild { version: self.version.clone() }),
        );
        if let Some(cost) = self.cost {
            let share = Level::default();
            share.set(cost.share);
            registry.register_with_unit(
                "gleaner_host_following",
                "What following takes from the vCPUs while it lasts, as a share of their time on pCPUs",
                Unit::Other("ratio".into()),
                share,
            );
        }
        let missing = Level::default();
        missing.set(self.missing as f64);
        registry.register("gleaner_host_missing", "Kinds of events that are not followed here", missing);
        let cpu = Amount::default();
        cpu.inc_by(self.cpu.as_secs_f64());
        registry.register_with_unit("process_cpu", "CPU time of gleaner-host", Unit::Seconds, cpu);
    }
}

type Amount = Counter<f64, AtomicU64>;
type Level = Gauge<f64, AtomicU64>;
type Amounts<L> = Family<L, Amount>;
type Counts<L> = Family<L, Counter<u64, AtomicU64>>;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfState {
    vm: String,
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfGroup {
    vm: String,
    group: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfReason {
    vm: String,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfResult {
    vm: String,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfUser {
    user: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfWhat {
    what: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfBuild {
    version: String,
}

/// The series that each VM has.
#[derive(Default)]
struct VmSeries {
    states: Amounts<OfState>,
    groups: Amounts<OfGroup>,
    exits: Counts<OfReason>,
    halts: Counts<OfResult>,
    polls: Amounts<OfResult>,
}

impl VmSeries {
    fn fill(&self, vm: &str, totals: &VmTotals) {
        let vm = || vm.to_owned();
        let times = &totals.times;
        for (state, ns) in [
            ("guest", times.guest_ns),
            ("hypervisor", times.hypervisor_ns),
            ("woken", times.woken_ns),
            ("preempted", times.preempted_ns),
            ("blocked", times.blocked_ns),
            ("halted", times.halted_ns),
        ] {
            self.states.get_or_create(&OfState { vm: vm(), state }).inc_by(seconds(ns));
        }
        for group in Group::ALL {
            let ns = totals.groups.get(&group).copied().unwrap_or_default();
            self.groups.get_or_create(&OfGroup { vm: vm(), group: group.name() }).inc_by(seconds(ns));
        }
        for (reason, count) in &totals.exits {
            self.exits.get_or_create(&OfReason { vm: vm(), reason: reason.name() }).inc_by(*count);
        }
        for (result, count) in [("polled", totals.polled), ("blocked", totals.blocked)] {
            self.halts.get_or_create(&OfResult { vm: vm(), result }).inc_by(count);
        }
        for (result, ns) in [("success", totals.poll_success_ns), ("fail", totals.poll_fail_ns)] {
            self.polls.get_or_create(&OfResult { vm: vm(), result }).inc_by(seconds(ns));
        }
    }

    fn register(self, registry: &mut Registry) {
        registry.register_with_unit(
            "gleaner_host_vcpu",
            "Time of the VM's vCPUs, by state",
            Unit::Seconds,
            self.states,
        );
        registry.register_with_unit(
            "gleaner_host_hypervisor",
            "Time of the VM's vCPUs in the hypervisor, by group of exits",
            Unit::Seconds,
            self.groups,
        );
        registry.register("gleaner_host_exits", "VM exits, by reason", self.exits);
        registry.register(
            "gleaner_host_halts",
            "Halts that ended while KVM polled, and those for which the pCPU was given away",
            self.halts,
        );
        registry.register_with_unit(
            "gleaner_host_halt_poll",
            "Time in which KVM polled for halted vCPUs, by whether a wake-up came",
            Unit::Seconds,
            self.polls,
        );
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests;

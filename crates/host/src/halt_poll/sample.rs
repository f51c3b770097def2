//! What the VMs did in one interval, as far as it concerns halt polling.

use std::collections::BTreeMap;
use std::time::Duration;

use gleaner_policy::{CpuId, Observation, VcpuInterval, Waiting, WaitingSource, WorkloadInterval};
use gleaner_trace::Histogram;
use serde::{Deserialize, Serialize};

use crate::Report;
use crate::report::VcpuRecord;

/// By what the wake-ups of halted vCPUs are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wakes {
    /// From the interrupt of another vCPU until the halted one enters the guest.
    Interrupts,
    /// The wait for a pCPU, of all wake-ups; none while KVM polls. For VMs that devices and timers wake.
    Pcpus,
}

/// What one VM waited in one interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VmWaits {
    /// Its wake-ups by interrupts.
    pub wake_ups: u64,
    /// Their latencies in all.
    pub waking: Duration,
    /// Its vCPUs' waits for a pCPU after preemption.
    pub preempted: Duration,
}

impl VmWaits {
    /// Adds those of the interval after this one.
    fn add(&mut self, next: &Self) {
        self.wake_ups += next.wake_ups;
        self.waking += next.waking;
        self.preempted += next.preempted;
    }
}

/// Sums over the vCPUs of all VMs in one interval.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sample {
    /// The length of the interval.
    pub period: Duration,
    /// CPU time that taking the sample cost.
    pub cost: Duration,
    /// Number of pCPUs.
    pub pcpus: u32,
    /// Time in which they were idle.
    pub idle: Duration,
    /// vCPUs that halted.
    pub halting: u32,
    /// Those of them whose guests poll themselves, and asked the host not to.
    pub guest_polls: u32,
    /// Those of the others that KVM still polls for longer than it should.
    pub above_limit: u32,
    /// Halts of vCPUs whose guests do not poll themselves.
    pub halts: u64,
    /// Those of them that ended while KVM polled.
    pub polled: u64,
    /// Polling of KVM that ended with a wake-up.
    pub poll_success: Duration,
    /// Polling of KVM in vain.
    pub poll_fail: Duration,
    /// Time in the guest, of vCPUs whose guests do not poll themselves.
    pub guest: Duration,
    /// Time in which vCPUs wanted to run.
    pub wanted: Duration,
    /// Waits from an interrupt until a halted vCPU, whose guest does not poll itself, enters the guest.
    pub waking: Histogram,
    /// Waits of such vCPUs for a pCPU after a wake-up.
    pub woken: Histogram,
    /// Waits of vCPUs for a pCPU after preemption.
    pub preempted: Duration,
    /// What each VM waited, by its VMM's process.
    pub vms: BTreeMap<u32, VmWaits>,
}

impl Sample {
    /// What `report` says, where KVM polls for up to `limit_ns`; taking it cost that much CPU time.
    pub fn of(report: &Report, limit_ns: u32, cost: Duration) -> Self {
        let mut sample = Self {
            period: Duration::from_nanos(report.span_ns),
            cost,
            pcpus: report.host.pcpus,
            idle: Duration::from_nanos(report.pcpus.iter().map(|pcpu| pcpu.idle_ns).sum()),
            ..Self::default()
        };
        for vm in &report.vms {
            for vcpu in &vm.vcpus {
                sample.take(vm.pid, vcpu, limit_ns);
            }
        }
        sample
    }

    fn take(&mut self, pid: u32, vcpu: &VcpuRecord, limit_ns: u32) {
        let halts = &vcpu.halts;
        self.wanted += Duration::from_nanos(vcpu.times.wanted_ns());
        self.preempted += Duration::from_nanos(vcpu.times.preempted_ns);
        let waking = &vcpu.latencies.waking;
        self.vms.entry(pid).or_default().add(&VmWaits {
            wake_ups: waking.count,
            waking: waking.total(),
            preempted: Duration::from_nanos(vcpu.times.preempted_ns),
        });
        let halted = halts.polled + halts.blocked;
        self.halting += u32::from(halted > 0);
        // KVM does not poll for it, whatever its parameter.
        if halts.guest_polls {
            self.guest_polls += u32::from(halted > 0);
            return;
        }
        self.above_limit += u32::from(halted > 0 && halts.poll_limit_ns > u64::from(limit_ns));
        self.halts += halted;
        self.polled += halts.polled;
        self.poll_success += Duration::from_nanos(halts.poll_success_ns);
        self.poll_fail += Duration::from_nanos(halts.poll_fail_ns);
        self.guest += Duration::from_nanos(vcpu.times.guest_ns);
        self.waking = self.waking.plus(waking);
        self.woken = self.woken.plus(&vcpu.latencies.woken);
    }

    /// Adds the interval after this one.
    pub fn add(&mut self, next: &Self) {
        self.period += next.period;
        self.cost += next.cost;
        self.pcpus = next.pcpus;
        self.idle += next.idle;
        self.halting = self.halting.max(next.halting);
        self.guest_polls = self.guest_polls.max(next.guest_polls);
        self.above_limit = next.above_limit;
        self.halts += next.halts;
        self.polled += next.polled;
        self.poll_success += next.poll_success;
        self.poll_fail += next.poll_fail;
        self.guest += next.guest;
        self.wanted += next.wanted;
        self.waking = self.waking.plus(&next.waking);
        self.woken = self.woken.plus(&next.woken);
        self.preempted += next.preempted;
        for (pid, waits) in &next.vms {
            self.vms.entry(*pid).or_default().add(waits);
        }
    }

    /// By what wake-ups are measured: by interrupts, unless these end only few of the halts.
    pub fn wakes(&self) -> Wakes {
        if self.waking.count * 4 >= self.halts { Wakes::Interrupts } else { Wakes::Pcpus }
    }

    /// Wake-ups, and their latencies in all.
    fn waits(&self, wakes: Wakes) -> (u64, Duration) {
        match wakes {
            Wakes::Interrupts => (self.waking.count, self.waking.total()),
            // Who is polled for waits for no pCPU.
            Wakes::Pcpus => (self.halts, self.woken.total()),
        }
    }

    /// The mean latency of a wake-up; zero without any.
    pub fn wake_up(&self, wakes: Wakes) -> Duration {
        let (count, total) = self.waits(wakes);
        Duration::from_nanos(u64::try_from(total.as_nanos() / u128::from(count.max(1))).unwrap_or(u64::MAX))
    }

    /// Waiting for a pCPU after preemption per second.
    pub fn preemption(&self) -> f64 {
        self.per_second(self.preempted)
    }

    /// pCPUs that polling takes.
    pub fn polling(&self) -> f64 {
        self.per_second(self.poll_success + self.poll_fail)
    }

    /// The share of the halts that ended while KVM polled, 0..=1.
    pub fn success(&self) -> f64 {
        self.polled as f64 / self.halts.max(1) as f64
    }

    /// The share of the time in which vCPUs want to run that they wait after preemption, 0..=1.
    pub fn contention(&self) -> f64 {
        self.preempted.as_secs_f64() / self.wanted.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// The VM that waits longest for its gain or that of the others: `more`, measured with a longer limit, has more of its
    /// waiting after preemption than it saves of the waiting for its wake-ups. With the vCPUs that wait longer, on average.
    pub fn most_harmed(&self, more: &Self) -> Option<(u32, f64)> {
        let harm = |(pid, waits): (&u32, &VmWaits)| {
            let before = self.vms.get(pid)?;
            let added = more.per_second(waits.preempted) - self.per_second(before.preempted);
            let mean = |of: &VmWaits| of.waking.as_secs_f64() / of.wake_ups.max(1) as f64;
            let wake_ups = before.wake_ups as f64 / self.period.as_secs_f64().max(f64::MIN_POSITIVE);
            // Without wake-ups on one side there is nothing to compare.
            let known = before.wake_ups > 0 && waits.wake_ups > 0;
            let saved = if known { wake_ups * (mean(before) - mean(waits)) } else { 0.0 };
            Some((*pid, added - saved))
        };
        more.vms.iter().filter_map(harm).max_by(|a, b| a.1.total_cmp(&b.1))
    }

    fn per_second(&self, time: Duration) -> f64 {
        time.as_secs_f64() / self.period.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// The sample as the guard of the policy takes it, at the time `at`: the host is one CPU, and its workload the VMs.
    ///
    /// Time in the guest stands for the VMs' progress: it grows if wake-ups had held them back, falls if others take the
    /// pCPUs, and stays where the load sets the rate. It is taken for an exact signal, since the host has none: the
    /// shorter waiting of an open loop would prove nothing otherwise.
    pub fn observation(&self, at: Duration, wakes: Wakes) -> Observation {
        let (wake_ups, total) = self.waits(wakes);
        let (tail, source) = match wakes {
            Wakes::Interrupts => (self.waking.quantile(0.99), WaitingSource::Traced),
            Wakes::Pcpus => (self.woken.quantile(0.99), WaitingSource::Estimated),
        };
        let cpu = VcpuInterval {
            cpu: CpuId(0),
            halts: self.halts - self.polled.min(self.halts),
            halt_time: self.idle / self.pcpus.max(1),
            polls: self.halts,
            poll_time: self.poll_success + self.poll_fail,
            steal: Duration::ZERO,
        };
        let workload = WorkloadInterval {
            // Relative to all pCPUs: polling costs more where they are busy.
            cpu_time: self.guest / self.pcpus.max(1),
            switches: wake_ups,
            // In ms.
            counter: Some(self.guest.as_secs_f64() * 1e3),
            waiting: Some(Waiting { wake_ups, total, tail: tail.unwrap_or_default(), source }),
            ..WorkloadInterval::default()
        };
        Observation {
            at,
            period: self.period,
            vcpus: vec![cpu],
            workload,
            runnable: 0,
            overload: None,
            throttled: 0.0,
            settled: self.above_limit == 0,
            cost: self.cost,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attribution::Times;
    use crate::report::Halts;

    const MS: u64 = 1_000_000;

    fn vcpu(polled: u64, blocked: u64, guest_polls: bool, poll_limit_ns: u64) -> VcpuRecord {
        let times = Times { guest_ns: 30 * MS, preempted_ns: MS, halted_ns: 60 * MS, ..Times::default() };
        let halts = Halts {
            polled,
            blocked,
            poll_success_ns: 2 * MS,
            poll_fail_ns: MS,
            poll_limit_ns,
            guest_polls,
            ..Halts::default()
        };
        VcpuRecord { times, halts, ..VcpuRecord::default() }
    }

    fn sample(vcpus: &[VcpuRecord], limit_ns: u32) -> Sample {
        let mut sample = Sample { period: Duration::from_millis(100), pcpus: 2, ..Sample::default() };
        for vcpu in vcpus {
            sample.take(1, vcpu, limit_ns);
        }
        sample
    }

    #[test]
    fn a_guest_that_polls_itself_counts_for_contention_only() {
        let sample = sample(&[vcpu(30, 10, false, 50_000), vcpu(0, 40, true, 0)], 200_000);
        assert_eq!((sample.halting, sample.guest_polls, sample.above_limit), (2, 1, 0));
        assert_eq!((sample.halts, sample.polled, sample.guest), (40, 30, Duration::from_millis(30)));
        assert_eq!((sample.preempted, sample.wanted), (Duration::from_millis(2), Duration::from_millis(62)));
        assert!((sample.success() - 0.75).abs() < 1e-9 && (sample.polling() - 0.03).abs() < 1e-9);
    }

    #[test]
    fn a_vcpu_that_is_polled_for_too_long_has_not_settled_once_it_halts() {
        let at = Duration::ZERO;
        let settled = |sample: &Sample| sample.observation(at, Wakes::Interrupts).settled;
        assert!(!settled(&sample(&[vcpu(1, 0, false, 200_000)], 50_000)));
        assert!(settled(&sample(&[vcpu(0, 0, false, 200_000)], 50_000)), "it did not halt");
        assert!(settled(&sample(&[vcpu(1, 0, true, 200_000)], 50_000)), "its guest polls itself");
    }

    #[test]
    fn wake_ups_are_measured_by_interrupts_unless_these_are_few() {
        let mut sample = sample(&[vcpu(30, 10, false, 0)], 0);
        sample.woken = Histogram { count: 10, total_ns: 400_000, ..Histogram::default() };
        assert_eq!(sample.wakes(), Wakes::Pcpus);
        assert_eq!(
            sample.wake_up(Wakes::Pcpus),
            Duration::from_micros(10),
            "thirty of forty waited for none"
        );
        sample.waking = Histogram { count: 10, total_ns: 900_000, ..Histogram::default() };
        assert_eq!(sample.wakes(), Wakes::Interrupts);
        assert_eq!(sample.wake_up(Wakes::Interrupts), Duration::from_micros(90));
        let mut sum = sample.clone();
        sum.add(&sample);
        assert_eq!(
            (sum.halts, sum.halting, sum.wake_up(Wakes::Interrupts)),
            (80, 1, Duration::from_micros(90))
        );
        let waiting = sum.observation(Duration::ZERO, Wakes::Interrupts).workload.waiting.unwrap();
        assert_eq!((waiting.wake_ups, waiting.total), (20, Duration::from_micros(1800)));
    }

    #[test]
    fn a_vm_is_harmed_by_what_it_waits_more_after_preemption_than_it_saves() {
        let waits = |wake_ups, waking_ms, preempted_ms| VmWaits {
            wake_ups,
            waking: Duration::from_millis(waking_ms),
            preempted: Duration::from_millis(preempted_ms),
        };
        let second = |vms: &[(u32, VmWaits)]| Sample {
            period: Duration::from_secs(1),
            vms: vms.iter().copied().collect(),
            ..Sample::default()
        };
        let less = second(&[(1, waits(2000, 80, 0)), (2, waits(0, 0, 10)), (4, waits(0, 0, 0))]);
        let more = second(&[(1, waits(2000, 16, 40)), (2, waits(0, 0, 45)), (3, waits(0, 0, 900))]);
        let (pid, harm) = less.most_harmed(&more).unwrap();
        assert!(
            pid == 2 && (harm - 0.035).abs() < 1e-9,
            "1 saves more than it waits, 3 has just come: {pid} {harm}"
        );
        assert_eq!(Sample::default().most_harmed(&more), None);
    }
}

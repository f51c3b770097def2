//! What the tests of this module share.

use std::time::Duration;

use gleaner_kernel::Root;
use gleaner_testing::tree::tree;
use gleaner_trace::Histogram;
use tempfile::TempDir;

use super::{Sample, VmWaits};

pub(crate) const US: Duration = Duration::from_micros(1);

/// KVM's parameters by default.
pub(crate) const KVM: [(&str, &str); 4] = [
    ("sys/module/kvm/parameters/halt_poll_ns", "200000\n"),
    ("sys/module/kvm/parameters/halt_poll_ns_grow", "2\n"),
    ("sys/module/kvm/parameters/halt_poll_ns_grow_start", "10000\n"),
    ("sys/module/kvm/parameters/halt_poll_ns_shrink", "2\n"),
];

/// A host with these parameters.
pub(crate) fn kvm() -> (TempDir, Root) {
    let dir = tree(&KVM);
    let root = Root::at(dir.path());
    (dir, root)
}

/// A host with four pCPUs, and VMs with four vCPUs.
#[derive(Clone, Copy)]
pub(crate) struct Host {
    /// Wake-ups per second, all by interrupts.
    pub(crate) wake_ups: f64,
    /// How long a vCPU is halted until one comes.
    pub(crate) halted: Duration,
    /// The latency of a wake-up while KVM polls, and otherwise.
    pub(crate) latency: (Duration, Duration),
    /// vCPUs that work when all wake-ups are for nothing, and by how much each second of latency saved raises that.
    pub(crate) load: f64,
    pub(crate) closed_loop: bool,
    /// vCPUs waiting after preemption, without polling and per polling pCPU.
    pub(crate) preemption: (f64, f64),
    /// The same of another VM, which only computes.
    pub(crate) beside: (f64, f64),
    /// vCPUs whose guests poll themselves, of the four.
    pub(crate) guest_polls: u32,
    /// Whether KVM does what its parameter says.
    pub(crate) follows: bool,
    /// The limit before, for one that does not follow.
    pub(crate) stuck_ns: u32,
}

/// Four vCPUs that wake each other.
pub(crate) const PING_PONG: Host = Host {
    wake_ups: 2000.0,
    halted: Duration::from_micros(30),
    latency: (Duration::from_micros(8), Duration::from_micros(40)),
    load: 0.8,
    closed_loop: false,
    preemption: (0.001, 0.0),
    beside: (0.0, 0.0),
    guest_polls: 0,
    follows: true,
    stuck_ns: 200_000,
};

/// Deterministic noise (xorshift64): a factor around 1.
pub(crate) struct Noise(pub(crate) u64);

impl Noise {
    pub(crate) fn factor(&mut self, spread: f64) -> f64 {
        let uniform = |state: &mut u64| {
            *state ^= *state << 13;
            *state ^= *state >> 7;
            *state ^= *state << 17;
            (*state >> 11) as f64 / (1_u64 << 53) as f64
        };
        let normal = (0..12).map(|_| uniform(&mut self.0)).sum::<f64>() - 6.0;
        (spread * normal).exp()
    }
}

impl Host {
    /// An interval with `limit_ns` in force.
    pub(crate) fn run(&self, limit_ns: u32, period: Duration, noise: &mut Noise) -> Sample {
        let in_force = if self.follows { limit_ns } else { self.stuck_ns };
        let limit = Duration::from_nanos(in_force.into());
        let polled = self.guest_polls < 4 && !limit.is_zero() && self.halted <= limit;
        let latency = if polled { self.latency.0 } else { self.latency.1 };
        let speed = if self.closed_loop {
            (self.latency.1 + self.halted).as_secs_f64() / (latency + self.halted).as_secs_f64()
        } else {
            1.0
        };
        let halts = (self.wake_ups * speed * period.as_secs_f64() * noise.factor(0.02)).round();
        let poll = self.halted.min(limit).mul_f64(halts);
        let mean = latency.mul_f64(noise.factor(0.05));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts")]
        let count = halts as u64;
        let total_ns = u64::try_from(mean.mul_f64(halts).as_nanos()).unwrap();
        let polling = poll.as_secs_f64() / period.as_secs_f64();
        let guest = period.mul_f64(self.load * speed * noise.factor(0.01));
        let preempted = period.mul_f64(self.preemption.0 + self.preemption.1 * polling);
        let beside = period.mul_f64(self.beside.0 + self.beside.1 * polling);
        let waits = |wake_ups, waking, preempted| VmWaits { wake_ups, waking, preempted };
        let vms = [
            (1, waits(count, Duration::from_nanos(total_ns), preempted)),
            (2, waits(0, Duration::ZERO, beside)),
        ];
        let host = self.guest_polls < 4;
        let scale = |time: Duration| if host { time } else { Duration::ZERO };
        Sample {
            period,
            cost: 100 * US,
            pcpus: 4,
            idle: period.mul_f64(3.0),
            halting: if count == 0 { 0 } else { 4 },
            guest_polls: if count == 0 { 0 } else { self.guest_polls },
            above_limit: if in_force > limit_ns && count > 0 { 4 } else { 0 },
            halts: if host { count } else { 0 },
            polled: if polled { count } else { 0 },
            poll_success: if polled { scale(poll) } else { Duration::ZERO },
            poll_fail: if polled { Duration::ZERO } else { scale(poll) },
            guest: scale(guest),
            wanted: guest + preempted + beside,
            waking: Histogram { count, total_ns, ..Histogram::default() },
            woken: Histogram::default(),
            preempted: preempted + beside,
            vms: vms.into_iter().collect(),
        }
    }
}

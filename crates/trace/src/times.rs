//! Where each vCPU's time goes: a few words per vCPU, cheap enough to read many times a second.

use std::time::Duration;

use gleaner_policy::CpuId;
use libbpf_rs::MapCore;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::read::per_vcpu;
use crate::skeleton::types::vcpu;
use crate::window::programs_clock;

/// Where one vCPU's time went since tracing started. The rest was spent on other threads, interrupts and switching, or
/// was stolen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VcpuTime {
    /// Number of the vCPU.
    pub cpu: CpuId,
    /// Running threads of the scope. Updated when they are switched and at each tick, so it lags by up to one tick; in
    /// windows, estimated from ticks.
    pub scope: Duration,
    /// Idle and polling, to the nanosecond, in windows or not, including the current idle period.
    pub polling: Duration,
    /// Idle and halted, with the same precision.
    pub halted: Duration,
}

/// The current times of these vCPUs. An idle period that started before tracing, on a vCPU that was never visited, is
/// missing.
pub(crate) fn read(
    map: &dyn MapCore,
    online: impl Iterator<Item = CpuId>,
) -> libbpf_rs::Result<Vec<VcpuTime>> {
    let now = u64::try_from(programs_clock().as_nanos()).unwrap_or(u64::MAX);
    let vcpus: Vec<vcpu> = per_vcpu(map, &0_u32)?;
    let of = |cpu: CpuId| vcpus.get(cpu.0 as usize).copied().unwrap_or_default();
    Ok(online.map(|cpu| time(cpu, &of(cpu), now)).collect())
}

/// `now` is the kernel's monotonic clock in ns.
fn time(cpu: CpuId, vcpu: &vcpu, now: u64) -> VcpuTime {
    let under_way = if vcpu.idle_since > vcpu.idle_until { now.saturating_sub(vcpu.idle_since) } else { 0 };
    let (poll, halt) = if vcpu.idle_state == 0 { (under_way, 0) } else { (0, under_way) };
    VcpuTime {
        cpu,
        scope: Duration::from_nanos(vcpu.scope_ns),
        polling: Duration::from_nanos(vcpu.poll_ns + poll),
        halted: Duration::from_nanos(vcpu.halt_ns + halt),
    }
}

/// Runs on each vCPU for a moment, so that vCPUs that are already idle start an idle period that is seen. Skips vCPUs
/// that the caller is not allowed to use.
pub(crate) fn visit(online: impl Iterator<Item = CpuId>) {
    let me = Pid::from_raw(0);
    let Ok(before) = sched_getaffinity(me) else { return };
    for cpu in online {
        let mut there = CpuSet::new();
        if there.set(cpu.0 as usize).is_ok() {
            // Refused if it is outside the caller's cpuset.
            let _ = sched_setaffinity(me, &there);
        }
    }
    let _ = sched_setaffinity(me, &before);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_period_under_way_counts_up_to_now() {
        let time = |idle_since, idle_until, idle_state| {
            let totals = vcpu { poll_ns: 1000, halt_ns: 2000, ..vcpu::default() };
            let found = super::time(CpuId(1), &vcpu { idle_since, idle_until, idle_state, ..totals }, 5000);
            (found.polling.as_nanos(), found.halted.as_nanos())
        };
        assert_eq!(time(100, 200, 1), (1000, 2000), "it runs");
        assert_eq!(time(4500, 4000, 1), (1000, 2500), "it has halted");
        assert_eq!(time(4500, 4000, 0), (1500, 2000), "it polls");
        assert_eq!(time(6000, 4000, 1), (1000, 2000), "it became idle after the clock was read");
    }
}

//! Where each vCPU's time goes: a few words per vCPU, cheap enough to read many times a second.

use std::time::Duration;

use gleaner_policy::CpuId;
use libbpf_rs::{MapCore, MapFlags};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use crate::layout::{IDLE_STATE_AT, VcpuTime as Field};
use crate::read::{word, words};
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
    let values = map.lookup_percpu(&0_u32.to_ne_bytes(), MapFlags::ANY)?.unwrap_or_default();
    let of = |cpu: CpuId| values.get(cpu.0 as usize).map_or(&[][..], Vec::as_slice);
    Ok(online.map(|cpu| time(cpu, of(cpu), now)).collect())
}

/// `bytes` is a `struct vcpu`, `now` the kernel's monotonic clock in ns.
fn time(cpu: CpuId, bytes: &[u8], now: u64) -> VcpuTime {
    let words = words(bytes);
    let of = |field: Field| word(&words, field as usize);
    let (since, until) = (of(Field::IdleSince), of(Field::IdleUntil));
    let under_way = if since > until { now.saturating_sub(since) } else { 0 };
    let polls = bytes.get(IDLE_STATE_AT..IDLE_STATE_AT + 4).is_none_or(|state| state == [0; 4]);
    let (poll, halt) = if polls { (under_way, 0) } else { (0, under_way) };
    VcpuTime {
        cpu,
        scope: Duration::from_nanos(of(Field::ScopeNs)),
        polling: Duration::from_nanos(of(Field::PollNs) + poll),
        halted: Duration::from_nanos(of(Field::HaltNs) + halt),
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
        let time = |since: u64, until: u64, state: u32| {
            let words = [since, until, 1000, 2000, 300, 0, 0];
            let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
            bytes.extend(state.to_ne_bytes());
            let found = super::time(CpuId(1), &bytes, 5000);
            assert_eq!(found.scope, Duration::from_nanos(300));
            (found.polling.as_nanos(), found.halted.as_nanos())
        };
        assert_eq!(time(100, 200, 1), (1000, 2000), "it runs");
        assert_eq!(time(4500, 4000, 1), (1000, 2500), "it has halted");
        assert_eq!(time(4500, 4000, 0), (1500, 2000), "it polls");
        assert_eq!(time(6000, 4000, 1), (1000, 2000), "it became idle after the clock was read");
        assert_eq!(super::time(CpuId(9), &[], 5000).halted, Duration::ZERO, "a vCPU that is not there");
    }
}

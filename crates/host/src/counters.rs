//! A vCPU's counters, from the maps of the BPF programs.

use gleaner_trace::Histogram;

use crate::Reason;
use crate::attribution::{Attribution, ReasonTimes, State};
use crate::reading::{Interrupts, Pcpu, VcpuCounters};
use crate::skeleton::types::{self, hist_id, injecting, pcpu_user, vcpu_state, vector_class};

/// From a slot and its histograms, continued until `now`, in ns. `window` is the present one, and `window_end` is when the one of
/// the slot's latest event ended.
pub(crate) fn counters(
    slot: &types::vcpu,
    hists: &[types::hist],
    window: u64,
    window_end: u64,
    now: u64,
) -> VcpuCounters {
    let mut attribution = Attribution {
        state: match slot.state {
            vcpu_state::STATE_GUEST => State::Guest,
            vcpu_state::STATE_HYPERVISOR => State::Hypervisor,
            vcpu_state::STATE_ASLEEP => State::Asleep,
            vcpu_state::STATE_PREEMPTED => State::Preempted,
            _ => State::Unknown,
        },
        reason: Reason::from_number(slot.reason.0),
        first_ns: slot.first_ns,
        since_ns: slot.since_ns,
        woken_ns: slot.woken_ns,
        unknown_ns: slot.unknown_ns,
        guest_ns: slot.guest_ns,
        unpaired: slot.unpaired,
        disordered: slot.disordered,
        reasons: slot.reasons.iter().map(reason_times).collect(),
    };
    let ended = slot.exited != 0;
    if !ended {
        if slot.window != window {
            attribution.left_alone(window_end);
        }
        attribution.account(now);
    }
    let after = |kind: injecting| {
        slot.ended.get(kind.0 as usize).map(|counts| interrupts(counts)).unwrap_or_default()
    };
    let hist = |id: hist_id| {
        let hist = hists.get(id.0 as usize);
        hist.map(|hist| Histogram::new(hist.count, hist.total_ns, &hist.buckets)).unwrap_or_default()
    };
    VcpuCounters {
        pid: slot.tgid,
        tid: slot.tid,
        vcpu: slot.vcpu_id,
        ended,
        pcpu: slot.pcpu,
        attribution,
        halts_polled: slot.halts_polled,
        halts_blocked: slot.halts_blocked,
        halts_ended: after(injecting::INJECT_HALT),
        exits_injecting: after(injecting::INJECT_INTERRUPT),
        windows_injecting: after(injecting::INJECT_WINDOW),
        poll_success_ns: slot.poll_success_ns.saturating_sub(slot.first_poll_success_ns),
        poll_fail_ns: slot.poll_fail_ns.saturating_sub(slot.first_poll_fail_ns),
        poll_limit_ns: slot.poll_limit_ns,
        guest_polls: slot.guest_polls != 0,
        migrations: slot.migrations,
        waking: slot.waking,
        to_running: interrupts(&slot.to_running),
        delivered: interrupts(&slot.delivered),
        injected: interrupts(&slot.injected),
        waking_latency: hist(hist_id::HIST_WAKING),
        reschedule_latency: hist(hist_id::HIST_RESCHEDULE),
        call_latency: hist(hist_id::HIST_CALL),
        timer_latency: hist(hist_id::HIST_TIMER),
        device_latency: hist(hist_id::HIST_DEVICE),
        woken: hist(hist_id::HIST_WOKEN),
        preempted: hist(hist_id::HIST_PREEMPTED),
        pcpu_halted: hist(hist_id::HIST_PCPU_HALTED),
        pcpu_reschedule: hist(hist_id::HIST_PCPU_RESCHEDULE),
        pcpu_call: hist(hist_id::HIST_PCPU_CALL),
    }
}

/// From the counters of the last switch, continued until `now`, in ns.
pub(crate) fn pcpu(counted: &types::pcpu_times, now: u64) -> Pcpu {
    let mut pcpu = Pcpu { vcpu_ns: counted.vcpu_ns, other_ns: counted.other_ns, idle_ns: counted.idle_ns };
    let since = now.saturating_sub(counted.since_ns);
    match counted.user {
        pcpu_user::PCPU_VCPU => pcpu.vcpu_ns += since,
        pcpu_user::PCPU_OTHER => pcpu.other_ns += since,
        pcpu_user::PCPU_IDLE => pcpu.idle_ns += since,
        // No switch was seen yet.
        _ => {}
    }
    pcpu
}

fn interrupts(counts: &[u64]) -> Interrupts {
    let of = |class: vector_class| counts.get(class.0 as usize).copied().unwrap_or_default();
    Interrupts {
        reschedule: of(vector_class::VECTOR_RESCHEDULE),
        call: of(vector_class::VECTOR_CALL),
        timer: of(vector_class::VECTOR_TIMER),
        device: of(vector_class::VECTOR_DEVICE),
        other: of(vector_class::VECTOR_OTHER),
    }
}

fn reason_times(sum: &types::reason_sum) -> ReasonTimes {
    ReasonTimes {
        count: sum.count,
        run_ns: sum.run_ns,
        sleep_ns: sum.sleep_ns,
        woken_ns: sum.woken_ns,
        preempted_ns: sum.preempted_ns,
        to_vmm: sum.to_vmm,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skeleton::types::exit_reason;

    #[test]
    fn both_sides_number_reasons_alike() {
        for (number, reason) in [
            (exit_reason::REASON_UNKNOWN, Reason::Unknown),
            (exit_reason::REASON_HLT, Reason::Hlt),
            (exit_reason::REASON_TSC_DEADLINE, Reason::TscDeadline),
            (exit_reason::REASON_PLE, Reason::Ple),
            (exit_reason::REASON_MSR_WRITE, Reason::MsrWrite),
            (exit_reason::REASON_INTERRUPT, Reason::Interrupt),
            (exit_reason::REASON_CACHE, Reason::Cache),
            (exit_reason::REASON_OTHER, Reason::Other),
        ] {
            assert_eq!(number.0, reason as u32, "{reason}");
        }
        assert_eq!(exit_reason::REASONS.0 as usize, Reason::ALL.len());
    }

    #[test]
    fn who_has_a_pcpu_is_charged_until_the_reading() {
        let counted = types::pcpu_times {
            since_ns: 600,
            vcpu_ns: 100,
            other_ns: 200,
            idle_ns: 300,
            ..types::pcpu_times::default()
        };
        let at_1000 = |user| {
            let Pcpu { vcpu_ns, other_ns, idle_ns } = pcpu(&types::pcpu_times { user, ..counted }, 1000);
            (vcpu_ns, other_ns, idle_ns)
        };
        assert_eq!(at_1000(pcpu_user::PCPU_VCPU), (500, 200, 300));
        assert_eq!(at_1000(pcpu_user::PCPU_OTHER), (100, 600, 300));
        assert_eq!(at_1000(pcpu_user::PCPU_IDLE), (100, 200, 700));
        assert_eq!(at_1000(pcpu_user::PCPU_UNKNOWN), (100, 200, 300));
        // A switch between the reading of the counters and that of the clock.
        let later = types::pcpu_times { user: pcpu_user::PCPU_IDLE, since_ns: 1100, ..counted };
        assert_eq!(pcpu(&later, 1000).idle_ns, 300);
    }

    #[test]
    fn a_reading_continues_the_current_state() {
        let mut slot = types::vcpu::default();
        (slot.state, slot.reason) = (vcpu_state::STATE_ASLEEP, exit_reason::REASON_HLT);
        (slot.first_ns, slot.since_ns) = (1_000_000, 5_000_000);
        let read = |slot: &types::vcpu| counters(slot, &[], 0, 0, 9_000_000).attribution;
        assert_eq!(read(&slot).reasons[Reason::Hlt as usize].sleep_ns, 4_000_000);
        slot.woken_ns = 8_000_000;
        let hlt = read(&slot).reasons[Reason::Hlt as usize];
        assert_eq!((hlt.sleep_ns, hlt.woken_ns), (3_000_000, 1_000_000));
        slot.exited = 1;
        assert_eq!(read(&slot).reasons[Reason::Hlt as usize].sleep_ns, 0);
    }

    #[test]
    fn a_vcpu_without_an_event_since_a_pause_sleeps() {
        let mut slot = types::vcpu::default();
        (slot.state, slot.window) = (vcpu_state::STATE_GUEST, 2);
        let read = counters(&slot, &[], 3, 4_000_000, 9_000_000).attribution;
        assert_eq!((read.guest_ns, read.reasons[Reason::Hlt as usize].sleep_ns), (4_000_000, 5_000_000));
        let read = counters(&slot, &[], 2, 4_000_000, 9_000_000).attribution;
        assert_eq!((read.guest_ns, read.reasons[Reason::Hlt as usize].sleep_ns), (9_000_000, 0));
    }
}

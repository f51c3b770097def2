//! Ranks causes by what was counted. Pure: no clock, no files.

use std::time::Duration;

use gleaner_kernel::interrupts::InterruptCounters;
use gleaner_trace::{Edge, Snapshot, ThreadStats};

use super::cause::Kind;
use super::evidence::Evidence;
use super::exits;
use super::report::Cause;

/// Below this share of a vCPU a cause is not worth acting on: Gleaner's own trials cannot show a gain under 3 % either.
const SIGNIFICANT_US_PER_SECOND: f64 = 30_000.0;

/// Below this a cause is not listed.
const NEGLIGIBLE_US_PER_SECOND: f64 = 500.0;

/// A wake-up on a busy vCPU that takes more than this many times an interrupt-driven one was waiting for its turn.
const QUEUED_FACTOR: u32 = 2;

/// A thread that computes longer than this between two wake-ups hardly blocks: its yields are spinning.
const SPINNING_TIME: Duration = Duration::from_millis(1);

/// After a cost that the host measured.
const BY_THE_HOST: &str = ", by the host's record";

/// How many threads or edges to name.
const MAX_NAMED: usize = 4;

/// The costliest cause, if it is significant.
pub(super) fn verdict(evidence: &Evidence<'_>) -> Option<Kind> {
    let first = causes(evidence).into_iter().next()?;
    (first.lost_us_per_second >= SIGNIFICANT_US_PER_SECOND).then_some(first.kind)
}

/// Every cause worth listing, costliest first.
pub(super) fn causes(evidence: &Evidence<'_>) -> Vec<Cause> {
    let spinning = user_spinning(evidence);
    let mut causes = vec![
        hlt(evidence),
        ipi(evidence),
        tick(evidence),
        tlb(evidence),
        kernel_spinning(evidence),
        io(evidence),
        run_queue(evidence, spinning.share),
        steal(evidence),
        spinning.cause,
    ];
    causes.retain(|cause| cause.lost_us_per_second >= NEGLIGIBLE_US_PER_SECOND);
    causes.sort_by(|a, b| b.lost_us_per_second.total_cmp(&a.lost_us_per_second).then(a.kind.cmp(&b.kind)));
    causes
}

/// Count and time lost over the whole observation.
struct Loss {
    count: u64,
    lost: Duration,
    estimate: String,
    behind: Vec<String>,
}

fn cause(kind: Kind, snapshot: &Snapshot, loss: Loss) -> Cause {
    let seconds = snapshot.elapsed.as_secs_f64().max(1e-9);
    Cause {
        kind,
        name: kind.name(),
        source: kind.source(),
        per_second: loss.count as f64 / seconds,
        lost_us_per_second: loss.lost.as_secs_f64() * 1e6 / seconds,
        estimate: loss.estimate,
        behind: loss.behind,
        advice: kind.advice(),
    }
}

fn hlt(evidence: &Evidence<'_>) -> Cause {
    let (halted, ready) = (&evidence.snapshot.wakes.halted, evidence.costs.ready);
    let lost = halted.total().saturating_sub(times(ready, halted.count));
    let median = halted.median().unwrap_or_default();
    cause(
        Kind::Hlt,
        evidence.snapshot,
        Loss {
            count: halted.count,
            lost,
            estimate: format!(
                "each took {median:.1?} in the median, {ready:.1?} where nothing is in the way{}",
                hypervisors_part(evidence)
            ),
            behind: edges(evidence.snapshot, |edge| edge.halted),
        },
    )
}

/// What a halt costs by the host's record.
fn hypervisors_part(evidence: &Evidence<'_>) -> String {
    let part = evidence.recorded.and_then(|recorded| Some((recorded.hlt?, recorded.hlt_waits?)));
    part.map(|(run, waits)| {
        format!(
            "; by the host's record, a halt took {run:.1?} on a pCPU, and {waits:.1?} until it had one again"
        )
    })
    .unwrap_or_default()
}

fn ipi(evidence: &Evidence<'_>) -> Cause {
    let (events, awake, costs) = (&evidence.snapshot.events, &evidence.snapshot.wakes.awake, &evidence.costs);
    let by = if evidence.recorded.is_some_and(|recorded| recorded.ipi.is_some()) { BY_THE_HOST } else { "" };
    // Interrupts for TLB shootdowns are counted there.
    let sent = events.sent_reschedule + events.sent_call.saturating_sub(shootdowns(evidence.snapshot));
    // Beyond the usual time the wakee waits for its turn: run-queue delay.
    let under_way = awake.total().saturating_sub(awake.excess_over(usual(evidence)));
    let under_way = under_way.saturating_sub(times(costs.ready, awake.count));
    cause(
        Kind::Ipi,
        evidence.snapshot,
        Loss {
            count: sent,
            lost: times(costs.interrupt, sent) + under_way,
            estimate: format!(
                "{:.1?} of its sender's time each{by}, and {under_way:.1?} in which the woken waited for them on vCPUs that \
                 were awake",
                costs.interrupt
            ),
            behind: edges(evidence.snapshot, |edge| edge.count - edge.polling.min(edge.count)),
        },
    )
}

/// The longest that an interrupt-driven wake-up on a busy vCPU takes without waiting for a turn.
fn usual(evidence: &Evidence<'_>) -> Duration {
    (evidence.costs.halted * QUEUED_FACTOR).max(Duration::from_micros(50))
}

fn tick(evidence: &Evidence<'_>) -> Cause {
    let sum = |of: fn(&gleaner_trace::Events) -> u64| -> u64 {
        evidence.snapshot.vcpus.iter().map(|vcpu| of(&vcpu.events)).sum()
    };
    // Stopping and restarting the tick each program the timer. Other timers do, too, but not because of blocking.
    let programmed = sum(|e| e.timer_programmed).min(2 * sum(|e| e.tick_stopped));
    let (exit, how) = exits::timer(evidence.recorded);
    cause(
        Kind::Tick,
        evidence.snapshot,
        Loss {
            count: programmed,
            lost: times(exit, programmed),
            estimate: format!("an exit of {exit:.1?} each, {how}; of the whole machine"),
            behind: Vec::new(),
        },
    )
}

/// Interrupts sent for TLB shootdowns. The tracer distinguishes them from other calls only in short windows that vary
/// a lot, so if the kernel has counted both kinds, its ratio is used.
fn shootdowns(snapshot: &Snapshot) -> u64 {
    let sum =
        |of: fn(&InterruptCounters) -> u64| -> u64 { snapshot.vcpus.iter().map(|v| of(&v.received)).sum() };
    let (tlb, calls) = (sum(|r| r.tlb), sum(|r| r.call));
    if tlb == 0 || calls == 0 || snapshot.events.sent_tlb == 0 {
        return snapshot.events.sent_tlb;
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a count is one")]
    let sent = (snapshot.events.sent_call as f64 * (tlb as f64 / calls as f64).min(1.0)).round() as u64;
    sent
}

fn tlb(evidence: &Evidence<'_>) -> Cause {
    let (sent, measured) = (shootdowns(evidence.snapshot), &evidence.snapshot.shootdown);
    let (lost, estimate) = if measured.count > 0 {
        (measured.total(), format!("{:.1?} each, measured", measured.mean()))
    } else {
        // The sender waits for the others' answers, so a round trip: about the time of a wake-up by interrupt.
        let recorded = evidence.recorded.and_then(|recorded| recorded.call);
        let (each, by) = recorded.map_or((evidence.costs.halted, ""), |each| (each, BY_THE_HOST));
        (
            times(each, sent).min(cpu_time(evidence.snapshot)),
            format!("as long as an interrupt and its answer, {each:.1?} each{by}"),
        )
    };
    let behind = threads(evidence.snapshot, |thread| thread.cpu_time);
    cause(Kind::TlbShootdown, evidence.snapshot, Loss { count: sent, lost, estimate, behind })
}

fn kernel_spinning(evidence: &Evidence<'_>) -> Cause {
    let spin = &evidence.snapshot.kernel_spin;
    let estimate = format!("measured: {:.1?} each", spin.mean());
    cause(
        Kind::KernelSpinning,
        evidence.snapshot,
        Loss { count: spin.count, lost: spin.total(), estimate, behind: Vec::new() },
    )
}

/// Spinning at user level, and its share (0..=1) of the CPU time.
struct Spinning {
    cause: Cause,
    share: f64,
}

fn user_spinning(evidence: &Evidence<'_>) -> Spinning {
    let snapshot = evidence.snapshot;
    let wasted: Duration = snapshot.threads.iter().map(spun).sum();
    let share = ratio(wasted, cpu_time(snapshot));
    // A thread that waits behind a spinner waits because of the spinning.
    let behind_spinners = snapshot.preempted.total().mul_f64(share);
    let count = snapshot.threads.iter().map(spin_ticks).sum();
    let estimate = format!(
        "{:.0} % of the CPU time, by what ticks met: loops that only wait, or sched_yield without ever blocking; and what \
         waited behind it",
        100.0 * share
    );
    let loss = Loss { count, lost: wasted + behind_spinners, estimate, behind: threads(snapshot, spun) };
    Spinning { cause: cause(Kind::UserSpinning, snapshot, loss), share }
}

/// How much of a thread's time was spinning.
pub(super) fn spun(thread: &ThreadStats) -> Duration {
    thread.cpu_time.mul_f64(if thread.ticks == 0 {
        0.0
    } else {
        spin_ticks(thread) as f64 / thread.ticks as f64
    })
}

/// Ticks that found the thread spinning. Yields count only if it hardly ever blocks: otherwise they share a vCPU.
fn spin_ticks(thread: &ThreadStats) -> u64 {
    let wakeless = times(SPINNING_TIME, thread.woken) <= thread.cpu_time;
    let yields = if wakeless { thread.yield_ticks } else { 0 };
    (thread.spin_ticks + yields).min(thread.ticks)
}

fn io(evidence: &Evidence<'_>) -> Cause {
    let (waits, halted) = (&evidence.snapshot.waits.io, evidence.costs.halted);
    let short = waits.below(halted);
    cause(
        Kind::IoWait,
        evidence.snapshot,
        Loss {
            count: waits.count,
            lost: times(halted, waits.count).min(waits.total()),
            estimate: format!("a wake-up of {halted:.1?} after each; {short} waits were shorter than that"),
            behind: Vec::new(),
        },
    )
}

fn run_queue(evidence: &Evidence<'_>, spinning: f64) -> Cause {
    let snapshot = evidence.snapshot;
    // Waking on a busy vCPU takes an interrupt and a switch; the rest is waiting for the thread that runs there.
    let usual = usual(evidence);
    let woken = snapshot.wakes.awake.excess_over(usual) + snapshot.wakes.same_vcpu.excess_over(usual);
    let preempted = snapshot.preempted.total().mul_f64(1.0 - spinning);
    cause(
        Kind::RunQueueDelay,
        snapshot,
        Loss {
            count: snapshot.preempted.count,
            lost: woken + preempted,
            estimate: format!(
                "measured: {preempted:.1?} after being taken off a vCPU, {woken:.1?} after wake-ups beyond {usual:.0?} each"
            ),
            behind: threads(snapshot, |thread| Duration::from_nanos(thread.preempted)),
        },
    )
}

fn steal(evidence: &Evidence<'_>) -> Cause {
    let lost = evidence.snapshot.elapsed.mul_f64(evidence.stolen.max(0.0));
    let share = 100.0 * evidence.stolen / evidence.vcpus.max(1) as f64;
    let estimate = format!("measured by the host: {share:.1} % of the vCPUs' time");
    cause(Kind::Steal, evidence.snapshot, Loss { count: 0, lost, estimate, behind: Vec::new() })
}

fn times(each: Duration, count: u64) -> Duration {
    Duration::from_secs_f64(each.as_secs_f64() * count as f64)
}

fn cpu_time(snapshot: &Snapshot) -> Duration {
    snapshot.threads.iter().map(|thread| thread.cpu_time).sum()
}

fn ratio(part: Duration, whole: Duration) -> f64 {
    if whole.is_zero() { 0.0 } else { part.as_secs_f64() / whole.as_secs_f64() }
}

/// The edges with the highest `weight`.
fn edges(snapshot: &Snapshot, weight: impl Fn(&Edge) -> u64) -> Vec<String> {
    let seconds = snapshot.elapsed.as_secs_f64().max(1e-9);
    let mut found: Vec<&Edge> = snapshot.edges.iter().filter(|edge| weight(edge) > 0).collect();
    found.sort_by_key(|edge| std::cmp::Reverse(weight(edge)));
    let line = |edge: &Edge| {
        let mean = edge.total.div_f64(edge.count.max(1) as f64);
        format!(
            "{} wakes {}: {:.0} a second, {mean:.1?} each",
            edge.waker,
            edge.wakee,
            weight(edge) as f64 / seconds
        )
    };
    found.into_iter().take(MAX_NAMED).map(line).collect()
}

/// The threads with the highest `weight`.
fn threads(snapshot: &Snapshot, weight: impl Fn(&ThreadStats) -> Duration) -> Vec<String> {
    // A thread that hardly ran is not the cause of anything.
    let matters = |thread: &&ThreadStats| ratio(thread.cpu_time, snapshot.elapsed) >= 0.005;
    let mut found: Vec<&ThreadStats> =
        snapshot.threads.iter().filter(|thread| !weight(thread).is_zero() && matters(thread)).collect();
    found.sort_by_key(|thread| std::cmp::Reverse(weight(thread)));
    let line = |thread: &ThreadStats| {
        let share = 100.0 * ratio(thread.cpu_time, snapshot.elapsed);
        let spinning = 100.0 * ratio(spun(thread), thread.cpu_time);
        let spinning =
            if spinning < 1.0 { String::new() } else { format!(", of that {spinning:.0} % spinning") };
        format!("{}: {share:.0} % of a vCPU{spinning}", thread.name)
    };
    found.into_iter().take(MAX_NAMED).map(line).collect()
}

#[cfg(test)]
mod tests;

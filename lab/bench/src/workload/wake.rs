//! `wake`: two threads that hand a turn back and forth, in the settings of the paper's Table 2; see
//! [`crate::wake`].
//!
//! Synchronisation: one futex. The waker waits until the other thread sleeps, lets it sleep for the
//! granularity, and wakes it. Self-check: hand-offs are sequential, so the total of their gaps and latencies
//! must fit into the elapsed time; a clock that differs between vCPUs, or a hand-off counted twice, would be
//! noticed.

use std::io;
use std::time::{Duration, Instant};

use super::amount::Share;
use super::spec::{Granularity, Spec, Threads, Variant};
use super::{Amount, Kind, Outcome, Settings, WorkloadError};
use crate::runner::interrupted;
use gleaner_calibrate::wake::{Case, Plan, WakeError, allowed};

pub(super) const SPEC: Spec = Spec {
    name: "wake",
    about: "two threads pass a turn back and forth through a futex, on the first and the last vCPU; one \
            operation is one hand-off",
    variants: &[variant(Kind::Halting), variant(Kind::Same), variant(Kind::Awake), variant(Kind::Busy)],
};

const fn variant(kind: Kind) -> Variant {
    Variant {
        kind: Some(kind),
        threads: Threads { counts: "threads; Table 2 is about two", default: Some(2), range: 2..=2 },
        granularity: Some(Granularity::us("how long a waker lets the other thread sleep", 15)),
        imbalance: None,
    }
}

/// The hand-offs are measured in pieces of about this time: latencies are stored until their piece ends, and
/// signals are only checked then.
const PIECE_TIME: Duration = Duration::from_secs(1);
/// Maximum rounds of a piece, of two hand-offs each, if the amount is a number of hand-offs.
const MAX_PIECE_ROUNDS: u64 = 500_000;
/// Timeout for threads without CPU time. A machine can stall for a while; only something of higher priority
/// that occupies a vCPU permanently is an error. Also the maximum length of a piece if the amount is a number
/// of hand-offs.
const TIMEOUT: Duration = Duration::from_secs(60);

pub(super) fn run(amount: Amount, settings: &Settings) -> Result<Outcome, WorkloadError> {
    let case = match settings.kind {
        Some(Kind::Same) => Case::SameVcpu,
        Some(Kind::Awake) => Case::Awake,
        Some(Kind::Busy) => Case::Contended,
        _ => Case::Halting,
    };
    let cpus = allowed()?;
    let (Some(first), Some(last)) = (cpus.iter().next(), cpus.iter().next_back()) else {
        return Err(WakeError::Allowed(io::ErrorKind::NotFound.into()).into());
    };
    let start = Instant::now();
    let (mut operations, mut checks) = (0, 0);
    while let Some((rounds, budget)) = next_piece(amount.whole(), start.elapsed(), operations) {
        let (gap, timeout) = (settings.granularity, TIMEOUT);
        let plan = Plan { waker: first, wakee: last, rounds, budget, gap, timeout };
        let began = Instant::now();
        let (hand_offs, latencies) = match case.measure(&plan) {
            Ok(samples) => (samples.n() as u64 + samples.misses(), samples.latencies().sum()),
            // A short piece while the machine stalled: count what it did, even if that is nothing.
            Err(WakeError::NoWake { misses, .. }) => (misses, Duration::ZERO),
            Err(error) => return Err(error.into()),
        };
        check_time(hand_offs, latencies, gap, began.elapsed())?;
        operations += hand_offs;
        checks += hand_offs;
    }
    Ok(Outcome { operations, elapsed: start.elapsed(), checks })
}

/// Rounds and time of the next piece, if there is more to do.
fn next_piece(share: Share, elapsed: Duration, done: u64) -> Option<(u32, Duration)> {
    match share {
        Share::Time(time) => {
            let left = time.saturating_sub(elapsed);
            (!left.is_zero() && !interrupted()).then_some((Plan::MAX_ROUNDS, left.min(PIECE_TIME)))
        }
        Share::Operations(n) => {
            let left = n.saturating_sub(done);
            // One extra round, since nobody waits for the very first and the very last hand-off.
            let rounds =
                u32::try_from(left.div_ceil(2).min(MAX_PIECE_ROUNDS) + 1).unwrap_or(Plan::MAX_ROUNDS);
            (left > 0).then_some((rounds, TIMEOUT))
        }
    }
}

/// Fails unless this many hand-offs, with the gap before each and these total latencies, fit into `elapsed`.
fn check_time(
    hand_offs: u64,
    latencies: Duration,
    gap: Duration,
    elapsed: Duration,
) -> Result<(), WorkloadError> {
    let gaps = gap.mul_f64(hand_offs as f64);
    if gaps + latencies <= elapsed {
        return Ok(());
    }
    Err(WorkloadError::Wrong {
        workload: SPEC.name,
        what: "time of the hand-offs",
        expected: format!("at most {elapsed:?}"),
        found: format!("{hand_offs} gaps of {gap:?} and {latencies:?} of latencies"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn notices_hand_offs_that_cannot_have_been() {
        let (ms, us) = (Duration::from_millis, Duration::from_micros);
        assert!(check_time(1000, ms(20), us(15), ms(36)).is_ok());
        assert!(check_time(2000, ms(20), us(15), ms(36)).is_err(), "counted twice");
        assert!(check_time(1000, ms(40), us(15), ms(36)).is_err(), "clocks that differ");
    }

    #[test]
    fn pieces_end_with_the_time_or_the_hand_offs() {
        let time = |elapsed| next_piece(Share::Time(25 * SECOND), elapsed, 7).map(|(_, budget)| budget);
        assert_eq!(time(Duration::ZERO), Some(PIECE_TIME));
        assert_eq!(time(24 * SECOND + SECOND / 2), Some(SECOND / 2));
        assert_eq!(time(25 * SECOND), None);
        let rounds = |done| next_piece(Share::Operations(10), SECOND, done).map(|(rounds, _)| rounds);
        assert_eq!((rounds(0), rounds(9), rounds(10), rounds(11)), (Some(6), Some(2), None, None));
    }
}

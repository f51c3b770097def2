//! Sums and shares of what a workload did in an interval.

use gleaner_policy::{Sockets, Waiting, WorkloadInterval};

/// An interval and the next, combined.
pub(super) fn sum(first: WorkloadInterval, next: WorkloadInterval) -> WorkloadInterval {
    // Destructured, so that a new field cannot be missed here.
    let WorkloadInterval {
        cpu_time,
        user_time,
        run_delay,
        switches,
        moved_bytes,
        sockets,
        counter,
        threads: _,
        ran,
        waiting,
        incomplete,
    } = first;
    WorkloadInterval {
        cpu_time: cpu_time + next.cpu_time,
        user_time: user_time + next.user_time,
        run_delay: run_delay + next.run_delay,
        switches: switches + next.switches,
        moved_bytes: moved_bytes.zip(next.moved_bytes).map(|(a, b)| a + b),
        sockets: sockets
            .zip(next.sockets)
            .map(|(a, b)| Sockets { messages: a.messages + b.messages, bytes: a.bytes + b.bytes }),
        counter: counter.zip(next.counter).map(|(a, b)| a + b),
        threads: next.threads,
        ran: ran.max(next.ran),
        waiting: waiting.zip(next.waiting).and_then(|(a, b)| sum_of_waiting(a, b)),
        incomplete: incomplete || next.incomplete,
    }
}

/// Both intervals, with the longer of the tails; `None` if one was traced and the other estimated.
fn sum_of_waiting(first: Waiting, next: Waiting) -> Option<Waiting> {
    (first.source == next.source).then(|| Waiting {
        wake_ups: first.wake_ups + next.wake_ups,
        total: first.total + next.total,
        tail: first.tail.max(next.tail),
        source: first.source,
    })
}

/// A `share` of an interval, as if it were uniform; counts are rounded.
pub(super) fn part(whole: WorkloadInterval, share: f64) -> WorkloadInterval {
    let WorkloadInterval {
        cpu_time,
        user_time,
        run_delay,
        switches,
        moved_bytes,
        sockets,
        counter,
        threads,
        ran,
        waiting,
        incomplete,
    } = whole;
    WorkloadInterval {
        cpu_time: cpu_time.mul_f64(share),
        user_time: user_time.mul_f64(share),
        run_delay: run_delay.mul_f64(share),
        switches: count(switches, share),
        moved_bytes: moved_bytes.map(|bytes| count(bytes, share)),
        sockets: sockets.map(|sockets| Sockets {
            messages: count(sockets.messages, share),
            bytes: count(sockets.bytes, share),
        }),
        counter: counter.map(|counter| counter * share),
        threads,
        ran,
        waiting: waiting.map(|waiting| Waiting {
            wake_ups: count(waiting.wake_ups, share),
            total: waiting.total.mul_f64(share),
            ..waiting
        }),
        incomplete,
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a count is one")]
fn count(count: u64, share: f64) -> u64 {
    (count as f64 * share).round() as u64
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gleaner_policy::WaitingSource;

    use super::*;

    #[test]
    fn two_halves_are_the_whole() {
        let ms = Duration::from_millis;
        let source = WaitingSource::Traced;
        let waiting = Waiting { wake_ups: 60, total: ms(4), tail: ms(1), source };
        let whole = WorkloadInterval {
            cpu_time: ms(20),
            user_time: ms(10),
            run_delay: ms(6),
            switches: 100,
            moved_bytes: Some(8192),
            sockets: Some(Sockets { messages: 20, bytes: 2000 }),
            counter: Some(5.0),
            threads: 3,
            ran: Some(2),
            waiting: Some(waiting),
            incomplete: false,
        };
        let half = part(whole, 0.5);
        assert_eq!((half.cpu_time, half.switches, half.moved_bytes), (ms(10), 50, Some(4096)));
        assert_eq!((half.counter, half.waiting.map(|w| w.mean())), (Some(2.5), Some(waiting.mean())));
        assert_eq!(sum(half, half), whole);
        let unknown = WorkloadInterval { moved_bytes: None, ..half };
        assert_eq!(sum(half, unknown).moved_bytes, None);
        let estimated = Waiting { source: WaitingSource::Estimated, ..waiting };
        assert_eq!(sum(half, WorkloadInterval { waiting: Some(estimated), ..half }).waiting, None);
    }
}

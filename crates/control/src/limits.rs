//! What a client can use up, so that none of them makes the daemon work or wait.

use std::time::{Duration, Instant};

/// What the server allows its clients. The default is what the daemon uses.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of one request. Whoever sends more is disconnected.
    pub message: usize,
    /// Clients at a time. If there are more, whoever is idle for longest is disconnected, else the new one.
    pub clients: usize,
    /// How many of them are reserved for root.
    pub for_root: usize,
    /// Requests per second of one client, after a burst of twice as many. Further ones wait.
    pub requests_per_s: f64,
    /// New connections per second, likewise.
    pub connections_per_s: f64,
    /// Bytes of replies that a client has not read yet, from which on it gets no further ones of a stream.
    pub backlog: usize,
    /// Within this time a request must be complete, and a client must read something of what is sent to it.
    pub timeout: Duration,
    /// The shortest interval of `Watch`.
    pub shortest_interval: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message: 64 << 10,
            clients: 64,
            for_root: 8,
            requests_per_s: 50.0,
            connections_per_s: 100.0,
            backlog: 256 << 10,
            timeout: Duration::from_secs(10),
            shortest_interval: Duration::from_millis(100),
        }
    }
}

/// A token bucket: so many events per second, after a burst of twice as many.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bucket {
    per_s: f64,
    tokens: f64,
    at: Instant,
}

impl Bucket {
    pub(crate) fn new(per_s: f64, now: Instant) -> Self {
        Self { per_s, tokens: 2.0 * per_s, at: now }
    }

    /// Takes a token if there is one.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let ready = self.is_ready(now);
        if ready {
            self.tokens -= 1.0;
        }
        ready
    }

    /// Whether there is a token.
    pub(crate) fn is_ready(&mut self, now: Instant) -> bool {
        let earned = self.per_s * now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = (self.tokens + earned).min(2.0 * self.per_s);
        self.at = self.at.max(now);
        self.tokens >= 1.0
    }

    /// When there is a token at the latest: a moment after it is earned, so that rounding cannot make this too early.
    pub(crate) fn ready_at(&self) -> Instant {
        let missing = ((1.0 - self.tokens) / self.per_s).max(0.0);
        self.at + Duration::from_secs_f64(missing) + Duration::from_millis(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let start = Instant::now();
        let mut bucket = Bucket::new(10.0, start);
        assert_eq!((0..30).filter(|_| bucket.take(start)).count(), 20);
        let ready = bucket.ready_at();
        assert!(!bucket.take(start + Duration::from_millis(50)));
        assert!(ready <= start + Duration::from_millis(110) && bucket.take(ready));
        let late = start + Duration::from_secs(60);
        assert_eq!((0..90).filter(|_| bucket.take(late)).count(), 20, "no more than a burst is saved up");
    }
}

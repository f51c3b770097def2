//! Numbers that look random and are the same in each run.

/// xorshift64.
pub(crate) struct Random(u64);

impl Random {
    /// The seed must not be 0.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Evenly distributed from 0 to 1.
    pub(crate) fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(crate) fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        let index = self.next() % all.len() as u64;
        all[usize::try_from(index).unwrap()]
    }
}

//! Named random streams: a generator depends only on the scenario's seed and its own name, so that adding a
//! thread or VM does not change what the others draw.

use rand_distr::{Distribution as _, Exp1, LogNormal, StandardUniform};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng as _;
use serde::Serialize;

use crate::ids::Ns;

/// A source of random numbers.
pub type Generator = Xoshiro256PlusPlus;

/// The seed from which all generators are derived.
#[derive(Debug, Clone, Copy)]
pub struct Seeds(pub u64);

impl Seeds {
    /// The `index`-th generator with this name.
    pub fn generator(self, name: &str, index: u64) -> Generator {
        // FNV-1a over seed, name and index; the generator's own seeding (SplitMix64) spreads the bits.
        let bytes = self.0.to_le_bytes().into_iter().chain(name.bytes()).chain(index.to_le_bytes());
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Generator::seed_from_u64(hash)
    }
}

/// Distribution of a duration, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub enum Dist {
    /// Always this value.
    Constant(Ns),
    /// Uniform between the two.
    Uniform(Ns, Ns),
    /// Exponential.
    Exponential {
        /// Mean, in ns.
        mean: Ns,
    },
    /// Log-normal: a long tail.
    LogNormal {
        /// Mean, in ns.
        mean: Ns,
        /// Coefficient of variation: standard deviation divided by mean.
        cv: f64,
    },
}

impl Dist {
    /// The mean.
    pub fn mean(self) -> Ns {
        match self {
            Self::Constant(mean) | Self::Exponential { mean } | Self::LogNormal { mean, .. } => mean,
            Self::Uniform(low, high) => low.midpoint(high),
        }
    }

    /// Draws a value; at least 1 ns unless it is always 0.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "lengths are positive and small"
    )]
    pub fn sample(self, generator: &mut Generator) -> Ns {
        let drawn = match self {
            Self::Constant(ns) => return ns,
            Self::Uniform(low, high) => {
                let share: f64 = StandardUniform.sample(generator);
                low as f64 + share * high.saturating_sub(low) as f64
            }
            Self::Exponential { mean } => {
                let unit: f64 = Exp1.sample(generator);
                unit * mean as f64
            }
            Self::LogNormal { mean, cv } => match LogNormal::from_mean_cv(mean as f64, cv) {
                Ok(distribution) => distribution.sample(generator),
                Err(_) => mean as f64,
            },
        };
        (drawn as Ns).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generators_depend_on_seed_name_and_index_alone() {
        let draw =
            |seed, name, index| Dist::Uniform(0, 1 << 40).sample(&mut Seeds(seed).generator(name, index));
        assert_eq!(draw(1, "thread", 3), draw(1, "thread", 3));
        assert_ne!(draw(1, "thread", 3), draw(2, "thread", 3));
        assert_ne!(draw(1, "thread", 3), draw(1, "thread", 4));
        assert_ne!(draw(1, "thread", 3), draw(1, "io", 3));
    }

    #[test]
    fn samples_have_the_mean_that_was_asked_for() {
        let mut generator = Seeds(7).generator("mean", 0);
        for dist in [
            Dist::Constant(5_000),
            Dist::Uniform(1_000, 9_000),
            Dist::Exponential { mean: 5_000 },
            Dist::LogNormal { mean: 5_000, cv: 0.8 },
        ] {
            let n = 100_000;
            let sum: Ns = (0..n).map(|_| dist.sample(&mut generator)).sum();
            let mean = sum as f64 / f64::from(n);
            assert!((mean / 5_000.0 - 1.0).abs() < 0.02, "{dist:?}: {mean}");
            assert_eq!(dist.mean(), 5_000);
        }
    }
}

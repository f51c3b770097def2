//! Cross-validation: what the model says about a program whose parameter it does not know.
//!
//! Each fitted program has one parameter, its grain, fitted to numbers about that program alone. So rows about the odd
//! programs, in alphabetical order, are also computed with all of the odd programs' grains replaced by the geometric
//! mean of the even ones', and the reverse.

use std::sync::LazyLock;

use crate::ids::Ns;
use crate::library::by_name;

/// The library's programs with a fitted grain, in alphabetical order.
pub(super) const FITTED: [&str; 7] =
    ["cholesky", "dedup", "facesim", "ferret", "streamcluster", "vips", "volrend"];

/// Threads for which dedup's grain is taken: the ATC'14 paper's.
const THREADS: u32 = 16;

/// Grains of the odd programs from the even ones, and the reverse.
static EXCHANGED: LazyLock<[Vec<(&'static str, Ns)>; 2]> = LazyLock::new(|| {
    let half = |odd: usize| FITTED.into_iter().skip(odd).step_by(2);
    [0, 1].map(|odd| {
        let others = half(1 - odd).filter_map(by_name).map(|p| p.shape.grain(THREADS) as f64);
        let logarithms: Vec<f64> = others.map(f64::ln).collect();
        let mean = (logarithms.iter().sum::<f64>() / logarithms.len() as f64).exp();
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a time of at most milliseconds"
        )]
        let mean = mean as Ns;
        half(odd).map(|name| (name, mean)).collect()
    })
});

/// The grains with which a row about `program` is cross-validated; `None` if the program has no fitted grain.
pub(super) fn without_program(program: &str) -> Option<&'static [(&'static str, Ns)]> {
    EXCHANGED.iter().find(|half| half.iter().any(|(name, _)| *name == program)).map(Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::library::SUITES;

    #[test]
    fn every_fitted_program_gets_the_mean_of_the_other_half() {
        let fitted: Vec<&str> =
            SUITES.iter().filter(|p| p.source.contains("fitted")).map(|p| p.name).collect();
        assert!(
            fitted.iter().all(|name| FITTED.contains(name)) && fitted.len() == FITTED.len(),
            "{fitted:?}"
        );
        let dedup = without_program("dedup").unwrap();
        assert_eq!(dedup.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["dedup", "ferret", "vips"]);
        // The geometric mean of 220, 302, 270 and 129 us.
        assert!(dedup.iter().all(|(_, ns)| (215_000..225_000).contains(ns)), "{dedup:?}");
        let (low, high) = (22_000, 12_000_000);
        assert!(without_program("volrend").unwrap().iter().all(|(_, ns)| (low..high).contains(ns)));
        assert_eq!(without_program("blackscholes"), None);
    }
}

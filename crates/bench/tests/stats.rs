//! The statistics against values known by other means.

use gleaner_bench::stats::{Rng, estimate, median, paired_ratio, ratios, spread};

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-12
}

#[test]
fn median_of_odd_even_and_no_values() {
    assert!(median(&[3.0, 1.0, 2.0]).is_some_and(|m| close(m, 2.0)));
    assert!(median(&[4.0, 1.0, 3.0, 2.0]).is_some_and(|m| close(m, 2.5)));
    assert_eq!(median(&[]), None);
}

#[test]
fn spread_is_the_range_relative_to_the_median() {
    assert!(spread(&[9.0, 10.0, 12.0]).is_some_and(|s| close(s, 0.3)));
    assert_eq!(spread(&[]), None);
}

/// P(resampled median ≤ k-th of n) = P(Binomial(n, k/n) ≥ (n+1)/2). For n = 9 that is 0.1 % at k = 1 and 3.0 % at
/// k = 2, so the 2.5 % quantile is the second smallest value, and by symmetry the 97.5 % quantile the second largest.
#[test]
fn interval_of_nine_values_is_the_one_of_the_binomial() {
    let values: Vec<f64> = [5, 1, 9, 3, 7, 2, 8, 4, 6].map(f64::from).to_vec();
    for seed in 0..3 {
        let e = estimate(&values, seed).unwrap();
        assert!(close(e.median, 5.0) && close(e.low, 2.0) && close(e.high, 8.0), "{e:?}");
        assert_eq!(e.n, 9);
    }
}

/// For n = 5 the smallest value is the resampled median with probability 5.8 %: the interval is the range.
#[test]
fn interval_of_five_values_is_their_range() {
    let e = estimate(&[1.0, 2.0, 3.0, 4.0, 10.0], 7).unwrap();
    assert!(close(e.low, 1.0) && close(e.high, 10.0), "{e:?}");
}

#[test]
fn one_value_has_an_interval_of_zero_width() {
    let e = estimate(&[42.0], 1).unwrap();
    assert!(close(e.median, 42.0) && close(e.low, 42.0) && close(e.high, 42.0));
    assert!(estimate(&[], 1).is_none());
}

#[test]
fn ratios_are_paired_by_round() {
    // The machine became ten times slower in the second round: the ratio does not notice.
    let base = [Some(100.0), Some(10.0), None, Some(50.0)];
    let values = [Some(200.0), Some(20.0), Some(7.0), None];
    assert_eq!(ratios(&values, &base).len(), 2);
    let e = paired_ratio(&values, &base, 1).unwrap();
    assert!(close(e.median, 2.0) && close(e.low, 2.0) && close(e.high, 2.0), "{e:?}");
    assert!(paired_ratio(&[Some(1.0)], &[Some(0.0)], 1).is_none(), "a division by zero is not a ratio");
}

/// First outputs of `SplitMix64` for seed 1234567, as published with the reference implementation.
#[test]
fn generator_matches_the_reference() {
    let mut rng = Rng::new(1_234_567);
    assert_eq!([rng.next_u64(), rng.next_u64()], [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
}

#[test]
fn shuffle_keeps_every_item_and_repeats_with_the_seed() {
    let order = |seed| {
        let mut items: Vec<u32> = (0..20).collect();
        Rng::new(seed).shuffle(&mut items);
        items
    };
    assert_eq!(order(1), order(1));
    assert_ne!(order(1), order(2));
    let mut sorted = order(1);
    sorted.sort_unstable();
    assert_eq!(sorted, (0..20).collect::<Vec<_>>());
}

//! The statistics against values obtained in other ways: calculated by hand, or enumerated.

use gleaner_bench::stats::{
    FULL_ROUNDS, Rng, correlation, drift, estimate, judge, judge_unpaired, mann_whitney, median, outliers,
    paired_ratio, ratio, ratios, signed_rank, spread, unpaired_ratio,
};
use gleaner_proto::result::{Better, Verdict};

fn close(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-12
}

fn some(values: &[f64]) -> Vec<Option<f64>> {
    values.iter().copied().map(Some).collect()
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

/// For n = 10 the second values from the ends cover 1 − 22/1024, the third ones 1 − 112/1024. 95 % is (1 −
/// 22/1024 − 0.95) / (90/1024) = 0.32444 of the way, which λ = 8·0.32444 / (2 + 6·0.32444) = 0.65766 turns
/// into a distance.
#[test]
fn interval_of_ten_values_is_interpolated() {
    let values: Vec<f64> = [5, 1, 9, 3, 7, 2, 8, 4, 6, 10].map(f64::from).to_vec();
    let e = estimate(&values).unwrap();
    assert!(close(e.median, 5.5) && e.n == 10 && close(e.confidence, 0.95), "{e:?}");
    assert!((e.low - 2.657_66).abs() < 1e-5 && (e.high - 8.342_34).abs() < 1e-5, "{e:?}");
}

/// All five values lie on one side of the median with probability 2/32.
#[test]
fn interval_of_five_values_is_their_range_and_says_so() {
    let e = estimate(&[1.0, 2.0, 3.0, 4.0, 10.0]).unwrap();
    assert!(close(e.low, 1.0) && close(e.high, 10.0) && close(e.confidence, 0.9375), "{e:?}");
    let six = estimate(&[1.0, 2.0, 3.0, 4.0, 10.0, 11.0]).unwrap();
    assert!(close(six.confidence, 0.95) && six.low > 1.0 && FULL_ROUNDS == 6, "{six:?}");
}

#[test]
fn one_value_has_an_interval_of_zero_width_that_covers_nothing() {
    let e = estimate(&[42.0]).unwrap();
    assert!(close(e.median, 42.0) && close(e.low, 42.0) && close(e.high, 42.0) && close(e.confidence, 0.0));
    assert!(estimate(&[]).is_none() && ratio(&[]).is_none());
}

#[test]
fn ratios_are_paired_by_round() {
    // The machine became ten times slower in the second round, which does not affect the ratio.
    let base = [Some(100.0), Some(10.0), None, Some(50.0)];
    let values = [Some(200.0), Some(20.0), Some(7.0), None];
    assert_eq!(ratios(&values, &base).len(), 2);
    let e = paired_ratio(&values, &base).unwrap();
    assert!(close(e.median, 2.0) && close(e.low, 2.0) && close(e.high, 2.0), "{e:?}");
    assert!(paired_ratio(&[Some(1.0)], &[Some(0.0)]).is_none(), "a division by zero is not a ratio");
}

/// The means of all pairs of 1, 4 and 16 are 1, 2, 4, 4, 8, 16. The range covers 1 − 2/8.
#[test]
fn a_ratio_is_the_pseudo_median_and_its_inverse_the_inverse() {
    let e = ratio(&[16.0, 1.0, 4.0]).unwrap();
    assert!(close(e.median, 4.0) && close(e.low, 1.0) && close(e.high, 16.0), "{e:?}");
    assert!(close(e.confidence, 0.75), "{e:?}");
    let inverse = ratio(&[1.0 / 16.0, 1.0, 0.25]).unwrap();
    assert!(close(inverse.median, 0.25) && close(inverse.low, 1.0 / 16.0), "{inverse:?}");
    let zero = ratio(&[0.0, 1.0, 4.0]).unwrap();
    assert!(close(zero.low, 0.0) && close(zero.high, 4.0), "{zero:?}");
}

/// From tables of Wilcoxon's test: with ten pairs, sums up to 8 have a probability of 25/1024 at each end.
#[test]
fn interval_of_ten_ratios_inverts_the_signed_rank_test() {
    // Powers of two, spaced so that all 55 means differ; on the logarithmic scale 1, 2, 4 … 512.
    let logs: Vec<f64> = (0..10).map(|i| f64::from(1 << i)).collect();
    let e = ratio(&logs.iter().map(|log| log.exp2()).collect::<Vec<f64>>()).unwrap();
    let mut means: Vec<f64> = (0..10)
        .flat_map(|i| (0..=i).map(move |j| (i, j)))
        .map(|(i, j)| f64::midpoint(logs[i], logs[j]))
        .collect();
    means.sort_by(f64::total_cmp);
    assert!(close(e.confidence, 1.0 - 50.0 / 1024.0), "{e:?}");
    assert!((e.low.log2() - means[8]).abs() < 1e-9 && (e.high.log2() - means[46]).abs() < 1e-9, "{e:?}");
}

/// Differences of logarithms 1, 2, 3, 4, −5: the sum above is 10 of 15. Sums of 10 to 15 have 10 of the 32 choices,
/// and so have those of 0 to 5.
#[test]
fn signed_rank_test_worked_by_hand() {
    let ratios: Vec<f64> = [1.0, 2.0, 3.0, 4.0, -5.0].iter().map(|log: &f64| log.exp()).collect();
    let test = signed_rank(&ratios).unwrap();
    assert!(close(test.w, 10.0) && close(test.p, 20.0 / 32.0) && test.exact, "{test:?}");
    let all = signed_rank(&[2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]).unwrap();
    assert!(close(all.w, 36.0) && close(all.p, 2.0 / 256.0), "{all:?}");
    assert_eq!(signed_rank(&[1.0, 1.0]), None);
}

/// One sample above the other: 2 of the C(6,3) = 20 choices. And one tie: values 1, 2 | 2, 3 have the ranks 1, 2.5,
/// 2.5, 4; the six choices of two have the sums 3.5, 3.5, 5, 5, 6.5, 6.5.
#[test]
fn mann_whitney_test_worked_by_hand() {
    let test = mann_whitney(&[4.0, 5.0, 6.0], &[1.0, 2.0, 3.0]).unwrap();
    assert!(close(test.u, 9.0) && close(test.p, 0.1) && test.exact, "{test:?}");
    let tied = mann_whitney(&[1.0, 2.0], &[2.0, 3.0]).unwrap();
    assert!(close(tied.u, 0.5) && close(tied.p, 4.0 / 6.0) && tied.exact, "{tied:?}");
    // 19 24 12 20 against 22 26 28 30 25: U = 2; of the C(9,4) = 126 choices 1 + 1 + 2 have at most that.
    let test = mann_whitney(&[19.0, 24.0, 12.0, 20.0], &[22.0, 26.0, 28.0, 30.0, 25.0]).unwrap();
    assert!(close(test.u, 1.0) && close(test.p, 4.0 / 126.0), "{test:?}");
    let same = mann_whitney(&[1.0; 5], &[1.0; 5]).unwrap();
    assert!(close(same.p, 1.0), "{same:?}");
    assert_eq!(mann_whitney(&[], &[1.0]), None);
}

/// The nine ratios of 2, 6, 8 to 1, 2, 4 are ½ 1½ 2 2 2 3 4 6 8. Three and three values: the range covers 1 − 2/20.
#[test]
fn an_unpaired_ratio_is_the_median_of_all_pairs() {
    let e = unpaired_ratio(&[6.0, 2.0, 8.0], &[1.0, 2.0, 4.0]).unwrap();
    assert!(close(e.median, 2.0) && close(e.low, 0.5) && close(e.high, 8.0), "{e:?}");
    assert!(close(e.confidence, 0.9) && e.n == 3, "{e:?}");
    // Five and five: of 252 choices 4 have U ≤ 2, 7 have U ≤ 3, which is more than 2.5 %: two are left out.
    let powers: Vec<f64> = (0..5).map(|i| f64::from(1 << i)).collect();
    let e = unpaired_ratio(&powers, &[1.0; 5]).unwrap();
    assert!(close(e.confidence, 1.0 - 8.0 / 252.0) && close(e.low, 1.0) && close(e.high, 16.0), "{e:?}");
    assert!(unpaired_ratio(&[1.0], &[]).is_none() && unpaired_ratio(&[1.0], &[0.0]).is_none());
    let (_, p, verdict) = judge_unpaired(&powers, &[0.1; 5], Better::Lower).unwrap();
    assert!(p < 0.01 && verdict == Verdict::Worse, "{p} {verdict:?}");
}

/// From 41 values on, the normal approximation is used; it must agree with the exact result for 40, and
/// handle ties.
#[test]
fn the_normal_approximation_continues_the_exact_test() {
    let sample =
        |n: usize, shift: f64| (0..n).map(|i| (i as f64 * 0.618_034).fract() + shift).collect::<Vec<_>>();
    let exact = mann_whitney(&sample(20, 0.2), &sample(20, 0.0)).unwrap();
    let normal = mann_whitney(&sample(21, 0.2), &sample(20, 0.0)).unwrap();
    assert!(exact.exact && !normal.exact && (exact.p - normal.p).abs() < 0.01, "{exact:?} {normal:?}");
    // U = 25·25/2 exactly: no evidence at all. If all values are equal, there is not even variance.
    assert!(close(mann_whitney(&sample(25, 0.0), &sample(25, 0.0)).unwrap().p, 1.0));
    assert!(close(mann_whitney(&[1.0; 25], &[1.0; 25]).unwrap().p, 1.0));
    let many: Vec<f64> = sample(101, 0.0).iter().map(|x| (x - 0.4).exp()).collect();
    let (less, more) = (signed_rank(&many[..100]).unwrap(), signed_rank(&many).unwrap());
    assert!(less.exact && !more.exact && (less.p - more.p).abs() < 0.02, "{less:?} {more:?}");
    let (less, more) = (ratio(&many[..100]).unwrap(), ratio(&many).unwrap());
    assert!((less.low / more.low - 1.0).abs() < 0.02 && (less.high / more.high - 1.0).abs() < 0.02);
    let unpaired = |n: usize| unpaired_ratio(&sample(n, 1.2), &sample(20, 1.0)).unwrap();
    let (less, more) = (unpaired(20), unpaired(21));
    assert!((less.low / more.low - 1.0).abs() < 0.02 && (less.high / more.high - 1.0).abs() < 0.02);
}

/// Median 3, deviations 2, 1, 0, 1, 97, their median 1: the last score is 0.6745·97.
#[test]
fn outliers_are_named_by_their_modified_z_score() {
    let found = outliers(&[1.0, 2.0, 3.0, 4.0, 100.0]);
    assert_eq!(found.len(), 1);
    assert!(found[0].index == 4 && close(found[0].value, 100.0), "{found:?}");
    assert!((found[0].score - 65.4265).abs() < 1e-9, "{found:?}");
    // More than half are equal: the mean deviation, 9/6, is used. 9 / (1.253314·1.5) = 4.787.
    let found = outliers(&[5.0, 5.0, 5.0, 5.0, 14.0, 5.0]);
    assert!(found.len() == 1 && found[0].index == 4 && (found[0].score - 4.7873).abs() < 1e-4, "{found:?}");
    assert!(outliers(&[2.0; 6]).is_empty() && outliers(&[]).is_empty());
}

/// Of the 120 orders of five values, one is ascending and one descending.
#[test]
fn drift_is_the_rank_correlation_with_time() {
    let rising = drift(&[10.0, 11.0, 12.0, 13.0, 14.0]).unwrap();
    assert!(close(rising.tau, 1.0) && close(rising.p, 2.0 / 120.0), "{rising:?}");
    assert!(close(rising.change, 4.0 / 12.0), "{rising:?}");
    // One exchange: 1 + 4 orders have at most one inversion, and as many at most one ascent.
    let falling = drift(&[5.0, 4.0, 2.0, 3.0, 1.0]).unwrap();
    assert!(
        close(falling.tau, -0.8) && close(falling.p, 10.0 / 120.0) && falling.change < 0.0,
        "{falling:?}"
    );
    assert!(close(drift(&[3.0, 3.0, 3.0]).unwrap().p, 1.0));
    assert_eq!(drift(&[1.0, 2.0]), None);
}

/// (1,2), (2,4), (3,5), (4,4), (5,5): Sxy = 6, Sxx = 10, Syy = 6, r = 6/√60. Fisher's z is 1.03172, its deviation
/// 1/√2, and 1.959964 of those reach to −0.35418 and 2.41762.
#[test]
fn correlation_worked_by_hand() {
    let c = correlation(&[(1.0, 2.0), (2.0, 4.0), (3.0, 5.0), (4.0, 4.0), (5.0, 5.0)]).unwrap();
    assert!(close(c.r, 6.0 / 60.0_f64.sqrt()) && c.n == 5, "{c:?}");
    assert!(
        (c.low - (-0.354_18_f64).tanh()).abs() < 1e-4 && (c.high - 2.417_62_f64.tanh()).abs() < 1e-4,
        "{c:?}"
    );
    let three = correlation(&[(0.0, 0.0), (1.0, 1.0), (2.0, 1.0)]).unwrap();
    assert!(close(three.low, -1.0) && close(three.high, 1.0), "three points say nothing: {three:?}");
    let line = correlation(&[(0.0, 1.0), (1.0, 2.0), (2.0, 3.0), (3.0, 4.0)]).unwrap();
    assert!(close(line.r, 1.0) && close(line.low, 1.0), "{line:?}");
    assert_eq!(correlation(&[(1.0, 1.0), (1.0, 2.0), (1.0, 3.0)]), None);
    assert_eq!(correlation(&[(1.0, 1.0), (2.0, 2.0)]), None);
}

#[test]
fn verdicts_follow_the_declared_rule() {
    let base = some(&[10.0, 10.1, 9.9, 10.2, 9.8]);
    let times = |factor: f64, values: &[Option<f64>]| -> Vec<Option<f64>> {
        values.iter().map(|value| value.map(|value| value * factor)).collect()
    };
    let verdict =
        |values: &[Option<f64>], base: &[Option<f64>], better| judge(values, base, better).unwrap().verdict;
    let double = times(2.0, &base);
    assert_eq!(verdict(&double, &base, Better::Higher), Verdict::Better);
    assert_eq!(verdict(&double, &base, Better::Lower), Verdict::Worse);
    assert_eq!(verdict(&base, &double, Better::Higher), Verdict::Worse);
    assert_eq!(verdict(&base, &double, Better::Lower), Verdict::Better);
    assert_eq!(verdict(&double, &base, Better::Neither), Verdict::Different);
    assert_eq!(verdict(&base, &base, Better::Higher), Verdict::NoDifference);
    assert_eq!(verdict(&double[..4], &base[..4], Better::Higher), Verdict::TooFew);
    // Five rounds of +1.5 % each: the samples overlap, and five pairs have no p below 1/16.
    assert_eq!(verdict(&times(1.015, &base), &base, Better::Higher), Verdict::NoDifference);
    // Eight such rounds suffice, although the machine becomes ten times slower.
    let drifting: Vec<Option<f64>> = (0..8).map(|round| Some(100.0 / f64::from(round + 1))).collect();
    let judged = judge(&times(1.015, &drifting), &drifting, Better::Higher).unwrap();
    assert_eq!(judged.verdict, Verdict::Better);
    assert!(judged.rank_sum_p > 0.5 && close(judged.signed_rank_p, 2.0 / 256.0), "{judged:?}");
    // Certain, but too small to matter.
    assert_eq!(verdict(&times(1.005, &drifting), &drifting, Better::Higher), Verdict::NoDifference);
    assert_eq!(judge(&[None], &[Some(1.0)], Better::Higher), None);
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

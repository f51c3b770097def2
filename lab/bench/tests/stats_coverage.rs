//! How often the statistics are right, on data with known truth. The ignored tests are the long form (`make
//! test-long`); they print the tables of `docs/statistics.md`.

#![allow(clippy::unwrap_used, reason = "tests")]

use gleaner_bench::stats::{Estimate, Rng, drift, estimate, judge, median, outliers, ratio, unpaired_ratio};
use gleaner_proto::result::{Better, Verdict};
use statrs::distribution::{ContinuousCDF, Normal};

/// Distribution of the values of one mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Distribution {
    /// 1, give or take 10 %.
    Normal,
    /// The logarithm is normal with a deviation of ½.
    Lognormal,
    /// The most skewed of the three.
    Exponential,
    /// 1 or 1.3 with equal probability, give or take 1 %: a machine with two states.
    TwoStates,
}

use Distribution::{Exponential, Lognormal, TwoStates};

const KNOWN: [Distribution; 3] = [Distribution::Normal, Lognormal, Exponential];
const SIZES: [usize; 4] = [5, 10, 20, 30];

impl Distribution {
    fn draw(self, rng: &mut Rng) -> f64 {
        let normal = |rng: &mut Rng| Normal::standard().inverse_cdf(uniform(rng));
        match self {
            Self::Normal => 1.0 + 0.1 * normal(rng),
            Self::Lognormal => (0.5 * normal(rng)).exp(),
            Self::Exponential => -uniform(rng).ln(),
            Self::TwoStates => (if rng.below(2) == 0 { 1.0 } else { 1.3 }) * (1.0 + 0.01 * normal(rng)),
        }
    }

    fn sample(self, n: usize, rng: &mut Rng) -> Vec<f64> {
        (0..n).map(|_| self.draw(rng)).collect()
    }

    fn true_median(self) -> f64 {
        match self {
            Self::Normal | Self::Lognormal => 1.0,
            Self::Exponential => 2.0_f64.ln(),
            Self::TwoStates => 1.15,
        }
    }
}

/// A number strictly between 0 and 1.
fn uniform(rng: &mut Rng) -> f64 {
    ((rng.next_u64() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
}

/// Number of data sets for samples of size `n`. The range of five values covers 93.75 %, which a thousand
/// sets cannot distinguish from less than 93 %.
const fn sets(n: usize) -> u32 {
    if n == 5 { 10_000 } else { 1000 }
}

/// The share of `sets` data sets in which the interval covers the true value.
fn coverage(sets: u32, truth: f64, mut interval: impl FnMut(&mut Rng) -> Estimate) -> f64 {
    let mut rng = Rng::new(2014);
    let covered = (0..sets).filter(|_| interval(&mut rng).contains(truth)).count();
    covered as f64 / f64::from(sets)
}

fn of_median(distribution: Distribution, n: usize, sets: u32) -> f64 {
    let truth = distribution.true_median();
    coverage(sets, truth, |rng| estimate(&distribution.sample(n, rng)).unwrap())
}

/// Both modes have the same distribution, one of them scaled by 1.3.
fn of_ratio(distribution: Distribution, n: usize, sets: u32, of: fn(&[f64]) -> Option<Estimate>) -> f64 {
    coverage(sets, 1.3, |rng| {
        let ratios: Vec<f64> =
            (0..n).map(|_| 1.3 * distribution.draw(rng) / distribution.draw(rng)).collect();
        of(&ratios).unwrap()
    })
}

#[test]
fn intervals_cover_the_true_median_in_93_to_97_of_100_sets() {
    for distribution in KNOWN {
        for n in SIZES {
            let covered = of_median(distribution, n, sets(n));
            assert!((0.93..=0.97).contains(&covered), "{distribution:?}, n = {n}: {covered}");
        }
    }
}

#[test]
fn intervals_cover_the_true_ratio_in_93_to_97_of_100_sets() {
    for distribution in KNOWN {
        for n in SIZES {
            let covered = of_ratio(distribution, n, sets(n), ratio);
            assert!((0.93..=0.97).contains(&covered), "{distribution:?}, n = {n}: {covered}");
        }
    }
}

#[test]
fn intervals_cover_the_true_ratio_of_two_runs() {
    for distribution in KNOWN {
        for n in SIZES {
            let covered = coverage(1000, 1.3, |rng| {
                let slower: Vec<f64> = distribution.sample(n, rng).iter().map(|value| 1.3 * value).collect();
                unpaired_ratio(&slower, &distribution.sample(n, rng)).unwrap()
            });
            // With five and five values, the next smaller interval would cover less than 95 %.
            let most = if n == 5 { 0.98 } else { 0.97 };
            assert!((0.93..=most).contains(&covered), "{distribution:?}, n = {n}: {covered}");
        }
    }
}

/// Small samples must not claim more than they can show.
#[test]
fn the_stated_confidence_is_the_true_coverage_of_small_samples() {
    for n in 2..=7 {
        let stated = estimate(&Lognormal.sample(n, &mut Rng::new(1))).unwrap().confidence;
        let covered = of_median(Lognormal, n, 4000);
        assert!((covered - stated).abs() < 0.02, "median, n = {n}: {covered} instead of {stated}");
        let stated = ratio(&Lognormal.sample(n, &mut Rng::new(1))).unwrap().confidence;
        let covered = of_ratio(Lognormal, n, 4000, ratio);
        assert!((covered - stated).abs() < 0.02, "ratio, n = {n}: {covered} instead of {stated}");
    }
}

/// A machine on which two modes are compared.
#[derive(Debug, Clone, Copy)]
struct Machine {
    noise: Distribution,
    /// Slowdown from round to round.
    drift: f64,
}

impl Machine {
    /// Verdicts after `rounds` rounds in which one mode is `factor` times as fast, for each of `runs` runs.
    fn verdicts(self, factor: f64, rounds: usize, runs: u32) -> Vec<Verdict> {
        let mut rng = Rng::new(1886);
        let mut mode = |factor: f64| -> Vec<Option<f64>> {
            let speed = |round: usize| (1.0 + self.drift).powi(-i32::try_from(round).unwrap());
            (0..rounds).map(|round| Some(factor * speed(round) * self.noise.draw(&mut rng))).collect()
        };
        (0..runs).map(|_| judge(&mode(factor), &mode(1.0), Better::Higher).unwrap().verdict).collect()
    }

    fn share(self, wanted: Verdict, factor: f64, rounds: usize, runs: u32) -> f64 {
        let verdicts = self.verdicts(factor, rounds, runs);
        verdicts.iter().filter(|&&verdict| verdict == wanted).count() as f64 / f64::from(runs)
    }
}

fn machines() -> impl Iterator<Item = Machine> {
    let noises = KNOWN.into_iter().chain([TwoStates]);
    noises.flat_map(|noise| [0.0, 0.05].map(|drift| Machine { noise, drift }))
}

#[test]
fn equal_modes_are_found_equal_in_95_of_100_runs() {
    for machine in machines() {
        for rounds in [5, 10] {
            let equal = machine.share(Verdict::NoDifference, 1.0, rounds, 500);
            assert!(equal >= 0.95, "{machine:?}, {rounds} rounds: {equal}");
        }
    }
}

/// A rule that never claims anything would pass the test above.
#[test]
fn what_differs_is_found() {
    let steady = Machine { noise: Distribution::Normal, drift: 0.0 };
    assert!(steady.share(Verdict::Better, 2.0, 5, 300) >= 0.95);
    assert!(steady.share(Verdict::Worse, 0.7, 10, 300) >= 0.95);
    // The pairs show what drift would hide from a comparison of two samples.
    let drifting = Machine { drift: 0.2, ..steady };
    assert!(drifting.share(Verdict::Better, 1.5, 10, 300) >= 0.95);
}

#[test]
fn drift_is_found_and_not_imagined() {
    let mut rng = Rng::new(1945);
    let mut found = |slope: f64| {
        let drifts = (0..400).filter(|_| {
            let values = Distribution::Normal.sample(10, &mut rng);
            let values: Vec<f64> =
                values.iter().enumerate().map(|(i, v)| v * (1.0 + slope * i as f64)).collect();
            drift(&values).unwrap().p <= 0.01
        });
        drifts.count()
    };
    assert!(found(0.0) <= 12, "3 of 100 would be too many for a test at 1 %");
    assert!(found(0.1) >= 350);
}

/// The percentile bootstrap of the median, which is not used; its coverage is printed for comparison.
fn bootstrap(values: &[f64], rng: &mut Rng) -> Estimate {
    const RESAMPLES: usize = 1000;
    let resample =
        |rng: &mut Rng| (0..values.len()).map(|_| values[rng.below(values.len())]).collect::<Vec<_>>();
    let mut medians: Vec<f64> = (0..RESAMPLES).map(|_| median(&resample(rng)).unwrap()).collect();
    medians.sort_by(f64::total_cmp);
    let (low, high) = (medians[RESAMPLES / 40 - 1], medians[RESAMPLES - RESAMPLES / 40]);
    Estimate { median: median(values).unwrap(), low, high, n: values.len(), confidence: 0.95 }
}

/// Width of the signed-rank interval of a ratio on the logarithmic scale, relative to that of its median; the
/// mean of 2000 data sets.
fn relative_width(distribution: Distribution, n: usize) -> f64 {
    let mut rng = Rng::new(1963);
    let width = |estimate: Option<Estimate>| estimate.map(|e| (e.high / e.low).ln()).unwrap();
    let (mut signed, mut order) = (0.0, 0.0);
    for _ in 0..2000 {
        let ratios: Vec<f64> =
            (0..n).map(|_| distribution.draw(&mut rng) / distribution.draw(&mut rng)).collect();
        signed += width(ratio(&ratios));
        order += width(estimate(&ratios));
    }
    signed / order
}

#[test]
#[ignore = "long: make test-long"]
fn long_coverage_of_the_intervals() {
    println!(
        "| | n | median: order statistics | bootstrap | ratio: signed rank | order statistics | width |"
    );
    println!("|---|--:|--:|--:|--:|--:|--:|");
    for distribution in KNOWN {
        for n in SIZES {
            let ours = of_median(distribution, n, 20_000);
            let theirs = coverage(4000, distribution.true_median(), |rng| {
                let values = distribution.sample(n, rng);
                bootstrap(&values, rng)
            });
            let signed = of_ratio(distribution, n, 20_000, ratio);
            let order = of_ratio(distribution, n, 20_000, estimate);
            let [a, b, c, d] = [ours, theirs, signed, order].map(|share| 100.0 * share);
            let width = relative_width(distribution, n);
            println!("| {distribution:?} | {n} | {a:.1} % | {b:.1} % | {c:.1} % | {d:.1} % | {width:.2} |");
            assert!([ours, signed].iter().all(|share| (0.93..=0.97).contains(share)));
        }
    }
}

/// The signed-rank interval assumes that ratios are symmetric on the logarithmic scale. Here they are not:
/// one mode is exponential, the other one nearly constant.
#[test]
#[ignore = "long: make test-long"]
fn long_coverage_of_lopsided_ratios() {
    println!("| n | ratio, signed rank | ratio, order statistics |\n|--:|--:|--:|");
    for n in SIZES {
        let [signed, order] = [ratio, estimate].map(|of: fn(&[f64]) -> Option<Estimate>| {
            // The normal values are so close to 1 that the ratio's median is that of the exponential values.
            coverage(20_000, Exponential.true_median(), |rng| {
                let ratios: Vec<f64> = (0..n)
                    .map(|_| Exponential.draw(rng) / (0.9 + 0.1 * Distribution::Normal.draw(rng)))
                    .collect();
                of(&ratios).unwrap()
            })
        });
        println!("| {n} | {:.1} % | {:.1} % |", 100.0 * signed, 100.0 * order);
        assert!((0.93..=0.97).contains(&order));
    }
}

#[test]
#[ignore = "long: make test-long"]
fn long_errors_and_power_of_the_verdict() {
    println!("| noise | drift | rounds | equal: claims | 5 % faster: found | 10 % | 30 % | 2× |");
    println!("|---|--:|--:|--:|--:|--:|--:|--:|");
    for machine in machines() {
        for rounds in [5, 8, 10, 20] {
            let claims = 1.0 - machine.share(Verdict::NoDifference, 1.0, rounds, 2000);
            let found = [1.05, 1.1, 1.3, 2.0].map(|factor| {
                format!("{:.0} %", 100.0 * machine.share(Verdict::Better, factor, rounds, 500))
            });
            println!(
                "| {:?} | {:.0} % | {rounds} | {:.1} % | {} |",
                machine.noise,
                100.0 * machine.drift,
                100.0 * claims,
                found.join(" | ")
            );
            assert!(claims <= 0.03, "{machine:?}");
        }
    }
}

#[test]
#[ignore = "long: make test-long"]
fn long_how_often_innocent_values_are_named() {
    println!("| | n | sets with an outlier | sets with a drift at p ≤ 0.01 |\n|---|--:|--:|--:|");
    for distribution in KNOWN {
        for n in SIZES {
            let mut rng = Rng::new(1993);
            let sets: Vec<Vec<f64>> = (0..5000).map(|_| distribution.sample(n, &mut rng)).collect();
            let share = |of: &dyn Fn(&Vec<f64>) -> bool| {
                sets.iter().filter(|s| of(s)).count() as f64 / sets.len() as f64
            };
            let named = share(&|set| !outliers(set).is_empty());
            let drifts = share(&|set| drift(set).unwrap().p <= 0.01);
            println!("| {distribution:?} | {n} | {:.1} % | {:.1} % |", 100.0 * named, 100.0 * drifts);
            assert!(drifts <= 0.015);
        }
    }
}

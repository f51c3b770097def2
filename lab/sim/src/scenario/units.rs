//! Durations and distributions in scenario files.

use gleaner_proto::source_text::{nearest, proposal};

use crate::ids::Ns;
use crate::random::Dist;
use crate::spec::Quota;

/// Parses a time such as `200us` or `1.5s`.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be small and positive"
)]
pub(super) fn time(text: &str) -> Result<Ns, String> {
    const UNITS: [(&str, f64); 4] = [("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
    let unit = UNITS.into_iter().find_map(|(unit, ns)| Some((text.strip_suffix(unit)?, ns)));
    let ns = unit.and_then(|(number, ns)| Some(number.trim().parse::<f64>().ok()? * ns));
    // At most a day: anything longer is a typo.
    ns.filter(|ns| (0.0..=86_400e9).contains(ns))
        .map(|ns| ns as Ns)
        .ok_or_else(|| format!("`{text}` is not a time of at most a day, such as 200us, 1.5ms or 10s"))
}

/// Parses a quota as in the kernel's `cpu.max`, with units: CPU time, and a period of 100 ms if none is given.
pub(super) fn quota(text: &str) -> Result<Quota, String> {
    let mut times = text.split_whitespace();
    let (runtime, period) = (times.next().unwrap_or_default(), times.next().unwrap_or("100ms"));
    if times.next().is_some() {
        return Err(format!("`{text}` is not a quota; use CPU time and period, such as 150ms 100ms"));
    }
    Ok(Quota { runtime: time(runtime)?, period: time(period)? })
}

/// Parses a distribution: a time, or `exponential(MEAN)`, `uniform(LOW, HIGH)`, `lognormal(MEAN, CV)`.
pub(super) fn dist(text: &str) -> Result<Dist, String> {
    const KINDS: [&str; 3] = ["exponential", "uniform", "lognormal"];
    let Some((kind, rest)) = text.split_once('(') else { return time(text).map(Dist::Constant) };
    let (kind, arguments) = (kind.trim(), rest.trim().strip_suffix(')'));
    let arguments: Option<Vec<&str>> = arguments.map(|a| a.split(',').map(str::trim).collect());
    match (kind, arguments.as_deref()) {
        ("exponential", Some([mean])) => Ok(Dist::Exponential { mean: time(mean)? }),
        ("uniform", Some([low, high])) => {
            let (low, high) = (time(low)?, time(high)?);
            if low <= high {
                Ok(Dist::Uniform(low, high))
            } else {
                Err(format!("`{text}`: the first is larger"))
            }
        }
        ("lognormal", Some([mean, cv])) => {
            let cv = cv.parse().ok().filter(|cv: &f64| (0.0..=100.0).contains(cv));
            let cv = cv.ok_or_else(|| {
                format!("`{text}`: the second is the standard deviation over the mean, between 0 and 100")
            })?;
            Ok(Dist::LogNormal { mean: time(mean)?, cv })
        }
        _ if KINDS.contains(&kind) => {
            Err(format!("`{text}`: use exponential(MEAN), uniform(LOW, HIGH) or lognormal(MEAN, CV)"))
        }
        _ => Err(format!(
            "`{kind}` is not a distribution{}; there are exponential, uniform and lognormal",
            proposal(nearest(kind, KINDS.into_iter()))
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_distributions() {
        for (text, expected) in [
            ("40us", Dist::Constant(40_000)),
            ("exponential(40us)", Dist::Exponential { mean: 40_000 }),
            ("uniform( 1us , 2us )", Dist::Uniform(1_000, 2_000)),
            ("lognormal(1ms, 0.5)", Dist::LogNormal { mean: 1_000_000, cv: 0.5 }),
        ] {
            assert_eq!(dist(text), Ok(expected));
        }
        for (text, expected) in [
            ("exponental(1us)", "did you mean `exponential`?"),
            ("uniform(2us, 1us)", "the first is larger"),
            ("uniform(2us)", "uniform(LOW, HIGH)"),
            ("lognormal(2us, x)", "standard deviation"),
            ("exponential(soon)", "`soon` is not a time"),
            ("exponential(1us", "use exponential(MEAN)"),
        ] {
            let error = dist(text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn reads_quotas() {
        let read = |runtime, period| Ok(Quota { runtime, period });
        assert_eq!(quota("50ms"), read(50_000_000, 100_000_000));
        assert_eq!(quota(" 1.5s  1s"), read(1_500_000_000, 1_000_000_000));
        for (text, expected) in
            [("", "not a time"), ("50", "not a time"), ("1ms 2ms 3ms", "such as 150ms 100ms")]
        {
            let error = quota(text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn reads_units() {
        for (text, ns) in
            [("200us", 200_000), ("1.5s", 1_500_000_000), ("7 ms", 7_000_000), ("0s", 0), ("3ns", 3)]
        {
            assert_eq!(time(text), Ok(ns));
        }
        for text in ["", "10", "s", "-1s", "1h", "NaNs", "1e9s"] {
            assert!(time(text).is_err(), "{text}");
        }
    }
}

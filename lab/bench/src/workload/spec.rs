//! Descriptions and parameters of the workloads: the single source for validation, lists and documentation.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::{Kind, ParameterError, Parameters};
use gleaner_print::times::format_time;

/// Description and parameters of a workload.
#[derive(Debug)]
pub struct Spec {
    /// Name on the command line, in scenarios and in reports.
    pub name: &'static str,
    /// What it does, how its threads wait for each other, and what one operation is.
    pub about: &'static str,
    /// The ways to run it, the default first; a workload without kinds has a single one.
    pub variants: &'static [Variant],
}

/// One kind of a workload with its parameters.
#[derive(Debug)]
pub struct Variant {
    /// `None` if the workload has no kinds.
    pub kind: Option<Kind>,
    /// The supported numbers of threads.
    pub threads: Threads,
    /// `None` if it has no granularity.
    pub granularity: Option<Granularity>,
    /// What imbalance distributes unevenly; `None` if it has no imbalance.
    pub imbalance: Option<&'static str>,
}

/// The parameter `threads` of a workload.
#[derive(Debug)]
pub struct Threads {
    /// What is counted.
    pub counts: &'static str,
    /// Default value; `None` means one per vCPU that the process may use.
    pub default: Option<usize>,
    /// The supported numbers.
    pub range: RangeInclusive<usize>,
}

/// The parameter `granularity` of a workload.
#[derive(Debug)]
pub struct Granularity {
    /// What takes that long.
    pub of: &'static str,
    /// Default value.
    pub default: Duration,
    /// The supported times.
    pub range: RangeInclusive<Duration>,
}

/// More threads than this only measure the scheduler.
const MAX_THREADS: usize = 1024;

impl Threads {
    pub(super) const fn per_vcpu(counts: &'static str, least: usize) -> Self {
        Self { counts, default: None, range: least..=MAX_THREADS }
    }

    pub(super) const fn fixed(counts: &'static str, default: usize, least: usize) -> Self {
        Self { counts, default: Some(default), range: least..=MAX_THREADS }
    }

    /// The default on this machine.
    pub fn default_here(&self) -> usize {
        let here = || std::thread::available_parallelism().map_or(1, usize::from);
        self.default.unwrap_or_else(here).clamp(*self.range.start(), *self.range.end())
    }
}

impl Granularity {
    /// `default` in microseconds; up to 10 ms, so that a workload soon notices the end of its time.
    pub(super) const fn us(of: &'static str, default: u64) -> Self {
        let most = Duration::from_millis(10);
        Self { of, default: Duration::from_micros(default), range: Duration::ZERO..=most }
    }

    /// `default` in microseconds; up to 1 ms, if many pieces can be in progress when the time ends.
    pub(super) const fn up_to_1_ms(of: &'static str, default: u64) -> Self {
        let most = Duration::from_millis(1);
        Self { of, default: Duration::from_micros(default), range: Duration::ZERO..=most }
    }
}

/// The parameters of one run, complete and within their ranges.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Settings {
    /// `None` if the workload has no kinds.
    pub kind: Option<Kind>,
    /// Number of threads, as the workload counts them.
    pub threads: usize,
    /// Zero if the workload has no granularity.
    pub granularity: Duration,
    /// From 0 to 1; 0 if the workload has no imbalance.
    pub imbalance: f64,
}

impl Spec {
    /// Completes `parameters` with this workload's defaults.
    ///
    /// # Errors
    /// If the workload does not have a given parameter or kind, or a value is out of range.
    pub fn settings(&self, parameters: &Parameters) -> Result<Settings, ParameterError> {
        let variant = self.variant(parameters.kind)?;
        let (kind, name) = (variant.kind, variant.name(self.name));
        let threads = parameters.threads.unwrap_or_else(|| variant.threads.default_here());
        in_range(&name, "threads", &threads, &variant.threads.range, usize::to_string)?;

        let absent = |parameter| {
            let (workload, present) = (name.clone(), variant.parameters());
            ParameterError::Absent { workload, parameter, present }
        };
        let granularity = match (&variant.granularity, parameters.granularity) {
            (Some(own), asked) => {
                let time = asked.unwrap_or(own.default);
                in_range(&name, "granularity", &time, &own.range, |time| format_time(*time))?;
                time
            }
            (None, Some(_)) => return Err(absent("granularity")),
            (None, None) => Duration::ZERO,
        };
        let imbalance = match (variant.imbalance, parameters.imbalance) {
            (None, Some(_)) => return Err(absent("imbalance")),
            (_, asked) => asked.unwrap_or(0.0),
        };
        in_range(&name, "imbalance", &imbalance, &(0.0..=1.0), f64::to_string)?;
        Ok(Settings { kind, threads, granularity, imbalance })
    }

    /// The variant of this kind, or the default one.
    fn variant(&self, kind: Option<Kind>) -> Result<&Variant, ParameterError> {
        let wanted = |variant: &&Variant| kind.is_none() || variant.kind == kind;
        match (self.variants.iter().find(wanted), kind) {
            (Some(variant), _) => Ok(variant),
            (None, Some(kind)) if self.kinds().next().is_some() => {
                let present = self.kinds().map(Kind::name).collect::<Vec<_>>().join(", ");
                Err(ParameterError::AbsentKind { workload: self.name, kind, present })
            }
            (None, _) => {
                let present = self.variants.first().map_or_else(String::new, Variant::parameters);
                let workload = self.name.to_owned();
                Err(ParameterError::Absent { workload, parameter: "kind", present })
            }
        }
    }

    /// Its kinds, the default first; none if it has only one way to run.
    pub fn kinds(&self) -> impl Iterator<Item = Kind> + '_ {
        self.variants.iter().filter_map(|variant| variant.kind)
    }
}

impl Variant {
    /// The names of its parameters except the kind.
    fn parameters(&self) -> String {
        let granularity = self.granularity.as_ref().map(|_| "granularity");
        let imbalance = self.imbalance.map(|_| "imbalance");
        [Some("threads"), granularity, imbalance].into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    fn name(&self, workload: &str) -> String {
        self.kind.map_or_else(|| workload.to_owned(), |kind| format!("{workload} ({kind})"))
    }
}

fn in_range<T: PartialOrd>(
    workload: &str,
    parameter: &'static str,
    value: &T,
    range: &RangeInclusive<T>,
    show: impl Fn(&T) -> String,
) -> Result<(), ParameterError> {
    if range.contains(value) {
        return Ok(());
    }
    let (value, least, most) = (show(value), show(range.start()), show(range.end()));
    Err(ParameterError::OutOfRange { workload: workload.to_owned(), parameter, value, least, most })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_KINDS: Spec = Spec {
        name: "w",
        about: "",
        variants: &[
            Variant {
                kind: Some(Kind::Block),
                threads: Threads::fixed("threads", 3, 2),
                granularity: Some(Granularity::us("a phase", 50)),
                imbalance: Some("threads"),
            },
            Variant {
                kind: Some(Kind::Dedup),
                threads: Threads::per_vcpu("threads", 2),
                granularity: None,
                imbalance: None,
            },
        ],
    };

    const NO_KINDS: Spec = Spec {
        name: "plain",
        about: "",
        variants: &[Variant {
            kind: None,
            threads: Threads::per_vcpu("threads", 1),
            granularity: None,
            imbalance: None,
        }],
    };

    fn settings(spec: &Spec, parameters: &str) -> Result<Settings, String> {
        spec.settings(&parameters.parse().unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_not_said_is_the_default() {
        let granularity = Duration::from_micros(50);
        let expected = Settings { kind: Some(Kind::Block), threads: 3, granularity, imbalance: 0.0 };
        assert_eq!(settings(&TWO_KINDS, ""), Ok(expected));
        let expected = Settings { threads: 8, granularity: Duration::ZERO, imbalance: 1.0, ..expected };
        assert_eq!(settings(&TWO_KINDS, "threads=8 granularity=0us imbalance=1 kind=block"), Ok(expected));
        assert!(settings(&TWO_KINDS, "kind=dedup").unwrap().threads >= 2);
        assert_eq!(settings(&NO_KINDS, "threads=1").unwrap().kind, None);
    }

    #[test]
    fn errors_name_workload_parameter_and_range() {
        for (spec, parameters, message) in [
            (&TWO_KINDS, "threads=1", "workload w (block): threads = 1 is out of range; use 2 to 1024"),
            (&TWO_KINDS, "threads=1025", "workload w (block): threads = 1025 is out of range; use 2 to 1024"),
            (
                &TWO_KINDS,
                "granularity=11ms",
                "workload w (block): granularity = 11ms is out of range; use 0s to 10ms",
            ),
            (&TWO_KINDS, "imbalance=1.5", "workload w (block): imbalance = 1.5 is out of range; use 0 to 1"),
            (&TWO_KINDS, "imbalance=NaN", "workload w (block): imbalance = NaN is out of range; use 0 to 1"),
            (&TWO_KINDS, "kind=spin", "workload w has no kind spin; its kinds are block, dedup"),
            (
                &TWO_KINDS,
                "kind=dedup granularity=1us",
                "workload w (dedup) has no parameter granularity; it has threads",
            ),
            (&NO_KINDS, "imbalance=0", "workload plain has no parameter imbalance; it has threads"),
            (&NO_KINDS, "kind=spin", "workload plain has no parameter kind; it has threads"),
        ] {
            assert_eq!(settings(spec, parameters).unwrap_err(), message);
        }
    }
}

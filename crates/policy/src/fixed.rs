//! One setting as text, as `gleaner run --fixed` and the modes of a benchmark write it.

use std::str::FromStr;
use std::time::Duration;

use crate::{CpuSet, Method, Retention, Setting};

/// A setting relative to the vCPUs that the workload is allowed to use: `METHOD[:LIMITus]` and
/// `consolidate:N`, joined by `+`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fixed {
    /// The number of active vCPUs; `None` for all.
    consolidate: Option<usize>,
    retention: Retention,
}

impl Fixed {
    /// All vCPUs active, and idle ones halt.
    pub const UNTOUCHED: Self = Self { consolidate: None, retention: Retention::NONE };

    /// Whether `vcpus` vCPUs are enough for it.
    ///
    /// # Errors
    /// A sentence that names both numbers.
    pub fn fits(self, vcpus: usize) -> Result<(), String> {
        match self.consolidate {
            Some(n) if n > vcpus => Err(format!(
                "`consolidate:{n}` needs {n} vCPUs, but there {} only {vcpus}; use consolidate:1{}",
                if vcpus == 1 { "is" } else { "are" },
                if vcpus == 1 { String::new() } else { format!(" to consolidate:{vcpus}") },
            )),
            _ => Ok(()),
        }
    }

    /// The setting on the vCPUs `allowed`; the lowest ones stay active.
    ///
    /// # Errors
    /// It needs more vCPUs than there are, see [`Fixed::fits`].
    pub fn on(self, allowed: &CpuSet) -> Result<Setting, String> {
        self.fits(allowed.len())?;
        let n = self.consolidate.unwrap_or(allowed.len());
        Ok(Setting { active: allowed.iter().take(n).collect(), retention: self.retention })
    }
}

impl FromStr for Fixed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut fixed = Self { consolidate: None, retention: Retention::NONE };
        for part in text.split('+') {
            match part.split_once(':') {
                Some(("consolidate", n)) => {
                    let n = n.parse().ok().filter(|n| *n > 0);
                    fixed.consolidate = Some(n.ok_or_else(|| {
                        format!("`{part}`: consolidate:N needs a number of vCPUs, 1 or more")
                    })?);
                }
                Some((method, limit)) => {
                    fixed.retention = Retention { method: method.parse()?, limit: micros(limit)? }
                }
                None => fixed.retention = unlimited(part.parse()?)?,
            }
        }
        Ok(fixed)
    }
}

fn unlimited(method: Method) -> Result<Retention, String> {
    match method {
        Method::Halt | Method::QosPoll => Ok(Retention { method, limit: Duration::ZERO }),
        _ => Err(format!("`{method}` needs a limit, e.g. {method}:200us")),
    }
}

fn micros(text: &str) -> Result<Duration, String> {
    let number = text.strip_suffix("us").unwrap_or(text);
    let us: u64 = number.parse().map_err(|_| format!("`{text}` is not a limit such as 200us"))?;
    // The haltpoll governor's parameter is a 32-bit number of nanoseconds; a second is far beyond any use.
    if us == 0 || us > 1_000_000 {
        return Err(format!("`{text}`: a limit lies between 1us and 1000000us"));
    }
    Ok(Duration::from_micros(us))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_settings_and_names_what_is_wrong() {
        let all = CpuSet::first(4);
        let on = |text: &str| text.parse::<Fixed>().unwrap().on(&all).unwrap().to_string();
        assert_eq!(on("haltpoll:200us"), "vCPUs 0-3 with haltpoll:200us");
        assert_eq!(on("consolidate:1"), "vCPUs 0 with halt");
        assert_eq!(on("consolidate:2+qos-poll"), "vCPUs 0-1 with qos-poll");
        assert_eq!(on("consolidate:4"), "vCPUs 0-3 with halt");
        for (text, hint) in [
            ("haltpoll", "needs a limit"),
            ("consolidate:0", "1 or more"),
            ("warp", "is not a retention method"),
            ("haltpoll:x", "not a limit"),
            ("haltpoll:0us", "between"),
        ] {
            let error = text.parse::<Fixed>().unwrap_err();
            assert!(error.contains(hint), "{text}: {error}");
        }
    }

    #[test]
    fn more_vcpus_than_there_are_is_an_error_that_names_both() {
        let on = |text: &str, vcpus| text.parse::<Fixed>().unwrap().on(&CpuSet::first(vcpus)).unwrap_err();
        assert_eq!(
            on("consolidate:999", 2),
            "`consolidate:999` needs 999 vCPUs, but there are only 2; use consolidate:1 to consolidate:2"
        );
        assert!(on("haltpoll:50us+consolidate:2", 1).contains("there is only 1"));
    }
}

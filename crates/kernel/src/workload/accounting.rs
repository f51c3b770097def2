//! What a cgroup accounts in one file: user and system time, and throttling by a CPU quota.

use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::file::KernelFile;
use crate::stat::{ticks, user_tick};
use crate::{KernelError, Root};

/// How often and how long a CPU quota throttled a cgroup since its creation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Throttling {
    /// Quota periods that passed with the cgroup active (`nr_periods`).
    pub periods: u64,
    /// Periods in which it was throttled (`nr_throttled`).
    pub throttled: u64,
    /// Time throttled, summed over CPUs.
    pub time: Duration,
}

impl Throttling {
    /// Reads `cpu.stat` of a v1 `cpu` controller's directory or of a v2 one. `None` if the file is missing or
    /// has no quota counters, as in the root cgroup. Does not include the quotas of cgroups above.
    pub fn read(root: &Root, dir: &Path) -> Result<Option<Self>, KernelError> {
        let path = dir.join("cpu.stat");
        let Some(text) = root.read_opt(&path)? else { return Ok(None) };
        let bad = || KernelError::parse(root.path(&path), "`name number` on each line", &text);
        let number = |name| field(&text, name).ok_or_else(bad);
        let (Some(periods), Some(throttled)) = (number("nr_periods")?, number("nr_throttled")?) else {
            return Ok(None);
        };
        // Version 2 counts in us, version 1 in ns.
        let time = match number("throttled_usec")? {
            Some(us) => Duration::from_micros(us),
            None => Duration::from_nanos(number("throttled_time")?.unwrap_or_default()),
        };
        Ok(Some(Self { periods, throttled, time }))
    }

    /// The sums of both.
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            periods: self.periods + other.periods,
            throttled: self.throttled + other.throttled,
            time: self.time.saturating_add(other.time),
        }
    }
}

/// The number after `name` at the start of a line: `Some(None)` if no line has it, `None` if it is not a
/// number.
#[allow(clippy::option_option)] // absent and garbled are two things, and the caller's error names the file
fn field(text: &str, name: &str) -> Option<Option<u64>> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    match value {
        None => Some(None),
        Some(value) => value.trim().parse().ok().map(Some),
    }
}

/// User and system time of a cgroup since the first read.
#[derive(Debug)]
pub(super) struct CpuAccounting {
    file: KernelFile,
    /// Names of the two fields, and their unit.
    fields: (&'static str, &'static str, Duration),
    baseline: Option<(Duration, Duration)>,
    buffer: Vec<u8>,
}

impl CpuAccounting {
    pub(super) fn open(root: &Root, dir: &Path) -> Result<Self, KernelError> {
        // `cpuacct.stat`, since the finer `cpuacct.usage_user` is made of raw ticks, while this one is scaled
        // to the exact run time, like `/proc/PID/stat` and version 2.
        let v1 = dir.join("cpuacct.stat");
        let (path, fields) = if root.exists(&v1) {
            (v1, ("user", "system", user_tick()))
        } else {
            (dir.join("cpu.stat"), ("user_usec", "system_usec", Duration::from_micros(1)))
        };
        let file = KernelFile::open(root, path)?;
        let mut accounting = Self { file, fields, baseline: None, buffer: Vec::new() };
        accounting.read_absolute()?;
        Ok(accounting)
    }

    /// (user, system) since the first call.
    pub(super) fn read(&mut self) -> Result<(Duration, Duration), KernelError> {
        let (user, system) = self.read_absolute()?;
        let (user_base, system_base) = *self.baseline.get_or_insert((user, system));
        Ok((user.saturating_sub(user_base), system.saturating_sub(system_base)))
    }

    fn read_absolute(&mut self) -> Result<(Duration, Duration), KernelError> {
        let text = self.file.read_all(&mut self.buffer)?;
        let (user, system, unit) = self.fields;
        let time = |name| {
            field(text, name)
                .flatten()
                .map(|n| ticks(n, unit))
                .ok_or_else(|| KernelError::parse(self.file.path(), "user and system time", text))
        };
        Ok((time(user)?, time(system)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{fake, put};

    #[test]
    fn throttling_of_both_versions() {
        let (_dir, root) = fake();
        let read = |root: &Root| Throttling::read(root, Path::new("/cg"));
        assert_eq!(read(&root).unwrap(), None);
        put(&root, "/cg/cpu.stat", "nr_periods 9\nnr_throttled 4\nthrottled_time 3000\n");
        let expected = Throttling { periods: 9, throttled: 4, time: Duration::from_micros(3) };
        assert_eq!(read(&root).unwrap(), Some(expected));
        let v2 = "usage_usec 1\nuser_usec 1\nsystem_usec 0\nnr_periods 9\nnr_throttled 4\nthrottled_usec 3\n";
        put(&root, "/cg/cpu.stat", v2);
        assert_eq!(read(&root).unwrap(), Some(expected));
        put(&root, "/cg/cpu.stat", "usage_usec 1\nuser_usec 1\nsystem_usec 0\n");
        assert_eq!(read(&root).unwrap(), None, "a root cgroup has no quota");
        put(&root, "/cg/cpu.stat", "nr_periods many\n");
        assert!(read(&root).is_err());
    }

    #[test]
    fn times_of_both_versions_start_at_zero() {
        let (_dir, root) = fake();
        assert!(CpuAccounting::open(&root, Path::new("/v2")).is_err());
        put(&root, "/v1/cpuacct.stat", "user 100\nsystem 10\n");
        put(&root, "/v2/cpu.stat", "usage_usec 9\nuser_usec 5\nsystem_usec 4\n");
        let mut v1 = CpuAccounting::open(&root, Path::new("/v1")).unwrap();
        let mut v2 = CpuAccounting::open(&root, Path::new("/v2")).unwrap();
        assert_eq!(v1.read().unwrap(), (Duration::ZERO, Duration::ZERO));
        assert_eq!(v2.read().unwrap(), (Duration::ZERO, Duration::ZERO));
        put(&root, "/v1/cpuacct.stat", "user 103\nsystem 11\n");
        put(&root, "/v2/cpu.stat", "usage_usec 99\nuser_usec 35\nsystem_usec 14\n");
        assert_eq!(v1.read().unwrap(), (Duration::from_millis(30), Duration::from_millis(10)));
        assert_eq!(v2.read().unwrap(), (Duration::from_micros(30), Duration::from_micros(10)));
    }
}

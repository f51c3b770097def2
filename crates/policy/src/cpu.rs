//! CPU numbers and sets of them, in the kernel's list notation (`0-3,8`).

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The number of a logical CPU, as in `/sys/devices/system/cpu/cpuN`. In a guest: one vCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CpuId(pub u32);

impl fmt::Display for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A set of CPUs. Displays and parses as the kernel's CPU list format, e.g. `0-3,8`; the empty set is `""`.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuSet(BTreeSet<CpuId>);

/// A CPU list that is not in the kernel's format. The message quotes the invalid part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseCpuListError {
    part: String,
}

impl fmt::Display for ParseCpuListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` is not part of a CPU list such as `0-3,8`", self.part)
    }
}

impl std::error::Error for ParseCpuListError {}

impl CpuSet {
    /// The empty set.
    pub fn new() -> Self {
        Self::default()
    }

    /// The CPUs `0..n`.
    pub fn first(n: u32) -> Self {
        (0..n).map(CpuId).collect()
    }

    /// How many CPUs are in the set.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether no CPU is in the set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `cpu` is in the set.
    pub fn contains(&self, cpu: CpuId) -> bool {
        self.0.contains(&cpu)
    }

    /// Adds `cpu`; false if it was there already.
    pub fn insert(&mut self, cpu: CpuId) -> bool {
        self.0.insert(cpu)
    }

    /// Removes `cpu`; false if it was not there.
    pub fn remove(&mut self, cpu: CpuId) -> bool {
        self.0.remove(&cpu)
    }

    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = CpuId> + '_ {
        self.0.iter().copied()
    }

    /// The set as words of a sentence: `vCPUs 0-3`, or `no vCPU`.
    pub fn named(&self) -> String {
        if self.is_empty() { "no vCPU".to_owned() } else { format!("vCPUs {self}") }
    }

    /// The CPUs in both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.iter().filter(|c| other.contains(*c)).collect()
    }

    /// The CPUs in this set but not in `other`.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.iter().filter(|c| !other.contains(*c)).collect()
    }

    /// Whether every CPU of this set is in `other`.
    pub fn is_subset(&self, other: &Self) -> bool {
        self.0.is_subset(&other.0)
    }
}

impl FromIterator<CpuId> for CpuSet {
    fn from_iter<I: IntoIterator<Item = CpuId>>(iter: I) -> Self {
        Self(iter.into_iter().collect())
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.iter().map(|c| c.0).peekable();
        let mut separator = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while cpus.next_if_eq(&(last + 1)).is_some() {
                last += 1;
            }
            if first == last {
                write!(f, "{separator}{first}")?;
            } else {
                write!(f, "{separator}{first}-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

impl FromStr for CpuSet {
    type Err = ParseCpuListError;

    fn from_str(list: &str) -> Result<Self, Self::Err> {
        // The kernel's own limit is 8192 (NR_CPUS with MAXSMP); a larger number is a typo.
        const MAX: u32 = 8192;
        let mut set = BTreeSet::new();
        for part in list.trim().split(',').filter(|p| !p.trim().is_empty()) {
            let bad = || ParseCpuListError { part: part.trim().to_owned() };
            let (from, to) = part.trim().split_once('-').unwrap_or((part.trim(), part.trim()));
            let from: u32 = from.parse().map_err(|_| bad())?;
            let to: u32 = to.parse().map_err(|_| bad())?;
            if from > to || to >= MAX {
                return Err(bad());
            }
            set.extend((from..=to).map(CpuId));
        }
        Ok(Self(set))
    }
}

impl Serialize for CpuSet {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for CpuSet {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_and_writes_the_kernels_list_format() {
        let set: CpuSet = "0-3,8,10-11\n".parse().unwrap();
        assert_eq!(set.len(), 7);
        assert_eq!(set.to_string(), "0-3,8,10-11");
        assert_eq!("".parse::<CpuSet>().unwrap(), CpuSet::new());
    }

    #[test]
    fn names_the_wrong_part() {
        for (list, part) in [("0,x", "x"), ("3-1", "3-1"), ("0-99999", "0-99999"), ("1-", "1-")] {
            let error = list.parse::<CpuSet>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{part}`")), "{error}");
        }
    }

    proptest! {
        #[test]
        fn display_and_parse_are_inverse(cpus in proptest::collection::btree_set(0u32..500, 0..40)) {
            let set: CpuSet = cpus.into_iter().map(CpuId).collect();
            prop_assert_eq!(set.to_string().parse::<CpuSet>().unwrap(), set);
        }
    }
}

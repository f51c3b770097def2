//! The parameters of the module `kvm` (kernel: `virt/kvm/kvm_main.c`, Documentation/virt/kvm/halt-polling.rst).
//!
//! KVM keeps a limit per vCPU that no file shows. A halt that ends sooner than `halt_poll_ns`, but not while KVM polled,
//! raises it: from 0 to `grow_start`, then by the factor `grow`; a longer one divides it by `shrink` (0: sets it to 0). At
//! each halt it is cut to `halt_poll_ns`, so that a lower one is in force at once, and a higher one after a few halts.

use gleaner_kernel::Root;
use gleaner_kernel::lever::Write;
use gleaner_print::times;
use serde::{Deserialize, Serialize};

use crate::HostError;

const MODULE: &str = "/sys/module/kvm";

/// The parameters of halt polling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameters {
    /// The longest time for which KVM polls, in ns; 0: never.
    pub halt_poll_ns: u32,
    /// The factor by which a vCPU's limit grows; 0: it does not.
    pub grow: u32,
    /// What a vCPU's limit grows to from 0, in ns.
    pub grow_start: u32,
    /// The divisor by which it shrinks; 0: it is set to 0.
    pub shrink: u32,
}

fn path(name: &str) -> String {
    format!("{MODULE}/parameters/halt_poll_ns{name}")
}

impl Parameters {
    /// Reads them.
    ///
    /// # Errors
    /// KVM is not loaded, or a parameter is missing.
    pub fn read(root: &Root) -> Result<Self, HostError> {
        if !root.exists(MODULE) {
            return Err(HostError::NoKvm { path: root.path(MODULE).display().to_string() });
        }
        let number = |name: &str| root.parse(path(name), "a number of 32 bits");
        Ok(Self {
            halt_poll_ns: number("")?,
            grow: number("_grow")?,
            grow_start: number("_grow_start")?,
            shrink: number("_shrink")?,
        })
    }

    /// What these parameters mean, where that is not what one expects.
    pub fn caveats(&self) -> Vec<String> {
        let mut caveats = Vec::new();
        if self.halt_poll_ns > 0 && self.grow == 0 {
            caveats.push(
                "halt_poll_ns_grow is 0: the limits of vCPUs never grow, so that KVM hardly polls; write 2 to it"
                    .to_owned(),
            );
        }
        if self.halt_poll_ns > 0 && self.grow_start == 0 {
            caveats.push(
                "halt_poll_ns_grow_start is 0: the limits of vCPUs never grow; write 10000 to it".to_owned(),
            );
        }
        caveats
    }
}

/// New values for some of the parameters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Change {
    /// See [`Parameters::halt_poll_ns`].
    pub halt_poll_ns: Option<u32>,
    /// See [`Parameters::grow`].
    pub grow: Option<u32>,
    /// See [`Parameters::grow_start`].
    pub grow_start: Option<u32>,
    /// See [`Parameters::shrink`].
    pub shrink: Option<u32>,
}

impl Change {
    /// Of the limit alone.
    pub fn limit(ns: u32) -> Self {
        Self { halt_poll_ns: Some(ns), ..Self::default() }
    }

    /// The writes, the limit last: how it grows is in force before it can grow.
    pub fn writes(&self) -> Vec<Write> {
        let values = [
            ("_grow", self.grow),
            ("_grow_start", self.grow_start),
            ("_shrink", self.shrink),
            ("", self.halt_poll_ns),
        ];
        values
            .into_iter()
            .filter_map(|(name, value)| Some(Write::text(path(name), value?.to_string())))
            .collect()
    }
}

/// A limit as on the command line: a number of ns, or a time with its unit.
///
/// # Errors
/// It is neither, or does not fit into KVM's 32 bits.
pub fn parse_limit(text: &str) -> Result<u32, String> {
    let ns = match text.parse::<u64>() {
        Ok(ns) => u128::from(ns),
        Err(_) => times::parse_time(text).map_err(|error| format!("{error}, nor a number of ns"))?.as_nanos(),
    };
    u32::try_from(ns)
        .map_err(|_| format!("KVM's parameter has 32 bits: at most {} ns are possible", u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::halt_poll::testing::{KVM, kvm};
    use gleaner_testing::tree::tree;

    #[test]
    fn the_four_parameters_are_read_and_a_missing_one_is_named() {
        let (_dir, root) = kvm();
        let read = Parameters::read(&root).unwrap();
        assert_eq!(read, Parameters { halt_poll_ns: 200_000, grow: 2, grow_start: 10_000, shrink: 2 });
        assert!(read.caveats().is_empty());
        let dir = tree(&KVM[..2]);
        let error = Parameters::read(&Root::at(dir.path())).unwrap_err().to_string();
        assert!(error.contains("halt_poll_ns_grow_start"), "{error}");
        let dir = tree(&[]);
        assert!(matches!(Parameters::read(&Root::at(dir.path())), Err(HostError::NoKvm { .. })));
    }

    #[test]
    fn parameters_by_which_kvm_never_polls_are_named() {
        let never = Parameters { halt_poll_ns: 1, grow: 0, grow_start: 0, shrink: 0 };
        assert_eq!(never.caveats().len(), 2);
        assert!(Parameters { halt_poll_ns: 0, ..never }.caveats().is_empty(), "it is off anyway");
    }

    #[test]
    fn limits_have_units_and_fit_into_32_bits() {
        for (text, ns) in
            [("0", 0), ("200000", 200_000), ("5ns", 5), ("200us", 200_000), ("1.5ms", 1_500_000)]
        {
            assert_eq!(parse_limit(text), Ok(ns), "{text}");
        }
        for text in ["", "us", "-1", "200 us", "1h"] {
            assert!(parse_limit(text).unwrap_err().contains("nor a number of ns"), "{text}");
        }
        assert!(parse_limit("4294967296").is_err());
        assert!(parse_limit("5000ms").unwrap_err().contains("4294967295 ns"));
    }
}

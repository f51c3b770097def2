//! What can be chosen.

use gleaner_coordination::{UrgentConfig, VcpuPlacement};
use gleaner_kernel::Root;
use gleaner_kernel::lever::ThreadKey;

/// How the host is scheduled.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Rules of VMs that have none of their own.
    pub rules: UrgentConfig,
    /// VMs with rules of their own.
    pub vms: Vec<VmRules>,
    /// Where woken vCPUs go.
    pub placement: VcpuPlacement,
    /// Slice of whoever is not urgent, in ns. It ends with a tick.
    pub slice_ns: u64,
}

impl Options {
    /// Forgets VMs whose process has ended, so that another one of its number is not taken for it.
    pub fn forget_ended(&mut self, root: &Root) {
        self.vms.retain(|vm| vm.process.is_some() && ThreadKey::of(root, vm.pid).ok() == vm.process);
    }
}

/// A VM with rules of its own.
#[derive(Debug, Clone, PartialEq)]
pub struct VmRules {
    /// Process of its VMM.
    pub pid: u32,
    /// The one that had this number when the rules were made; `None`: there was none.
    pub process: Option<ThreadKey>,
    /// Its rules.
    pub rules: UrgentConfig,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            rules: UrgentConfig::PAPER,
            vms: Vec::new(),
            placement: VcpuPlacement::LoadConscious,
            slice_ns: 3_000_000,
        }
    }
}

/// Parses `resched-dp`, `tlb-co`, `resched-co`, some of them with commas between, or `off`. Times are those of `base`.
///
/// # Errors
/// A sentence with the names that there are.
pub fn parse_rules(text: &str, base: UrgentConfig) -> Result<UrgentConfig, String> {
    let mut rules = UrgentConfig { resched_dp_ns: 0, resched_co_ns: 0, tlb_co: false, ..base };
    if text == "off" {
        return Ok(rules);
    }
    for name in text.split(',') {
        match name {
            "resched-dp" => rules.resched_dp_ns = base.slice_ns,
            "resched-co" => rules.resched_co_ns = base.slice_ns,
            "tlb-co" => rules.tlb_co = true,
            other => {
                return Err(format!(
                    "`{other}` is no rule: use off, or resched-dp, tlb-co and resched-co with commas"
                ));
            }
        }
    }
    Ok(rules)
}

/// Parses a time with its unit: `500us`, `18ms`. Up to 1 s.
///
/// # Errors
/// A sentence that says what is expected.
pub fn parse_ns(text: &str) -> Result<u64, String> {
    let (digits, scale) = match text.strip_suffix("us") {
        Some(digits) => (digits, 1_000),
        None => (text.strip_suffix("ms").ok_or("a time with its unit is expected: 500us, 18ms")?, 1_000_000),
    };
    let number: u64 =
        digits.parse().map_err(|_| "a time with its unit is expected: 500us, 18ms".to_owned())?;
    number
        .checked_mul(scale)
        .filter(|ns| *ns <= 1_000_000_000)
        .ok_or_else(|| "at most 1000ms are allowed".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_named_and_switched_together() {
        let base = UrgentConfig { slice_ns: 300_000, ..UrgentConfig::OFF };
        let rules = parse_rules("tlb-co,resched-dp", base).unwrap();
        assert_eq!((rules.resched_dp_ns, rules.tlb_co, rules.resched_co_ns), (300_000, true, 0));
        assert_eq!(parse_rules("off", UrgentConfig { tlb_co: true, ..base }).unwrap(), base);
        assert!(parse_rules("tlb", base).unwrap_err().contains("tlb-co"));
    }

    #[test]
    fn rules_end_with_the_process_that_they_were_made_for() {
        let stat = |start: u64| format!("42 (qemu) S{} {start} 0", " 0".repeat(18));
        let (first, later) = (stat(1000), stat(2000));
        let dir = gleaner_testing::tree::tree(&[("proc/42/task/42/stat", first.as_str())]);
        let root = Root::at(dir.path());
        let vm = |pid| VmRules { pid, process: ThreadKey::of(&root, pid).ok(), rules: UrgentConfig::OFF };
        let mut options = Options { vms: vec![vm(42), vm(43)], ..Options::default() };
        options.forget_ended(&root);
        assert_eq!(options.vms, [vm(42)]);
        std::fs::write(dir.path().join("proc/42/task/42/stat"), later).unwrap();
        options.forget_ended(&root);
        assert_eq!(options.vms, []);
    }

    #[test]
    fn times_have_units() {
        assert_eq!(parse_ns("500us"), Ok(500_000));
        assert_eq!(parse_ns("18ms"), Ok(18_000_000));
        assert_eq!(parse_ns("0us"), Ok(0));
        for wrong in ["", "500", "ms", "-1us", "1001ms", "99999999999999999999us"] {
            assert!(parse_ns(wrong).is_err(), "{wrong}");
        }
    }
}

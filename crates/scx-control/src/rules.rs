//! Which interrupts make a vCPU urgent.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The rules of a VM: some of them with commas between, or `off`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rules {
    /// Resched-DP: the sender of a reschedule interrupt is not preempted for a while.
    pub resched_dp: bool,
    /// TLB-Co: the recipient of a TLB shootdown runs first until it has acknowledged.
    pub tlb_co: bool,
    /// Resched-Co: the recipient of a reschedule interrupt runs first for a while.
    pub resched_co: bool,
}

impl Rules {
    /// Nothing makes urgent.
    pub const OFF: Self = Self { resched_dp: false, tlb_co: false, resched_co: false };
    /// The paper's choice.
    pub const PAPER: Self = Self { resched_dp: true, tlb_co: true, resched_co: false };
}

impl FromStr for Rules {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut rules = Self::OFF;
        if text == "off" {
            return Ok(rules);
        }
        for name in text.split(',') {
            match name {
                "resched-dp" => rules.resched_dp = true,
                "tlb-co" => rules.tlb_co = true,
                "resched-co" => rules.resched_co = true,
                other => {
                    return Err(format!(
                        "`{other}` is no rule: use off, or resched-dp, tlb-co and resched-co with commas"
                    ));
                }
            }
        }
        Ok(rules)
    }
}

impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [(self.resched_dp, "resched-dp"), (self.tlb_co, "tlb-co"), (self.resched_co, "resched-co")];
        let names: Vec<&str> = all.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect();
        f.write_str(if names.is_empty() { "off".to_owned() } else { names.join(",") }.as_str())
    }
}

impl TryFrom<String> for Rules {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Rules> for String {
    fn from(rules: Rules) -> Self {
        rules.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_as_they_are_printed() {
        for bits in 0..8 {
            let rules = Rules { resched_dp: bits & 1 > 0, tlb_co: bits & 2 > 0, resched_co: bits & 4 > 0 };
            assert_eq!(rules.to_string().parse(), Ok(rules));
        }
        assert_eq!("tlb-co,resched-dp".parse(), Ok(Rules::PAPER));
        assert_eq!(Rules::OFF.to_string(), "off");
        for wrong in ["", "tlb", "off,tlb-co", "tlb-co,"] {
            assert!(wrong.parse::<Rules>().unwrap_err().contains("tlb-co"), "{wrong}");
        }
    }
}

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
    pub resched_co: ReschedCo,
}

/// When Resched-Co is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReschedCo {
    /// Never.
    #[default]
    Off,
    /// Always.
    On,
    /// While experiments show that it helps the VM.
    Auto,
}

impl Rules {
    /// Nothing makes urgent.
    pub const OFF: Self = Self { resched_dp: false, tlb_co: false, resched_co: ReschedCo::Off };
    /// The paper's choice.
    pub const PAPER: Self = Self { resched_dp: true, tlb_co: true, resched_co: ReschedCo::Off };
}

/// The names of what makes urgent, as in [`Rules`]' texts.
const RESCHED_DP: &str = "resched-dp";
const TLB_CO: &str = "tlb-co";
const RESCHED_CO: &str = "resched-co";
const RESCHED_CO_AUTO: &str = "resched-co-auto";

impl FromStr for Rules {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut rules = Self::OFF;
        if text == "off" {
            return Ok(rules);
        }
        for name in text.split(',') {
            match name {
                RESCHED_DP => rules.resched_dp = true,
                TLB_CO => rules.tlb_co = true,
                RESCHED_CO => rules.resched_co = ReschedCo::On,
                RESCHED_CO_AUTO => rules.resched_co = ReschedCo::Auto,
                other => {
                    return Err(format!(
                        "`{other}` is no rule: use off, or {RESCHED_DP}, {TLB_CO} and {RESCHED_CO} or {RESCHED_CO_AUTO} with \
                         commas"
                    ));
                }
            }
        }
        Ok(rules)
    }
}

impl fmt::Display for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let resched_co = match self.resched_co {
            ReschedCo::Off => None,
            ReschedCo::On => Some(RESCHED_CO),
            ReschedCo::Auto => Some(RESCHED_CO_AUTO),
        };
        let all = [self.resched_dp.then_some(RESCHED_DP), self.tlb_co.then_some(TLB_CO), resched_co];
        let names: Vec<&str> = all.into_iter().flatten().collect();
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
        for bits in 0..4 {
            for resched_co in [ReschedCo::Off, ReschedCo::On, ReschedCo::Auto] {
                let rules = Rules { resched_dp: bits & 1 > 0, tlb_co: bits & 2 > 0, resched_co };
                assert_eq!(rules.to_string().parse(), Ok(rules));
            }
        }
        assert_eq!("tlb-co,resched-dp".parse(), Ok(Rules::PAPER));
        assert_eq!(Rules::OFF.to_string(), "off");
        for wrong in ["", "tlb", "off,tlb-co", "tlb-co,", "resched-co=on"] {
            assert!(wrong.parse::<Rules>().unwrap_err().contains("tlb-co"), "{wrong}");
        }
    }
}

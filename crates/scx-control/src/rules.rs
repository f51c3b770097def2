//! Which interrupts make a vCPU urgent.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::vectors::{VectorSet, Vectors};

/// The rules of a VM: some of them with commas between, or `off`; and the vectors of its guest, if that is not Linux.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rules {
    /// Resched-DP: the sender of a reschedule interrupt is not preempted for a while.
    pub resched_dp: bool,
    /// TLB-Co: the recipient of a TLB shootdown runs first until it has acknowledged.
    pub tlb_co: bool,
    /// With TLB-Co: the sender of a TLB shootdown keeps its pCPU while it waits for answers.
    pub tlb_wait: bool,
    /// Resched-Co: the recipient of a reschedule interrupt runs first for a while.
    pub resched_co: ReschedCo,
    /// How its guest uses its vectors.
    pub vectors: Vectors,
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
    pub const OFF: Self = Self {
        resched_dp: false,
        tlb_co: false,
        tlb_wait: false,
        resched_co: ReschedCo::Off,
        vectors: Vectors::LINUX,
    };
    /// The paper's choice.
    pub const PAPER: Self = Self { resched_dp: true, tlb_co: true, ..Self::OFF };
}

/// The names of what makes urgent, as in [`Rules`]' texts.
const OFF: &str = "off";
const RESCHED_DP: &str = "resched-dp";
const TLB_CO: &str = "tlb-co";
const TLB_WAIT: &str = "tlb-wait";
const RESCHED_CO: &str = "resched-co";
const RESCHED_CO_AUTO: &str = "resched-co-auto";
/// The same of vectors.
const LINUX: &str = "linux";
const FREEBSD: &str = "freebsd";
const RESCHEDULE: &str = "reschedule:";
const SHOOTDOWN: &str = "shootdown:";

impl FromStr for Rules {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut rules = Self::OFF;
        let mut off = false;
        for name in text.split(',') {
            if let Some(vectors) = name.strip_prefix(RESCHEDULE) {
                rules.vectors.reschedule = VectorSet::parse(vectors)?;
                continue;
            }
            if let Some(vectors) = name.strip_prefix(SHOOTDOWN) {
                rules.vectors.shootdown = VectorSet::parse(vectors)?;
                continue;
            }
            match name {
                OFF => off = true,
                LINUX => rules.vectors = Vectors::LINUX,
                FREEBSD => rules.vectors = Vectors::FREEBSD,
                RESCHED_DP => rules.resched_dp = true,
                TLB_CO => rules.tlb_co = true,
                TLB_WAIT => rules.tlb_wait = true,
                RESCHED_CO => rules.resched_co = ReschedCo::On,
                RESCHED_CO_AUTO => rules.resched_co = ReschedCo::Auto,
                other => {
                    return Err(format!(
                        "`{other}` is no rule: use {OFF}, or {RESCHED_DP}, {TLB_CO}, {TLB_WAIT} and {RESCHED_CO} or \
                         {RESCHED_CO_AUTO} with commas; and {FREEBSD}, {RESCHEDULE}F8 or {SHOOTDOWN}F4+F5 for a guest that is \
                         not Linux"
                    ));
                }
            }
        }
        if off && (Self { vectors: Vectors::LINUX, ..rules }) != Self::OFF {
            return Err(format!(
                "{OFF} leaves no room for {RESCHED_DP}, {TLB_CO} or another rule: leave one out"
            ));
        }
        if rules.tlb_wait && !rules.tlb_co {
            return Err(format!("{TLB_WAIT} is for senders whose recipients run first: add {TLB_CO}"));
        }
        if let Some(vector) = rules.vectors.reschedule.common(&rules.vectors.shootdown) {
            return Err(format!(
                "vector {vector:x} would be of both kinds: give {RESCHEDULE} and {SHOOTDOWN} others"
            ));
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
        let rules = [
            self.resched_dp.then_some(RESCHED_DP),
            self.tlb_co.then_some(TLB_CO),
            self.tlb_wait.then_some(TLB_WAIT),
            resched_co,
        ];
        let mut names: Vec<String> = rules.into_iter().flatten().map(str::to_owned).collect();
        if names.is_empty() {
            names.push(OFF.to_owned());
        }
        let Vectors { reschedule, shootdown } = self.vectors;
        match self.vectors {
            Vectors::LINUX => {}
            Vectors::FREEBSD => names.push(FREEBSD.to_owned()),
            _ => names.extend([format!("{RESCHEDULE}{reschedule}"), format!("{SHOOTDOWN}{shootdown}")]),
        }
        f.write_str(&names.join(","))
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
        let own = Vectors { reschedule: VectorSet::of(&[0x20, 0xff]), shootdown: VectorSet::default() };
        for (bits, vectors) in (0..8).zip([Vectors::LINUX, Vectors::FREEBSD, own].into_iter().cycle()) {
            for resched_co in [ReschedCo::Off, ReschedCo::On, ReschedCo::Auto] {
                let tlb_co = bits & 2 > 0;
                let tlb_wait = tlb_co && bits & 4 > 0;
                let rules = Rules { resched_dp: bits & 1 > 0, tlb_co, tlb_wait, resched_co, vectors };
                assert_eq!(rules.to_string().parse(), Ok(rules));
            }
        }
        let named = "tlb-co,reschedule:f8,shootdown:f6+f4+f5".parse::<Rules>().unwrap();
        assert_eq!(named.to_string(), "tlb-co,freebsd");
        assert_eq!("freebsd".parse::<Rules>().unwrap().to_string(), "off,freebsd");
        assert_eq!("tlb-co,resched-dp".parse(), Ok(Rules::PAPER));
        assert_eq!(Rules::OFF.to_string(), "off");
        for wrong in ["", "tlb", "off,tlb-co", "tlb-co,", "resched-co=on"] {
            assert!(wrong.parse::<Rules>().unwrap_err().contains("tlb-co"), "{wrong}");
        }
        for (wrong, named) in [
            ("tlb-wait", "add tlb-co"),
            ("reschedule:fb", "vector fb would be of both kinds"),
            ("shootdown:f", "`f` is no vector"),
            ("shootdown:100", "`100` is no vector"),
            ("reschedule:", "`` is no vector"),
        ] {
            let error = wrong.parse::<Rules>().unwrap_err();
            assert!(error.contains(named), "{wrong}: {error}");
        }
    }
}

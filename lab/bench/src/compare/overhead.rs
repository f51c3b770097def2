//! Virtualisation overhead by Schildermans et al. (*Virtualization Overhead of Multithreading in X86*, IEEE
//! TPDS 32(10), 2021): `δη_t` and `δη_r` of §3, ω of §5.2, in the scenarios of §4.3.

use std::fmt;

use serde::Serialize;

use crate::stats::{Estimate, unpaired_ratio};

/// `δη_t` (§3.2): how much longer the workload takes virtualised than native, as a share. Both times `t` (any
/// unit) are weighted by `gamma`, the ideal effective number of CPUs available to the workload.
pub fn temporal(t_virtual: f64, gamma_virtual: f64, t_native: f64, gamma_native: f64) -> f64 {
    (t_virtual * gamma_virtual - t_native * gamma_native) / (t_native * gamma_native)
}

/// `δη_r` (§3.1): how many more cycles the workload costs virtualised than native, as a share.
pub fn resources(c_virtual: f64, c_native: f64) -> f64 {
    (c_virtual - c_native) / c_native
}

/// ω (§5.2), the overhead impact factor: how much of the cycle overhead shows in the time.
pub fn impact(temporal: f64, resources: f64) -> f64 {
    (1.0 + temporal) / (1.0 + resources)
}

/// What runs concurrently on both sides of a comparison (§4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scenario {
    /// Undercommitted: one virtualised instance, one native.
    Uc,
    /// Overcommitted: two virtualised instances share the CPUs; one native instance has them alone.
    Oc,
    /// Overcommitted base 2: two virtualised instances, two native.
    Oc2,
}

impl Scenario {
    /// All scenarios, in the paper's order.
    pub const ALL: [Self; 3] = [Self::Uc, Self::Oc, Self::Oc2];

    /// Number of instances that share the CPUs: virtualised, native.
    const fn instances(self) -> (f64, f64) {
        match self {
            Self::Uc => (1.0, 1.0),
            Self::Oc => (2.0, 1.0),
            Self::Oc2 => (2.0, 2.0),
        }
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Uc => "UC",
            Self::Oc => "OC",
            Self::Oc2 => "OC2",
        })
    }
}

/// One side's measurements of a workload.
#[derive(Debug, Clone, PartialEq)]
pub struct Side {
    /// Time per sample in seconds, per unit of work or in total.
    pub time_s: Vec<f64>,
    /// CPU seconds per sample, spent by the *whole system* on that work. They stand for the paper's cycles.
    pub cpu_s: Vec<f64>,
    /// CPUs of the system: γ of a workload that has them alone.
    pub cpus: usize,
}

/// A share with its 95 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Share {
    /// Point estimate.
    pub value: f64,
    /// Lower bound.
    pub low: f64,
    /// Upper bound.
    pub high: f64,
}

/// The overhead of one workload in one scenario.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Overhead {
    /// The scenario.
    pub scenario: Scenario,
    /// `δη_t`; 0.5 is half as long again.
    pub delta_eta_t: Share,
    /// `δη_r`; 0.5 is half as many cycles again.
    pub delta_eta_r: Share,
    /// ω, the overhead impact factor.
    pub omega: Share,
}

impl Overhead {
    /// Compares the two sides by their typical ratios. `None` if one of them has no samples.
    pub fn new(scenario: Scenario, virtualised: &Side, native: &Side) -> Option<Self> {
        let (shared_by, native_shared_by) = scenario.instances();
        // γ of one instance (§4.3), and its share of the system's cycles.
        let gamma = |side: &Side, instances: f64| side.cpus as f64 / instances;
        let (gamma_v, gamma_p) = (gamma(virtualised, shared_by), gamma(native, native_shared_by));
        let time = unpaired_ratio(&virtualised.time_s, &native.time_s)?;
        let cpu = unpaired_ratio(&virtualised.cpu_s, &native.cpu_s)?;
        let delta_eta_t = share(&time, |ratio| temporal(ratio, gamma_v, 1.0, gamma_p));
        let delta_eta_r = share(&cpu, |ratio| resources(ratio / shared_by, 1.0 / native_shared_by));
        let value = impact(delta_eta_t.value, delta_eta_r.value);
        // Time and CPU of a sample vary together, so the interval is that of their quotient.
        let scale = gamma_v / gamma_p * shared_by / native_shared_by;
        let quotient = unpaired_ratio(&quotients(virtualised), &quotients(native))?;
        let omega =
            Share { value, low: value.min(quotient.low * scale), high: value.max(quotient.high * scale) };
        Some(Self { scenario, delta_eta_t, delta_eta_r, omega })
    }
}

fn share(ratio: &Estimate, of: impl Fn(f64) -> f64) -> Share {
    Share { value: of(ratio.median), low: of(ratio.low), high: of(ratio.high) }
}

fn quotients(side: &Side) -> Vec<f64> {
    side.time_s.iter().zip(&side.cpu_s).map(|(time, cpu)| time / cpu).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-12
    }

    /// §3 and §5.2: 12 s and 60 Gcycles in a VM, 10 s and 40 Gcycles native, 4 CPUs each.
    #[test]
    fn the_formulas_of_section_3() {
        let (t, r) = (temporal(12.0, 4.0, 10.0, 4.0), resources(60.0, 40.0));
        assert!(close(t, 0.2) && close(r, 0.5) && close(impact(t, r), 0.8));
        // Half of the CPUs and twice the time: no overhead.
        assert!(close(temporal(20.0, 2.0, 10.0, 4.0), 0.0));
    }

    fn side(time_s: f64, cpu_s: f64) -> Side {
        Side { time_s: vec![time_s; 10], cpu_s: vec![cpu_s; 10], cpus: 4 }
    }

    /// §4.3: native alone 10 s and 36 CPU seconds; two native instances 19 s and 70 in total; a VM 12 s and
    /// 45; two VMs 18 s and 84 in total, half for each.
    #[test]
    fn the_scenarios_of_section_4_3() {
        let (native, native_two) = (side(10.0, 36.0), side(19.0, 70.0));
        let (vm, vm_two) = (side(12.0, 45.0), side(18.0, 84.0));

        let uc = Overhead::new(Scenario::Uc, &vm, &native).unwrap();
        assert!(close(uc.delta_eta_t.value, 0.2), "(12·4 − 10·4) / (10·4): {uc:?}");
        assert!(close(uc.delta_eta_r.value, 0.25), "(45 − 36) / 36: {uc:?}");
        assert!(close(uc.omega.value, 0.96), "1.2 / 1.25: {uc:?}");

        let oc = Overhead::new(Scenario::Oc, &vm_two, &native).unwrap();
        assert!(close(oc.delta_eta_t.value, -0.1), "(18·2 − 10·4) / (10·4): {oc:?}");
        assert!(close(oc.delta_eta_r.value, 1.0 / 6.0), "(84/2 − 36) / 36: {oc:?}");
        assert!(close(oc.omega.value, 0.9 / (7.0 / 6.0)), "{oc:?}");

        let oc2 = Overhead::new(Scenario::Oc2, &vm_two, &native_two).unwrap();
        assert!(close(oc2.delta_eta_t.value, -1.0 / 19.0), "(18·2 − 19·2) / (19·2): {oc2:?}");
        assert!(close(oc2.delta_eta_r.value, 0.2), "(84/2 − 70/2) / (70/2): {oc2:?}");
        assert!(close(oc2.omega.value, 18.0 / 19.0 / 1.2), "{oc2:?}");
        // Equal samples have zero-width intervals.
        assert!(close(oc2.omega.low, oc2.omega.value) && close(oc2.omega.high, oc2.omega.value), "{oc2:?}");
    }

    #[test]
    fn intervals_enclose_what_they_are_of() {
        let vary = |scale: f64| (0..10).map(|i| scale * (1.0 + 0.01 * f64::from(i))).collect::<Vec<_>>();
        let native = Side { time_s: vary(10.0), cpu_s: vary(36.0), cpus: 4 };
        let vm = Side { time_s: vary(12.0), cpu_s: vary(45.0), cpus: 4 };
        let o = Overhead::new(Scenario::Uc, &vm, &native).unwrap();
        for share in [o.delta_eta_t, o.delta_eta_r, o.omega] {
            assert!(share.low <= share.value && share.value <= share.high, "{o:?}");
        }
        assert!(o.delta_eta_t.low < 0.2 && o.delta_eta_t.high > 0.2, "{o:?}");
        // Both times vary with their CPU seconds, so ω hardly varies.
        assert!(o.omega.high - o.omega.low < 1e-9, "{o:?}");
        assert!(Overhead::new(Scenario::Uc, &Side { time_s: vec![], ..vm }, &native).is_none());
    }
}

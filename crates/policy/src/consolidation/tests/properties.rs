//! Properties of any run.

use proptest::prelude::*;

use super::*;

/// One period of any workload: work, granularity, idle length, the busiest vCPU and the guard's finding.
fn any_period() -> impl Strategy<Value = (f64, u64, u64, f64, u8)> {
    (0.0f64..=1.0, 1u64..10_000, 1u64..100_000, 0.0f64..=1.0, 0u8..8)
}

proptest! {
    #[test]
    fn any_run_keeps_the_invariants(
        all in 1usize..9,
        periods in proptest::collection::vec(any_period(), 1..60),
    ) {
        let mut c = fresh(all);
        let (mut active, mut steps) = (all, Vec::new());
        for (busy, g_us, idle_us, max, guard) in periods {
            let before = c.factors;
            let m = Measurement {
                max_utilization: max.max(busy),
                ..measured(active, busy, Duration::from_micros(g_us), Duration::from_micros(idle_us))
            };
            if guard == 1 {
                c.approve();
            }
            let mut then = None;
            if guard == 0 {
                then = c.reject(if g_us % 2 == 0 { Finding::Harm } else { Finding::NoGain });
                if then.is_some() {
                    prop_assert!(active < all);
                    active = steps.pop().unwrap();
                }
            } else {
                match c.step(&m, None) {
                    Advice::Keep => {}
                    Advice::Consolidate { to, .. } => {
                        prop_assert!(to > 0 && to < active);
                        steps.push(active);
                        active = to;
                    }
                    Advice::RestoreAll(_) => {
                        steps.clear();
                        active = all;
                    }
                }
            }
            let after = c.factors;
            prop_assert!(Factors::new(after.rho, after.eta).is_ok());
            prop_assert!(after.rho <= before.rho && after.eta <= before.eta);
            prop_assert!(after == before || matches!(then, Some(AfterRollBack::Adjusted(_))));
        }
    }

    #[test]
    fn a_roll_back_forbids_what_justified_it(
        all in 2usize..9,
        // Load and pieces are large enough to keep the shrunk factor above its floor.
        busy in 0.02f64..0.5,
        g_us in 10u64..1_000,
        longer in 1u64..200,
        overloaded: bool,
    ) {
        let config = ConsolidationConfig::default();
        let g_comp = Duration::from_micros(g_us);
        let m = measured(all, busy, g_comp, g_comp * u32::try_from(longer).unwrap());
        let mut factors = Factors::default();
        prop_assume!(conditions(&m, &factors, &config).hold());
        factors.shrink(&m, overloaded);
        prop_assert!(!conditions(&m, &factors, &config).hold());
    }
}

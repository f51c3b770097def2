//! Properties of any run.

use proptest::prelude::*;

use super::*;

/// One period of any machine, plausible or not: idle, polled and stolen time by vCPU, with counts.
fn any_period() -> impl Strategy<Value = Observation> {
    let ms = || (0u64..300).prop_map(Duration::from_millis);
    let vcpu = (ms(), ms(), ms(), 0u64..10_000, 0u64..10_000);
    let workload = (ms(), 0u64..10_000, 0u32..50);
    (ms(), proptest::collection::vec(vcpu, 0..5), workload, ms()).prop_map(
        |(period, vcpus, (cpu_time, switches, threads), cost)| Observation {
            at: period,
            period,
            vcpus: (0..)
                .zip(vcpus)
                .map(|(cpu, (halt_time, poll_time, steal, halts, polls))| VcpuInterval {
                    cpu: CpuId(cpu),
                    halts,
                    halt_time,
                    polls,
                    poll_time,
                    steal,
                })
                .collect(),
            workload: WorkloadInterval { cpu_time, switches, threads, ..WorkloadInterval::default() },
            runnable: 0,
            overload: None,
            throttled: 0.0,
            settled: true,
            cost,
        },
    )
}

proptest! {
    #[test]
    fn any_run_keeps_the_invariants(periods in proptest::collection::vec(any_period(), 1..60)) {
        let mut paper = fresh(4);
        for o in periods {
            let (before, factors) = (paper.setting(), paper.factors);
            let decision = paper.step(&o);
            let now = decision.setting;
            prop_assert!(!now.active.is_empty() && now.active.is_subset(&paper.allowed));
            prop_assert_eq!(now.retention, before.retention);
            prop_assert!((PERIOD..=LONGEST_PERIOD).contains(&decision.next));
            prop_assert!(paper.factors.rho <= factors.rho && paper.factors.eta <= factors.eta);
            prop_assert!(Factors::new(paper.factors.rho, paper.factors.eta).is_ok());
            match &decision.events[..] {
                [] => prop_assert_eq!(now, before),
                [Event::Consolidated { active, .. }] => {
                    prop_assert_eq!(&now.active, active);
                    prop_assert_eq!(now.active.len() + 1, before.active.len());
                }
                [Event::RolledBack { active, .. }] => {
                    prop_assert_eq!(&now.active, active);
                    prop_assert_eq!(now.active.len(), before.active.len() + 1);
                }
                [Event::MajorChange { .. } | Event::AllowedChanged { .. }] => {
                    prop_assert_eq!(&now.active, &paper.allowed);
                }
                events => prop_assert!(false, "{:?}", events),
            }
        }
    }
}

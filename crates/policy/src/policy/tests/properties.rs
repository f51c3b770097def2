//! What holds for any sequence of observations.

use std::time::Duration;

use proptest::prelude::*;

use super::world::{alone, assert_same, config};
use crate::{
    CpuId, CpuSet, Evidence, KnownLoad, KnownRetention, KnownVcpus, Method, Observation, Policy,
    PolicyConfig, Retention, Signal, Sockets, VcpuInterval, WorkloadInterval,
};

fn micros(max: u64) -> impl Strategy<Value = Duration> {
    (0..max).prop_map(Duration::from_micros)
}

/// One vCPU over at most `period` µs.
fn vcpu(cpu: u32, period: u64) -> impl Strategy<Value = VcpuInterval> {
    let count = prop_oneof![Just(0), 0..50u64, 0..500_000u64];
    (count.clone(), micros(period / 2 + 1), count, micros(period / 2 + 1), micros(period + 1)).prop_map(
        move |(halts, halt_time, polls, poll_time, steal)| VcpuInterval {
            cpu: CpuId(cpu),
            halts,
            halt_time,
            polls,
            poll_time,
            // Most machines have no steal most of the time.
            steal: if steal.as_micros() % 4 == 0 { steal } else { Duration::ZERO },
        },
    )
}

fn workload(period: u64) -> impl Strategy<Value = WorkloadInterval> {
    let fields = (
        micros(4 * period + 1),
        0.0..=1.0f64,
        micros(64 * period + 1),
        prop_oneof![0..100u64, 0..1_000_000u64],
        proptest::option::of(0..1u64 << 40),
        proptest::option::of(0.0..1e9f64),
        proptest::option::of(0..1u64 << 40),
        0..1000u32,
    );
    fields.prop_map(|(cpu_time, user, run_delay, switches, moved_bytes, counter, sent, threads)| {
        WorkloadInterval {
            cpu_time,
            user_time: cpu_time.mul_f64(user),
            run_delay,
            switches,
            moved_bytes,
            counter,
            sockets: sent.map(|bytes| Sockets { messages: bytes / 100, bytes }),
            threads,
            ..WorkloadInterval::default()
        }
    })
}

/// An observation of some of four vCPUs; its time is filled in by [`sequence`].
pub(crate) fn observation() -> impl Strategy<Value = Observation> {
    let period = prop_oneof![1..2_000u64, 2_000..50_000u64, 50_000..2_000_000u64];
    let present = prop_oneof![4 => Just(0b1111u32), 1 => 0..16u32];
    (period, present).prop_flat_map(|(us, present)| {
        let vcpus: Vec<_> = (0..4).filter(|cpu| present >> cpu & 1 == 1).map(|cpu| vcpu(cpu, us)).collect();
        let throttled = prop_oneof![9 => Just(0.0), 1 => 0.0..=1.0f64];
        let settled = prop_oneof![9 => Just(true), 1 => Just(false)];
        (vcpus, workload(us), 0..40u32, throttled, settled, micros(200_000)).prop_map(
            move |(vcpus, workload, runnable, throttled, settled, cost)| Observation {
                at: Duration::ZERO,
                period: Duration::from_micros(us),
                vcpus,
                workload,
                runnable,
                overload: None,
                throttled,
                settled,
                cost,
            },
        )
    })
}

/// Observations in sequence. Each is repeated, since a trial starts only under a steady load.
fn sequence() -> impl Strategy<Value = Vec<Observation>> {
    proptest::collection::vec((observation(), 1..12usize), 1..25).prop_map(|runs| {
        let mut at = Duration::ZERO;
        let mut all: Vec<_> = runs.into_iter().flat_map(|(o, n)| std::iter::repeat_n(o, n)).collect();
        for o in &mut all {
            at += o.period;
            o.at = at;
        }
        all
    })
}

/// Anything that a memory file can hold, plausible or not.
fn known() -> impl Strategy<Value = KnownLoad> {
    let load = prop_oneof![4 => 0.0..2.0f64, 1 => any::<f64>()];
    let evidence = Evidence { signal: Signal::Moved, ratio: 2.0, low: 1.9, high: 2.1, pairs: 2 };
    let retention = proptest::option::of((0..Method::ALL.len(), micros(1_000_000)));
    let vcpus = proptest::option::of((0..6usize, any::<u32>()));
    let refuted = prop_oneof![Just(0), 0..4u32, any::<u32>()];
    let all = (load, retention, vcpus, refuted.clone(), refuted);
    all.prop_map(move |(load, retention, vcpus, refuted, refuted_vcpus)| KnownLoad {
        load,
        retention: retention.map(|(m, limit)| KnownRetention {
            setting: Retention { method: Method::ALL[m], limit },
            evidence,
        }),
        vcpus: vcpus.map(|(active, runnable)| KnownVcpus { active, runnable, evidence }),
        refuted,
        refuted_vcpus,
    })
}

pub(crate) fn any_config() -> impl Strategy<Value = PolicyConfig> {
    let known = proptest::collection::vec(known(), 0..4);
    (0..Method::ALL.len(), any::<bool>(), known).prop_map(|(m, consolidate, known)| PolicyConfig {
        method: Method::ALL[m],
        consolidate,
        known,
        ..config()
    })
}

proptest! {
    #[test]
    fn every_decision_can_be_carried_out_and_is_repeatable(config in any_config(), seen in sequence()) {
        let mut policy = Policy::new(config.clone(), CpuSet::first(4)).unwrap();
        let mut twin = Policy::new(config.clone(), CpuSet::first(4)).unwrap();
        let mut alone = alone(&config, &CpuSet::first(4));
        let mut allowed = CpuSet::first(4);
        for o in &seen {
            // An observation without vCPUs does not change the allowed ones.
            if !o.vcpus.is_empty() {
                allowed = o.allowed();
            }
            let decision = policy.step(o);
            prop_assert!(!decision.setting.active.is_empty());
            prop_assert!(decision.setting.active.is_subset(&allowed), "{decision:?} {allowed}");
            prop_assert!(decision.next > Duration::ZERO && decision.next <= Duration::from_secs(10), "{decision:?}");
            prop_assert!(config.consolidate || decision.setting.active == allowed);
            prop_assert!(config.method != Method::Halt || !decision.setting.retention.is_on());
            if let Some(alone) = &mut alone {
                assert_same(alone, o, &decision);
            }
            prop_assert_eq!(decision, twin.step(o));
        }
        for learned in policy.learned() {
            prop_assert!(learned.known.load.is_finite(), "{learned:?}");
        }
    }
}

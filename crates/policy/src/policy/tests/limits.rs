//! What the user forbids does not happen.

use super::SECOND;
use super::workloads::{convoy, mariadb, pipe, redis_1};
use super::world::{World, config};
use crate::{CpuSet, Event, Method, Mode, PolicyConfig, Retention, Setting};

#[test]
fn a_dry_run_changes_nothing_and_says_what_it_would_try() {
    let mut w = World::new(PolicyConfig { mode: Mode::DryRun, ..config() }, 2, redis_1);
    w.run(10 * SECOND);
    let untouched = w.untouched();
    assert!(w.slices.iter().all(|s| s.setting == untouched));
    assert!(w.events.iter().all(|(_, e)| matches!(e, Event::WouldTry { .. })), "{:?}", w.events);
    let says = |e: &Event| matches!(e, Event::WouldTry { candidate, .. } if candidate.retention.is_on());
    assert!((2..20).contains(&w.events.iter().filter(|(_, e)| says(e)).count()), "{:?}", w.events);
}

#[test]
fn a_fixed_setting_is_held() {
    let fixed = Setting {
        active: CpuSet::first(1),
        retention: Retention { method: Method::Haltpoll, limit: std::time::Duration::from_micros(50) },
    };
    for workload in [redis_1, convoy] {
        let mut w = World::new(PolicyConfig { mode: Mode::Fixed(fixed.clone()), ..config() }, 2, workload);
        w.steal = 0.5;
        w.run(2 * SECOND);
        assert!(w.slices.iter().all(|s| s.setting == fixed));
        assert_eq!(w.events, []);
    }
}

#[test]
fn without_a_method_nothing_is_retained() {
    let halt = PolicyConfig { method: Method::Halt, ..config() };
    let mut w = World::new(halt, 2, pipe);
    w.run(5 * SECOND);
    assert!(w.slices.iter().all(|s| !s.setting.retention.is_on()));
}

#[test]
fn without_consolidation_every_vcpu_stays_active() {
    for workload in [pipe, redis_1, mariadb] {
        let mut w = World::new(PolicyConfig { consolidate: false, ..config() }, 2, workload);
        w.run(5 * SECOND);
        assert!(w.slices.iter().all(|s| s.setting.active == w.allowed));
        assert!(w.setting().retention.is_on());
    }
}

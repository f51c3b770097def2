//! Several workloads on a modelled machine: what they settle on, how soon, and what finding out costs.

mod first_help;
mod machine;
mod properties;
mod retention;
mod sets;

use std::time::Duration;

use self::machine::Machine;
use crate::policy::tests::workloads::{Rates, Workload, compute_1, convoy, idle_daemon, mariadb, redis_1};
use crate::policy::tests::world::config;
use crate::{Event, PolicyConfig, ReleaseReason, Setting, WorkloadId};

const SECOND: Duration = Duration::from_secs(1);

/// Without smaller sets.
fn retaining() -> PolicyConfig {
    PolicyConfig { consolidate: false, ..config() }
}

/// A machine with these workloads, which are only retained.
fn machine(vcpus: u32, workloads: &[Workload]) -> (Machine, Vec<WorkloadId>) {
    let mut m = Machine::new(vcpus);
    let ids = workloads.iter().map(|w| m.join_with(retaining(), *w)).collect();
    (m, ids)
}

/// Two threads that pass messages and compute little in between: on one vCPU they pass a third more.
fn chatter(s: &Setting) -> Rates {
    let (load, switches) = if s.active.len() == 1 { (0.35, 13e3) } else { (0.3, 10e3) };
    Rates {
        load,
        user_share: 0.3,
        switches,
        idle_periods: switches / 2.0,
        run_delay: 0.0,
        runnable: 1,
        moved_bytes: Some(100.0 * switches),
        progress: switches,
    }
}

impl Machine {
    /// Why retention ended for a workload, and when.
    fn released(&self, id: WorkloadId) -> Vec<(Duration, ReleaseReason)> {
        let of = |(at, e): &(Duration, Event)| match e {
            Event::Released { why } => Some((*at, *why)),
            _ => None,
        };
        self.guests[&id].events.iter().filter_map(of).collect()
    }

    /// When trials of a workload started.
    fn trials(&self, id: WorkloadId) -> Vec<Duration> {
        let started = |e: &Event| matches!(e, Event::TrialStarted { .. });
        self.guests[&id].events.iter().filter(|(_, e)| started(e)).map(|(at, _)| *at).collect()
    }

    /// What happened, for a test that fails.
    fn account(&self) -> String {
        let line = |id: &WorkloadId, at: &Duration, e: &Event| match e {
            Event::TrialStarted { candidate, purpose, .. } => {
                format!("{id} {at:?} TrialStarted {purpose:?} {candidate}\n")
            }
            Event::TrialEnded { candidate, purpose, verdict, kept, again_at } => {
                format!(
                    "{id} {at:?} TrialEnded {purpose:?} {candidate} -> {kept}, again {again_at:?}, {verdict:?}\n"
                )
            }
            e => format!("{id} {at:?} {e:?}\n"),
        };
        let mut all: Vec<_> =
            self.guests.iter().flat_map(|(id, g)| g.events.iter().map(move |(at, e)| (id, at, e))).collect();
        all.sort_by_key(|(_, at, _)| *at);
        all.into_iter().map(|(id, at, e)| line(id, at, e)).collect()
    }
}

#[test]
fn thirty_two_services_of_which_two_matter_serve_the_two() {
    let mut m = Machine::new(8);
    let mut ids = vec![m.join(redis_1)];
    (0..30).for_each(|_| ids.push(m.join(idle_daemon)));
    ids.push(m.join(mariadb));
    let both =
        |m: &Machine| [ids[0], ids[31]].iter().all(|id| m.guests[id].progress > 0.0) && m.retained > SECOND;
    let took = m.run_until(5 * SECOND, both);
    assert!(took.is_some(), "{}", m.account());
    m.count_anew();
    m.run(10 * SECOND);
    assert!(m.of_untouched(ids[0]) > 3.4 && m.of_untouched(ids[31]) > 2.5, "{}", m.account());
    assert!(ids[1..31].iter().all(|id| m.trials(*id).is_empty()), "{}", m.account());
}

#[test]
fn thirty_two_of_all_kinds_under_noise_gain_or_lose_nothing() {
    let mut m = Machine::new(16);
    m.noise_level = 0.1;
    let (mut gain, mut others) = (Vec::new(), Vec::new());
    for _ in 0..4 {
        gain.push(m.join_with(retaining(), redis_1));
        gain.push(m.join_with(retaining(), mariadb));
        others.push(m.join_with(retaining(), compute_1));
        others.extend((0..5).map(|_| m.join_with(retaining(), idle_daemon)));
    }
    m.run(5 * SECOND);
    m.count_anew();
    m.run(20 * SECOND);
    assert!(gain.iter().all(|id| m.of_untouched(*id) > 2.3), "{}", m.account());
    assert!(others.iter().all(|id| m.of_untouched(*id) > 0.98), "{}", m.account());
}

#[test]
fn a_convoy_among_many_keeps_retention_off() {
    let mut m = Machine::new(16);
    let ids: Vec<_> =
        (0..8).map(|i| m.join_with(retaining(), if i == 5 { convoy } else { redis_1 })).collect();
    m.run(60 * SECOND);
    assert!(m.of_untouched(ids[5]) > 0.98, "{}", m.of_untouched(ids[5]));
    assert!(m.retained < 2 * SECOND, "{:?}", m.retained);
}

//! A test for each sentence of §4, §5 and §6 that states a rule. The top of `paper.rs` says how they are read.

mod changes;
mod properties;
mod roll_back;

use super::*;
use crate::retention::VetoGate;
use crate::{ConsolidationConfig, Mode, Policy, VcpuInterval, Veto, WorkloadInterval};

const US: Duration = Duration::from_micros(1);

fn config() -> PolicyConfig {
    PolicyConfig {
        mode: Mode::Paper,
        method: Method::Yield,
        wake_cost: US * 40,
        consolidation: ConsolidationConfig { drop_tolerance: 0.05, ..ConsolidationConfig::default() },
        ..PolicyConfig::default()
    }
}

fn fresh(vcpus: u32) -> Paper {
    Paper::new(config(), CpuSet::first(vcpus)).unwrap()
}

/// A load as seen on the active vCPUs.
#[derive(Clone, Copy)]
struct Load {
    /// CPU time per second, in vCPUs.
    total: f64,
    g_comp: Duration,
    l_idle: Duration,
}

/// Short pieces between longer idle periods: both conditions hold as long as the load fits.
const fn light(total: f64) -> Load {
    Load { total, g_comp: Duration::from_micros(10), l_idle: Duration::from_micros(100) }
}

/// The next period under `paper`'s setting on `vcpus` vCPUs, with the load spread evenly over the active ones.
fn period(paper: &Paper, vcpus: u32, load: Load) -> Observation {
    let active = paper.setting().active;
    let busy = (load.total / active.len() as f64).min(1.0);
    let idle = PERIOD.mul_f64(1.0 - busy);
    let count = |time: Duration, each: Duration| u64::try_from(time.as_nanos() / each.as_nanos()).unwrap();
    let vcpu = |cpu| {
        let (idle, periods) =
            if active.contains(cpu) { (idle, count(idle, load.l_idle)) } else { (PERIOD, 1) };
        VcpuInterval {
            cpu,
            halts: 0,
            halt_time: Duration::ZERO,
            polls: periods,
            poll_time: idle,
            steal: Duration::ZERO,
        }
    };
    let cpu_time = PERIOD.mul_f64(busy * active.len() as f64);
    Observation {
        at: PERIOD,
        period: PERIOD,
        vcpus: CpuSet::first(vcpus).iter().map(vcpu).collect(),
        workload: WorkloadInterval {
            cpu_time,
            switches: count(cpu_time, load.g_comp),
            threads: 8,
            ..WorkloadInterval::default()
        },
        runnable: 1,
        overload: None,
        throttled: 0.0,
        settled: true,
        cost: Duration::ZERO,
    }
}

/// Lets one period pass; returns the decision.
fn pass(paper: &mut Paper, load: Load) -> Option<Event> {
    let vcpus = u32::try_from(paper.allowed.len()).unwrap();
    let o = period(paper, vcpus, load);
    paper.step(&o).events.pop()
}

/// The same, with the first vCPU `busy`.
fn pass_with(paper: &mut Paper, load: Load, busy: f64) -> Option<Event> {
    let vcpus = u32::try_from(paper.allowed.len()).unwrap();
    let mut o = period(paper, vcpus, load);
    o.vcpus[0].poll_time = PERIOD.mul_f64(1.0 - busy);
    paper.step(&o).events.pop()
}

fn active(paper: &Paper) -> usize {
    paper.setting().active.len()
}

/// Four vCPUs consolidated to two, settled there by a load whose pieces no longer fit.
fn settled() -> (Paper, Load) {
    let mut paper = fresh(4);
    pass(&mut paper, light(0.8));
    pass(&mut paper, light(0.8));
    let load = Load { total: 0.8, g_comp: US * 200, l_idle: US * 100 };
    assert_eq!((pass(&mut paper, load), active(&paper)), (None, 2));
    (paper, load)
}

// §4.1: idling is bounded, so that a vCPU that stays idle is given back to the layer below. §6: the time-out is
// what giving it back would cost.
#[test]
fn the_time_out_of_retention_is_the_cost_of_the_transitions() {
    assert_eq!(fresh(2).setting().retention, Retention { method: Method::Yield, limit: US * 40 });
}

// §5: retention manages short idle periods, consolidation the long ones: both are in force together.
#[test]
fn active_vcpus_are_retained_from_the_start_and_on_every_set() {
    let mut paper = fresh(4);
    let retention = paper.setting().retention;
    assert!(retention.is_on());
    for _ in 0..6 {
        pass(&mut paper, light(0.8));
        assert_eq!(paper.setting().retention, retention);
    }
    assert!(active(&paper) < 4);
}

// §5: threads that compute longer than the minimum time slice are not consolidated; their idle periods are
// retained.
#[test]
fn long_computation_is_retained_and_not_consolidated() {
    let mut paper = fresh(4);
    let coarse = Load { total: 0.4, g_comp: US * 3100, l_idle: US * 30_000 };
    for _ in 0..5 {
        assert_eq!(pass(&mut paper, coarse), None);
    }
    assert!(active(&paper) == 4 && paper.setting().retention.is_on());
    let shorter = Load { g_comp: US * 2500, ..coarse };
    assert!(matches!(pass(&mut paper, shorter), Some(Event::Consolidated { .. })));
}

// §4.2: imbalanced scheduling needs several vCPUs.
#[test]
fn a_single_vcpu_is_retained_and_stays_active() {
    let mut paper = fresh(1);
    assert_eq!(pass(&mut paper, light(0.0)), None);
    assert_eq!(pass(&mut paper, light(0.3)), None);
    assert!(active(&paper) == 1 && paper.setting().retention.is_on());
}

// §5: l_comp is the computation between two idle periods of a vCPU, g_comp that between two synchronisation
// points of a thread, l_idle the length of an idle period. §6: they are T_work/S_yield, T_work/S_work and
// T_idle/S_yield.
#[test]
fn the_three_lengths_come_from_times_and_switches_of_the_active_vcpus() {
    let paper = fresh(2);
    let mut o = period(&paper, 2, light(1.0));
    // An inactive vCPU is not measured.
    o.vcpus.push(VcpuInterval { cpu: CpuId(7), polls: 1_000_000, poll_time: PERIOD * 9, ..o.vcpus[0] });
    let m = Sample::of(&o, &CpuSet::first(2)).measured;
    assert_eq!((m.t_work, m.t_idle), (PERIOD, PERIOD));
    assert_eq!((m.s_work, m.s_idle), (10_000, 1000));
    assert_eq!((m.l_comp(), m.g_comp(), m.l_idle()), (Some(US * 100), Some(US * 10), Some(US * 100)));
}

// §5: the utilisation monitored is the workload's, not that of other programs or of the host.
#[test]
fn stolen_time_and_other_programs_are_no_utilisation_of_the_workload() {
    let paper = fresh(2);
    let mut o = period(&paper, 2, light(1.0));
    for v in &mut o.vcpus {
        v.poll_time = PERIOD / 10;
        v.steal = PERIOD * 3 / 10;
    }
    let m = Sample::of(&o, &CpuSet::first(2)).measured;
    assert!((m.utilization - 0.5).abs() < 1e-9, "{}", m.utilization);
    assert!((m.max_utilization - 0.6).abs() < 1e-9, "{}", m.max_utilization);
}

// §5: the active vCPUs are reduced one at a time, while both conditions hold.
#[test]
fn vcpus_become_inactive_one_at_a_time_while_both_conditions_hold() {
    let mut paper = fresh(4);
    let mut sets = Vec::new();
    for _ in 0..5 {
        pass(&mut paper, light(0.8));
        sets.push(paper.setting().active.to_string());
    }
    // On one vCPU there are no others to take its computation.
    assert_eq!(sets, ["0-2", "0-1", "0", "0", "0"]);
}

// §5, condition 1: the computation of one vCPU must fit into the idle time of the N-1 others, times ρ.
#[test]
fn condition_1_wants_idle_time_for_one_vcpus_computation_on_the_others() {
    // On 4 vCPUs, 3 others with 10 % idle each have room for 30 % of one: 90 % do not fit.
    assert_eq!(pass(&mut fresh(4), light(3.6)), None);
    assert!(matches!(pass(&mut fresh(4), light(2.9)), Some(Event::Consolidated { .. })));
    let mut strict = config();
    strict.consolidation.rho = 0.5;
    let mut paper = Paper::new(strict, CpuSet::first(4)).unwrap();
    assert_eq!(pass(&mut paper, light(2.9)), None);
}

// §5, condition 2: the pieces must fit into an idle period, times η.
#[test]
fn condition_2_wants_pieces_that_fit_into_an_idle_period() {
    let load = |g_us: u32| Load { total: 0.8, g_comp: US * g_us, l_idle: US * 100 };
    assert_eq!(pass(&mut fresh(4), load(101)), None);
    assert!(matches!(pass(&mut fresh(4), load(99)), Some(Event::Consolidated { .. })));
    let mut strict = config();
    strict.consolidation.eta = 0.5;
    let mut paper = Paper::new(strict, CpuSet::first(4)).unwrap();
    assert_eq!(pass(&mut paper, load(99)), None);
}

// §5: the measurements are updated periodically. A shorter interval says nothing; an expensive sample comes
// less often.
#[test]
fn only_whole_periods_decide_and_sampling_has_a_budget() {
    let mut paper = fresh(2);
    let mut o = period(&paper, 2, light(0.4));
    o.period = PERIOD / 10;
    let decision = paper.step(&o);
    assert_eq!((decision.next, decision.events, active(&paper)), (PERIOD, Vec::new(), 2));
    o.cost = Duration::from_millis(20);
    assert_eq!(paper.step(&o).next, Duration::from_secs(2));
    o.cost = Duration::from_secs(20);
    assert_eq!(paper.step(&o).next, LONGEST_PERIOD);
}

// §4.1 and §5 have no veto, no guard and no trial.
#[test]
fn steal_and_a_quota_end_nothing_and_nothing_is_tried() {
    let mut paper = fresh(2);
    let mut o = period(&paper, 2, light(0.4));
    o.throttled = 0.5;
    o.vcpus.iter_mut().for_each(|v| v.steal = PERIOD / 2);
    assert!(matches!(VetoGate::default().step(0.0, o.throttled), Some(Veto::Throttled { .. })));
    let decision = paper.step(&o);
    assert!(decision.setting.retention.is_on() && decision.watch.is_none() && !decision.reset_poll_limits);
    assert!(matches!(decision.events[..], [Event::Consolidated { .. }]), "{:?}", decision.events);
}

#[test]
fn other_allowed_vcpus_are_all_active() {
    let (mut paper, base) = settled();
    let before = paper.clone();
    let mut o = period(&before, 6, base);
    let decision = paper.step(&o);
    assert!(matches!(decision.events[..], [Event::AllowedChanged { .. }]));
    assert_eq!(decision.setting.active, CpuSet::first(6));
    o.vcpus.clear();
    assert_eq!(paper.step(&o).setting.active, CpuSet::first(6), "none at all is a sensor's mistake");
}

#[test]
fn what_the_user_forbids_is_not_done() {
    for forbid in
        [PolicyConfig { consolidate: false, ..config() }, PolicyConfig { most_threads: 7, ..config() }]
    {
        let mut paper = Paper::new(forbid, CpuSet::first(2)).unwrap();
        assert_eq!((pass(&mut paper, light(0.2)), active(&paper)), (None, 2));
    }
    let mut paper = Paper::new(PolicyConfig { method: Method::Halt, ..config() }, CpuSet::first(2)).unwrap();
    assert!(matches!(pass(&mut paper, light(0.2)), Some(Event::Consolidated { .. })));
    assert_eq!(paper.setting().retention, Retention::NONE);
}

#[test]
fn the_policy_under_mode_paper_is_the_paper() {
    let mut policy = Policy::new(config(), CpuSet::first(4)).unwrap();
    let mut paper = fresh(4);
    for total in [0.8, 0.8, 1.2, 0.2, 0.2, 0.2] {
        let o = period(&paper, 4, light(total));
        assert_eq!(policy.step(&o), paper.step(&o));
        assert_eq!(policy.setting(), paper.setting());
    }
}

#[test]
fn the_conditions_of_the_event_are_those_that_held() {
    let mut paper = fresh(4);
    let measured = Sample::of(&period(&paper, 4, light(0.8)), &CpuSet::first(4)).measured;
    let expected = conditions(&measured, &Factors::default(), &ConsolidationConfig::default());
    let Some(Event::Consolidated { cpu, active, conditions }) = pass(&mut paper, light(0.8)) else {
        panic!()
    };
    assert_eq!((cpu, active, conditions), (CpuId(3), CpuSet::first(3), expected));
}

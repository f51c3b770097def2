//! Properties that hold on every machine: the same seed gives the same events; time is neither lost nor
//! created; no runnable thread is starved; nobody gets more than a fair share.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

use gleaner_coordination::{UrgentConfig, VcpuPlacement};
use gleaner_policy::Method;
use gleaner_sim::library::{self, Parameters};
use gleaner_sim::{
    Category, Coscheduling, Costs, DirectedYield, End, Fair, HostSpec, IdleMode, Ns, PauseLoops, Quota,
    Report, Spec, UrgentRules, VmSpec, World,
};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const MS: Ns = 1_000_000;

/// A machine with one to three VMs that run any programs of the library.
fn machines() -> impl Strategy<Value = Spec> {
    let names: Vec<&'static str> = library::names().collect();
    let method = prop::sample::select(Method::ALL.to_vec());
    let quota = (1..30_u64, 1..20_u64)
        .prop_map(|(runtime, period)| Quota { runtime: runtime * MS, period: period * MS });
    let quota = prop::option::weighted(0.3, quota);
    let vm = (1_u32..6, prop::sample::select(names), method, any::<bool>(), any::<[bool; 3]>(), quota);
    let host = (
        1_u32..3,
        1_u32..4,
        1_u32..3,
        any::<bool>(),
        prop::sample::select(vec![
            VcpuPlacement::Uncoordinated,
            VcpuPlacement::Balance,
            VcpuPlacement::LoadConscious,
        ]),
        any::<bool>(),
        prop::sample::select(vec![DirectedYield::Off, DirectedYield::RoundRobin, DirectedYield::IpiAware]),
    );
    (host, prop::collection::vec(vm, 1..4), any::<u64>()).prop_map(|(host, vms, seed)| {
        let (sockets, cores, smt, eevdf, placement, urgent, yielding) = host;
        let host = HostSpec {
            sockets,
            cores,
            smt,
            fair: if eevdf { Fair::EEVDF } else { Fair::CFS },
            placement,
            urgent: UrgentRules {
                on_send: if urgent { UrgentConfig::PAPER } else { UrgentConfig::OFF },
                early: urgent && smt == 2,
            },
            yielding,
            pause_loops: if eevdf { PauseLoops::Early } else { PauseLoops::Late },
            ..HostSpec::default()
        };
        let vms = vms.into_iter().enumerate().map(|(index, (vcpus, name, method, host_polls, pv, quota))| {
            let program = library::make(name, Parameters { threads: 0, work: 0, grain: 0 }, vcpus).unwrap();
            let mut vm = VmSpec::new(&format!("vm{index}"), vcpus, Costs::ATC14_VM).running(program);
            vm.idle = IdleMode { method, limit: if method == Method::Halt { 0 } else { 100_000 } };
            vm.halt_poll_max = if host_polls { 200_000 } else { 0 };
            [vm.pv_tlb, vm.pv_lock, vm.wake_queue] = pv;
            vm.halted_is_preempted = !vm.pv_tlb;
            vm.shares = if host_polls { 1024 } else { 64 };
            vm.quota = quota;
            vm
        });
        let mut spec = Spec::new(host, vms.collect());
        spec.seed = seed;
        spec.time_limit = 60 * MS;
        spec
    })
}

fn run(spec: &Spec) -> (World, Report) {
    let mut world = World::new(spec).unwrap();
    world.record(20_000);
    world.run();
    let report = world.report();
    (world, report)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn the_same_seed_gives_the_same_events_to_the_byte(spec in machines()) {
        let (first, report) = run(&spec);
        let (second, again) = run(&spec);
        prop_assert_eq!(&report, &again);
        prop_assert_eq!(first.digest(), second.digest());
        prop_assert_eq!(first.export(), second.export());
    }

    #[test]
    fn time_is_conserved_on_every_vcpu_and_pcpu(spec in machines()) {
        let (_, report) = run(&spec);
        prop_assert_eq!(report.elapsed, 60 * MS);
        for vcpu in report.vms.iter().flat_map(|vm| &vm.vcpus) {
            prop_assert_eq!(vcpu.time.iter().sum::<Ns>(), report.elapsed);
            // A pause-loop exit needs a window of 1.7 us of spinning in the kernel, including the idle loop.
            let spun: Ns =
                [Category::LockSpin, Category::TlbSpin, Category::Poll].map(|c| vcpu.time[c as usize]).iter().sum();
            prop_assert!(vcpu.counts.pause_exits * 1_700 <= spun + 1_700, "{} in {spun} ns", vcpu.counts.pause_exits);
        }
        for pcpu in &report.pcpus {
            prop_assert_eq!(pcpu.guest + pcpu.overhead + pcpu.polling + pcpu.idle, report.elapsed);
        }
    }
}

/// For properties that hold within a tolerance: a fixed set of cases, since rare ones can exceed it.
fn fixed(cases: u32) -> ProptestConfig {
    ProptestConfig { cases, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(fixed(96))]

    #[test]
    fn no_wake_up_is_lost_and_no_thread_is_forgotten(mut spec in machines()) {
        // Long enough for everyone to get a turn.
        spec.time_limit = 300 * MS;
        let (world, report) = run(&spec);
        // None of the library's programs can deadlock: if one does, a wake-up was lost.
        prop_assert_eq!(world.end(), Some(&End::TimeLimit));
        for vm in &report.vms {
            let cpu: Ns = vm.tasks.iter().map(|t| t.totals.cpu).sum();
            prop_assert!(cpu > 0, "{} did not run at all", vm.name);
        }
    }

    #[test]
    fn no_pcpu_is_idle_while_plain_computation_waits(
        vcpus in prop::collection::vec(1_u32..6, 1..4),
        cores in 1_u32..5,
        placement in prop::sample::select(vec![VcpuPlacement::Uncoordinated, VcpuPlacement::LoadConscious]),
    ) {
        let host = HostSpec { cores, placement, ..HostSpec::default() };
        let vm = |(index, vcpus): (usize, &u32)| {
            let matmul = library::make("matmul", Parameters { threads: 0, work: 0, grain: 0 }, *vcpus).unwrap();
            VmSpec::new(&format!("vm{index}"), *vcpus, Costs::ATC14_VM).running(matmul)
        };
        let mut spec = Spec::new(host, vcpus.iter().enumerate().map(vm).collect());
        spec.time_limit = 500 * MS;
        let (_, report) = run(&spec);
        let busy = vcpus.iter().sum::<u32>().min(cores);
        let idle: Ns = report.pcpus.iter().map(|p| p.idle).sum();
        let allowed = u64::from(cores - busy) * report.elapsed;
        prop_assert!(idle <= allowed + MS, "{idle} idle, {allowed} expected");
    }

    #[test]
    fn equal_vms_get_equal_time(vms in 2_u32..5, cores in 1_u32..4, eevdf in any::<bool>()) {
        let fair = if eevdf { Fair::EEVDF } else { Fair::CFS };
        let host = HostSpec { cores, fair, ..HostSpec::default() };
        let matmul = library::make("matmul", Parameters { threads: 0, work: 0, grain: 0 }, cores).unwrap();
        let vm = |i| VmSpec::new(&format!("vm{i}"), cores, Costs::ATC14_VM).running(matmul.clone());
        let mut spec = Spec::new(host, (0..vms).map(vm).collect());
        spec.time_limit = 2_000 * MS;
        let (_, report) = run(&spec);
        let shares: Vec<Ns> = report.vms.iter().map(|vm| vm.tasks[0].totals.cpu).collect();
        let (least, most) = (*shares.iter().min().unwrap(), *shares.iter().max().unwrap());
        prop_assert!(least as f64 > 0.85 * most as f64, "{shares:?}");
    }
}

proptest! {
    #![proptest_config(fixed(24))]

    #[test]
    fn time_follows_the_shares(cores in 1_u32..5, heavier in 1_u64..5, base in prop::sample::select(vec![64_u64, 1024])) {
        let host = HostSpec { cores, ..HostSpec::default() };
        let matmul = library::make("matmul", Parameters { threads: 0, work: 0, grain: 0 }, cores).unwrap();
        let vm = |name: &str, shares| {
            VmSpec { shares, ..VmSpec::new(name, cores, Costs::ATC14_VM).running(matmul.clone()) }
        };
        let mut spec = Spec::new(host, vec![vm("light", base), vm("heavy", heavier * base)]);
        spec.time_limit = 3_000 * MS;
        let (_, report) = run(&spec);
        let [light, heavy] = [0, 1].map(|i: usize| report.vms[i].tasks[0].totals.cpu as f64);
        let ratio = heavy / light;
        // Slices end at ticks, so shares are only accurate to a few ticks.
        prop_assert!((ratio / heavier as f64 - 1.0).abs() < 0.3, "{ratio} for shares of {heavier}");
    }
}

#[test]
fn strict_coscheduling_runs_one_vm_at_a_time() {
    let slot_ns = 10 * MS;
    let host = HostSpec { cosched: Coscheduling::Strict { slot_ns }, ..HostSpec::default() };
    let matmul = library::make("matmul", Parameters { threads: 0, work: 0, grain: 0 }, 2).unwrap();
    let vm = |i| VmSpec::new(&format!("vm{i}"), 2, Costs::ATC14_VM).running(matmul.clone());
    let mut spec = Spec::new(host, vec![vm(0), vm(1)]);
    spec.time_limit = 400 * MS;
    let (_, report) = run(&spec);
    for vm in &report.vms {
        let cpu = vm.tasks[0].totals.cpu as f64 / (400 * MS) as f64;
        assert!((0.9..=1.02).contains(&cpu), "{}: {cpu} pCPUs' worth", vm.name);
    }
}

use super::*;

#[test]
fn one_pair_suffices_for_a_quick_calibration_and_one_vcpu_has_none() {
    let root = Root::system();
    let one: CpuSet = [CpuId(0)].into_iter().collect();
    for how in [Depth::Quick, Depth::Full] {
        let plans = plans(&root, &one, &Method::ALL, how).unwrap();
        assert_eq!((plans.len(), &plans[0].cases[..]), (1, &[Case::SameVcpu][..]));
    }
    assert!(plans(&root, &CpuSet::new(), &Method::ALL, Depth::Quick).is_err());
    let vcpus = measurable(&root).unwrap();
    if vcpus.len() > 1 {
        let plans = plans(&root, &vcpus, &Method::ALL, Depth::Quick).unwrap();
        let time: Duration = plans
            .iter()
            .map(|p| p.block_time() * u32::try_from(p.methods.len() * p.pairs.len() * p.cases.len()).unwrap())
            .sum();
        assert!(time <= Duration::from_millis(200), "{time:?}");
    }
}

#[test]
fn a_calibration_of_another_boot_version_or_user_is_none() {
    let dir = tempfile::tempdir().unwrap();
    let (state, root) = (StateDir::at(dir.path()).unwrap(), Root::system());
    let calibration = assumed(&root).unwrap();
    save(&state, &calibration).unwrap();
    assert_eq!(load(&state, &root).as_ref(), Some(&calibration));
    let other_boot = Calibration { boot_id: "another".to_owned(), ..calibration.clone() };
    let older = Calibration { version: VERSION - 1, ..calibration.clone() };
    let other_methods = Calibration { available: Vec::new(), ..calibration };
    for other in [other_boot, older, other_methods] {
        save(&state, &other).unwrap();
        assert_eq!(load(&state, &root), None, "{other:?}");
    }
}

#[test]
fn a_busy_machine_does_not_seem_to_halt_for_nothing() {
    let cost = |us| {
        let median = Duration::from_micros(us);
        gleaner_policy::WakeCost { min: median, median, p99: median, n: 100 }
    };
    let mut costs = WakeCosts::default();
    costs.insert(Method::Halt, Placement::AcrossHalting, cost(5));
    costs.insert(Method::Haltpoll, Placement::AcrossHalting, cost(4));
    let measured = Duration::from_micros(6);
    let disturbed = Confidence::of(0.9);
    let (method, _, halt_cost) = choose(&costs, &Method::ALL, measured, Confidence::Good);
    assert_eq!((method, halt_cost), (Method::Halt, measured));
    let (method, reason, halt_cost) = choose(&costs, &Method::ALL, measured, disturbed);
    assert_eq!((method, halt_cost), (Method::Haltpoll, ASSUMED_HALT_COST));
    assert!(reason.contains("only assumed"), "{reason}");
    // Yield threads that beat it beside other programs need not do so without them.
    let costly = 7 * ASSUMED_HALT_COST;
    costs.insert(Method::Halt, Placement::AcrossHalting, cost(50));
    costs.insert(Method::YieldIpiFree, Placement::AcrossHalting, cost(1));
    let (method, _, halt_cost) = choose(&costs, &Method::ALL, costly, disturbed);
    assert_eq!((method, halt_cost), (Method::Haltpoll, costly));
    assert_eq!(choose(&costs, &Method::ALL, costly, Confidence::Good).0, Method::YieldIpiFree);
}

#[test]
fn only_a_doubtful_calibration_says_so() {
    let good = assumed(&Root::system()).unwrap();
    assert_eq!(good.doubt(), None);
    let doubt = Calibration { disturbed: 0.571, ..good }.doubt().unwrap();
    assert!(doubt.contains("doubtful") && doubt.contains("57 %"), "{doubt}");
    assert!(doubt.contains("`gleaner doctor --quick`"), "{doubt}");
}

#[test]
fn what_a_waker_spends_is_assumed_where_other_programs_could_hide_it() {
    let cell = |waker_cpu_ns| Cell {
        method: Method::Halt,
        placement: Placement::AcrossHalting,
        waker: CpuId(0),
        wakee: CpuId(1),
        n: 100,
        min_ns: 50_000,
        median_ns: 60_000,
        p99_ns: 90_000,
        waker_cpu_ns,
    };
    let unmeasured = assumed(&Root::system()).unwrap();
    let of = |waker_cpu_ns, disturbed| {
        let halt_cost = Duration::from_micros(80);
        Calibration { halt_cost, cells: vec![cell(waker_cpu_ns)], disturbed, ..unmeasured.clone() }
            .waker_cost()
    };
    assert_eq!(of(4000, 0.0), Duration::from_micros(4));
    assert_eq!(of(4000, 0.5), Duration::from_micros(20));
    assert_eq!(of(30_000, 0.5), Duration::from_micros(30));
    assert_eq!(unmeasured.waker_cost(), ASSUMED_HALT_COST / 4);
}

#[test]
fn while_another_gleaner_is_at_work_the_cost_is_assumed() {
    let dir = tempfile::tempdir().unwrap();
    let (state, root) = (StateDir::at(dir.path()).unwrap(), Root::system());
    let _holder = state.lock().unwrap();
    let quick = calibrate(&state, &root, Depth::Quick, &mut |_| ()).unwrap();
    assert_eq!(quick.halt_cost, ASSUMED_HALT_COST);
    assert!(quick.reason.contains("another gleaner"), "{}", quick.reason);
    assert!(
        calibrate(&state, &root, Depth::Full, &mut |_| ())
            .unwrap_err()
            .to_string()
            .contains("already controls")
    );
}

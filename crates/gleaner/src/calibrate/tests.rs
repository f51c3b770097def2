use super::*;

#[test]
fn one_pair_suffices_for_a_quick_look_and_one_vcpu_has_none() {
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
fn a_calibration_of_another_boot_is_not_used() {
    let dir = tempfile::tempdir().unwrap();
    let (state, root) = (StateDir::at(dir.path()).unwrap(), Root::system());
    let mut calibration = assumed(&root).unwrap();
    save(&state, &calibration).unwrap();
    assert_eq!(load(&state, &root).as_ref(), Some(&calibration));
    calibration.boot_id = "another".to_owned();
    save(&state, &calibration).unwrap();
    assert_eq!(load(&state, &root), None);
}

#[test]
fn while_another_gleaner_is_at_work_the_cost_is_assumed() {
    let dir = tempfile::tempdir().unwrap();
    let (state, root) = (StateDir::at(dir.path()).unwrap(), Root::system());
    let _holder = state.lock().unwrap();
    let quick = calibrate(&state, &root, Depth::Quick).unwrap();
    assert_eq!(quick.halt_cost, ASSUMED_HALT_COST);
    assert!(quick.reason.contains("another gleaner"), "{}", quick.reason);
    assert!(calibrate(&state, &root, Depth::Full).unwrap_err().to_string().contains("already controls"));
}

//! Result files for tests.

use gleaner_proto::result::{BenchResult, Cell, Ending, Environment, Metric, ModeInfo, Plan, Row, SCHEMA};

/// A result with these rows.
pub(crate) fn result(virtualised: bool, modes: &[&str], rows: Vec<Row>) -> BenchResult {
    let hypervisor = if virtualised { "KVM" } else { "none (bare metal)" };
    let mode =
        |name: &&str| ModeInfo { name: (*name).into(), about: String::new(), set: vec![], unset: vec![] };
    BenchResult {
        schema: SCHEMA,
        title: "a test".into(),
        source: String::new(),
        repeat_with: String::new(),
        environment: Environment {
            date: "2026-01-01T00:00:00Z".into(),
            gleaner: "0.1.0".into(),
            kernel: "6.1".into(),
            kernel_version: String::new(),
            hypervisor: hypervisor.into(),
            virtualised,
            cpu_model: String::new(),
            vcpus: 4,
            memory_bytes: 0,
            cpuidle_driver: "none".into(),
            cpuidle_governor: "none".into(),
            preemption: String::new(),
            knobs: [].into(),
        },
        plan: Plan {
            rounds: 5,
            max_rounds: None,
            precision: None,
            warmup_rounds: 0,
            window_s: 1.0,
            seed: 1,
            order: String::new(),
        },
        modes: modes.iter().map(mode).collect(),
        rows,
        warnings: Vec::new(),
        failures: Vec::new(),
        ending: Ending::Complete,
        earlier: Vec::new(),
    }
}

/// A row, with what ran beside it.
pub(crate) fn row(name: &str, co_runners: &[&str], cells: Vec<Cell>) -> Row {
    Row {
        name: name.into(),
        unit: String::new(),
        primary: Metric::WallS,
        workload: Some("matmul".into()),
        server: None,
        co_runners: co_runners.iter().map(|line| (*line).into()).collect(),
        paper: [].into(),
        paper_ratio: [].into(),
        cells,
        comparisons: Vec::new(),
    }
}

//! Every built-in workload and kind, run for a short time. Whether the self-checks detect wrong results is
//! tested next to each.

#![allow(clippy::print_stderr, reason = "a test says what it measures")]
#![allow(clippy::unwrap_used, reason = "tests")]

use std::num::NonZeroU64;
use std::time::Duration;

use gleaner_bench::workload::{
    Amount, Outcome, ParameterError, Parameters, Variant, Workload, WorkloadError,
};
use gleaner_print::times::format_time;

const TIME: Duration = Duration::from_millis(100);

fn operations(n: u64) -> Amount {
    Amount::Operations(NonZeroU64::new(n).unwrap())
}

/// Every workload with each of its kinds.
fn variants() -> impl Iterator<Item = (Workload, Parameters)> {
    Workload::ALL.into_iter().flat_map(|workload| {
        let kinds = workload.spec().variants.iter().map(|variant| variant.kind);
        kinds.map(move |kind| (workload, Parameters { kind, ..Parameters::default() }))
    })
}

/// For a time and for a number of operations. The former depends on the machine, and can be nothing if it
/// stalled; the latter is exact.
fn run(workload: Workload, parameters: &Parameters) {
    let outcome = workload.run(Amount::Time(TIME), parameters);
    let outcome = outcome.unwrap_or_else(|error| panic!("{workload} {parameters}: {error}"));
    eprintln!("{workload} {parameters}: {:.0} operations/s in {:?}", outcome.throughput(), outcome.elapsed);
    assert!(outcome.elapsed >= TIME, "{workload} {parameters} ended after {:?}", outcome.elapsed);
    // A workload that misses its end never ends.
    assert!(outcome.elapsed < 600 * TIME, "{workload} {parameters} ended after {:?}", outcome.elapsed);
    // Fewer than the threads could share evenly, and more.
    for n in [1, 21] {
        run_operations(workload, parameters, n);
    }
}

fn run_operations(workload: Workload, parameters: &Parameters, n: u64) {
    let outcome = workload.run(operations(n), parameters);
    let outcome = outcome.unwrap_or_else(|error| panic!("{workload} {parameters}: {error}"));
    let most = if workload == Workload::Wake { n + 3 } else { n };
    let done = outcome.operations;
    assert!((n..=most).contains(&done), "{workload} {parameters}: {done} for {n}");
    assert!(outcome.checks > 0, "{workload} {parameters} checked nothing");
}

#[test]
fn every_kind_does_what_it_is_asked_for_by_default() {
    for (workload, parameters) in variants() {
        run(workload, &parameters);
    }
}

#[test]
fn every_kind_runs_with_two_and_with_four_threads() {
    for (workload, parameters) in variants() {
        for threads in [2, 4] {
            let parameters = Parameters { threads: Some(threads), ..parameters };
            // Table 2 is about two threads.
            if workload == Workload::Wake && threads == 4 {
                let error = workload.settings(&parameters).unwrap_err();
                assert!(matches!(error, ParameterError::OutOfRange { .. }), "{error}");
            } else {
                run(workload, &parameters);
            }
        }
    }
}

#[test]
fn every_parameter_that_a_workload_has_can_be_set() {
    for (workload, parameters) in variants() {
        let spec = workload.spec();
        let variant = spec.variants.iter().find(|variant| variant.kind == parameters.kind).unwrap();
        let granularity = variant.granularity.as_ref().map(|_| Duration::from_micros(3));
        let imbalance = variant.imbalance.map(|_| 1.0);
        let threads = Some(*variant.threads.range.start());
        if granularity.is_some() || imbalance.is_some() {
            run(workload, &Parameters { granularity, imbalance, threads, ..parameters });
        }
    }
}

#[test]
fn no_time_is_hardly_any_work() {
    for (workload, parameters) in variants() {
        let outcome = workload.run(Amount::Time(Duration::ZERO), &parameters).unwrap();
        assert!(outcome.operations <= 1, "{workload} {parameters}: {}", outcome.operations);
    }
}

#[test]
fn a_parameter_that_a_workload_cannot_use_is_refused_by_name() {
    for (workload, parameters) in variants() {
        let spec = workload.spec();
        let variant = spec.variants.iter().find(|variant| variant.kind == parameters.kind).unwrap();
        let mut wrong = vec!["threads=0".to_owned(), "threads=100000".to_owned()];
        wrong.push(format!("granularity={}", if variant.granularity.is_some() { "1s" } else { "1us" }));
        wrong.push(format!("imbalance={}", if variant.imbalance.is_some() { "-0.1" } else { "0" }));
        for assignment in wrong {
            let mut parameters = parameters;
            parameters.set(&assignment).unwrap();
            let error = workload.run(operations(1), &parameters).unwrap_err();
            assert!(matches!(error, WorkloadError::Parameter(_)), "{workload} {parameters}: {error}");
            let (error, name) = (error.to_string(), assignment.split('=').next().unwrap());
            assert!(error.contains(workload.name()) && error.contains(name), "{error}");
        }
    }
}

#[test]
fn a_kind_of_another_workload_is_refused() {
    for (workload, parameters) in variants() {
        for (other, _) in variants().filter(|(other, _)| *other != workload) {
            if let Some(kind) = parameters.kind {
                let error =
                    other.settings(&Parameters { kind: Some(kind), ..Parameters::default() }).unwrap_err();
                assert!(error.to_string().contains(other.name()), "{error}");
            }
        }
    }
}

#[test]
fn throughput_is_operations_per_second() {
    let outcome = Outcome { operations: 50, elapsed: Duration::from_millis(200), checks: 1 };
    assert!((outcome.throughput() - 250.0).abs() < 1e-9);
    assert!(Outcome { elapsed: Duration::ZERO, ..outcome }.throughput().abs() < 1e-9);
}

#[test]
fn outcomes_and_names_survive_a_round_trip() {
    let outcome = Outcome { operations: 50, elapsed: Duration::from_millis(200), checks: 1 };
    let json = serde_json::to_string(&outcome).unwrap();
    assert_eq!(serde_json::from_str::<Outcome>(&json).unwrap(), outcome);
    for workload in Workload::ALL {
        assert_eq!(workload.name().parse::<Workload>().unwrap(), workload);
        assert_eq!(serde_json::to_string(&workload).unwrap(), format!("\"{workload}\""));
        assert!(
            workload.about().contains("one operation is") || workload.about().contains("operation is one")
        );
    }
    assert!("ferret".parse::<Workload>().unwrap_err().contains("request-response"));
}

/// The row of a variant in the table of parameters in `docs/workloads.md`.
fn row(workload: Workload, variant: &Variant) -> String {
    let kind = variant.kind.map_or_else(String::new, |kind| format!("`{kind}`"));
    let (threads, range) = (&variant.threads, &variant.threads.range);
    let default = threads.default.map_or_else(|| "one per vCPU".to_owned(), |n| n.to_string());
    let threads = format!("{} ({}-{}): {}", default, range.start(), range.end(), threads.counts);
    let granularity = variant.granularity.as_ref().map_or_else(String::new, |granularity| {
        let [default, least, most] =
            [granularity.default, *granularity.range.start(), *granularity.range.end()].map(format_time);
        format!("{default} ({least}-{most}): {}", granularity.of)
    });
    let imbalance = variant.imbalance.map_or_else(String::new, |of| format!("0 (0-1): {of}"));
    format!("| `{workload}` | {kind} | {threads} | {granularity} | {imbalance} |")
}

#[test]
fn the_documentation_has_every_parameter() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/workloads.md");
    let page = std::fs::read_to_string(page).unwrap();
    let variants = Workload::ALL
        .into_iter()
        .flat_map(|workload| workload.spec().variants.iter().map(move |variant| row(workload, variant)));
    let missing: Vec<String> = variants.filter(|row| !page.contains(row.as_str())).collect();
    assert!(missing.is_empty(), "docs/workloads.md lacks these rows:\n{}", missing.join("\n"));
}

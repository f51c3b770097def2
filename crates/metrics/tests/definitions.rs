//! What the metrics count, what they are called, and that none is without a value.

mod common;

use std::time::Duration;

use common::{Script, ended, observation, proven, retained, samples, smaller, started, untouched};
use gleaner_metrics::{Lever, Pause};
use gleaner_policy::{Event, Purpose, ReleaseReason, Setting, Verdict};

#[test]
fn every_metric_gets_a_value() {
    let mut script = Script::new(8);
    script.step();
    script.step();
    let exposition = script.encode();
    let samples = samples(&exposition);
    for definition in script.metrics.definitions() {
        let name = &definition.name;
        let of = |sample: &str| {
            let sample = sample.split('{').next().unwrap_or_default();
            sample == name || sample.strip_prefix(name.as_str()).is_some_and(|end| end == "_count")
        };
        assert!(
            samples.iter().any(|(sample, value)| of(sample) && !["0", "0.0"].contains(value)),
            "{name} is never set:\n{exposition}"
        );
    }
}

#[test]
fn the_exposition_is_openmetrics() {
    let mut script = Script::new(8);
    script.step();
    let exposition = script.encode();
    assert!(exposition.ends_with("# EOF\n"));
    for line in [
        "# TYPE gleaner_wakeup_latency_seconds histogram",
        "# UNIT gleaner_wakeup_latency_seconds seconds",
        "# TYPE gleaner_trials counter",
        "gleaner_trials_total{workload=\"mariadb.service\",kind=\"retention\",verdict=\"proven\"} 1",
        "gleaner_build_info{version=\"0.1.0 (0123456789ab)\"} 1",
        "# UNIT gleaner_polling_allowed_ratio ratio",
        "gleaner_polling_allowed_ratio 0.5",
    ] {
        assert!(exposition.lines().any(|found| found == line), "no line `{line}` in:\n{exposition}");
    }
}

#[test]
fn what_several_workloads_were_observed_with_is_counted_once() {
    let mut script = Script::new(8);
    let (a, b) = (Duration::from_millis(100), Duration::from_millis(150));
    script.metrics.observe("a", &retained(), &observation(a, None));
    script.metrics.observe("b", &retained(), &observation(a, None));
    script.metrics.observe("b", &retained(), &observation(b, None));
    let exposition = script.encode();
    let samples = samples(&exposition);
    // Two vCPUs: 500 halts and 20 ms of polling each, in 0.1 s, and half of that again.
    assert_eq!(samples["gleaner_halts_total"], "1500.0");
    assert!(samples["gleaner_polling_seconds_total"].starts_with("0.06"));
}

#[test]
fn workloads_beyond_the_limit_share_a_label_and_have_no_active_set() {
    let mut script = Script::new(1);
    for workload in ["a", "b", "c"] {
        script.metrics.observe(workload, &smaller(), &observation(Duration::from_secs(1), None));
        script.metrics.event(workload, &Event::Released { why: ReleaseReason::Long });
    }
    let exposition = script.encode();
    let samples = samples(&exposition);
    let released = |workload| {
        samples[format!("gleaner_decisions_total{{workload=\"{workload}\",event=\"released\"}}").as_str()]
    };
    assert_eq!((released("a"), released("other")), ("1", "2"));
    let active: Vec<_> =
        samples.iter().filter(|(name, _)| name.starts_with("gleaner_active_vcpus")).collect();
    assert_eq!(active, [(&"gleaner_active_vcpus{workload=\"a\"}", &"1")]);
}

#[test]
fn a_workload_starts_at_zero_and_is_gone_some_time_after_it_left() {
    let mut script = Script::new(8);
    let of = |exposition: &str, name: &str| {
        samples(exposition).keys().filter(|sample| sample.contains(&format!("workload=\"{name}\""))).count()
    };
    script.metrics.observe("a", &retained(), &observation(Duration::from_secs(1), None));
    let first = script.encode();
    assert_eq!(
        samples(&first)["gleaner_trials_total{workload=\"a\",kind=\"active-set\",verdict=\"refuted\"}"],
        "0"
    );
    script.step();
    script.metrics.left("redis-server.service", Duration::from_secs(100));
    let exposition = script.metrics.encode(Duration::from_secs(101));
    assert!(!exposition.contains("gleaner_active_vcpus{workload=\"redis-server.service\"}"));
    assert!(of(&exposition, "redis-server.service") > 20);
    let exposition = script.metrics.encode(Duration::from_secs(100 + 15 * 60));
    assert_eq!(of(&exposition, "redis-server.service"), 0, "{exposition}");
    assert!(of(&exposition, "mariadb.service") > 20);
}

#[test]
fn names_of_workloads_cannot_break_the_format() {
    let mut script = Script::new(8);
    let name = "a\"} 1\n# EOF\n\\";
    script.metrics.observe(name, &untouched(), &observation(Duration::from_secs(1), None));
    let exposition = script.encode();
    assert!(exposition.contains(r#"gleaner_active_vcpus{workload="a\"} 1\n# EOF\n\\"} 2"#), "{exposition}");
}

#[test]
fn a_trial_is_counted_by_what_it_tried_and_by_its_verdict() {
    let mut script = Script::new(8);
    let m = &mut script.metrics;
    m.event("a", &started(&untouched(), &retained()));
    m.event("a", &ended(&retained(), &retained(), proven()));
    m.event("a", &started(&retained(), &smaller()));
    let Verdict::Proven(evidence) = proven() else { unreachable!() };
    m.event("a", &ended(&smaller(), &retained(), Verdict::Refuted(evidence)));
    let exposition = script.encode();
    let samples = samples(&exposition);
    let trials = |kind, verdict| {
        samples
            [format!("gleaner_trials_total{{workload=\"a\",kind=\"{kind}\",verdict=\"{verdict}\"}}").as_str()]
    };
    assert_eq!([trials("retention", "proven"), trials("active-set", "refuted")], ["1", "1"]);
    assert_eq!([trials("retention", "refuted"), trials("active-set", "proven")], ["0", "0"]);
}

#[test]
fn a_change_of_the_setting_is_one_that_stays() {
    let again = |kept: &Setting, verdict| match ended(&retained(), kept, verdict) {
        Event::TrialEnded { candidate, verdict, kept, again_at, .. } => {
            Event::TrialEnded { candidate, purpose: Purpose::Reprove, verdict, kept, again_at }
        }
        other => other,
    };
    for (event, changes) in [
        (started(&untouched(), &retained()), "0"),
        (ended(&retained(), &retained(), proven()), "1"),
        (ended(&retained(), &untouched(), Verdict::Undecided(None)), "0"),
        (again(&retained(), proven()), "0"),
        (again(&untouched(), Verdict::Undecided(None)), "1"),
        (Event::Resumed { setting: retained(), known: None }, "1"),
        (Event::LimitChanged { from: Duration::ZERO, to: Duration::from_micros(1) }, "0"),
    ] {
        let mut script = Script::new(8);
        script.metrics.event("a", &event);
        assert_eq!(
            samples(&script.encode())["gleaner_setting_changes_total{workload=\"a\"}"],
            changes,
            "{event:?}"
        );
    }
}

#[test]
fn interrupts_count_from_the_first_report_and_never_fall() {
    let mut script = Script::new(8);
    let mut counted = |reschedule| {
        script.metrics.interrupts(reschedule, 0);
        samples(&script.encode())["gleaner_ipis_total{kind=\"reschedule\"}"].to_owned()
    };
    assert_eq!([counted(1000), counted(1010), counted(400), counted(405)], ["0", "10", "10", "15"]);
}

#[test]
fn reasons_and_levers_are_counted_apart() {
    let mut script = Script::new(8);
    script.metrics.paused(&[Pause::Administrator, Pause::CreditsLow]);
    script.metrics.paused(&[Pause::CreditsLow]);
    script.metrics.stepped_back(Lever::ActiveSet);
    let exposition = script.encode();
    let samples = samples(&exposition);
    for (sample, value) in [
        ("gleaner_paused{reason=\"administrator\"}", "0"),
        ("gleaner_paused{reason=\"quiet-hours\"}", "0"),
        ("gleaner_paused{reason=\"credits-low\"}", "1"),
        ("gleaner_paused{reason=\"lever-taken\"}", "0"),
        ("gleaner_paused{reason=\"lever-failed\"}", "0"),
        ("gleaner_step_backs_total{lever=\"retention\"}", "0"),
        ("gleaner_step_backs_total{lever=\"active-set\"}", "1"),
        ("gleaner_config_reloads_total{result=\"failure\"}", "0"),
    ] {
        assert_eq!(samples[sample], value, "{sample}");
    }
}

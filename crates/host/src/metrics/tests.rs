use std::collections::BTreeSet;
use std::path::Path;

use gleaner_testing::host::RECORD;

use super::*;

fn record() -> Report {
    Report::parse(RECORD.as_bytes(), Path::new("host-record.json")).unwrap()
}

fn own() -> Own {
    Own {
        version: "1.2.3".to_owned(),
        cost: Some(Cost { pcpus: 0.02, share: 0.01 }),
        missing: 2,
        cpu: Duration::from_millis(1500),
    }
}

fn series(exposition: &str) -> Vec<(&str, &str)> {
    exposition
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.rsplit_once(' '))
        .collect()
}

fn value(exposition: &str, name: &str) -> f64 {
    let found = series(exposition).into_iter().find(|(of, _)| *of == name);
    found.unwrap_or_else(|| panic!("no {name} in:\n{exposition}")).1.parse().unwrap()
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn what_happens_is_added_up() {
    let mut totals = Totals::default();
    totals.add(&record(), at(20));
    let once = totals.encode(&own());
    for (name, expected) in [
        ("gleaner_host_vcpu_seconds_total{vm=\"ping\",state=\"guest\"}", 7.63924),
        ("gleaner_host_vcpu_seconds_total{vm=\"ping\",state=\"halted\"}", 17.6),
        ("gleaner_host_vcpu_seconds_total{vm=\"ping\",state=\"woken\"}", 4.0),
        ("gleaner_host_hypervisor_seconds_total{vm=\"ping\",group=\"scheduling\"}", 6.4),
        ("gleaner_host_hypervisor_seconds_total{vm=\"ping\",group=\"PLE\"}", 0.0),
        ("gleaner_host_exits_total{vm=\"ping\",reason=\"TSC_DEADLINE\"}", 1_600_000.0),
        ("gleaner_host_pcpu_seconds_total{user=\"vcpu\"}", 18.54),
        ("gleaner_host_vms", 2.0),
        ("gleaner_host_lost_total{what=\"vcpu\"}", 0.0),
        ("gleaner_host_following_ratio", 0.01),
        ("gleaner_host_followed_ratio", 1.0),
        ("gleaner_host_missing", 2.0),
        ("process_cpu_seconds_total", 1.5),
        ("gleaner_host_build_info{version=\"1.2.3\"}", 1.0),
    ] {
        let found = value(&once, name);
        assert!((found - expected).abs() < 1e-9, "{name}: {found}");
    }
    totals.add(&record(), at(40));
    let twice = totals.encode(&own());
    for name in [
        "gleaner_host_halt_poll_seconds_total{vm=\"ping\",result=\"fail\"}",
        "gleaner_host_halts_total{vm=\"ping\",result=\"polled\"}",
        "gleaner_host_exits_total{vm=\"ping\",reason=\"HLT\"}",
        "gleaner_host_pcpu_seconds_total{user=\"idle\"}",
    ] {
        let (before, after) = (value(&once, name), value(&twice, name));
        assert!(before > 0.0 && (after - 2.0 * before).abs() < 1e-9 * after, "{name}: {before}, {after}");
    }
}

#[test]
fn series_are_bounded_and_know_no_processes() {
    let vm = record().vms[0].clone();
    let vms = |names: &dyn Fn(u32) -> String| {
        let mut report = record();
        report.vms = (1..=300).map(|pid| VmRecord { pid, name: names(pid), ..vm.clone() }).collect();
        report
    };
    let labels = |totals: &Totals| {
        let exposition = totals.encode(&own());
        let of =
            |name: &str| name.split("vm=\"").nth(1).map(|rest| rest.split('"').next().unwrap().to_owned());
        series(&exposition).into_iter().filter_map(|(name, _)| of(name)).collect::<BTreeSet<String>>()
    };
    let mut totals = Totals::default();
    totals.add(&vms(&|pid| format!("pid-{pid}")), at(1));
    assert_eq!(labels(&totals), BTreeSet::from(["unnamed".to_owned()]));
    assert!((value(&totals.encode(&own()), "gleaner_host_vms") - 300.0).abs() < 1e-9);

    totals.add(&vms(&|pid| format!("{pid}{}", "x".repeat(pid as usize))), at(2));
    let found = labels(&totals);
    assert_eq!(found.len(), MOST_VMS + 1, "and those that share a label");
    assert!(found.contains("other") && found.iter().all(|name| name.len() <= LONGEST_NAME));
}

#[test]
fn a_vm_that_ended_is_kept_for_a_while() {
    let mut totals = Totals::default();
    totals.add(&record(), at(0));
    let mut later = record();
    later.vms.retain(|vm| vm.name == "ping");
    let quiet = "gleaner_host_vcpu_seconds_total{vm=\"quiet\",state=\"guest\"}";
    totals.add(&later, at(899));
    assert!(totals.encode(&own()).contains(quiet));
    totals.add(&later, at(900));
    let exposition = totals.encode(&own());
    assert!(!exposition.contains(quiet) && exposition.contains("vm=\"ping\""));
}

#[test]
fn the_page_lists_every_metric() {
    let mut totals = Totals::default();
    totals.add(&record(), at(1));
    let exposition = totals.encode(&own());
    assert!(exposition.ends_with("# EOF\n"));
    let types = exposition.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
    let named: BTreeSet<String> = types
        .map(|(name, kind)| match kind {
            "counter" => format!("{name}_total"),
            "info" => format!("{name}_info"),
            _ => name.to_owned(),
        })
        .collect();
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/host.md")).unwrap();
    let listed: BTreeSet<String> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .filter(|name| name.starts_with("gleaner_host_") || name.starts_with("process_"))
        .map(str::to_owned)
        .collect();
    assert_eq!(named, listed);
}

#[test]
fn what_was_followed_for_a_part_of_the_time_is_scaled_up() {
    let mut totals = Totals::default();
    let whole = record();
    totals.add(&Report { elapsed_ns: Some(4 * whole.span_ns), ..whole }, at(80));
    let once = totals.encode(&own());
    for (name, expected) in [
        ("gleaner_host_vcpu_seconds_total{vm=\"ping\",state=\"guest\"}", 4.0 * 7.63924),
        ("gleaner_host_hypervisor_seconds_total{vm=\"ping\",group=\"scheduling\"}", 4.0 * 6.4),
        ("gleaner_host_exits_total{vm=\"ping\",reason=\"TSC_DEADLINE\"}", 4.0 * 1_600_000.0),
        ("gleaner_host_pcpu_seconds_total{user=\"vcpu\"}", 4.0 * 18.54),
        ("gleaner_host_followed_ratio", 0.25),
    ] {
        let found = value(&once, name);
        assert!((found - expected).abs() < 1e-6, "{name}: {found}");
    }
}

//! Records of `scx_gleaner` in the lab's nested host (claims `sched-replayed` and `sched-symbiosis`): the simulator decides as it
//! did, and notices whatever it had done otherwise.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use gleaner_coordination::record::VERSION;
use gleaner_sim::scx::{Agreement, RecordError, replay};
use proptest::prelude::*;

const CASES: [&str; 7] =
    ["shares", "sleepers", "followers", "shootdowns", "reschedules", "balance", "symbiosis"];

fn record(case: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/scx/{case}.jsonl"))
}

/// The agreement with a record that was changed.
fn with(case: &str, change: impl FnOnce(&mut Vec<String>)) -> Result<Agreement, RecordError> {
    let text = fs::read_to_string(record(case)).unwrap();
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    change(&mut lines);
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), lines.join("\n") + "\n").unwrap();
    replay(file.path())
}

fn nth(lines: &[String], what: &str, n: usize) -> usize {
    let mut found = lines.iter().enumerate().filter(|(_, line)| line.contains(what));
    found.nth(n).unwrap_or_else(|| panic!("no {n}th line with {what}")).0
}

#[test]
fn the_simulator_decides_as_the_scheduler_did() {
    for case in CASES {
        let agreement = replay(&record(case)).unwrap();
        let total = agreement.total();
        assert_eq!(agreement.difference, None, "{case}");
        assert_eq!(total.recorded, total.same, "{case}");
        assert!(total.recorded > 200 && agreement.vms == 2, "{case}: {agreement:?}");
    }
}

/// Else the records would prove little.
#[test]
fn the_records_have_every_kind_of_decision() {
    let all: String = CASES.iter().map(|case| fs::read_to_string(record(case)).unwrap()).collect();
    for kind in [
        r#""placed":{"#,
        r#""idle":true}}"#,
        r#""kicked":{"#,
        r#""delivered":{"#,
        r#""timed":{"#,
        r#""preempts":{"#,
        r#""gives":true"#,
        r#""choice":"idle""#,
        r#""choice":"goes-on""#,
        r#""choice":"protected""#,
        r#""choice":"urgent""#,
        r#""choice":"first""#,
        r#""choice":"stolen""#,
        r#""choice":"pulled""#,
        r#""choice":"urgent-goes-on""#,
    ] {
        assert!(all.contains(kind), "{kind}");
    }
}

#[test]
fn a_decision_that_was_not_made_or_made_otherwise_is_the_first_difference() {
    let mut at = 0;
    let missing = with("shootdowns", |lines| {
        at = nth(lines, r#""kicked""#, 5);
        lines.remove(at);
    });
    let difference = missing.unwrap().difference.unwrap();
    assert!(difference.line <= at + 1 && difference.recorded.is_none(), "{difference:?}");

    let other = with("shootdowns", |lines| {
        at = nth(lines, r#""choice":"urgent""#, 3);
        lines[at] = lines[at].replace("urgent", "first");
    });
    let difference = other.unwrap().difference.unwrap();
    assert_eq!(difference.line, at + 1);
    assert!(difference.text().contains("First; the simulator: pCPU"), "{}", difference.text());

    let more = with("shootdowns", |lines| {
        at = nth(lines, r#""kicked""#, 5);
        let again = lines[at].clone();
        lines.insert(at, again);
    });
    assert_eq!(more.unwrap().difference.unwrap().line, at + 2);
}

/// A recipient that waits where its sender runs is next there once KVM has delivered the interrupt.
#[test]
fn what_follows_from_a_delivery_is_compared_too() {
    for n in 0..5 {
        let mut at = 0;
        let missing = with("shootdowns", |lines| {
            at = nth(lines, r#""delivered""#, n) + 1;
            assert!(lines[at].contains("kicked"), "{}", lines[at]);
            lines.remove(at);
        });
        let difference = missing.unwrap().difference.unwrap();
        assert!(difference.line <= at && difference.recorded.is_none(), "{difference:?}");

        let too_soon = with("shootdowns", |lines| {
            at = nth(lines, r#""delivered""#, n);
            lines.remove(at);
        });
        assert_eq!(too_soon.unwrap().difference.unwrap().line, at + 1);
    }
}

/// Whoever preempts is next there without a question.
#[test]
fn a_preemption_at_a_wakeup_is_compared_too() {
    let mut at = 0;
    let kicked = with("sleepers", |lines| {
        at = nth(lines, r#""preempts""#, 5);
        lines[at] = lines[at].replace(r#""preempts":{"task""#, r#""kicked":{"idle":false,"task""#);
    });
    assert_eq!(kicked.unwrap().difference.unwrap().line, at + 1);
}

/// Several orders of what happened are followed there.
#[test]
fn what_one_pcpu_takes_from_another_is_compared_too() {
    for n in 0..6 {
        let mut at = 0;
        let other = with("balance", |lines| {
            at = nth(lines, r#""choice":"stolen""#, n);
            lines[at] = lines[at].replace("stolen", "idle");
        });
        let difference = other.unwrap().difference.unwrap();
        assert_eq!(difference.line, at + 1, "{difference:?}");
    }
}

#[test]
fn decisions_that_follow_from_one_event_have_an_order() {
    let mut at = 0;
    let swapped = with("shootdowns", |lines| {
        at = nth(lines, r#""timed""#, 2);
        assert!(lines[at + 1].contains("chose"), "{}", lines[at + 1]);
        lines.swap(at, at + 1);
    });
    assert_eq!(swapped.unwrap().difference.unwrap().line, at + 1);
}

#[test]
fn who_runs_is_compared_too() {
    let mut at = 0;
    let other = with("shares", |lines| {
        // Next on this pCPU, but runs on the other one.
        let chosen = nth(lines, r#""choice":"first""#, 9);
        at = chosen + lines[chosen..].iter().position(|line| line.contains("runs")).unwrap();
        let (here, there) = (r#""cpu":0"#, r#""cpu":1"#);
        lines[at] = if lines[at].contains(here) {
            lines[at].replace(here, there)
        } else {
            lines[at].replace(there, here)
        };
    });
    let difference = other.unwrap().difference.unwrap();
    assert_eq!(difference.line, at + 1);
    assert!(difference.text().contains("waits elsewhere"), "{}", difference.text());
}

#[test]
fn other_rules_lead_to_other_decisions() {
    for (case, from, to) in [
        ("shootdowns", r#""tlb_co":true"#, r#""tlb_co":false"#),
        ("reschedules", r#""resched_dp_ns":500000"#, r#""resched_dp_ns":0"#),
        ("symbiosis", r#""threads":[1,0,3,2]"#, r#""threads":[]"#),
        ("shares", r#""slice_ns":3000000,"balance"#, r#""slice_ns":6000000,"balance"#),
    ] {
        let changed = with(case, |lines| {
            assert!(lines[0].contains(from), "{}", lines[0]);
            lines[0] = lines[0].replace(from, to);
        });
        assert!(changed.unwrap().difference.is_some(), "{case}: {to}");
    }
}

#[test]
fn a_record_that_is_not_whole_is_named() {
    let lost = with("shares", |lines| lines.push(r#"{"on":0,"end":{"lost":3}}"#.to_owned()));
    assert!(lost.unwrap_err().to_string().contains("3 events did not fit"));
    let wrong = with("shares", |lines| lines[4] = "{}".to_owned());
    assert!(wrong.unwrap_err().to_string().contains("line 5"));
    let version = |number: u32| format!(r#""version":{number}"#);
    let (this, before) = (version(VERSION), version(VERSION - 1));
    let old = with("shares", |lines| lines[0] = lines[0].replace(&this, &before));
    assert!(old.unwrap_err().to_string().contains(&format!("version {}", VERSION - 1)));
    let pcpu = with("shares", |lines| lines[1] = lines[1].replace(r#""on":"#, r#""on":7"#));
    assert!(pcpu.unwrap_err().to_string().contains("line 2 names another pCPU"));
    let many = with("shares", |lines| lines[0] = lines[0].replace(r#""pcpus":2"#, r#""pcpus":4000000000"#));
    assert!(many.unwrap_err().to_string().contains("at most 64"));
    let newer = version(VERSION + 1);
    let later = with("shares", |lines| lines[0] = format!(r#"{{"record":"scx_gleaner",{newer}}}"#));
    assert!(later.unwrap_err().to_string().contains(&format!("version {}", VERSION + 1)));
}

#[test]
fn the_program_says_whether_they_agree_by_its_status_too() {
    let run = |file: &Path, more: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_gleaner-sim")).arg("replay").arg(file).args(more).output().unwrap()
    };
    let same = run(&record("reschedules"), &[]);
    let said = String::from_utf8_lossy(&same.stdout).into_owned();
    assert!(
        same.status.success() && said.contains("The simulator decides the same, in the same order."),
        "{said}"
    );
    let json = run(&record("reschedules"), &["--json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&json["vms"], &json["difference"]), (&2.into(), &serde_json::Value::Null));

    let text = fs::read_to_string(record("reschedules")).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), text.replacen(r#""choice":"first""#, r#""choice":"stolen""#, 1)).unwrap();
    let differs = run(file.path(), &[]);
    let said = String::from_utf8_lossy(&differs.stdout).into_owned();
    assert_eq!(differs.status.code(), Some(1));
    assert!(said.contains("They differ, first at line"), "{said}");
    assert_eq!(run(file.path(), &["--policy", "method=halt"]).status.code(), Some(1));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Lines that are gone, twice there, elsewhere or have another number: a difference or an error, and never a crash.
    #[test]
    fn a_damaged_record_does_no_harm(
        case in 0..CASES.len(),
        changes in prop::collection::vec((0_u8..4, any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<u64>()), 1..8),
    ) {
        let _ = with(CASES[case], |lines| {
            for (kind, one, other, number) in changes {
                let (one, other) = (one.index(lines.len()), other.index(lines.len()));
                match kind {
                    0 => drop(lines.remove(one)),
                    1 => lines.insert(one, lines[other].clone()),
                    2 => lines.swap(one, other),
                    _ => {
                        let digits = |c: char| c.is_ascii_digit();
                        let from = lines[one].rfind(digits).unwrap();
                        let first = lines[one][..=from].rfind(|c: char| !digits(c)).map_or(0, |at| at + 1);
                        lines[one].replace_range(first..=from, &number.to_string());
                    }
                }
            }
        });
    }
}

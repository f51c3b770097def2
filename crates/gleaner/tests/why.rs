//! Runs `gleaner why` and `gleaner workload`.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use gleaner_bench::workload::Outcome;
use gleaner_policy::{
    AfterRollBack, Check, Conditions, CpuId, CpuSet, Event, Evidence, Factor, MajorChange, Method, Mode,
    PolicyConfig, Purpose, Refutation, ReleaseReason, Retention, Setting, Signal, Strategy, TrialReason,
    Verdict,
};
use gleaner_proto::journal::{Names, Record, SettingTime, Summary, VERSION};

fn gleaner(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gleaner")).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn us(us: u64) -> Duration {
    Duration::from_micros(us)
}

fn start() -> Record {
    Record::Start {
        version: VERSION,
        unix_ms: 1_735_689_599_500,
        workload: "make -j2".to_owned(),
        vcpus: CpuSet::first(2),
        config: Box::new(PolicyConfig {
            method: Method::Haltpoll,
            wake_cost: us(48),
            ..PolicyConfig::default()
        }),
        limits: vec!["PSI is off".to_owned()],
    }
}

fn settings() -> (Setting, Setting) {
    let untouched = Setting::untouched(&CpuSet::first(2));
    let retention = Retention { method: Method::Haltpoll, limit: us(50) };
    (untouched.clone(), Setting { retention, ..untouched })
}

fn evidence() -> Evidence {
    Evidence { signal: Signal::Moved, ratio: 1.934, low: 1.8, high: 2.1, pairs: 4 }
}

fn decision(at_ms: u64, event: Event) -> Record {
    Record::Decision { at: ms(at_ms), event, names: Names::default() }
}

/// A trial that proves its candidate.
fn proven_trial() -> [Record; 2] {
    let (baseline, candidate) = settings();
    let why = TrialReason::WakeUps { halts_per_s: 9000.0, wake_cost: us(48), lost: 0.43 };
    let purpose = Purpose::Adopt;
    let started = Event::TrialStarted { baseline, candidate: candidate.clone(), purpose, why };
    let ended = Event::TrialEnded {
        candidate: candidate.clone(),
        purpose,
        verdict: Verdict::Proven(evidence()),
        kept: candidate,
        again_at: ms(10_300),
    };
    [decision(112, started), decision(300, ended)]
}

/// A proof that no longer holds when it is repeated.
fn refuted_trial() -> Record {
    let (baseline, candidate) = settings();
    let ended = Event::TrialEnded {
        candidate,
        purpose: Purpose::Reprove,
        verdict: Verdict::Refuted(Evidence { ratio: 0.9, low: 0.85, high: 0.95, pairs: 1, ..evidence() }),
        kept: baseline,
        again_at: ms(2000),
    };
    decision(1200, ended)
}

fn end() -> Record {
    let (baseline, candidate) = settings();
    let time = |setting: Setting, time| SettingTime { setting, time };
    Record::End {
        at: ms(2000),
        summary: Summary {
            elapsed: ms(2000),
            engine_cpu: ms(10),
            retained: ms(500),
            settings: vec![time(baseline, ms(500)), time(candidate, ms(1500))],
            proven: 1,
            refuted: 1,
            expanded: 1,
            evidence: Some("twice the bytes".to_owned()),
            ..Summary::default()
        },
    }
}

/// A run with every kind of sentence.
fn records() -> Vec<Record> {
    let [trial_started, trial_ended] = proven_trial();
    let limit = |at_ms, from, to| decision(at_ms, Event::LimitChanged { from: us(from), to: us(to) });
    let rolled_back = Event::RolledBack {
        active: CpuSet::first(2),
        refutation: Refutation::Guard,
        then: AfterRollBack::Adjusted(Factor::Rho { from: 1.0, to: 0.45 }),
    };
    vec![
        start(),
        trial_started,
        trial_ended,
        limit(400, 50, 60),
        limit(500, 60, 80),
        limit(700, 80, 40),
        decision(800, Event::Released { why: ReleaseReason::Rare { per_s: 12.0 } }),
        limit(900, 40, 45),
        decision(950, Event::Expanded { runnable: 3, active: CpuSet::first(1), source: None }),
        Record::Note { at: ms(960), text: "thread 7 keeps its own affinity".to_owned() },
        decision(1100, rolled_back),
        refuted_trial(),
        end(),
    ]
}

fn write(path: &Path, records: &[Record]) {
    let lines: String = records.iter().map(|r| serde_json::to_string(r).unwrap() + "\n").collect();
    std::fs::write(path, lines).unwrap();
}

#[test]
fn a_journal_is_printed_as_sentences() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    write(&path, &records());
    let output = gleaner(&["why", path.to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let expected = "\
`make -j2` on vCPUs 0-1, started 2024-12-31 23:59:59 UTC; retention by haltpoll, a wake-up costs \
48.0 us
not available: PSI is off
at 0.112 s: tried vCPUs 0-1 with haltpoll:50us against vCPUs 0-1 with halt, because idle vCPUs halted 9000 times a \
second; at 48.0 us per wake-up that is 43 % of a vCPU's time
at 0.300 s: kept vCPUs 0-1 with haltpoll:50us: 1.93 times the bytes read and written (1.80 to 2.10, 4 pairs of \
blocks); next trial at 10.3 s
at 0.400 s: the idle lengths moved the limit from 50.0 us to 40.0 us, in 3 steps until 0.700 s
at 0.800 s: released: only 12 idle periods a second, so there is nothing to win
at 0.900 s: the idle lengths moved the limit from 40.0 us to 45.0 us
at 0.950 s: every vCPU active again: 3 threads wanted to run, but only 1 vCPU was active (0)
at 0.960 s: thread 7 keeps its own affinity
at 1.100 s: rolled back to vCPUs 0-1: the guard measured no more progress; load factor 1.000 -> 0.450
at 1.200 s: gave up vCPUs 0-1 with haltpoll:50us, it no longer pays: 0.90 times the bytes read and written (0.85 to \
0.95, 1 pair of blocks); now vCPUs 0-1 with halt; next trial at 2.0 s
at 2.000 s: the run ended: 1 change proven, 1 not, 1 expanded; Gleaner itself took 0.50 % of a vCPU, and 25 % of a \
vCPU was spent on keeping vCPUs awake
   75.0 % of the time: vCPUs 0-1 with haltpoll:50us
   25.0 % of the time: vCPUs 0-1 with halt
what it brought: twice the bytes
";
    assert_eq!(text(&output.stdout), expected);
}

/// The same run as [`start`] in another mode.
fn start_by(mode: Mode) -> Record {
    let Record::Start { version, unix_ms, workload, vcpus, config, .. } = start() else { unreachable!() };
    let config = Box::new(PolicyConfig { mode, method: Method::Yield, ..*config });
    Record::Start { version, unix_ms, workload, vcpus, config, limits: Vec::new() }
}

#[test]
fn a_run_by_the_papers_rules_is_printed_without_proofs() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let fits = Check { left: Some(us(20)), right: Some(us(80)), holds: true };
    let conditions = Conditions { load: fits, granularity: fits };
    let at = |ms_at, event| Record::Decision { at: ms(ms_at), event, names: Names::default() };
    let retention = Retention { method: Method::Yield, limit: us(48) };
    let one = Setting { active: CpuSet::first(1), retention };
    let records = [
        start_by(Mode::Paper),
        at(110, Event::Consolidated { cpu: CpuId(1), active: CpuSet::first(1), conditions }),
        at(
            210,
            Event::RolledBack {
                active: CpuSet::first(2),
                refutation: Refutation::Slower { from: 0.4, to: 0.3 },
                then: AfterRollBack::Adjusted(Factor::Eta { from: 1.0, to: 0.225 }),
            },
        ),
        at(410, Event::MajorChange { change: MajorChange::Saturated { max: 0.96 } }),
        Record::End {
            at: ms(500),
            summary: Summary {
                strategy: Strategy::Paper,
                elapsed: ms(500),
                workload_cpu: ms(100),
                settings: vec![SettingTime { setting: one, time: ms(500) }],
                consolidated: 1,
                rolled_back: 1,
                expanded: 1,
                ..Summary::default()
            },
        },
    ];
    write(&path, &records);
    let expected = "\
`make -j2` on vCPUs 0-1, started 2024-12-31 23:59:59 UTC; by the paper's rules, unproven; retention by yield, a \
wake-up costs 48.0 us
at 0.110 s: vCPU 1 made inactive, active now: 0; the load fits the other vCPUs' idle time (20.0µs <= 80.0µs) and its \
granularity fits their idle periods (20.0µs <= 80.0µs)
at 0.210 s: rolled back to vCPUs 0-1: utilisation fell from 0.40 to 0.30 vCPUs; granularity factor 1.000 -> 0.225
at 0.410 s: every vCPU active again, the workload changed: a vCPU is 96 % busy
at 0.500 s: the run ended: by the paper's rules 1 consolidation step and 1 roll-back, 1 major change of the workload; \
Gleaner itself took 0.00 % of a vCPU, and 0 % of a vCPU was spent on keeping vCPUs awake
  100.0 % of the time: vCPUs 0 with yield:48us
the paper's rules compare no progress: whether they pay is not known
";
    assert_eq!(text(&gleaner(&["why", path.to_str().unwrap()]).stdout), expected);
}

/// What other programs read. A journal that is written differently needs a new version.
#[test]
fn the_journal_and_its_story_as_json_are_as_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    write(&path, &records());
    insta::assert_snapshot!(format!("journal-{VERSION}"), std::fs::read_to_string(&path).unwrap());
    let output = gleaner(&["why", "--json", path.to_str().unwrap()]);
    insta::assert_snapshot!("story", text(&output.stdout).replace(path.to_str().unwrap(), "JOURNAL"));
}

#[test]
fn a_journal_without_an_end_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    write(&path, &[start()]);
    let output = gleaner(&["why", path.to_str().unwrap()]);
    assert!(text(&output.stdout).ends_with("the journal has no end: the run goes on, or was killed\n"));
}

#[test]
fn what_is_not_a_journal_is_an_error_that_names_file_and_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let good = serde_json::to_string(&start()).unwrap();
    for (content, part) in [
        (format!("{good}\nnonsense\n"), "line 2 is not a journal record"),
        (String::new(), "not a journal file of version 3"),
        (good.replace("\"version\":3", "\"version\":99") + "\n", "not a journal file of version 3"),
    ] {
        std::fs::write(&path, content).unwrap();
        let output = gleaner(&["why", path.to_str().unwrap()]);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains(part) && error.contains(path.to_str().unwrap()), "{error}");
    }
    let output = gleaner(&["why", "/nowhere/journal"]);
    assert!(text(&output.stderr).contains("cannot read /nowhere/journal"));
    assert_eq!(gleaner(&["why", "a", "b"]).status.code(), Some(2), "wrong usage");
}

#[test]
fn a_workload_prints_an_outcome_that_demo_can_read() {
    let output = gleaner(&["workload", "request-response", "--operations", "100", "--json"]);
    let outcome: Outcome = serde_json::from_slice(&output.stdout).unwrap();
    assert!(outcome.operations == 100 && outcome.elapsed > ms(0), "{outcome:?}");
    let wrong = gleaner(&["workload", "nothing"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(text(&wrong.stderr).contains("request-response"), "{}", text(&wrong.stderr));
    assert_eq!(gleaner(&["workload", "compute", "--seconds", "-1"]).status.code(), Some(2));
}

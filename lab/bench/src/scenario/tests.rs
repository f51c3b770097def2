use super::*;

const GOOD: &str = r#"
title = "T"
source = "P, Table 1"
modes = ["default", "gleaner", "consolidate:1", "user:tuned"]
rounds = 4
precision = 0.05
max_rounds = 12
warmup_rounds = 1
window_s = 0.5
seed = 7

[user.tuned]
about = "what the vendor says"
set = ["echo 1 > /x"]
unset = ["echo 0 > /x"]

[[row]]
workload = "barrier"
parameters = { threads = 4 }
co_runners = [{ workload = "compute" }, { shell = "while :; do :; done" }]
paper = { default = 1.0, "consolidate:1" = 2.5 }

[[row]]
name = "oltp"
command = ["sysbench", "run"]
metrics = ['tps: (?<throughput>[0-9.]+)', '95%: (?<p95_ms>[0-9.]+)']
unit = "transactions"
primary = "p95_us"
prepare = "true"
timeout_s = 5

[[row]]
name = "fixed work"
workload = "convoy"
operations = 1000
window_s = 2
"#;

fn error(text: &str) -> String {
    parse(text, "x.toml").unwrap_err().to_string()
}

/// [`GOOD`] with `old` replaced by `new`.
fn wrong(old: &str, new: &str) -> String {
    assert!(GOOD.contains(old), "{old}");
    error(&GOOD.replacen(old, new, 1))
}

#[test]
fn a_scenario_is_understood() {
    let experiment = parse(GOOD, "x.toml").unwrap();
    assert_eq!((experiment.title.as_str(), experiment.source.as_str()), ("T", "P, Table 1"));
    assert_eq!(experiment.rounds, Rounds { least: 4, most: 12, precision: Some(0.05) });
    assert_eq!((experiment.warmup_rounds, experiment.seed), (1, 7));
    let modes: Vec<&str> = experiment.modes.iter().map(Mode::name).collect();
    assert_eq!(modes, ["default", "gleaner", "consolidate:1", "user:tuned"]);
    assert_eq!(experiment.modes[3].user().unwrap().unset, ["echo 0 > /x"]);

    let [barrier, oltp, fixed] = &experiment.rows[..] else { panic!("three rows") };
    assert_eq!((barrier.name.as_str(), barrier.primary), ("barrier", Metric::Throughput));
    let Program::Workload { workload, parameters, amount } = &barrier.program else { panic!("a workload") };
    assert_eq!((*workload, *amount), (Workload::Barrier, Amount::Time(Duration::from_millis(500))));
    assert_eq!(parameters["threads"], "4");
    assert_eq!(barrier.co_runners.len(), 2);
    assert!((barrier.paper["consolidate:1"] - 2.5).abs() < 1e-9);

    assert_eq!((oltp.primary, oltp.unit.as_str()), (Metric::P95Us, "transactions"));
    assert_eq!((oltp.expressions.len(), oltp.timeout), (2, Duration::from_secs(5)));
    assert_eq!(oltp.program, Program::Command(vec!["sysbench".into(), "run".into()]));
    assert_eq!(fixed.primary, Metric::WallS, "fixed work is judged by its time");
}

#[test]
fn unknown_names_have_a_line_and_the_nearest_one() {
    for (old, new, line, nearest) in [
        ("rounds = 4", "roundz = 4", 5, "did you mean `rounds`?"),
        ("unit = ", "unti = ", 27, "did you mean `unit`?"),
        ("about = ", "abuot = ", 13, "did you mean `about`?"),
        ("\"barrier\"", "\"barier\"", 18, "did you mean `barrier`?"),
        ("\"gleaner\"", "\"gleanr\"", 4, "did you mean `gleaner`?"),
        ("\"user:tuned\"", "\"user:tund\"", 4, "did you mean `user:tuned`?"),
        ("\"p95_us\"", "\"p95us\"", 28, "did you mean `p95_us`?"),
        ("(?<throughput>", "(?<throughputs>", 26, "did you mean `throughput`?"),
        ("paper = { default", "paper = { defualt", 21, "did you mean `default`?"),
        ("[{ workload = \"compute\"", "[{ workload = \"compte\"", 20, "did you mean `compute`?"),
    ] {
        let error = wrong(old, new);
        assert!(error.starts_with(&format!("x.toml:{line}: ")), "{error}");
        assert!(error.contains(nearest), "{error}");
    }
}

#[test]
fn values_that_make_no_sense_are_reported() {
    for (old, new, line, hint) in [
        ("rounds = 4", "rounds = 0", 5, "at least one round"),
        ("precision = 0.05", "precision = 5", 6, "between 0 and 1"),
        ("precision = 0.05", "", 7, "only with a `precision`"),
        ("window_s = 0.5", "window_s = 0", 9, "not a time"),
        ("consolidate:1", "consolidate:0", 4, "1 or more"),
        ("workload = \"barrier\"", "", 17, "exactly one of"),
        ("shell = \"while", "command = [\"x\"], shell = \"while", 20, "exactly one of"),
        ("threads = 4", "threads = 0", 17, "threads"),
        ("threads = 4", "thread = 4", 17, "thread"),
        ("operations = 1000", "operations = 0", 35, "expected a nonzero"),
        ("name = \"oltp\"", "name = \"barrier\"", 23, "two rows are named `barrier`"),
        ("(?<throughput>[0-9.]+)", "([0-9.]+)", 26, "no named group"),
        ("tps: (", "tps: ((", 26, "not a regular expression"),
        ("rounds = 4", "rounds = \"four\"", 5, "invalid type"),
        ("rounds = 4", "rounds = = 4", 5, ""),
        ("name = \"oltp\"", "name = \"oltp\"\nparameters = { threads = 2 }", 23, "those of a workload"),
    ] {
        let error = wrong(old, new);
        assert!(error.starts_with(&format!("x.toml:{line}: ")), "{new}: {error}");
        assert!(error.contains(hint), "{new}: {error}");
    }
    assert!(error("title = 'T'\nmodes = []").contains("names no mode"));
    assert!(error("title = 'T'\nmodes = ['default']").contains("no [[row]]"));
    assert!(error("modes = ['default']").contains("missing field `title`"));
}

#[test]
fn scenarios_are_found_by_path_and_by_name() {
    assert_eq!(load("quick").unwrap().rows.len(), 5);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("own.toml");
    fs::write(&path, GOOD).unwrap();
    assert_eq!(load(path.to_str().unwrap()).unwrap().title, "T");
    let error = load("quik").unwrap_err().to_string();
    assert!(error.contains("did you mean `quick`?"), "{error}");
    let error = load("no/such.toml").unwrap_err().to_string();
    assert!(error.starts_with("cannot read the scenario no/such.toml: No such file"), "{error}");
}

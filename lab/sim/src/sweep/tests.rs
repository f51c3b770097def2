//! Sweeps: the combinations, the edited text, and identical rows on any number of cores.

use std::num::NonZeroUsize;

use super::{Axis, SHARES, Sweep, Value};

const FILE: &str = r#"
title = "a pair beside others"
seed = 1
time = "20ms"
[host]
cores = 2
[[vm]]
name = "a"
vcpus = 2
costs = "this-vm"
policy = "halt"
[[vm.program]]
name = "ping-pong"
[[vm]]
name = "b"
vcpus = 1 # beside it
costs = "this-vm"
[[vm.program]]
name = "matmul"
work = "5ms"
repeat = true

[sweep]
"vm.a.policy" = ["halt", "haltpoll:200us"]
vm.b.program.matmul.work = ["1ms", "2ms"]
seed = "1..3"
"#;

fn sweep(more: &[&str]) -> Sweep {
    let more = more.iter().map(|axis| axis.parse().unwrap()).collect();
    Sweep::parse("x.toml", FILE.to_owned(), more).unwrap()
}

fn error(from: &str, to: &str, more: &[&str]) -> String {
    assert!(FILE.contains(from), "{from}");
    let more = more.iter().map(|axis| axis.parse::<Axis>().unwrap()).collect();
    let sweep = Sweep::parse("x.toml", FILE.replacen(from, to, 1), more);
    let run = |sweep: Sweep| sweep.run(NonZeroUsize::MIN, || ()).map(drop);
    sweep.and_then(run).unwrap_err().to_string()
}

#[test]
fn every_combination_is_made_in_the_text() {
    let sweep = sweep(&["host.cores=2,3", "seed=7"]);
    let keys: Vec<&str> = sweep.axes().iter().map(|a| a.key.as_str()).collect();
    assert_eq!(keys, ["vm.a.policy", "vm.b.program.matmul.work", "seed", "host.cores"]);
    assert_eq!(sweep.points(), 8);
    let text = |text: &str| Value::Text(text.to_owned());
    assert_eq!(sweep.values(0), [text("halt"), text("1ms"), Value::Integer(7), Value::Integer(2)]);
    assert_eq!(sweep.values(6), [text("haltpoll:200us"), text("2ms"), Value::Integer(7), Value::Integer(2)]);
    let scenario = sweep.scenario(7).unwrap();
    assert_eq!((scenario.spec.seed, scenario.spec.host.cores), (7, 3));
    assert_ne!(scenario.control[0], sweep.scenario(0).unwrap().control[0]);
}

#[test]
fn cases_set_several_keys_and_a_star_every_entry() {
    let cases = r#"machine = [{ name = "small" }, { name = "large", "host.cores" = 4, "vm.*.vcpus" = 3 }]"#;
    let text = FILE.replacen("seed = \"1..3\"", cases, 1);
    let sweep = |more: &[&str]| {
        let more = more.iter().map(|axis| axis.parse().unwrap()).collect();
        Sweep::parse("x.toml", text.clone(), more)
    };
    let machine = |sweep: &Sweep, point| {
        let spec = sweep.scenario(point).unwrap().spec;
        (spec.host.cores, spec.vms.iter().map(|vm| vm.vcpus).collect::<Vec<_>>())
    };
    let all = sweep(&[]).unwrap();
    assert_eq!(all.points(), 2 * 2 * 2);
    assert_eq!(all.values(1)[2], Value::Text("large".to_owned()));
    assert_eq!(machine(&all, 0), (2, vec![2, 1]));
    assert_eq!(machine(&all, 1), (4, vec![3, 3]));
    let one = sweep(&["machine=large", "vm.b.vcpus=5"]).unwrap();
    assert_eq!((one.points(), machine(&one, 0)), (4, (4, vec![3, 5])), "the later axis decides");

    let text = |text: &str| Value::Text(text.to_owned());
    let point = all.point(&[("machine", text("large")), ("vm.a.policy", text("haltpoll:200us"))]).unwrap();
    assert_eq!(all.values(point), [text("haltpoll:200us"), text("1ms"), text("large")]);
    for (error, expected) in [
        (
            all.point(&[("machin", text("large"))]).unwrap_err(),
            "the sweep has no `machin`; it has vm.a.policy,",
        ),
        (
            all.point(&[("machine", text("huge"))]).unwrap_err(),
            "has no \"huge\"; it has \"small\", \"large\"",
        ),
        (sweep(&["machine=huge"]).unwrap_err(), "has no \"huge\""),
    ] {
        assert!(error.to_string().contains(expected), "{error}");
    }
}

#[test]
fn the_rows_are_the_same_on_any_number_of_cores() {
    let sweep = sweep(&[]);
    let one = sweep.run(NonZeroUsize::MIN, || ()).unwrap();
    let many = sweep.run(NonZeroUsize::new(5).unwrap(), || ()).unwrap();
    assert!(one == many);
    // One row per program of each VM.
    assert_eq!(one.len(), 2 * 2 * 3 * 2);
    for row in &one {
        assert!((row.shares.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{:?} of {SHARES:?}", row.shares);
    }
    let operations = |policy: &str| -> u64 {
        let rows = one.iter().filter(|r| r.vm == "a" && r.values[0] == Value::from(policy));
        rows.map(|r| r.totals.operations).sum()
    };
    assert!(operations("haltpoll:200us") > 2 * operations("halt"));
}

#[test]
fn values_are_read_as_the_file_has_them() {
    let axis: Axis = "x=4,0.5,true,halt,1..3,nan".parse().unwrap();
    let values: Vec<String> = axis.values.iter().map(ToString::to_string).collect();
    assert_eq!(values, ["4", "0.5", "true", "\"halt\"", "1", "2", "3", "\"nan\""]);
    for (text, part) in [("x", "KEY=VALUE"), ("=3", "KEY=VALUE"), ("x=", "KEY=VALUE"), ("x=3..1", "larger")] {
        assert!(text.parse::<Axis>().unwrap_err().contains(part), "{text}");
    }
}

#[test]
fn mistakes_name_the_key_and_the_nearest_one() {
    for (from, to, more, expected) in [
        (
            "\"vm.a.policy\"",
            "\"vm.a.polcy\"",
            &[][..],
            "no value at `vm.a.polcy` (`polcy`); did you mean `policy`?",
        ),
        ("\"vm.a.policy\"", "\"vm.c.policy\"", &[], "no value at `vm.c.policy` (`c`)"),
        ("seed = 1\n", "", &[], "no value at `seed`"),
        ("\"1..3\"", "[]", &[], "x.toml:26: `seed` needs a list of values"),
        ("\"1..3\"", "[{ seed = 1 }]", &[], "x.toml:26: a case of `seed` is a table such as { name ="),
        ("cores = 2", "coers = 2", &[], "x.toml:6: unknown field `coers`; did you mean `cores`?"),
        ("cores = 2", "cores = 2", &["vm.a=1"], "no value at `vm.a`"),
        (
            "cores = 2",
            "cores = 2",
            &["seed=1..900000", "host.cores=2,3"],
            "between 1 and 1000000 combinations",
        ),
        (
            "cores = 2",
            "cores = 2",
            &["vm.b.vcpus=1,0"],
            "vm.b.vcpus = 0: x.toml: VM `b` cannot be built: it has 0 vCPUs",
        ),
        ("cores = 2", "cores = 2", &["vm.a.policy=poll"], "x.toml:11: "),
    ] {
        let error = error(from, to, more);
        assert!(error.contains(expected), "{expected}: {error}");
    }
    let none = &FILE[..FILE.find("[sweep]").unwrap()];
    let error = Sweep::parse("x.toml", none.to_owned(), Vec::new()).unwrap_err().to_string();
    assert!(error.contains("x.toml: there is nothing to vary: add a table [sweep]"), "{error}");
}

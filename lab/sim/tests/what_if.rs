//! `gleaner-sim predict` and `sweep` without a recording. `crates/gleaner/tests/what_if.rs` makes some.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn run(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gleaner-sim")).args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn refused(args: &[&str]) -> String {
    let output = run(args);
    assert!(!output.status.success(), "{args:?}");
    text(&output.stderr)
}

#[test]
fn predictions_name_what_is_wrong() {
    for (args, expected) in [
        (&["predict", "--trace", "/no/trace"][..], "cannot read the trace /no/trace"),
        (&["predict", "--trace", "t", "--neighbours", "3:matmull"], "did you mean `matmul`?"),
        (&["predict", "--trace", "t", "--policy", "warp"], "or gleaner"),
        (&["predict", "--trace", "t", "--vary", "9"], "from 0 to 2"),
    ] {
        let message = refused(args);
        assert!(message.contains(expected), "{message}");
    }
}

const SWEPT: &str = "title = 't'\nseed = 1\ntime = '30ms'\n[host]\ncores = 2\n[[vm]]\nname = 'a'\nvcpus = 2\n\
                     costs = 'this-vm'\npolicy = 'halt'\n[[vm.program]]\nname = 'ping-pong'\n\
                     [sweep]\nseed = '1..3'\n";

fn swept(dir: &Path) -> String {
    let file = dir.join("s.toml");
    fs::write(&file, SWEPT).unwrap();
    file.to_str().unwrap().to_owned()
}

#[test]
fn a_sweep_is_the_same_table_on_any_number_of_cores_and_in_both_formats() {
    let dir = tempfile::tempdir().unwrap();
    let file = swept(dir.path());
    let set = ["--set", "vm.a.policy=halt,haltpoll:200us,gleaner", "--set", "host.cores=1..2"];
    let table = |more: &[&str]| {
        let output = run(&[&["sweep", &file], &set[..], more].concat());
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let one = table(&["--jobs", "1"]);
    assert_eq!(one, table(&["--jobs", "3"]));
    let lines: Vec<&str> = one.lines().collect();
    assert_eq!(lines.len(), 1 + 3 * 3 * 2);
    assert!(lines[0].starts_with("point,seed,vm.a.policy,host.cores,vm,program,end,"), "{}", lines[0]);
    assert!(lines[4].starts_with("3,1,haltpoll:200us,2,a,ping-pong,"), "{}", lines[4]);
    // The same rows in either format.
    let csv = dir.path().join("t.csv");
    table(&["-o", csv.to_str().unwrap()]);
    assert_eq!(fs::read_to_string(&csv).unwrap(), one);
    let parquet = dir.path().join("t.parquet");
    table(&["-o", parquet.to_str().unwrap()]);
    let bytes = fs::read(&parquet).unwrap();
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
    table(&["-o", parquet.to_str().unwrap(), "--jobs", "1"]);
    assert!(bytes == fs::read(&parquet).unwrap(), "the file depends on the number of cores");
}

#[test]
fn sweeps_name_what_is_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let file = swept(dir.path());
    for (args, expected) in [
        (&["--set", "vm.a.vcpu=1,2"][..], "no value at `vm.a.vcpu` (`vcpu`); did you mean `vcpus`?"),
        (&["--set", "vm.a.vcpus"], "KEY=VALUE"),
        (&["--set", "vm.a.vcpus=0"], "with seed = 1, vm.a.vcpus = 0: "),
        (&["-o", "results.xlsx"], "use .csv or .parquet"),
    ] {
        let message = refused(&[&["sweep", &file], args].concat());
        assert!(message.contains(expected), "{message}");
    }
}

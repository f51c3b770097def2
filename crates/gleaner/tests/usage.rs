//! The command line: exit statuses, messages, completions, man pages, installation.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use common::levers::Machine;
use common::process::{GLEANER, gleaner, text};
use gleaner_testing::host::RECORD;
use gleaner_testing::skipped;

fn source(path: &str) -> String {
    format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn a_cause_is_printed_once() {
    for args in [
        &["report", "/no/file"][..],
        &["bench", "run", "/no/file"],
        &["bench", "compare", "/no/file", "/no/file"],
        &["diagnose", "--host", "/no/file", "--system"],
        &["why", "/no/file"],
        &["replay", "/no/file"],
        &["sim", "run", "/no/file"],
        &["sim", "sweep", "/no/file"],
        &["sim", "predict", "--trace", "/no/file"],
        &["sim", "predict", "--trace", "/no/file", "--costs", "/no/file"],
        &["bench", "run", "--mode", "default", "-o", "/no/dir/x", "--", "true"],
    ] {
        let output = gleaner(args);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        assert_eq!(said.matches("(os error 2)").count(), 1, "{args:?}: {said}");
        assert!(said.starts_with("gleaner") && said.lines().count() == 1, "{args:?}: {said}");
    }
}

#[test]
fn a_negative_number_is_answered_with_the_range() {
    for args in [
        &["attach", "--pid", "-1"][..],
        &["diagnose", "--pid", "-1"],
        &["record", "--pid", "-1"],
        &["top", "--pid", "-1"],
        &["top", "--interval", "-1"],
        &["demo", "--rounds", "-1"],
        &["bench", "run", "--rounds", "-1", "--", "true"],
        &["bench", "run", "--workload", "barrier", "--window", "-1"],
        &["sim", "predict", "--trace", "x", "--vcpus", "-1"],
    ] {
        let output = gleaner(args);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains("invalid value '-1'") && !said.contains("unexpected"), "{args:?}: {said}");
    }
    let said = text(&gleaner(&["attach", "--pid", "-1"]).stderr);
    assert!(said.contains("-1 is not in 1..="), "{said}");
}

#[test]
fn wrong_usage_is_status_2_also_where_the_program_itself_sees_it() {
    for (args, words) in [
        (&["bench", "run", "--workload", "barrier", "--set", "threads=-5"][..], "threads"),
        (&["bench", "run", "--workload", "barrier", "--set", "colour=red"], "colour"),
        (&["sim", "sweep", "x.toml", "-o", "x.json"], "use .csv or .parquet"),
        (&["workload", "barrier", "--set", "threads=-5"], "threads"),
        (&["run", "--method", "haltpol", "--", "true"], "'haltpoll'"),
        (&["demo", "--only", "computer"], "'compute'"),
    ] {
        let output = gleaner(args);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(words), "{args:?}: {said}");
    }
}

#[test]
fn a_hosts_record_that_says_nothing_of_this_machine_is_an_error_with_its_remedy() {
    let old = RECORD.replacen("\"format\": 1", "\"format\": 0", 1);
    let dir = gleaner_testing::tree::tree(&[("host.json", RECORD), ("old.json", &old), ("other.json", "{}")]);
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    for (file, vm, said) in [
        ("host.json", None, "has 2 VMs: choose one with --vm: ping, quiet"),
        ("host.json", Some("pong"), "has no VM `pong`: choose one with --vm: ping, quiet"),
        ("old.json", Some("ping"), "has record format 0, and this gleaner reads format 1: record again"),
        ("other.json", None, "is not the record of a host"),
    ] {
        let file = path(file);
        let mut args = vec!["diagnose", "--host", &file];
        args.extend(vm.iter().flat_map(|vm| ["--vm", vm]));
        // Before anything runs.
        args.extend(["--", "echo", "it ran"]);
        let output = gleaner(&args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        assert!(text(&output.stderr).contains(said), "{args:?}: {}", text(&output.stderr));
        assert!(!text(&output.stderr).contains("it ran") && output.stdout.is_empty(), "{args:?}");
    }
    let output = gleaner(&["diagnose", "--vm", "ping", "--system"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
}

#[test]
fn record_and_diagnose_end_as_run_does_where_the_command_cannot_be_started() {
    let Some(_machine) = Machine::take() else { return };
    let dir = tempfile::tempdir().unwrap();
    let plain = dir.path().join("plain").to_str().unwrap().to_owned();
    fs::write(&plain, "").unwrap();
    let trace = dir.path().join("trace").to_str().unwrap().to_owned();
    for (program, status) in [("no-such-command", 127), (plain.as_str(), 126)] {
        for args in [&["run", "--"][..], &["diagnose", "--"], &["record", "-o", &trace, "--"]] {
            let output = gleaner(&[args, &[program]].concat());
            let said = text(&output.stderr);
            assert_eq!(output.status.code(), Some(status), "{args:?} {program}: {said}");
            assert!(said.contains(program), "{args:?}: {said}");
        }
    }
}

#[test]
fn top_once_says_that_the_journal_is_missing() {
    let output = gleaner(&["top", "--once", "--no-trace", "--journal", "/no/journal"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("/no/journal: No such file") && output.stdout.is_empty(), "{said}");
}

#[test]
fn completions_offer_no_hidden_command_and_the_methods_names() {
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&gleaner(&["completions", shell]).stdout);
        for hidden in ["gleaner,reference", "'reference:", "-a \"reference\""] {
            assert!(!script.contains(hidden), "{shell}: {hidden}");
        }
        assert!(script.contains("haltpoll") && script.contains("yield-ipi-free"), "{shell}");
    }
    // The completions that bash offers.
    let complete = |words: &str| {
        let script = format!(
            "source <({GLEANER} completions bash); COMP_WORDS=({words} ''); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             _gleaner gleaner '' \"${{COMP_WORDS[-2]}}\"; echo \"${{COMPREPLY[*]}}\""
        );
        text(&Command::new("bash").args(["-c", &script]).output().unwrap().stdout)
    };
    assert_eq!(complete("gleaner run --method").trim(), "halt haltpoll qos-poll yield-ipi-free yield");
    let commands = complete("gleaner");
    let offers = |name: &str| commands.split_whitespace().any(|command| command == name);
    assert!(offers("restore") && offers("workload") && !offers("reference"), "{commands}");
}

#[test]
fn the_laboratorys_commands_are_described_by_the_program_that_has_them() {
    for (words, usage) in [
        (&["help", "bench"][..], "Usage: gleaner-bench <COMMAND>"),
        (&["help", "bench", "run"], "Usage: gleaner-bench run "),
        (&["help", "replay"], "Usage: gleaner-sim replay "),
        (&["help", "run"], "Usage: gleaner run "),
    ] {
        let output = gleaner(words);
        let said = text(&output.stdout);
        assert!(output.status.success() && said.contains(usage), "{words:?}: {said}{}", text(&output.stderr));
    }
}

#[test]
fn without_the_laboratorys_programs_its_commands_say_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let alone = dir.path().join("gleaner");
    fs::copy(GLEANER, &alone).unwrap();
    for words in [&["bench", "list"][..], &["help", "bench"], &["sim", "--help"], &["demo"]] {
        let output = Command::new(&alone).args(words).output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        assert!(said.starts_with("gleaner: this needs gleaner-") && said.contains("`make build`"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn each_man_page_has_its_own_name() {
    let dir = tempfile::tempdir().unwrap();
    let output = gleaner(&["man", "--output", dir.path().to_str().unwrap()]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    for (file, line) in
        [("gleaner.1", "gleaner \\- Wake\\-up speed"), ("gleaner-run.1", "gleaner\\-run \\- Run a command")]
    {
        let page = fs::read_to_string(dir.path().join(file)).unwrap();
        let name = page.lines().skip_while(|line| *line != ".SH NAME").nth(1).unwrap();
        assert!(name.starts_with(line), "{file}: {name}");
    }
    assert!(!dir.path().join("gleaner-wake.1").exists(), "it is hidden");
}

#[test]
fn the_reference_is_what_the_programs_print() {
    let page = fs::read_to_string(source("docs/cli.md")).unwrap();
    let (_, written) = page.split_once("are replaced -->\n\n").unwrap();
    let reference = |name: &str| {
        let program = Path::new(GLEANER).with_file_name(name);
        text(
            &Command::new(&program)
                .arg("reference")
                .output()
                .unwrap_or_else(|e| panic!("{name}: {e}"))
                .stdout,
        )
    };
    let printed =
        ["gleaner", "gleaner-bench", "gleaner-sim", "gleaner-host", "scx_gleaner"].map(reference).concat();
    assert!(printed == written, "docs/cli.md is not what --help prints: `make docs` writes it anew");
}

#[test]
fn the_version_names_the_commit_of_a_checkout() {
    let said = text(&gleaner(&["--version"]).stdout);
    let Some(commit) = said.trim().strip_prefix(concat!("gleaner ", env!("CARGO_PKG_VERSION"))) else {
        panic!("{said}")
    };
    if !Path::new(&source(".git")).exists() {
        assert_eq!(commit, "");
        return;
    }
    let digits = commit.strip_prefix(" (").and_then(|rest| rest.strip_suffix(')')).unwrap();
    assert!(digits.len() == 12 && digits.bytes().all(|b| b.is_ascii_hexdigit()), "{said}");
}

#[test]
fn make_install_and_uninstall_leave_nothing_out_and_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    // Stands for target/release.
    fs::create_dir(at("built")).unwrap();
    for name in ["gleaner", "gleaner-bench", "gleaner-sim", "gleaner-host", "gleanerd", "scx_gleaner"] {
        symlink(Path::new(GLEANER).with_file_name(name), at("built").join(name)).unwrap();
    }
    let make = |target: &str| {
        let mut make = Command::new("make");
        make.args(["-C", &source("."), target, "PREFIX=/usr"]);
        make.arg(format!("DESTDIR={}", at("root").display()));
        make.arg(format!("BUILT={}", at("built").display()));
        make.output()
    };
    let Ok(output) = make("install") else {
        skipped("there is no make");
        return;
    };
    assert!(output.status.success(), "{}", text(&output.stderr));
    for file in [
        "bin/gleaner",
        "bin/gleaner-bench",
        "bin/gleaner-sim",
        "sbin/gleanerd",
        "sbin/gleaner-host",
        "sbin/scx_gleaner",
        "share/man/man1/gleaner-host-diagnose.1",
        "share/man/man1/scx_gleaner.1",
        "lib/systemd/system/gleanerd.service",
        "lib/systemd/system/gleaner-host.service",
        "share/man/man1/gleaner.1",
        "share/man/man1/gleaner-run.1",
        "share/man/man1/gleaner-bench-run.1",
        "share/man/man1/gleaner-sim-sweep.1",
        "share/man/man8/gleanerd.8",
        "share/bash-completion/completions/gleaner",
        "share/bash-completion/completions/gleaner-sim",
        "share/zsh/site-functions/_gleaner",
        "share/fish/vendor_completions.d/gleaner.fish",
    ] {
        let mode = fs::metadata(at("root/usr").join(file)).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, if file.contains("bin/") { 0o755 } else { 0o644 }, "{file}");
    }
    let configuration = at("root/etc/gleaner/gleaner.toml");
    fs::write(&configuration, "retain = false\n").unwrap();
    assert!(make("install").unwrap().status.success());
    assert!(make("uninstall").unwrap().status.success());
    assert_eq!(fs::read_to_string(&configuration).unwrap(), "retain = false\n", "the administrator's stays");
    fs::remove_file(configuration).unwrap();
    let left = Command::new("find").arg(at("root")).args(["-not", "-type", "d"]).output().unwrap();
    assert_eq!(text(&left.stdout), "");
}

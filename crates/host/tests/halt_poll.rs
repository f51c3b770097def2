//! `halt-poll set` and `restore` on a made-up KVM: in a mount namespace of their own, with files in place of the module's
//! parameters and of the leases.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

use std::process::{Command, Output};

/// Makes the files; scripts get the program as `$HOST` and the parameters' directory as `$KVM`.
const PRELUDE: &str = r#"
mount -t tmpfs none /sys/module
mount -t tmpfs none /run
KVM=/sys/module/kvm/parameters
mkdir -p "$KVM"
echo 200000 >"$KVM/halt_poll_ns"
echo 2 >"$KVM/halt_poll_ns_grow"
echo 10000 >"$KVM/halt_poll_ns_grow_start"
echo 2 >"$KVM/halt_poll_ns_shrink"
# One line, also where the file does not end with a newline.
now() { echo "$(cat "$KVM/${1:-halt_poll_ns}")"; }
# Waits until another process has set the limit.
until_now() { until [ "$(cat "$KVM/halt_poll_ns")" = "$1" ]; do sleep 0.02; done; }
"#;

/// What the script printed; `None` if this machine does not let it run.
fn run(script: &str) -> Option<Output> {
    if !gleaner_testing::is_root() {
        return None;
    }
    let unshare = ["unshare", "--mount", "--propagation", "private"];
    let possible = Command::new(unshare[0]).args(&unshare[1..]).arg("true").output();
    if !possible.is_ok_and(|output| output.status.success()) {
        gleaner_testing::skipped("needs mount namespaces");
        return None;
    }
    let mut command = Command::new("timeout");
    command.arg("60").args(unshare).args(["sh", "-euc", &format!("{PRELUDE}{script}")]);
    Some(command.env("HOST", env!("CARGO_BIN_EXE_gleaner-host")).output().unwrap())
}

/// The lines that the script printed, and what it said beside them.
#[track_caller]
fn lines(script: &str) -> Option<(Vec<String>, String)> {
    let output = run(script)?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{:?}: {printed}\n{said}", output.status);
    Some((printed.lines().map(str::to_owned).collect(), said))
}

#[test]
fn a_limit_is_held_while_a_command_runs_whose_status_is_passed_on() {
    let script = r#"
        "$HOST" halt-poll set --grow 4 50us -- sh -c 'echo "$(cat "$0")" "$(cat "$0_grow")"' "$KVM/halt_poll_ns"
        now; now halt_poll_ns_grow
        "$HOST" halt-poll set 0 -- sh -c 'exit 7' || echo "status $?"
        "$HOST" halt-poll set 0 -- sh -c 'kill -9 $$' || echo "status $?"
        "$HOST" halt-poll set 0 -- no-such-program || echo "status $?"
        now
        ls /run/gleaner-host
    "#;
    let Some((lines, said)) = lines(script) else { return };
    let expected = ["50000 4", "200000", "2", "status 7", "status 137", "status 127", "200000"];
    assert_eq!(lines[..7], expected, "{said}");
    assert!(!lines.contains(&"leases".to_owned()), "{lines:?}");
    assert!(said.contains("no-such-program: command not found"), "{said}");
}

#[test]
fn a_signal_and_the_end_of_the_time_put_it_back() {
    let script = r#"
        "$HOST" halt-poll set 0 & holder=$!
        until_now 0
        "$HOST" halt-poll show --seconds 0
        "$HOST" halt-poll set 5 || echo "status $?"
        kill -TERM $holder; wait $holder; echo "status $?"
        now
        "$HOST" halt-poll set 7 --for 1s & holder=$!
        until_now 7
        wait $holder; echo "status $?"
        now
    "#;
    let Some((lines, said)) = lines(script) else { return };
    assert!(lines[0].starts_with("halt_poll_ns ") && lines[0].ends_with("KVM does not poll"), "{lines:?}");
    assert!(lines[4].starts_with("held by gleaner-host (process "), "{lines:?}");
    assert_eq!(lines[5..], ["status 1", "status 0", "200000", "status 0", "200000"], "{said}");
    assert!(said.contains("holds KVM's halt polling already: stop it first"), "{said}");
}

#[test]
fn what_a_killed_one_left_is_restored() {
    let script = r#"
        "$HOST" halt-poll set 0 & holder=$!
        until_now 0
        kill -KILL $holder; wait $holder || echo "status $?"
        now
        "$HOST" restore
        now
        "$HOST" restore
        "$HOST" halt-poll set 0 & holder=$!
        until_now 0
        kill -KILL $holder; wait $holder || echo "status $?"
        "$HOST" halt-poll set 9 -- true
        now
    "#;
    let Some((lines, said)) = lines(script) else { return };
    let restored = "/sys/module/kvm/parameters/halt_poll_ns: 0 back to 200000";
    let expected = ["status 137", "0", restored, "200000", "nothing to put back", "status 137", "200000"];
    assert_eq!(lines, expected, "{said}");
    assert!(said.contains(&format!("restored what a killed one left: {restored}")), "{said}");
}

#[test]
fn everybody_may_ask_why_whatever_the_umask() {
    let script = r#"
        "$HOST" halt-poll why || echo "status $?"
        umask 077
        "$HOST" halt-poll set 0 & holder=$!
        until_now 0
        stat -c %a /run/gleaner-host
        start='{"record":"start","version":1,"unix_ms":0,"pid":'$holder',"objective":"balanced","found_ns":9}'
        echo "$start" >/run/gleaner-host/journal
        "$HOST" halt-poll why
        kill -TERM $holder; wait $holder
        "$HOST" halt-poll why --json
        "$HOST" halt-poll why | grep -c "was killed"
        echo x >/run/gleaner-host/journal
        "$HOST" halt-poll why || echo "status $?"
    "#;
    let Some((lines, said)) = lines(script) else { return };
    assert_eq!(lines[..2], ["status 1", "755"], "{said}");
    assert!(
        said.contains("there is no /run/gleaner-host/journal: `gleaner-host halt-poll auto` writes it"),
        "{said}"
    );
    assert!(lines[2].starts_with("- 1970-01-01 00:00:00 UTC: process "), "{lines:?}");
    assert_eq!(lines[lines.len() - 4], "- it is still running", "{lines:?}");
    assert!(lines[lines.len() - 3].starts_with(r#"{"record":"start","version":1"#), "{lines:?}");
    assert_eq!(lines[lines.len() - 2..], ["1", "status 1"], "{said}");
    assert!(
        said.contains("/run/gleaner-host/journal: line 1 is not a halt polling journal record"),
        "{said}"
    );
}

#[test]
fn an_administrators_value_ends_it_and_stays() {
    let script = r#"
        "$HOST" halt-poll set 0 & holder=$!
        until_now 0
        echo 400000 >"$KVM/halt_poll_ns"
        wait $holder || echo "status $?"
        now
        "$HOST" halt-poll set 0 -- sh -c 'echo 300000 >"$0/halt_poll_ns"; exit 3' "$KVM" || echo "status $?"
        now
        "$HOST" halt-poll set 300us -- true
    "#;
    let Some((lines, said)) = lines(script) else { return };
    assert_eq!(lines, ["status 1", "400000", "status 3", "300000"], "{said}");
    assert!(
        said.contains("is 400000 now, changed by somebody else: left as it is; this ends here"),
        "{said}"
    );
    assert!(said.contains("halt_poll_ns is 300000 already: nothing is changed"), "{said}");
}

#[test]
fn a_parameter_that_cannot_be_written_is_an_error_that_names_it() {
    let script = r#"
        mount -o remount,ro /sys/module
        "$HOST" halt-poll set 0 -- true || echo "status $?"
        now
    "#;
    let Some((lines, said)) = lines(script) else { return };
    assert_eq!(lines, ["status 1", "200000"], "{said}");
    assert!(said.contains("/sys/module/kvm/parameters/halt_poll_ns is mounted read-only"), "{said}");
}

//! The program alone: what it prints where there is nothing to see, and its exit status.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

use std::path::Path;
use std::process::{Command, Output};

fn gleaner_host(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gleaner-host")).args(args).output().unwrap()
}

#[test]
fn where_there_is_no_kvm_that_is_said_with_the_remedy() {
    let is_loaded = |module: &str| Path::new("/sys/module").join(module).exists();
    let (what, remedy) = match is_loaded("kvm") {
        true if is_loaded("kvm_amd") || is_loaded("kvm_intel") => {
            return gleaner_testing::left_out("this machine is a KVM host");
        }
        true => ("KVM is loaded without kvm-amd or kvm-intel", "modprobe kvm-amd"),
        false => ("this machine runs no virtual machines: KVM is not loaded", "modprobe kvm-amd"),
    };
    let mut commands = vec![
        &["list"][..],
        &["list", "--vm", "web-1"],
        &["list", "--json", "--vm", "web-1"],
        &["diagnose", "--seconds", "1"],
        &["diagnose", "--json"],
        &["diagnose", "--vm", "web-1"],
        &["top", "--once"],
        &["top", "--once", "--vm", "web-1"],
    ];
    // The parameters are those of the module that both share.
    if !is_loaded("kvm") {
        let halt_poll: [&[&str]; 4] = [
            &["halt-poll", "show"],
            &["halt-poll", "show", "--seconds", "0"],
            &["halt-poll", "set", "0", "--", "true"],
            &["halt-poll", "auto"],
        ];
        commands.extend(halt_poll);
    }
    for args in commands {
        let output = gleaner_host(args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        assert!(said.starts_with(&format!("gleaner-host: {what}")), "{said}");
        assert!(said.contains(remedy) && output.stdout.is_empty(), "{said}");
    }
    let output = gleaner_host(&["list", "--json"]);
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &b"[]\n"[..]));
}

#[test]
fn where_there_is_no_kvm_nothing_is_served() {
    if ["kvm_amd", "kvm_intel"].iter().any(|module| Path::new("/sys/module").join(module).exists()) {
        return gleaner_testing::left_out("this machine is a KVM host");
    }
    let output = gleaner_host(&["serve", "--listen", "127.0.0.1:0"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("modprobe kvm-amd"), "{said}");
}

#[test]
fn an_address_that_is_taken_is_named_with_the_remedy() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = gleaner_host(&["serve", "--listen", &address]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(
        said.contains(&format!("cannot listen at {address}: choose another address with --listen")),
        "{said}"
    );
}

#[test]
fn values_out_of_range_are_usage_errors_that_name_the_range() {
    for (args, range) in [
        (&["diagnose", "--from", "HOST.json", "--seconds", "3"][..], "cannot be used with"),
        (&["diagnose", "--seconds", "0"], "1..=86400"),
        (&["diagnose", "--budget", "0"], "0.1 to 100"),
        (&["diagnose", "--budget", "x"], "a number is expected"),
        (&["top", "--interval", "3601"], "1..=3600"),
        (&["halt-poll", "set", "5s"], "at most 4294967295 ns"),
        (&["halt-poll", "set", "many"], "nor a number of ns"),
        (&["halt-poll", "set", "0", "--for", "5"], "s, m, h or d"),
        (&["halt-poll", "set", "0", "--for", "5s", "--", "true"], "cannot be used with"),
        (&["halt-poll", "auto", "--objective", "fast"], "possible values: latency, balanced, efficiency"),
    ] {
        let output = gleaner_host(args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(range), "{args:?}: {said}");
    }
}

#[test]
fn without_leases_there_is_nothing_to_put_back_and_without_root_that_is_said() {
    let output = gleaner_host(&["restore"]);
    let said = String::from_utf8_lossy(&output.stderr);
    if !gleaner_testing::is_root() {
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("run it as root"), "{said}");
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(output.stdout, b"nothing to put back\n");
    let quiet = gleaner_host(&["restore", "--quiet"]);
    assert!(quiet.status.success() && quiet.stdout.is_empty());
}

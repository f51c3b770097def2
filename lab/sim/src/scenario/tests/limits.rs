//! Impossible sizes are refused before anything is allocated for them.

use std::num::NonZeroUsize;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use crate::scenario::Scenario;
use crate::sweep::{Axis, Sweep};

/// One size per line.
const FILE: &str = r#"
title = "sizes"
time = "1ms"
seed = 1
[host]
sockets = 1
cores = 2
smt = 1
[[vm]]
name = "a"
vcpus = 2
costs = "own"
shares = 1024
[[vm.program]]
name = "pipeline"
threads = 3
[[vm]]
name = "b"
vcpus = 1
costs = "this-vm"
policy = "halt"
[[vm.program]]
name = "own"
[vm.program.objects]
meet = { kind = "barrier", parties = 1 }
[[vm.program.thread]]
name = "first"
count = 1
code = [{ barrier = "meet" }]
[[vm.program.thread]]
name = "other"
count = 1
code = [{ compute = "1us" }, { barrier = "meet" }]
[costs.own]
"#;

/// [`FILE`] with its own cost table, in which an interrupt takes this long.
fn file(irq: u64) -> String {
    let table = serde_json::to_value(crate::Costs::THIS_VM).unwrap();
    let costs = table.as_object().unwrap().iter().map(|(name, ns)| match name.as_str() {
        "irq" => format!("irq = {irq}\n"),
        _ => format!("{name} = {ns}\n"),
    });
    FILE.to_owned() + &costs.collect::<String>()
}

/// An immediate refusal takes a tiny fraction of this; building first would take longer, or exhaust memory.
const FOR_EVER: Duration = Duration::from_secs(60);

/// The error for [`FILE`] with `from` replaced by `to`; fails if it is not immediate.
#[track_caller]
fn refused(from: &str, to: &str) -> String {
    let file = file(1000);
    assert!(file.contains(from), "{from}");
    let file = file.replacen(from, to, 1);
    let (sender, parsed) = mpsc::channel();
    thread::spawn(move || {
        sender.send(Scenario::parse("x.toml", &file).map(drop).map_err(|error| error.to_string()))
    });
    // A parser that panics closes the channel.
    let parsed = parsed.recv_timeout(FOR_EVER).unwrap_or_else(|error| panic!("{to}: {error}"));
    parsed.unwrap_err()
}

#[test]
fn a_thousand_million_threads_are_refused_at_once() {
    Scenario::parse("x.toml", &file(1000)).unwrap();
    for threads in ["65537", "1000000000", "4294967295"] {
        let message = refused("threads = 3", &format!("threads = {threads}"));
        assert!(message.starts_with(&format!("x.toml:16: {threads} threads are too many")), "{message}");
    }
    let message = refused("threads = 3", "threads = 5000000000");
    assert!(message.starts_with("x.toml:16: "), "{message}");
    // Each program alone is valid, but not all of them together.
    let message = refused("name = \"pipeline\"\nthreads = 3", "name = \"matmul\"\nthreads = 65535");
    assert!(message.contains("65537 threads together; 65536 are possible"), "{message}");
}

#[test]
fn a_product_of_sizes_that_overflows_is_refused() {
    let message = refused("sockets = 1\ncores = 2", "sockets = 2147483649\ncores = 2");
    assert!(message.contains("the host cannot be built: it has 4294967298 pCPUs"), "{message}");
    let message =
        refused("sockets = 1\ncores = 2\nsmt = 1", "sockets = 65536\ncores = 65536\nsmt = 4294967295");
    assert!(message.contains("pCPUs; give it between 1 and 65536"), "{message}");
    for smt in ["2147483648", "3"] {
        let message = refused("smt = 1", &format!("smt = {smt}"));
        assert!(message.contains("the host cannot be built"), "{message}");
    }
}

#[test]
fn sizes_of_a_program_of_ones_own_are_summed_without_overflow() {
    for count in ["65536", "4294967295"] {
        let message = refused("count = 1", &format!("count = {count}"));
        assert!(message.contains("threads together; 65536 are possible"), "{message}");
    }
    let both = file(1000).replace("count = 1", "count = 4294967295").replace(", parties = 1", "");
    let message = Scenario::parse("x.toml", &both).unwrap_err().to_string();
    assert!(message.contains("threads together"), "{message}");
}

#[test]
fn more_objects_than_can_be_numbered_are_refused() {
    let message = refused("name = \"pipeline\"\nthreads = 3", "name = \"request-response\"\nthreads = 32768");
    assert!(message.contains("program `request-response` shares 65536 objects"), "{message}");
}

#[test]
fn vcpus_shares_quotas_and_costs_have_limits() {
    for vcpus in ["65537", "4000000000"] {
        let message = refused("vcpus = 2", &format!("vcpus = {vcpus}"));
        assert!(message.contains(&format!("VM `a` cannot be built: it has {vcpus} vCPUs")), "{message}");
    }
    let message = refused("vcpus = 2", "vcpus = 65536");
    assert!(message.contains("its VMs have 65537 vCPUs together"), "{message}");
    let message = refused("shares = 1024", "shares = 9223372036854775807");
    assert!(message.contains("9223372036854775807 shares; 1024 is the normal weight"), "{message}");
    for (quota, expected) in [
        ("500us 10ms", "VM `a` cannot be built: its quota is 500000 ns; it must be 1 ms at least"),
        ("50ms 2s", "the period of its quota is 2000000000 ns; it must lie between 1 ms and 1 s"),
        ("half of it", "x.toml:13: `half of it` is not a quota; use CPU time and period"),
    ] {
        let message = refused("shares = 1024", &format!("cpu_max = \"{quota}\""));
        assert!(message.contains(expected), "{message}");
    }
    let message = refused("irq = 1000", "irq = 9223372036854775807");
    assert!(message.contains("VM `a` cannot be built: irq costs 9223372036854775807 ns"), "{message}");
}

#[test]
fn a_policy_that_needs_more_vcpus_than_the_vm_has_is_refused() {
    let message = refused("policy = \"halt\"", "policy = \"consolidate:9\"");
    assert!(
        message.starts_with("x.toml:21: `consolidate:9` needs 9 vCPUs, but there is only 1"),
        "{message}"
    );
}

#[test]
fn a_sweep_refuses_sizes_as_the_file_does() {
    for (axis, expected) in [
        ("vm.a.program.pipeline.threads=1000000000", "1000000000 threads are too many"),
        ("host.sockets=2147483649", "4294967298 pCPUs"),
        ("vm.a.vcpus=4000000000", "4000000000 vCPUs"),
        ("vm.b.policy=consolidate:9", "needs 9 vCPUs"),
    ] {
        let axes: Vec<Axis> = vec![axis.parse().unwrap()];
        let sweep = Sweep::parse("x.toml", file(1000), axes).unwrap();
        let message = sweep.run(NonZeroUsize::MIN, || ()).unwrap_err().to_string();
        assert!(message.contains(expected), "{axis}: {message}");
    }
}

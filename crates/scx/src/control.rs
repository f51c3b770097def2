//! What is asked and changed while it runs.

use std::collections::BTreeMap;

use gleaner_coordination::VcpuPlacement;
use gleaner_kernel::Root;
use gleaner_kernel::lever::ThreadKey;
use gleaner_scx_control::{Call, Change, Changed, InForce, Rules, Status, VmStatus, meta, time_text, values};
use serde_json::Value;

use crate::{Autos, Options, Scheduler, VmRules, VmSeen};

/// Answers a client. `options` are those in force, and will be those of the next start.
///
/// # Errors
/// A sentence for the client.
pub fn answer(
    scheduler: &mut Scheduler,
    options: &mut Options,
    autos: &Autos,
    root: &Root,
    call: Call,
) -> Result<Value, String> {
    let stats = |scheduler: &Scheduler| scheduler.stats().map_err(|error| error.to_string());
    let json = |value: serde_json::Result<Value>| value.map_err(|error| error.to_string());
    match call {
        Call::Stats => Ok(values(&stats(scheduler)?.described())),
        Call::StatsMeta => Ok(meta(&stats(scheduler)?.described())),
        Call::Status => {
            let known = options.vms.len();
            options.forget_ended(root);
            if options.vms.len() < known {
                // A process that ran no vCPU leaves its rules in the kernel.
                scheduler.adopt(options).map_err(|error| error.to_string())?;
            }
            let seen = scheduler.vms().map_err(|error| error.to_string())?;
            json(serde_json::to_value(Status {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                sees_kvm: scheduler.sees_kvm(),
                options: in_force(options),
                vms: vms(&seen, options, autos, root),
                stats: stats(scheduler)?.described(),
            }))
        }
        Call::Set(_) if scheduler.records() => {
            Err("nothing can be changed while it is recorded: end it, and start it without --record"
                .to_owned())
        }
        Call::Set(change) => {
            let mut next = options.clone();
            next.forget_ended(root);
            let list = changed(&mut next, &change, root)?;
            if let Err(error) = scheduler.adopt(&next) {
                // All or nothing: what was there before had room.
                let _ = scheduler.adopt(options);
                return Err(error.to_string());
            }
            *options = next;
            json(serde_json::to_value(list))
        }
    }
}

fn in_force(options: &Options) -> InForce {
    let placement = match options.placement {
        VcpuPlacement::Uncoordinated => "none",
        VcpuPlacement::Balance => "balance",
        VcpuPlacement::LoadConscious => "load-conscious",
    };
    InForce {
        rules: options.rules,
        preemption_delay_ns: options.preemption_delay_ns,
        urgent_slice_ns: options.urgent_slice_ns,
        allowance_ns: options.allowance_ns,
        placement: placement.to_owned(),
        symbiosis: options.symbiosis,
        slice_ns: options.slice_ns,
    }
}

/// Those that were seen, and those that have rules and were not seen yet, by process.
fn vms(seen: &[VmSeen], options: &Options, autos: &Autos, root: &Root) -> Vec<VmStatus> {
    let unseen = options.vms.iter().map(|vm| VmSeen { pid: vm.pid, weight: 100, ..VmSeen::default() });
    let all: BTreeMap<u32, VmSeen> = unseen.chain(seen.iter().copied()).map(|vm| (vm.pid, vm)).collect();
    let status = |vm: VmSeen| VmStatus {
        pid: vm.pid,
        name: root.read(format!("/proc/{}/comm", vm.pid)).unwrap_or_default(),
        vcpus: vm.vcpus,
        active: vm.active,
        weight: vm.weight,
        rules: options.rules_of(vm.pid),
        own_rules: options.own_rules(vm.pid).is_some(),
        decided: autos.says(vm.pid),
    };
    all.into_values().map(status).collect()
}

/// Carries out `change` in `options`; returns what was not so already.
///
/// # Errors
/// A sentence that names the process that does not exist.
pub fn changed(options: &mut Options, change: &Change, root: &Root) -> Result<Vec<Changed>, String> {
    let mut list = Vec::new();
    let mut note = |what: &str, pid, from: String, to: String| {
        if from != to {
            list.push(Changed { what: what.to_owned(), pid, from, to });
        }
    };
    if let Some(rules) = change.rules {
        note("default rules", None, options.rules.to_string(), rules.to_string());
        options.rules = rules;
    }
    let times = [
        ("preemption delay", &mut options.preemption_delay_ns, change.preemption_delay_ns),
        ("urgent slice", &mut options.urgent_slice_ns, change.urgent_slice_ns),
        ("allowance", &mut options.allowance_ns, change.allowance_ns),
    ];
    for (what, ns, to) in times {
        if let Some(to) = to {
            note(what, None, time_text(*ns), time_text(to));
            *ns = to;
        }
    }
    for vm in &change.vms {
        let pid = vm.pid;
        let own =
            |rules: Option<Rules>| rules.map_or_else(|| "default".to_owned(), |rules| rules.to_string());
        let process = match vm.rules {
            Some(_) => {
                let key = ThreadKey::of(root, pid);
                Some(key.map_err(|_| format!("process {pid} does not exist: name the VMM of a running VM"))?)
            }
            None => None,
        };
        note("rules", Some(pid), own(options.own_rules(pid)), own(vm.rules));
        options.vms.retain(|vm| vm.pid != pid);
        options.vms.extend(vm.rules.map(|rules| VmRules { pid, process, rules }));
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use gleaner_scx_control::VmChange;
    use gleaner_testing::tree::tree;

    use super::*;

    fn host() -> (tempfile::TempDir, Root) {
        let stat = format!("42 (qemu) S{} 1000 0", " 0".repeat(18));
        let dir = tree(&[("proc/42/task/42/stat", stat.as_str()), ("proc/42/comm", "qemu\n")]);
        let root = Root::at(dir.path());
        (dir, root)
    }

    fn vm(pid: u32, rules: Option<Rules>) -> Change {
        Change { vms: vec![VmChange { pid, rules }], ..Change::default() }
    }

    #[test]
    fn what_is_set_is_listed_unless_it_was_so() {
        let (_dir, root) = host();
        let mut options = Options::default();
        let change = Change {
            rules: Some(Rules::OFF),
            allowance_ns: Some(6_000_000),
            urgent_slice_ns: Some(500_000),
            ..vm(42, Some(Rules::PAPER))
        };
        let list = changed(&mut options, &change, &root).unwrap();
        let listed: Vec<(&str, Option<u32>, &str, &str)> =
            list.iter().map(|c| (c.what.as_str(), c.pid, c.from.as_str(), c.to.as_str())).collect();
        let expected = [
            ("default rules", None, "resched-dp,tlb-co", "off"),
            ("allowance", None, "18ms", "6ms"),
            ("rules", Some(42), "default", "resched-dp,tlb-co"),
        ];
        assert_eq!(listed, expected);
        assert_eq!((options.rules, options.allowance_ns), (Rules::OFF, 6_000_000));
        assert_eq!(options.own_rules(42), Some(Rules::PAPER));
        assert_eq!(changed(&mut options, &change, &root), Ok(Vec::new()), "all of it holds already");
    }

    #[test]
    fn rules_survive_a_restart_for_as_long_as_their_process_and_can_be_dropped() {
        let (dir, root) = host();
        let mut options = Options::default();
        changed(&mut options, &vm(42, Some(Rules::OFF)), &root).unwrap();
        options.forget_ended(&root);
        assert_eq!(options.own_rules(42), Some(Rules::OFF));
        let list = changed(&mut options, &vm(42, None), &root).unwrap();
        assert_eq!((list[0].from.as_str(), list[0].to.as_str()), ("off", "default"));
        assert_eq!(options.vms, []);
        changed(&mut options, &vm(42, Some(Rules::OFF)), &root).unwrap();
        drop(dir);
        options.forget_ended(&root);
        assert_eq!(options.vms, []);
    }

    #[test]
    fn a_process_that_does_not_exist_is_named() {
        let (_dir, root) = host();
        let error = changed(&mut Options::default(), &vm(43, Some(Rules::OFF)), &root).unwrap_err();
        assert!(error.contains("process 43 does not exist"), "{error}");
        assert_eq!(changed(&mut Options::default(), &vm(43, None), &root), Ok(Vec::new()));
    }

    #[test]
    fn vms_are_listed_with_the_rules_that_hold_for_them() {
        let (_dir, root) = host();
        let mut options = Options::default();
        changed(&mut options, &vm(42, Some(Rules::OFF)), &root).unwrap();
        let seen = [VmSeen { pid: 7, weight: 300, vcpus: 4, active: 2, ..VmSeen::default() }];
        let listed = vms(&seen, &options, &Autos::default(), &root);
        let [other, own] = listed.as_slice() else { panic!("{listed:?}") };
        assert_eq!((other.pid, other.vcpus, other.active, other.weight), (7, 4, 2, 300));
        assert_eq!((other.rules, other.own_rules), (Rules::PAPER, false));
        assert_eq!((own.pid, own.name.as_str(), own.vcpus), (42, "qemu", 0));
        assert_eq!((own.rules, own.own_rules), (Rules::OFF, true));
    }
}

//! Claim 1, in small machines: `gleaner doctor` is right about vCPUs, topology, levers and the kernel; `gleaner run`
//! works and restores everything.

use gleaner_proto::doctor::Report;

use crate::claims::{Checks, Claim, ClaimHost};
use crate::error::{Error, Result};
use crate::image::Image;
use crate::kernel::Kernel;
use crate::vm::{Cpus, Guest, Lab, Step, VmSpec};

pub(super) const TINY: Claim = Claim {
    name: "doctor",
    group: 1,
    says: "doctor is right and run works with 1 to 8 vCPUs, with SMT and NUMA, without cpuidle driver",
    quick: true,
    place: ClaimHost::Emulated,
    prove: |lab, checks| {
        for cpus in [Cpus::flat(1), Cpus::smt(2), Cpus::numa(2, 4)] {
            on_machine(lab, checks, Kernel::V6_12, cpus, &[])?;
        }
        Ok(())
    },
};

pub(super) const TINY_MORE: Claim = Claim {
    name: "doctor-matrix",
    group: 1,
    says: "doctor is right and run works on the other kernels, and with lazy preemption and without",
    quick: false,
    place: ClaimHost::Emulated,
    prove: |lab, checks| {
        on_machine(lab, checks, Kernel::V6_1, Cpus::flat(2), &["preempt=none"])?;
        on_machine(lab, checks, Kernel::V6_1, Cpus::smt(4), &[])?;
        on_machine(lab, checks, Kernel::V7, Cpus::flat(2), &["preempt=lazy"])?;
        on_machine(lab, checks, Kernel::V7, Cpus::numa(2, 2), &["preempt=full"])
    },
};

pub(super) const SYSTEMD: Claim = Claim {
    name: "doctor-systemd",
    group: 1,
    says: "doctor is right and run works under systemd with cgroup v2",
    quick: false,
    place: ClaimHost::Emulated,
    prove: |lab, checks| {
        let spec = VmSpec::new("doctor-systemd", Image::Systemd, Kernel::V6_12, Cpus::numa(2, 2));
        on(lab, checks, spec, "systemd, Linux 6.12, 4 vCPUs, 2 NUMA nodes", &[])
    },
};

/// Levers that work in such a machine; all others have a reason.
const LEVERS: [&str; 4] = ["affinity", "cpuset-v2", "scheduling-policy", "yield-threads"];
const IDLE_LEVERS: [&str; 3] = ["haltpoll", "pm-qos", "dma-latency"];
const SENSORS: [&str; 7] =
    ["cgroup-accounting", "fast-expansion", "interrupts", "io-accounting", "psi", "schedstat", "steal"];

fn on_machine(lab: &Lab, checks: &mut Checks, kernel: Kernel, cpus: Cpus, words: &[&str]) -> Result<()> {
    let name = [format!("Linux {kernel}"), cpus.to_string()].into_iter();
    let name = name.chain(words.iter().map(|&word| word.to_owned())).collect::<Vec<_>>().join(", ");
    on(lab, checks, VmSpec::new("doctor", Image::Tiny, kernel, cpus), &name, words)
}

fn on(lab: &Lab, checks: &mut Checks, spec: VmSpec, name: &str, words: &[&str]) -> Result<()> {
    let guest = lab.boot(spec.cmdline(words))?;
    facts(&guest, checks, name, words)?;
    topology(&guest, checks, name)?;
    run(&guest, checks, name)?;
    guest.power_off()
}

/// Report of `gleaner doctor`, which must succeed.
pub(super) fn report(guest: &Guest) -> Result<Report> {
    let text = guest.succeed(Step::new(&["gleaner", "doctor", "--quick", "--json"]))?;
    serde_json::from_str(&text).map_err(|error| Error::Protocol {
        who: format!("`gleaner doctor --json` in VM `{}`", guest.spec().name),
        what: error.to_string(),
    })
}

fn facts(guest: &Guest, checks: &mut Checks, name: &str, words: &[&str]) -> Result<()> {
    let report = report(guest)?;
    let machine = &report.machine;
    checks.equal(format!("{name}: doctor's kernel"), &machine.kernel.as_str(), &guest.release());
    let vcpus = guest.read_text("/sys/devices/system/cpu/online")?;
    checks.equal(format!("{name}: doctor's vCPUs"), &machine.vcpus.to_string(), &vcpus);
    checks.equal(format!("{name}: doctor's cpuidle driver"), &machine.cpuidle_driver, &None);
    if let Some(model) = words.iter().find_map(|word| word.strip_prefix("preempt=")) {
        let found = machine.preemption.to_lowercase();
        checks.that(format!("{name}: doctor's preemption model"), found.contains(model), found.as_str());
    }
    available(checks, &format!("{name}: doctor's levers"), &report, "lever", &LEVERS);
    available(checks, &format!("{name}: doctor's sensors"), &report, "sensor", &SENSORS);
    let reasons: Vec<&str> = IDLE_LEVERS
        .iter()
        .filter_map(|lever| report.capabilities.iter().find(|c| c.name == **lever)?.absent.as_deref())
        .collect();
    let explained =
        reasons.len() == IDLE_LEVERS.len() && reasons.iter().all(|reason| reason.contains("cpuidle"));
    checks.that(
        format!("{name}: doctor says that nothing heeds latency requests here"),
        explained,
        reasons.first().copied().unwrap_or_default(),
    );
    let count = guest.spec().cpus.count();
    checks.that(
        format!("{name}: doctor's gain speaks of one vCPU only where there is one"),
        report.gain.contains("only one vCPU") == (count == 1),
        report.gain.as_str(),
    );
    Ok(())
}

/// Checks that exactly the `expected` ones are available, and that all others have a reason.
fn available(checks: &mut Checks, what: &str, report: &Report, kind: &str, expected: &[&str]) {
    let of_kind = || report.capabilities.iter().filter(|capability| capability.kind == kind);
    let mut found: Vec<&str> = of_kind().filter(|c| c.absent.is_none()).map(|c| c.name.as_str()).collect();
    found.sort_unstable();
    let reasons = of_kind().all(|c| c.absent.as_ref().is_none_or(|reason| !reason.is_empty()));
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    checks.that(what, found == expected && reasons, found.join(" "));
}

/// Checks that the guest's own files agree with the machine's description.
fn topology(guest: &Guest, checks: &mut Checks, name: &str) -> Result<()> {
    let cpus = guest.spec().cpus;
    let siblings = guest.read_text("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list")?;
    let expected = if cpus.threads == 2 { "0-1" } else { "0" };
    checks.equal(format!("{name}: threads of the first core"), &siblings.as_str(), &expected);
    let nodes = guest.read_text("/sys/devices/system/node/online")?;
    let expected = if cpus.nodes > 1 { format!("0-{}", cpus.nodes - 1) } else { "0".to_owned() };
    checks.equal(format!("{name}: NUMA nodes"), &nodes, &expected);
    Ok(())
}

/// Checks that a workload runs under Gleaner, that its status is passed through, and that nothing is left behind.
fn run(guest: &Guest, checks: &mut Checks, name: &str) -> Result<()> {
    let before = levers(guest)?;
    let workload =
        ["gleaner", "run", "--", "gleaner", "workload", "request-response", "--for", "2s", "--json"];
    let output = guest.run(Step::new(&workload))?;
    checks.that(
        format!("{name}: a workload runs under gleaner"),
        output.success() && output.text().contains("operations"),
        output.errors().lines().next().unwrap_or_default(),
    );
    let status = guest.run(Step::new(&["gleaner", "run", "-q", "--", "sh", "-c", "exit 7"]))?;
    checks.equal(format!("{name}: the command's status passes through"), &status.exit, &crate::Exit::Code(7));
    let why = guest.run(Step::new(&["gleaner", "why"]))?;
    checks.that(
        format!("{name}: why reports the run"),
        why.success() && !why.stdout.is_empty(),
        why.errors(),
    );
    let after = levers(guest)?;
    checks.that(
        format!("{name}: control groups, affinity and latency requests are as before"),
        before == after,
        if before == after { "equal".to_owned() } else { format!("{before} became {after}") },
    );
    Ok(())
}

/// Everything in such a machine that Gleaner changes or could leave behind: groups, cpusets, enabled controllers,
/// latency requests, affinities.
pub(super) fn levers(guest: &Guest) -> Result<String> {
    guest.succeed(Step::shell(
        "cd /sys/fs/cgroup && find . -name 'gleaner-[0-9]*' | sort; \
         find . -name cpuset.cpus -exec grep -H . {} + | sort; \
         grep -H . cgroup.subtree_control; \
         cat /sys/devices/system/cpu/cpu*/power/pm_qos_resume_latency_us; \
         cat /sys/module/haltpoll/parameters/guest_halt_poll_ns 2>/dev/null; \
         cat /sys/devices/system/cpu/online; \
         grep Cpus_allowed_list /proc/1/status",
    ))
}

//! Claims 1 and 3, in real KVM guests: the haltpoll lever, and its veto under steal.

use std::time::Duration;

use gleaner_policy::{Event, ReleaseReason, Veto};
use gleaner_proto::journal::Record;

use crate::claims::measure::{Mode, sample};
use crate::claims::{Checks, Claim, ClaimHost, Target, doctor, journal};
use crate::error::Result;
use crate::image::Image;
use crate::kernel::Kernel;
use crate::vm::{Cpus, Guest, Lab, Step, VmSpec};

pub(super) const CLAIM: Claim = Claim {
    name: "haltpoll",
    group: 1,
    says: "in a KVM guest with cpuidle-haltpoll its limit is in force during a run and as before after it; while vCPUs \
           are stolen nothing is retained",
    quick: false,
    place: ClaimHost::NestedHost,
    prove,
};

const LIMIT: &str = "/sys/module/haltpoll/parameters/guest_halt_poll_ns";
const DRIVER: &str = "/sys/devices/system/cpu/cpuidle/current_driver";
const ADAPTIVE: Mode = Mode {
    name: "gleaner",
    prefix: &[
        "gleaner",
        "run",
        "-q",
        "--no-memory",
        "--method",
        "haltpoll",
        "--journal",
        journal::PATH,
        "--",
    ],
};
/// The limit of [`FIXED`] in ns, rather than the driver's default of 200 us. A vCPU starts to poll after a halt that
/// was shorter than the limit, and in a nested guest under emulation few halts are shorter than 200 us.
const IN_FORCE: &str = "5000000";
const FIXED: Mode = Mode {
    name: "haltpoll",
    prefix: &["gleaner", "run", "-q", "--fixed", "haltpoll:5000us", "--journal", journal::PATH, "--"],
};
const TIME: Duration = Duration::from_secs(6);

fn prove(lab: &Lab, checks: &mut Checks) -> Result<()> {
    let boot = |name| {
        let spec = VmSpec::new(name, Image::Tiny, Kernel::V6_12, Cpus::flat(2)).pinned_to(&[0, 1]);
        // By itself the driver only loads if the host sets the hint that vCPUs are dedicated.
        lab.boot(spec.cmdline(&["cpuidle_haltpoll.force=1"]))
    };
    let guest = boot("haltpoll")?;
    checks.equal("the cpuidle driver", &guest.read_text(DRIVER)?.as_str(), &"haltpoll");
    let report = doctor::report(&guest)?;
    checks.equal("doctor's cpuidle driver", &report.machine.cpuidle_driver.as_deref(), &Some("haltpoll"));
    let lever = report.capabilities.iter().find(|c| c.kind == "lever" && c.name == "haltpoll");
    let absent = lever.and_then(|lever| lever.absent.clone());
    let found = absent.clone().unwrap_or_else(|| "available".to_owned());
    checks.that("doctor has the haltpoll lever", lever.is_some() && absent.is_none(), found);
    lever_moves(&guest, checks)?;
    veto(&guest, &boot("neighbour")?, checks)?;
    guest.power_off()
}

fn lever_moves(guest: &Guest, checks: &mut Checks) -> Result<()> {
    let before = guest.read_text(LIMIT)?;
    // Its vCPUs are idle for moments again and again, wherever its threads run, since they sleep. A client and its
    // server could share a vCPU, and then no vCPU would poll.
    let words = [FIXED.prefix, &["gleaner", "workload", "freqsleep", "--for", "4s"]].concat();
    let job = guest.start(Step::new(&words))?;
    let limit = format!("until grep -qx {IN_FORCE} {LIMIT}; do sleep 0.05; done");
    let in_force = guest.run(Step::shell(&limit).timeout(Duration::from_secs(20)))?;
    checks.that("its limit is in force during a run", in_force.success(), in_force.exit.to_string());
    let output = job.wait()?;
    checks.that("the run succeeds", output.success(), output.errors().trim());
    checks.equal("its limit is as before after the run", &guest.read_text(LIMIT)?, &before);
    let polled = journal::summary(&journal::records(guest)?)?.retained;
    checks.that("idle vCPUs have polled", !polled.is_zero(), format!("{polled:.2?} of vCPU time"));
    Ok(())
}

/// Alone, retention goes on trial; beside a neighbour that computes on the same pCPUs it does not, or is released.
fn veto(guest: &Guest, neighbour: &Guest, checks: &mut Checks) -> Result<()> {
    let run = || {
        sample(guest, ADAPTIVE, &["request-response"], TIME)?;
        journal::records(guest)
    };
    let alone = Observed::of(&run()?);
    let hog = Step::new(&["gleaner", "workload", "matmul", "--for", "120s"]).timeout(TIME * 40);
    let hog = neighbour.start(hog)?;
    // Until the steal is seen, what was proven before can stay in effect.
    let beside = Observed::of(&run()?);
    hog.signal(nix::sys::signal::Signal::SIGKILL)?;
    hog.wait()?;
    checks.values("alone: stolen time", &[alone.stolen * 100.0], "%", Target::Reported);
    checks.that("alone: retention is tried", alone.tried > 0, format!("{} trials", alone.tried));
    checks.values("beside a neighbour: stolen time", &[beside.stolen * 100.0], "%", Target::AtLeast(10.0));
    let found = format!(
        "retained {:.1} % of the time after the first second, {} trials, {} released for the veto",
        beside.retained * 100.0,
        beside.tried,
        beside.vetoed
    );
    checks.that("beside a neighbour: the veto keeps retention away", beside.retained < 0.1, found);
    Ok(())
}

/// Stolen time and retention in a journal.
#[derive(Debug, Default)]
struct Observed {
    /// Stolen share of the vCPUs' time, 0..=1.
    stolen: f64,
    /// Share of the time after the first second with retention in effect, 0..=1.
    retained: f64,
    tried: usize,
    vetoed: usize,
}

impl Observed {
    fn of(records: &[Record]) -> Self {
        let mut observed = Self::default();
        let (mut time, mut late) = (0.0, 0.0);
        for record in records {
            match record {
                Record::Observation { in_force, observation, .. } => {
                    let period = observation.period.as_secs_f64();
                    let stolen: f64 = observation.vcpus.iter().map(|vcpu| vcpu.steal.as_secs_f64()).sum();
                    observed.stolen += stolen / observation.vcpus.len().max(1) as f64;
                    time += period;
                    if observation.at > Duration::from_secs(1) {
                        late += period;
                        observed.retained += if in_force.retention.is_on() { period } else { 0.0 };
                    }
                }
                Record::Decision { event: Event::TrialStarted { candidate, .. }, .. } => {
                    observed.tried += usize::from(candidate.retention.is_on());
                }
                Record::Decision {
                    event: Event::Released { why: ReleaseReason::Veto(Veto::Steal { .. }) },
                    ..
                } => {
                    observed.vetoed += 1;
                }
                _ => {}
            }
        }
        observed.stolen /= f64::max(time, f64::MIN_POSITIVE);
        observed.retained /= f64::max(late, f64::MIN_POSITIVE);
        observed
    }
}

//! What the daemon does for the services.

use super::{DECIDES_WITHIN, Machine, REDIS, SERVICE, describe, number, status, workload};
use crate::claims::packaged::{run, shell};
use crate::claims::{Checks, Target};
use crate::error::Result;

/// Pairs of samples, with help and paused.
const ROUNDS: usize = 3;
/// The service's own progress: how often its threads have waited for each other, in three seconds.
const HAND_OFFS: &str = "count() { cat /proc/$pid/task/*/status | awk '/^voluntary/ { n += $2 } END { print n }'; }; \
     pid=$(systemctl show -p MainPID --value pair); a=$(count); sleep 3; b=$(count); echo $((b - a))";
/// Requests of one connection.
const REQUESTS: &str = "redis-benchmark -t get -c 1 -n 1000 -q";

/// A service with both ends of its hand-offs is put on fewer vCPUs, through systemd, and gets faster.
pub(super) fn service(machine: &Machine<'_>, checks: &mut Checks) -> Result<()> {
    let guest = machine.guest;
    shell(guest, "systemctl start gleanerd")?;
    let helped = machine.until_helped()?;
    checks.that("status: the service is on fewer vCPUs, with the proof", helped.holds, helped.says);
    // While a trial repeats the proof, it has all of them now and then, and a proof that fails is repeated later.
    let shown = format!(
        "for n in $(seq {tenths}); do cpus=$(systemctl show -p AllowedCPUs --value {SERVICE}); \
         [ \"$cpus\" = 0 ] && break; sleep 0.1; done; echo $cpus; [ \"$cpus\" = 0 ] || gleaner why {SERVICE}",
        tenths = DECIDES_WITHIN.as_millis() / 100,
    );
    checks.equal("systemctl shows its vCPUs: AllowedCPUs", &shell(guest, &shown)?.as_str(), &"0");
    let mut faster = Vec::new();
    for _ in 0..ROUNDS {
        // Started anew, since its threads can stay on the one vCPU that they had.
        shell(guest, &format!("gleaner pause comparison && systemctl restart {SERVICE}"))?;
        let untouched = number(guest, HAND_OFFS)?;
        shell(guest, "gleaner resume")?;
        let again = machine.until_helped()?;
        if !again.holds {
            checks.that("it is helped again after a pause", false, again.says);
            break;
        }
        faster.push(number(guest, HAND_OFFS)? / untouched);
    }
    checks.ratios("the service, to the paused daemon", &faster, "×", Target::AtLeast(1.2));
    let why = shell(guest, &format!("gleaner why {SERVICE}"))?;
    let kept = why.lines().rev().find(|line| line.contains("kept") || line.contains("in force"));
    checks.that("why has the decision and its numbers", kept.is_some(), kept.unwrap_or(&why));
    shell(guest, "systemctl stop gleanerd")?;
    machine.as_before(checks, "stopped")?;
    let allowed = shell(guest, &format!("systemctl show -p AllowedCPUs --value {SERVICE}"))?;
    checks.equal("stopped: AllowedCPUs is not set", &allowed.as_str(), &"");
    shell(guest, "systemctl start gleanerd").map(drop)
}

/// The packaged redis, with a client elsewhere, is explained, too.
pub(super) fn redis(machine: &Machine<'_>, checks: &mut Checks) -> Result<()> {
    let guest = machine.guest;
    shell(guest, REQUESTS)?;
    let says = workload(&status(guest)?, REDIS).map(describe).unwrap_or_default();
    checks.that(
        "status: redis is there, with a reason",
        says.contains("reason: ") || says.contains("evidence: "),
        says,
    );
    let why = run(guest, &format!("gleaner why {REDIS}"))?;
    let first = why.text() + &why.errors();
    checks.that("why explains redis", why.success(), first.lines().next().unwrap_or_default());
    Ok(())
}

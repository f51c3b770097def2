//! The unit: what it may do, who may ask it, and what systemd does with it.

use super::{Machine, SERVICE, SERVICES, levers, status};
use crate::Output;
use crate::claims::Checks;
use crate::claims::packaged::{about_to_restart, is_whole, run, scrape, shell};
use crate::error::Result;
use crate::vm::Guest;

/// A file of the administrator's.
const ADDED: &str = "/etc/gleaner/gleaner.toml.d/50-lab.toml";
/// A command of a user in the group, and of one who is not in it.
const MEMBER: &str = "setpriv --reuid=1000 --regid=1000 --groups=$(grep ^gleaner: /etc/group | cut -d: -f3)";
const STRANGER: &str = "setpriv --reuid=1001 --regid=1001 --clear-groups";
/// Waits until systemd has started the daemon again.
const ACTIVE: &str = "until systemctl is-active -q gleanerd; do sleep 0.2; done";
/// The port of its metrics.
const PORT: u16 = 9839;

/// A load wakes the daemon, although Debian's kernel keeps perf events from it. Without an alarm the status says how often the
/// machine is read.
pub(super) fn alarm(guest: &Guest, checks: &mut Checks) -> Result<()> {
    let paranoid = shell(guest, "sysctl -n kernel.perf_event_paranoid")?;
    checks.that("the kernel keeps perf events from it", paranoid.trim() == "3", paranoid.trim().to_owned());
    let limits = status(guest)?["limits"].as_array().cloned();
    let reads = |limit: &serde_json::Value| limit.as_str().is_some_and(|text| text.contains("is read every"));
    let is_woken = limits.as_ref().is_some_and(|limits| !limits.iter().any(reads));
    checks.that("the daemon is woken when a load begins", is_woken, format!("limits: {limits:?}"));
    Ok(())
}

/// Who may ask the daemon what.
pub(super) fn access(guest: &Guest, checks: &mut Checks) -> Result<()> {
    let read = run(guest, &format!("{MEMBER} gleaner status"))?;
    checks.that("a member of the group reads the status", read.success(), first_line(&read));
    for verb in ["pause", "resume", "reload", "detach pair"] {
        let refused = run(guest, &format!("{MEMBER} gleaner {verb}"))?;
        checks.that(
            format!("a member of the group is refused `{verb}`"),
            !refused.success(),
            first_line(&refused),
        );
    }
    let refused = run(guest, &format!("{STRANGER} gleaner status"))?;
    checks.that("another user is refused the status", !refused.success(), first_line(&refused));
    Ok(())
}

/// Decisions in the journal have fields.
pub(super) fn log(guest: &Guest, checks: &mut Checks) -> Result<()> {
    let fields = format!(
        "journalctl GLEANER_WORKLOAD={SERVICE} GLEANER_EVENT=trial-ended -o json --no-pager | tail -n 1"
    );
    let line = shell(guest, &fields)?;
    let record: serde_json::Value = serde_json::from_str(&line).unwrap_or_default();
    let present: Vec<String> = record
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| name.starts_with("GLEANER_"))
        .map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default()))
        .collect();
    checks.that("the journal has a decision with its fields", present.len() > 3, present.join(" "));
    Ok(())
}

/// What a reload does with a good file and with a bad one.
pub(super) fn reload(machine: &Machine<'_>, checks: &mut Checks) -> Result<()> {
    let guest = machine.guest;
    guest.write(ADDED, 0o644, b"exclude = [{ unit = \"pair.service\" }]\n")?;
    let output = run(guest, "systemctl reload gleanerd")?;
    let excluded = machine.until(|of| of["state"] != "engaged")?;
    let in_force = output.success() && excluded.holds;
    checks.that("reload: a good file is in force", in_force, excluded.says + output.errors().trim());
    machine.as_before(checks, "reload: excluded")?;
    guest.write(ADDED, 0o644, b"exclude = [\n  { unti = \"pair.service\" },\n]\n")?;
    let output = run(guest, "systemctl reload gleanerd")?;
    let log = shell(guest, "journalctl -u gleanerd -o cat --no-pager -n 30")?;
    let line =
        log.lines().rev().find(|line| line.contains("50-lab.toml")).unwrap_or("no line names the file");
    let named = !output.success() && line.contains("50-lab.toml:2:");
    checks.that("reload: a bad file is refused, with its name and line", named, line);
    let state = shell(guest, "systemctl is-active gleanerd; true")?;
    checks.equal("reload: the daemon goes on", &state.as_str(), &"active");
    let excluded = machine.until(|of| of["state"] != "engaged")?;
    checks.that("reload: with the old configuration", excluded.holds, excluded.says);
    shell(guest, &format!("rm {ADDED} && systemctl reload gleanerd"))?;
    let helped = machine.until_helped()?;
    checks.that("reload: without the file the service is helped again", helped.holds, helped.says);
    Ok(())
}

/// A killed daemon, and one that hangs.
pub(super) fn faults(machine: &Machine<'_>, checks: &mut Checks) -> Result<()> {
    let guest = machine.guest;
    for (what, signal) in [("killed", "KILL"), ("hung", "STOP")] {
        let helped = machine.until_helped()?;
        checks.that(format!("{what}: the service is helped before"), helped.holds, helped.says);
        shell(
            guest,
            &format!(
                "systemctl kill --kill-whom=main --signal={signal} gleanerd && {}",
                about_to_restart("gleanerd")
            ),
        )?;
        let after = levers(guest, SERVICES)?;
        let state = shell(guest, "systemctl show -p SubState --value gleanerd")?;
        machine.compare(checks, &format!("{what}, {state}"), &after);
        shell(guest, ACTIVE)?;
    }
    let log = shell(guest, "journalctl -u gleanerd -o cat --no-pager | grep -i 'watchdog timeout'; true")?;
    checks.that("hung: the watchdog has found it", !log.is_empty(), log);
    let restarts = shell(guest, "systemctl show -p NRestarts --value gleanerd")?;
    checks.equal("systemd has started it again both times", &restarts.as_str(), &"2");
    Ok(())
}

/// Metrics, from a listener that systemd opens.
pub(super) fn metrics(guest: &Guest, checks: &mut Checks) -> Result<()> {
    let closed = scrape(guest, PORT)?;
    checks.that("metrics over TCP are off", !closed.success(), last_line(&closed));
    shell(guest, "systemctl enable -q gleanerd-metrics.socket && systemctl restart gleanerd")?;
    let text = scrape(guest, PORT)?;
    let metrics = text.text().lines().filter(|line| line.starts_with("gleaner_")).count();
    checks.that(
        "systemd's socket serves them",
        is_whole(&text),
        format!("{metrics} samples {}", last_line(&text)),
    );
    shell(guest, "systemctl stop gleanerd")?;
    let closed = scrape(guest, PORT)?;
    let state = shell(guest, "systemctl is-active gleanerd; true")?;
    let stays = !closed.success() && state == "inactive";
    checks.that(
        "a scrape starts no daemon that was stopped",
        stays,
        format!("{state}; {}", last_line(&closed)),
    );
    shell(guest, "systemctl disable -q gleanerd-metrics.socket").map(drop)
}

fn first_line(output: &Output) -> String {
    (output.text() + &output.errors()).lines().next().unwrap_or_default().to_owned()
}

fn last_line(output: &Output) -> String {
    (output.text() + &output.errors()).trim().lines().last().unwrap_or_default().to_owned()
}

//! The haltpoll governor's limit (kernel: drivers/cpuidle/governors/haltpoll.c).
//!
//! The governor keeps a poll limit per CPU that no file shows. A halt of at most `guest_halt_poll_ns` but
//! longer than the CPU's limit raises that: from 0 to `grow_start`, then by the factor `grow`. A halt longer
//! than `guest_halt_poll_ns` divides it by `shrink` (0: sets it to 0), if `allow_shrink`. Hence:
//! - `grow_start` = limit: one halt is enough to reach the limit.
//! - A limit that is raised or kept must not shrink: the policy has already taken long idle periods into
//!   account, and a CPU whose limit shrank pays for the poll *and* the halt in each idle period until it has
//!   grown back.
//! - Except while some vCPUs are inactive: without shrinking, these would poll after every stray wake-up. One
//!   long halt resets the limit of such a vCPU, and a short halt of a working vCPU restores it.
//! - A limit that is lowered or removed must be allowed to shrink, otherwise each CPU keeps the higher one for
//!   good. The change takes effect at the CPU's first halts; a CPU that never halts keeps polling up to its old
//!   limit.

use std::path::PathBuf;
use std::time::Duration;

use super::{LeverError, Write};
use crate::Root;

/// Directory of the governor's parameters.
pub const PARAMETERS: &str = "/sys/module/haltpoll/parameters";

/// The divisor of a released limit: one halt resets it.
const SHRINK: &str = "0";

fn parameter(name: &str) -> PathBuf {
    PathBuf::from(PARAMETERS).join(format!("guest_halt_poll_{name}"))
}

/// Whether the haltpoll governor decides how long idle vCPUs poll, regardless of who set its parameters.
///
/// # Errors
/// [`LeverError::Unavailable`] with the reason and the remedy.
pub fn is_in_use(root: &Root) -> Result<(), LeverError> {
    let unavailable = |reason: String| LeverError::Unavailable { lever: "haltpoll", reason };
    if root.read_opt(parameter("ns"))?.is_none() {
        return Err(unavailable("the kernel has no haltpoll governor (CONFIG_HALTPOLL_CPUIDLE)".into()));
    }
    let governor = root.read_opt("/sys/devices/system/cpu/cpuidle/current_governor")?;
    let governor = match governor {
        Some(name) => name,
        None => root.read_opt("/sys/devices/system/cpu/cpuidle/current_governor_ro")?.unwrap_or_default(),
    };
    let driver = root.read_opt("/sys/devices/system/cpu/cpuidle/current_driver")?.unwrap_or_default();
    if driver.is_empty() || driver == "none" {
        return Err(unavailable(
            "there is no cpuidle driver; load it with `modprobe cpuidle_haltpoll`".into(),
        ));
    }
    if governor != "haltpoll" {
        return Err(unavailable(format!(
            "the governor in use is `{governor}`, which ignores its parameters"
        )));
    }
    Ok(())
}

/// Whether the governor exists, is in use, and can be restored.
///
/// # Errors
/// [`LeverError::Unavailable`] with the reason and the remedy.
pub fn available(root: &Root) -> Result<(), LeverError> {
    is_in_use(root)?;
    // The limits per CPU grow and are hidden: unless they can shrink, restoring the parameters would leave them
    // grown.
    let parameter = parameter("allow_shrink");
    if root.read(&parameter)? != "Y" {
        let reason = format!(
            "{} is off, so that what it changes could not be undone; write Y to it first",
            parameter.display()
        );
        return Err(LeverError::Unavailable { lever: "haltpoll", reason });
    }
    Ok(())
}

/// The limit in force.
pub fn limit(root: &Root) -> Result<Duration, LeverError> {
    Ok(Duration::from_nanos(root.parse(parameter("ns"), "a number of nanoseconds")?))
}

/// The writes that make idle vCPUs poll for `limit` before they halt. Zero turns polling off.
///
/// `some_inactive`: some vCPUs are inactive. `in_force` is the limit that Gleaner set last (initially
/// [`Duration::ZERO`]); limits of 2^32 ns (4.29 s) or more are capped. Undoing reverses the order, so that
/// `allow_shrink` is restored last.
pub fn writes(limit: Duration, in_force: Duration, some_inactive: bool) -> Vec<Write> {
    let ns = u32::try_from(limit.as_nanos()).unwrap_or(u32::MAX).to_string();
    let hold = !limit.is_zero() && limit >= in_force && !some_inactive;
    let mut writes = vec![Write::text(parameter("allow_shrink"), if hold { "N" } else { "Y" })];
    if !hold {
        writes.push(Write::text(parameter("shrink"), SHRINK));
    }
    if !limit.is_zero() {
        writes.push(Write::text(parameter("grow_start"), ns.as_str()));
    }
    writes.push(Write::text(parameter("ns"), ns));
    writes
}

/// The writes that make each vCPU reset its poll limit at its next halt, whatever set it: a latency request of
/// 0 leaves a limit of a sixteenth of a tick behind (drivers/cpuidle/cpuidle.c, `cpuidle_poll_time`).
pub fn reset() -> Vec<Write> {
    writes(Duration::ZERO, Duration::ZERO, false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn lines(limit_us: u64, in_force_us: u64) -> Vec<String> {
        texts(&writes(Duration::from_micros(limit_us), Duration::from_micros(in_force_us), false))
    }

    fn texts(writes: &[Write]) -> Vec<String> {
        writes
            .iter()
            .map(|write| write.to_string().replace("/sys/module/haltpoll/parameters/guest_halt_poll_", ""))
            .collect()
    }

    #[test]
    fn a_raised_limit_is_reached_at_once_and_held() {
        assert_eq!(lines(200, 0), ["allow_shrink = N", "grow_start = 200000", "ns = 200000"]);
        assert_eq!(lines(200, 200), lines(200, 0));
    }

    #[test]
    fn a_lowered_limit_may_shrink() {
        assert_eq!(lines(50, 200), ["allow_shrink = Y", "shrink = 0", "grow_start = 50000", "ns = 50000"]);
        assert_eq!(lines(0, 200), ["allow_shrink = Y", "shrink = 0", "ns = 0"]);
    }

    #[test]
    fn while_vcpus_are_inactive_the_limit_is_allowed_to_shrink() {
        let limit = Duration::from_micros(200);
        let lines = texts(&writes(limit, limit, true));
        assert_eq!(lines, ["allow_shrink = Y", "shrink = 0", "grow_start = 200000", "ns = 200000"]);
    }

    #[test]
    fn limits_beyond_the_kernels_type_are_capped() {
        assert!(lines(10_000_000, 0).contains(&"ns = 4294967295".to_owned()));
    }

    #[test]
    fn availability_names_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let reason = |part: &str| {
            let error = available(&root).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        };
        reason("no haltpoll governor");
        fs::create_dir_all(root.path(PARAMETERS)).unwrap();
        fs::write(root.path(parameter("ns")), "100000\n").unwrap();
        reason("no cpuidle driver");
        let cpuidle = root.path("/sys/devices/system/cpu/cpuidle");
        fs::create_dir_all(&cpuidle).unwrap();
        fs::write(cpuidle.join("current_driver"), "haltpoll\n").unwrap();
        fs::write(cpuidle.join("current_governor_ro"), "menu\n").unwrap();
        reason("governor in use is `menu`");
        fs::write(cpuidle.join("current_governor"), "haltpoll\n").unwrap();
        fs::write(root.path(parameter("allow_shrink")), "N\n").unwrap();
        is_in_use(&root).unwrap();
        reason("could not be undone");
        fs::write(root.path(parameter("allow_shrink")), "Y\n").unwrap();
        available(&root).unwrap();
        assert_eq!(limit(&root).unwrap(), Duration::from_micros(100));
    }
}

//! A latency request per CPU that keeps its idle loop polling without bound (kernel:
//! drivers/base/power/sysfs.c, `pm_qos_resume_latency_us`).
//!
//! The file holds `0` for no request and `n/a` for no latency accepted, both when read and written. All of user
//! space shares this one request, and it survives its writer: only a lease makes it safe.

use std::path::PathBuf;

use gleaner_policy::{CpuId, CpuSet};

use super::{LeverError, Write};
use crate::Root;

/// No latency is accepted: the CPU polls when idle.
pub const POLL: &str = "n/a";

/// No request: the CPU can enter any idle state.
pub const FREE: &str = "0";

/// The file of one CPU.
pub fn file(cpu: CpuId) -> PathBuf {
    PathBuf::from(format!("/sys/devices/system/cpu/cpu{cpu}/power/pm_qos_resume_latency_us"))
}

/// Whether the idle loop obeys latency requests here.
///
/// # Errors
/// [`LeverError::Unavailable`]: without a cpuidle driver (most KVM guests) nothing reads the request.
pub fn available(root: &Root) -> Result<(), LeverError> {
    let unavailable = |reason: String| LeverError::Unavailable { lever: "qos-poll", reason };
    let driver = root.read_opt("/sys/devices/system/cpu/cpuidle/current_driver")?.unwrap_or_default();
    if driver.is_empty() || driver == "none" {
        return Err(unavailable("there is no cpuidle driver, and nothing else reads the request".into()));
    }
    if !root.exists(file(CpuId(0))) {
        return Err(unavailable(format!("{} does not exist (CONFIG_PM)", file(CpuId(0)).display())));
    }
    Ok(())
}

/// The writes that make exactly the vCPUs of `polling`, out of `all`, poll when idle.
///
/// The first list holds the requests. The second lists the files of the other vCPUs: the engine undoes its
/// leases on them instead of writing [`FREE`], since another program's request might have been there before.
pub fn writes(polling: &CpuSet, all: &CpuSet) -> (Vec<Write>, Vec<PathBuf>) {
    let on = polling.intersection(all).iter().map(|cpu| Write::text(file(cpu), POLL)).collect();
    let off = all.difference(polling).iter().map(file).collect();
    (on, off)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_for_the_active_and_release_of_the_others() {
        let polling: CpuSet = "1".parse().unwrap();
        let (on, off) = writes(&polling, &CpuSet::first(2));
        assert_eq!(on, [Write::text("/sys/devices/system/cpu/cpu1/power/pm_qos_resume_latency_us", "n/a")]);
        assert_eq!(off, [file(CpuId(0))]);
    }

    #[test]
    fn without_a_driver_it_is_a_no_op_and_says_so() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let cpuidle = root.path("/sys/devices/system/cpu/cpuidle");
        std::fs::create_dir_all(&cpuidle).unwrap();
        std::fs::write(cpuidle.join("current_driver"), "none\n").unwrap();
        assert!(available(&root).unwrap_err().to_string().contains("no cpuidle driver"));
    }
}

//! Control groups, one for each VM, and the pCPU time that VMs get.

use std::fs;
use std::path::PathBuf;

use super::failed;
use crate::error::{Error, Result};
use crate::vm::Guest;

const ROOT: &str = "/sys/fs/cgroup";

/// Lets groups have weights.
pub(super) fn enable() -> Result<()> {
    write(format!("{ROOT}/cgroup.subtree_control"), "+cpu")
}

/// Gives the VM a group of its own, of the default weight.
pub(super) fn give_own(guest: &Guest) -> Result<()> {
    let group = of(guest);
    fs::create_dir_all(&group).map_err(Error::file("make", &group))?;
    write(group.join("cgroup.procs"), &guest.pid().to_string())
}

pub(super) fn set_weight(guest: &Guest, weight: u32) -> Result<()> {
    write(of(guest).join("cpu.weight"), &weight.to_string())
}

/// ns that the guest's vCPUs have run so far.
pub(super) fn ran(guest: &Guest) -> Result<f64> {
    let mut total = 0.0;
    for thread in guest.vcpu_threads()? {
        let path = format!("/proc/{}/task/{thread}/schedstat", guest.pid());
        let text = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
        let first = text.split_whitespace().next().and_then(|word| word.parse::<f64>().ok());
        total += first.ok_or_else(|| failed(format!("{path} has `{text}`")))?;
    }
    Ok(total)
}

fn of(guest: &Guest) -> PathBuf {
    PathBuf::from(format!("{ROOT}/{}", guest.spec().name))
}

fn write(path: impl Into<PathBuf>, text: &str) -> Result<()> {
    let path = path.into();
    fs::write(&path, text).map_err(Error::file("write", &path))
}

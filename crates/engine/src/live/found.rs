//! A workload that already runs: what is needed to observe and control it.

use std::path::{Path, PathBuf};

use gleaner_kernel::cgroup::{CgroupSetup, GroupUnavailable, WorkloadGroup};
use gleaner_kernel::lever::affinity::Affinity;
use gleaner_kernel::lever::{LeverError, Target, ThreadKey, Value};
use gleaner_kernel::workload::{Members, Owner, WorkloadSensor};
use gleaner_kernel::{KernelError, Root};
use gleaner_policy::CpuSet;
use nix::unistd::{Pid, geteuid};

use super::{ActiveSetLever, LiveError, ProcessFd};
use crate::memory::program_of_process;

/// Why a workload cannot be controlled.
#[derive(Debug, thiserror::Error)]
pub enum FoundError {
    /// The process is the kernel's own.
    #[error("process {pid} ({command}) is a kernel thread: it has no user-space threads to help")]
    KernelThread {
        /// Its PID.
        pid: u32,
        /// Its name.
        command: String,
    },
    /// The process belongs to somebody else.
    #[error(
        "process {pid} ({command}) belongs to user {uid}, and user {caller} may not place its threads: run as root or \
         as user {uid}, or only watch with --dry-run"
    )]
    Foreign {
        /// Its PID.
        pid: u32,
        /// Its name.
        command: String,
        /// Its user.
        uid: u32,
        /// The user of this process.
        caller: u32,
    },
    /// The process has ended, or cannot be looked at.
    #[error("process {pid}: {error}")]
    Process {
        /// Its PID.
        pid: u32,
        /// What failed.
        error: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The control group cannot be used.
    #[error(transparent)]
    Group(#[from] GroupUnavailable),
    /// The control group does not say on which CPUs it is allowed to run.
    #[error("{} does not show its CPUs", dir.display())]
    NoCpus {
        /// Its directory.
        dir: PathBuf,
    },
    /// Its counters cannot be read.
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

/// A running workload.
#[derive(Debug)]
pub struct Found {
    /// What it is called in messages.
    pub name: String,
    /// The name under which its memory is stored.
    pub program: Option<String>,
    /// How its active set is controlled.
    pub place: ActiveSetLever,
    /// Its counters.
    pub workload: WorkloadSensor,
    /// The vCPUs that it is allowed to use.
    pub allowed: CpuSet,
    /// The process whose end is its end; without one, that is the end of its last process.
    pub process: Option<(Pid, ProcessFd)>,
    /// Its control group, as in `/proc/PID/cgroup`, if it is one.
    pub group: Option<PathBuf>,
}

impl Found {
    /// The process `pid` with its descendants. To only observe it (`observes`), no right to place its threads is needed.
    ///
    /// # Errors
    /// It has ended, is the kernel's, or belongs to somebody else.
    pub fn process(root: &Root, pid: u32, observes: bool) -> Result<Self, FoundError> {
        let failed = |error: Box<dyn std::error::Error + Send + Sync>| FoundError::Process { pid, error };
        let number = Pid::from_raw(pid.cast_signed());
        let process = ProcessFd::open(number).map_err(|e: LiveError| failed(e.into()))?;
        let command = root.read(format!("/proc/{pid}/comm")).unwrap_or_default();
        let caller = geteuid().as_raw();
        match Owner::of(root, pid).map_err(|e| failed(e.into()))? {
            Owner::Kernel => return Err(FoundError::KernelThread { pid, command }),
            owner @ Owner::User { uid, .. } if !observes && !owner.lets(root, caller) => {
                return Err(FoundError::Foreign { pid, command, uid, caller });
            }
            Owner::User { .. } => {}
        }
        let key = ThreadKey::of(root, pid).map_err(|e| failed(e.into()))?;
        let affinity: Result<Value, LeverError> = Target::Affinity(key).read(root);
        let Value::Cpus(allowed) = affinity.map_err(|e| failed(e.into()))? else {
            return Err(failed("it has no affinity".into()));
        };
        Ok(Self {
            name: format!("process {pid} ({command})"),
            program: program_of_process(root, pid),
            place: ActiveSetLever::Threads(Affinity::new(allowed.clone())),
            workload: WorkloadSensor::new(root, Members::Tree(pid))?.with_quotas(quotas(root, pid)),
            allowed,
            process: Some((number, process)),
            group: None,
        })
    }

    /// Every process in a control group: its directory, or its path as in `/proc/PID/cgroup`.
    ///
    /// # Errors
    /// There is no such group, or its CPU set cannot be changed.
    pub fn group(root: &Root, path: &Path) -> Result<Self, FoundError> {
        let setup = CgroupSetup::detect(root)?;
        let group = WorkloadGroup::existing(root, &setup, path)?;
        let dir = group.cpuset_dir().to_owned();
        let effective = ["cpuset.cpus.effective", "cpuset.effective_cpus"]
            .iter()
            .find_map(|name| root.read_opt(dir.join(name)).ok().flatten());
        let allowed: Option<CpuSet> = effective.and_then(|text| text.parse().ok());
        let allowed = allowed.ok_or_else(|| FoundError::NoCpus { dir: dir.clone() })?;
        let sensor = group_sensor(root, &group)?;
        // In cgroup v1 quotas are in another hierarchy, which can only be found through a member process.
        let member =
            root.read_opt(dir.join("cgroup.procs"))?.and_then(|text| text.lines().next()?.parse().ok());
        let sensor = match member {
            Some(pid) => sensor.with_quotas(quotas(root, pid)),
            None => sensor,
        };
        let path = setup.find(root, &dir).ok().map(|group| Path::new("/").join(group.relative));
        Ok(Self {
            name: format!("group {}", dir.display()),
            program: path.as_ref().map(|path| path.to_string_lossy().into_owned()),
            workload: sensor,
            place: ActiveSetLever::Group(group),
            allowed,
            process: None,
            group: path,
        })
    }
}

/// The sensor for a group's processes.
///
/// # Errors
/// The group's counters cannot be read.
pub fn group_sensor(root: &Root, group: &WorkloadGroup) -> Result<WorkloadSensor, KernelError> {
    let sensor = WorkloadSensor::new(root, Members::Cgroup(group.cpuset_dir().to_owned()))?;
    match group.accounting_dir() {
        Some(dir) => sensor.with_accounting(dir),
        None => Ok(sensor),
    }
}

/// The groups whose CPU quotas apply to process `pid`; empty if unknown, or if it has ended.
pub fn quotas(root: &Root, pid: u32) -> Vec<PathBuf> {
    let setup = CgroupSetup::of_process(root, pid);
    setup.map(|setup| setup.quota_dirs()).unwrap_or_default()
}

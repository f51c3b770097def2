//! A workload that already runs: what is needed to observe and control it.

mod place;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use gleaner_kernel::cgroup::{CgroupSetup, GroupUnavailable, NamedGroup, WorkloadGroup};
use gleaner_kernel::lever::{LeverError, Target, ThreadKey, Value};
use gleaner_kernel::workload::{MemberList, Members, Owner, WorkloadSensor};
use gleaner_kernel::{KernelError, Root};
use gleaner_policy::CpuSet;
use gleaner_proto::memory::TOGETHER;
use nix::unistd::{Pid, geteuid};

use super::{ActiveSetLever, LiveError, ProcessFd};
use crate::memory::program_of_process;
use place::Place;

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
    /// Parts of a workload are allowed to use different vCPUs.
    #[error("they are allowed to use different vCPUs")]
    Apart,
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
    /// The processes of which the first to end is its end; without any, that is the end of its last process.
    pub heads: Vec<ProcessFd>,
    /// Its control group, as in `/proc/PID/cgroup`, if it is one.
    pub group: Option<PathBuf>,
    /// Why its set of vCPUs is left alone ([`ActiveSetLever::Untouched`]), as a clause.
    pub own_set: Option<String>,
}

impl Found {
    /// The process `pid` with its descendants. To only observe it (`observes`), no right to place its threads is needed.
    ///
    /// # Errors
    /// It has ended, is the kernel's, or belongs to somebody else.
    pub fn process(root: &Root, pid: u32, observes: bool) -> Result<Self, FoundError> {
        let failed = |error: Box<dyn std::error::Error + Send + Sync>| FoundError::Process { pid, error };
        let process =
            ProcessFd::open(Pid::from_raw(pid.cast_signed())).map_err(|e: LiveError| failed(e.into()))?;
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
        let Place { lever, allowed, own_set } = Place::of_process(root, allowed)?;
        Ok(Self {
            name: format!("process {pid} ({command})"),
            program: program_of_process(root, pid),
            place: lever,
            workload: WorkloadSensor::new(root, Members::Tree(pid))?.with_quotas(quotas(root, pid)),
            allowed,
            heads: vec![process],
            group: None,
            own_set,
        })
    }

    /// Every process in a control group: its directory, or its path as in `/proc/PID/cgroup`.
    ///
    /// # Errors
    /// There is no such group, or it is the root group.
    pub fn group(root: &Root, path: &Path) -> Result<Self, FoundError> {
        let setup = CgroupSetup::detect(root)?;
        let named = setup.find(root, path)?;
        if named.is_root() {
            return Err(GroupUnavailable::IsRoot { path: named.dir() }.into());
        }
        let group = match WorkloadGroup::existing(root, &setup, &named.dir()) {
            Ok(group) => Some(group),
            Err(GroupUnavailable::Kernel(error)) => return Err(error.into()),
            // It has no CPU set, or one that is not ours to change.
            Err(_) => None,
        };
        let dir = group.as_ref().map_or_else(|| named.dir(), |group| group.cpuset_dir().to_owned());
        let members = MemberList::of_group(root, &dir)?;
        let sensor = match &group {
            Some(group) => group_sensor(root, group)?,
            None => sensor_without_cpuset(root, &setup, &named)?,
        };
        // In cgroup v1 quotas are in another hierarchy, which can only be found through a member process.
        let sensor = match members.processes.first() {
            Some(pid) => sensor.with_quotas(quotas(root, *pid)),
            None => sensor,
        };
        let place = Place::of_group(root, &setup, &named, group, &members)?;
        let Place { lever, allowed, own_set } =
            place.ok_or_else(|| FoundError::NoCpus { dir: dir.clone() })?;
        let path = Path::new("/").join(&named.relative);
        Ok(Self {
            name: format!("group {}", dir.display()),
            program: Some(path.to_string_lossy().into_owned()),
            workload: sensor,
            place: lever,
            allowed,
            heads: Vec::new(),
            group: Some(path),
            own_set,
        })
    }

    /// All of these as one workload. It ends when one of the processes does; its set is left alone if that of one of them
    /// is.
    ///
    /// # Errors
    /// One of them has ended, or they are allowed to use different vCPUs.
    pub fn together(root: &Root, parts: Vec<Self>) -> Result<Self, FoundError> {
        let sensors: Vec<&WorkloadSensor> = parts.iter().map(|part| &part.workload).collect();
        let workload = WorkloadSensor::together(root, &sensors)?;
        let allowed = parts.first().map(|part| part.allowed.clone()).unwrap_or_default();
        if parts.iter().any(|part| part.allowed != allowed) {
            return Err(FoundError::Apart);
        }
        let names: Vec<&str> = parts.iter().map(|part| part.name.as_str()).collect();
        let programs: Option<BTreeSet<&str>> = parts.iter().map(|part| part.program.as_deref()).collect();
        let programs = programs.map(|programs| match programs.into_iter().collect::<Vec<_>>().as_slice() {
            // Not what is known of one of them alone.
            [of_all] if parts.len() > 1 => [*of_all, *of_all].join(TOGETHER),
            programs => programs.join(TOGETHER),
        });
        let mut all = Self {
            name: names.join(" and "),
            program: programs,
            place: ActiveSetLever::Untouched,
            workload,
            allowed,
            heads: Vec::new(),
            group: None,
            own_set: None,
        };
        let mut levers = Vec::new();
        for part in parts {
            all.heads.extend(part.heads);
            all.own_set = all.own_set.or(part.own_set);
            levers.push((part.place, part.workload));
        }
        if all.own_set.is_none() {
            all.place = ActiveSetLever::Several(levers);
        }
        Ok(all)
    }
}

/// The sensor for a group's processes.
///
/// # Errors
/// The group's counters cannot be read.
pub fn group_sensor(root: &Root, group: &WorkloadGroup) -> Result<WorkloadSensor, KernelError> {
    sensor(root, group.cpuset_dir(), group.accounting_dir())
}

fn sensor_without_cpuset(
    root: &Root,
    setup: &CgroupSetup,
    named: &NamedGroup,
) -> Result<WorkloadSensor, KernelError> {
    let dir = named.dir();
    let is_v2 = setup.v2.as_ref().is_some_and(|v2| v2.mount == named.mount);
    let accounting = if is_v2 {
        Some(dir.clone())
    } else {
        setup.v1.get("cpuacct").map(|cpuacct| cpuacct.mount.join(&named.relative))
    };
    sensor(root, &dir, accounting.filter(|dir| root.exists(dir)).as_deref())
}

fn sensor(root: &Root, dir: &Path, accounting: Option<&Path>) -> Result<WorkloadSensor, KernelError> {
    let sensor = WorkloadSensor::new(root, Members::Cgroup(dir.to_owned()))?;
    match accounting {
        Some(dir) => sensor.with_accounting(dir),
        None => Ok(sensor),
    }
}

/// The groups whose CPU quotas apply to process `pid`; empty if unknown, or if it has ended.
pub fn quotas(root: &Root, pid: u32) -> Vec<PathBuf> {
    let setup = CgroupSetup::of_process(root, pid);
    setup.map(|setup| setup.quota_dirs()).unwrap_or_default()
}

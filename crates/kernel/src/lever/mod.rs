//! What can be changed on a machine, as data: a lever turns a wanted state into a list of [`Write`]s.
//!
//! A lever never writes by itself. The engine's lease book reads each [`Target`], records the old and the new
//! [`Value`], and only then writes; undoing compares with the new value and restores the old one.

pub mod affinity;
pub mod cpuset;
pub mod dma_latency;
pub mod haltpoll;
pub mod pm_qos;
pub mod sched_policy;
pub mod unit;
pub mod yield_threads;

mod error;
mod group;
mod systemctl;
mod thread;
mod visit;
mod walk;

use std::fmt;
use std::path::{Path, PathBuf};

use gleaner_policy::CpuSet;
use serde::{Deserialize, Serialize};

use crate::Root;

pub use error::LeverError;
pub use thread::{SchedAttr, SchedPolicy, ThreadKey};
pub use visit::visit;
pub use walk::{Inherited, MAX_PASSES, ThreadPlan, WalkOutcome, walk};

/// Something that can be read, changed and restored. Paths are absolute and without the root's prefix.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// A kernel file; its value is [`Value::Text`].
    File(PathBuf),
    /// The CPU affinity of a thread; its value is [`Value::Cpus`].
    Affinity(ThreadKey),
    /// A thread's scheduling policy; its value is [`Value::Scheduling`].
    Scheduling(ThreadKey),
    /// Whether a control group exists; its value is [`Value::Group`].
    ///
    /// Creating a cgroup v1 cpuset also copies its parent's CPUs and memory nodes, since it accepts no process
    /// without them. Before a group is removed its processes are moved to `home`.
    Group {
        /// The group's directory.
        path: PathBuf,
        /// The group that its first process came from, in the same hierarchy. If that no longer exists or
        /// accepts no processes, they go to the remover's own.
        home: PathBuf,
    },
    /// Whether a cgroup v2 group delegates a controller to its children (`cgroup.subtree_control`); its value
    /// is [`Value::Group`]. Not a [`Target::File`], because the file reads as a list but is written as `+name`
    /// or `-name`, so writing back the text that was read would not undo anything.
    Controller(PathBuf, String),
    /// The vCPUs of a unit that systemd runs (`AllowedCPUs=`); its value is [`Value::Cpus`] or [`Value::Unset`].
    UnitCpus {
        /// The unit's name.
        unit: String,
        /// The directory of its control group.
        group: PathBuf,
    },
}

/// The state of a [`Target`]. Texts are compared without surrounding white space.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Value {
    /// The content of a kernel file.
    Text(String),
    /// A set of CPUs.
    Cpus(CpuSet),
    /// A scheduling policy with its parameters.
    Scheduling(SchedAttr),
    /// Whether a group (or a controller in it) exists.
    Group(GroupState),
    /// A property that has no value of its own.
    Unset,
}

/// Whether a group exists, or a controller is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GroupState {
    /// The group does not exist, or the controller is off.
    Absent,
    /// The group exists, or the controller is on.
    Present,
}

/// A change to make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    /// The target to change.
    pub target: Target,
    /// Its new value.
    pub value: Value,
}

impl Write {
    /// Writes `text` to a kernel file.
    pub fn text(path: impl Into<PathBuf>, text: impl Into<String>) -> Self {
        Self { target: Target::File(path.into()), value: Value::Text(text.into()) }
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Text(a), Self::Text(b)) => a.trim() == b.trim(),
            (Self::Cpus(a), Self::Cpus(b)) => a == b,
            (Self::Scheduling(a), Self::Scheduling(b)) => a == b,
            (Self::Group(a), Self::Group(b)) => a == b,
            (Self::Unset, Self::Unset) => true,
            _ => false,
        }
    }
}

impl Eq for Value {}

impl Target {
    /// Whether this is a setting of a thread: the thread can change it, too, and its children inherit it.
    pub fn is_of_thread(&self) -> bool {
        matches!(self, Self::Affinity(_) | Self::Scheduling(_))
    }

    /// The file or directory, if the target has one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::File(path) | Self::Group { path, .. } | Self::Controller(path, _) => Some(path),
            Self::Affinity(_) | Self::Scheduling(_) | Self::UnitCpus { .. } => None,
        }
    }

    /// The present value.
    ///
    /// # Errors
    /// [`LeverError::Gone`] if the file, CPU or thread no longer exists (a group that does not exist is
    /// [`GroupState::Absent`]); [`LeverError::Denied`] if a privilege is missing.
    pub fn read(&self, root: &Root) -> Result<Value, LeverError> {
        match self {
            Self::File(path) => root.read(path).map(Value::Text).map_err(|e| LeverError::kernel(self, e)),
            Self::Affinity(key) => {
                key.check(root, self)?;
                thread::affinity(key.tid).map(Value::Cpus).map_err(|e| LeverError::io(self, "read", e))
            }
            Self::Scheduling(key) => {
                key.check(root, self)?;
                thread::scheduling(key.tid)
                    .map(Value::Scheduling)
                    .map_err(|e| LeverError::io(self, "read", e))
            }
            Self::Group { path, .. } => Ok(Value::Group(group::state(root, path))),
            Self::Controller(path, name) => group::controller(root, self, path, name).map(Value::Group),
            Self::UnitCpus { unit, .. } => unit::read(root, self, unit),
        }
    }

    /// Sets the value; writing the present value is harmless. An empty `cpuset.cpus` of a cgroup v2 group with
    /// processes becomes all possible CPUs, which is equivalent: the kernel empties it only without processes.
    ///
    /// # Errors
    /// As [`Target::read`]; [`LeverError::Busy`] if others use the group or controller;
    /// [`LeverError::Mismatch`] if the value has the wrong kind.
    pub fn write(&self, root: &Root, value: &Value) -> Result<(), LeverError> {
        match (self, value) {
            (Self::File(path), Value::Text(text)) => {
                cpuset::write(root, path, text.trim()).map_err(|e| LeverError::kernel(self, e))
            }
            (Self::Affinity(key), Value::Cpus(cpus)) => {
                key.check(root, self)?;
                thread::set_affinity(key.tid, cpus).map_err(|e| LeverError::io(self, "change", e))
            }
            (Self::Scheduling(key), Value::Scheduling(attr)) => {
                key.check(root, self)?;
                thread::set_scheduling(key.tid, *attr).map_err(|e| LeverError::io(self, "change", e))
            }
            (Self::Group { path, .. }, Value::Group(GroupState::Present)) => group::create(root, self, path),
            (Self::Group { path, home }, Value::Group(GroupState::Absent)) => {
                group::remove(root, self, path, home)
            }
            (Self::Controller(path, name), Value::Group(state)) => {
                group::set_controller(root, self, path, name, *state)
            }
            (Self::UnitCpus { unit, group }, Value::Cpus(cpus)) => unit::set(root, unit, group, cpus),
            (Self::UnitCpus { unit, .. }, Value::Unset) => unit::unset(root, unit),
            _ => Err(LeverError::Mismatch { target: self.clone(), value: value.clone() }),
        }
    }

    /// Removes what the writes of `ours` left beside the target, which has another value now or is gone.
    ///
    /// # Errors
    /// As [`Target::write`].
    pub fn forget(&self, root: &Root, ours: &[Value]) -> Result<(), LeverError> {
        match self {
            Self::UnitCpus { unit, .. } => unit::forget(root, unit, ours),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Affinity(key) => write!(f, "CPU affinity of thread {}", key.tid),
            Self::Scheduling(key) => write!(f, "scheduling policy of thread {}", key.tid),
            Self::Group { path, .. } => write!(f, "control group {}", path.display()),
            Self::Controller(path, name) => write!(f, "controller {name} below {}", path.display()),
            Self::UnitCpus { unit, .. } => write!(f, "AllowedCPUs of {unit}"),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text.trim()),
            Self::Cpus(cpus) => write!(f, "CPUs {cpus}"),
            Self::Scheduling(attr) => attr.fmt(f),
            Self::Group(GroupState::Absent) => f.write_str("absent"),
            Self::Group(GroupState::Present) => f.write_str("present"),
            Self::Unset => f.write_str("unset"),
        }
    }
}

impl fmt::Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {}", self.target, self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn file_round_trip_with_trimmed_equality_and_newline_for_empty() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        fs::write(root.path("/knob"), "old\n").unwrap();
        let target = Target::File("/knob".into());
        let old = target.read(&root).unwrap();
        assert_eq!(old, Value::Text(" old ".into()));
        assert_ne!(old, Value::Cpus(CpuSet::new()));
        target.write(&root, &Value::Text("new\n".into())).unwrap();
        assert_eq!(fs::read(root.path("/knob")).unwrap(), b"new");
        target.write(&root, &Value::Text(String::new())).unwrap();
        assert_eq!(fs::read(root.path("/knob")).unwrap(), b"\n");
        target.write(&root, &old).unwrap();
        assert_eq!(target.read(&root).unwrap(), old);
    }

    #[test]
    fn a_missing_file_is_gone_and_a_wrong_kind_is_a_mismatch() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        let target = Target::File("/cpu7/knob".into());
        assert!(target.read(&root).unwrap_err().is_gone());
        assert!(target.write(&root, &Value::Text("1".into())).unwrap_err().is_gone());
        let error = target.write(&root, &Value::Group(GroupState::Absent)).unwrap_err();
        assert!(matches!(error, LeverError::Mismatch { .. }), "{error}");
    }

    #[test]
    fn refusals_name_path_and_remedy() {
        let target = Target::File("/sys/knob".into());
        let denied = LeverError::io(&target, "change", std::io::Error::from_raw_os_error(libc::EACCES));
        assert!(denied.is_denied() && denied.to_string().contains("/sys/knob"), "{denied}");
        assert!(denied.to_string().contains("run as root"), "{denied}");
        let read_only = LeverError::io(&target, "change", std::io::Error::from_raw_os_error(libc::EROFS));
        assert!(read_only.is_denied() && !read_only.is_gone(), "{read_only}");
        assert!(read_only.to_string().contains("/sys/knob is mounted read-only"), "{read_only}");
    }
}

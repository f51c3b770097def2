//! Knowledge of a program from earlier runs: one JSON file per program and machine.

use gleaner_policy::{KnownLoad, Method};
use serde::{Deserialize, Serialize};

/// The version of the format that this crate reads and writes.
pub const VERSION: u32 = 2;

/// What runs of one program on one machine have shown.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProgramMemory {
    /// [`VERSION`].
    pub version: u32,
    /// The path of the program's executable, or of its control group within its hierarchy.
    pub program: String,
    /// The machine it ran on.
    pub machine: MachineIdentity,
    /// Number of runs that used or added knowledge.
    pub runs: u32,
    /// End of the latest of them, in milliseconds since the Unix epoch.
    pub used_unix_ms: u64,
    /// Knowledge by kind of load.
    pub loads: Vec<LoadMemory>,
}

/// Knowledge of a program under one kind of load.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LoadMemory {
    /// The settings and their evidence.
    pub known: KnownLoad,
    /// Time of the latest trial that proved part of it, in milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proven_unix_ms: Option<u64>,
    /// Time of the latest trial that refuted something under this load, in milliseconds since the Unix epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refuted_unix_ms: Option<u64>,
}

/// What the value of a setting depends on besides the program. Nothing is known on another machine or with
/// another price.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MachineIdentity {
    /// `/etc/machine-id`; empty if there is none.
    pub id: String,
    /// The kernel's release.
    pub kernel: String,
    /// The number of vCPUs allowed.
    pub vcpus: usize,
    /// The retention method, from calibration or the user.
    pub method: Method,
    /// What a microsecond of polling costs in microseconds of waiting: the user's objective.
    pub poll_price: f64,
}

impl ProgramMemory {
    /// No knowledge of `program` yet.
    pub fn new(program: String, machine: MachineIdentity) -> Self {
        Self { version: VERSION, program, machine, runs: 0, used_unix_ms: 0, loads: Vec::new() }
    }

    /// The file's name. Programs whose names collide overwrite each other's knowledge.
    pub fn file_name(&self) -> String {
        let last = self.program.rsplit('/').find(|part| !part.is_empty()).unwrap_or("root");
        let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
        let name: String = last.chars().take(64).map(plain).collect();
        let MachineIdentity { id, kernel, vcpus, method, poll_price } = &self.machine;
        let key = format!("{}\n{id}\n{kernel}\n{vcpus}\n{method}\n{poll_price}", self.program);
        // The name must not start with a dot.
        format!("p-{name}-{:08x}.json", crc32fast::hash(key.as_bytes()))
    }

    /// Whether `name` refers to it: the whole path, or its last part, also of one of several programs.
    pub fn is_called(&self, name: &str) -> bool {
        let is_called = |program: &str| program == name || program.rsplit('/').next() == Some(name);
        is_called(&self.program) || self.program.split(TOGETHER).any(is_called)
    }
}

/// Stands between the programs of a workload that is made of several.
pub const TOGETHER: &str = " + ";

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> MachineIdentity {
        let (id, kernel) = ("m".to_owned(), "6.18".to_owned());
        MachineIdentity { id, kernel, vcpus: 2, method: Method::Haltpoll, poll_price: 0.125 }
    }

    #[test]
    fn every_program_and_machine_has_a_file_of_its_own_with_a_plain_name() {
        let machine = machine();
        let name = |program: &str, machine: &MachineIdentity| {
            ProgramMemory::new(program.to_owned(), machine.clone()).file_name()
        };
        let own = name("/usr/bin/redis-server", &machine);
        assert!(own.starts_with("p-redis-server-"), "{own}");
        assert_ne!(own, name("/opt/redis-server", &machine));
        for other in [
            MachineIdentity { id: "n".into(), ..machine.clone() },
            MachineIdentity { kernel: "6.19".into(), ..machine.clone() },
            MachineIdentity { vcpus: 4, ..machine.clone() },
            MachineIdentity { method: Method::QosPoll, ..machine.clone() },
            MachineIdentity { poll_price: 0.5, ..machine.clone() },
        ] {
            assert_ne!(own, name("/usr/bin/redis-server", &other));
        }
        for odd in ["/", "/a/..", "/x/\n\u{e4} b", &format!("/{}", "x".repeat(4096))] {
            let name = name(odd, &machine);
            assert!(name.len() < 100 && !name.contains(['/', '\n', ' ']) && name.starts_with("p-"), "{name}");
        }
    }

    #[test]
    fn a_program_is_called_by_its_path_or_its_last_part() {
        let machine = machine();
        let unit = ProgramMemory::new("/system.slice/redis.service".into(), machine.clone());
        assert!(unit.is_called("redis.service") && unit.is_called("/system.slice/redis.service"));
        assert!(!unit.is_called("redis") && !unit.is_called("system.slice") && !unit.is_called(""));
        let several =
            ProgramMemory::new(["/usr/bin/redis-server", "/opt/bin/client"].join(TOGETHER), machine);
        assert!(several.is_called("redis-server") && several.is_called("client"));
        assert!(several.is_called("/opt/bin/client") && !several.is_called("bin"));
    }
}

//! What happens to the daemon.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use gleaner_policy::Method;
use gleaner_testing::levers::{LIMIT, limit_is};
use nix::sys::signal::Signal;

use crate::world::{STATE, World};

/// One kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    BadReload,
    GoodReload,
    WorkloadKilled,
    LimitWritten,
    SetWritten,
    Paused,
    DiskFull,
    ClockStepped,
    Resumed,
}

impl Fault {
    pub(crate) const ALL: [Self; 9] = [
        Self::BadReload,
        Self::LimitWritten,
        Self::Resumed,
        Self::WorkloadKilled,
        Self::GoodReload,
        Self::SetWritten,
        Self::Paused,
        Self::DiskFull,
        Self::ClockStepped,
    ];

    /// One after the other, over and over.
    pub(crate) fn nth(n: u32) -> Self {
        Self::ALL[n as usize % Self::ALL.len()]
    }
}

/// Configurations that can be used, after the rule.
const USABLE: [&str; 4] =
    ["", "consolidate = false", "retain = false", "objective = \"latency\"\nbpf = false"];

impl World {
    pub(crate) fn suffer(&mut self, fault: Fault) {
        self.tally.faults += 1;
        match fault {
            Fault::BadReload => {
                self.configure("objektive = 7");
                self.daemon().signal(Signal::SIGHUP);
            }
            Fault::GoodReload => {
                let usable = self.random.one_of(&USABLE);
                self.configure(usable);
                self.daemon().signal(Signal::SIGHUP);
            }
            Fault::WorkloadKilled => self.restart_a_server(),
            Fault::LimitWritten => self.write_limit(),
            Fault::SetWritten => self.write_set(),
            Fault::Paused => {
                self.with_client(|client| client.pause(Some("soak".to_owned())));
                self.assert_at_rest();
                self.with_client(gleaner_control::Client::resume);
            }
            Fault::DiskFull => self.fill_the_disk(),
            Fault::ClockStepped => self.step_the_clock(),
            Fault::Resumed => self.resume(),
        }
    }

    fn resume(&mut self) {
        self.with_client(gleaner_control::Client::resume);
        self.limit_is_held_by_them = false;
    }

    /// An administrator sets the haltpoll limit, whatever is in force.
    fn write_limit(&mut self) {
        // Before it is written: a trial can end meanwhile, and then the value is just the new baseline.
        let held = self.status().machine.retention.method == Method::Haltpoll;
        self.limit = (70_000 + self.tally.faults).to_string();
        fs::write(LIMIT, &self.limit).unwrap();
        self.tally.written += 1;
        if held {
            let daemon = self.daemon();
            daemon.until("it notices or retains nothing", |_| {
                let status = self.status();
                status.mode_reason.is_some() || status.machine.retention.method == Method::Halt
            });
            self.limit_is_held_by_them = self.status().mode_reason.is_some();
            assert!(!self.limit_is_held_by_them || limit_is(&self.limit), "{}", self.daemon().log());
        }
    }

    /// An administrator gives a service all vCPUs while it has fewer.
    fn write_set(&mut self) {
        let Some(workload) = self.workloads.iter().find(|w| w.service.cpus() != w.cpus) else { return };
        fs::write(workload.service.cpus_file(), &workload.cpus).unwrap();
        self.tally.written += 1;
    }

    /// Of the state directory, for a moment.
    fn fill_the_disk(&mut self) {
        let filler = Path::new(STATE).join("filler");
        let mut file = fs::File::create(&filler).unwrap();
        while file.write_all(&[0; 4096]).is_ok() {}
        for _ in 0..4 {
            self.restart_a_server();
            self.churn(5);
            self.check();
        }
        fs::remove_file(filler).unwrap();
        self.resume();
    }

    /// For this daemon alone: the machine's clock is everybody's.
    fn step_the_clock(&mut self) {
        let step = self.random.one_of(&["-3600", "+0", "+86400", "-5", "+3"]);
        fs::write(self.clock(), step).unwrap();
    }
}

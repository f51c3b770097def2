//! A stand-in for systemd below a fake root, where the machine is not to run the real one: it answers through
//! `usr/bin/systemctl`, keeps its drop-ins below `run` and `etc`, and sets the CPUs of its units' groups below `cg`, where
//! version 2 is mounted.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test fails by panicking")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A fake systemd. It has the units that were added.
#[derive(Debug, Clone)]
pub struct Systemd {
    root: PathBuf,
}

impl Systemd {
    /// Installs it below `root`.
    pub fn install(root: &Path) -> Self {
        let systemd = Self { root: root.to_owned() };
        systemd.put("run/systemd/system/.keep", "");
        fs::create_dir_all(root.join("usr/bin")).unwrap();
        // Not a copy: a program that was just written cannot be started while a child of another test still has it open.
        symlink(concat!(env!("CARGO_MANIFEST_DIR"), "/src/systemctl.sh"), root.join("usr/bin/systemctl"))
            .unwrap();
        systemd
    }

    /// Adds a running unit with a group of its own at `group` (as in `/proc/PID/cgroup`). `properties` are further lines of
    /// `systemctl show`.
    pub fn add(&self, unit: &str, group: &str, properties: &str) {
        let lines = format!("LoadState=loaded\nControlGroup={group}\n{properties}");
        self.put(&format!("units/{unit}/properties"), &lines);
        self.put(&format!("units/{unit}/allowed"), "");
        fs::create_dir_all(self.root.join(format!("cg{group}"))).unwrap();
    }

    /// The unit is unloaded.
    pub fn remove(&self, unit: &str) {
        fs::remove_file(self.root.join(format!("units/{unit}/properties"))).unwrap();
    }

    /// Systemd keeps the controller for this unit's group, since another unit needs it.
    pub fn share_controller(&self, unit: &str) {
        self.put(&format!("units/{unit}/shared"), "");
    }

    /// Systemd does not enable the controller for this unit's group.
    pub fn disable_controller(&self, unit: &str) {
        self.put(&format!("units/{unit}/disabled"), "");
    }

    /// From now on it does not answer.
    pub fn hang(&self) {
        self.put("hangs", "");
    }

    /// Is gone, with its program.
    pub fn uninstall(&self) {
        fs::remove_file(self.root.join("usr/bin/systemctl")).unwrap();
    }

    /// What an administrator does with `systemctl`.
    pub fn ctl(&self, args: &[&str]) {
        let status = Command::new(self.root.join("usr/bin/systemctl")).args(args).status();
        assert!(status.is_ok_and(|status| status.success()), "systemctl {args:?}");
    }

    /// The value of `AllowedCPUs=` that is in force for a unit.
    pub fn allowed(&self, unit: &str) -> String {
        fs::read_to_string(self.root.join(format!("units/{unit}/allowed"))).unwrap()
    }

    /// The runtime drop-in of a unit, if there is one.
    pub fn drop_in(&self, unit: &str) -> Option<String> {
        let path = format!("run/systemd/system.control/{unit}.d/50-AllowedCPUs.conf");
        fs::read_to_string(self.root.join(path)).ok()
    }

    /// Everything that systemctl was asked so far, a line each.
    pub fn asked(&self) -> Vec<String> {
        let asked = fs::read_to_string(self.root.join("asked")).unwrap_or_default();
        asked.lines().map(str::to_owned).collect()
    }

    fn put(&self, relative: &str, text: &str) {
        let path = self.root.join(relative);
        let dir = path.parent().unwrap_or(&self.root);
        fs::create_dir_all(dir).and_then(|()| fs::write(&path, text)).unwrap();
    }
}

//! What earlier runs learned about a program, and what this run adds.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use gleaner_engine::{MemoryDir, MemoryError};
use gleaner_kernel::Root;
use gleaner_kernel::preempt::KernelVersion;
use gleaner_policy::{KnownLoad, Learned, Mode, Outcome, PolicyConfig, is_same_kind};
use gleaner_print::say;
use gleaner_proto::memory::{LoadMemory, MachineIdentity, ProgramMemory};

use crate::clock::unix_ms;
use crate::options::ControlArgs;

/// A refutation expires after a week: programs, data and hosts change while names stay.
const REFUTATION_LIFETIME_MS: u64 = 7 * 24 * 3600 * 1000;
/// More kinds of load than any program has.
const MAX_LOADS: usize = 16;

#[derive(Debug, Default)]
pub(crate) struct Memory {
    /// The directory and its content; `None` if this run neither reads nor writes memory.
    kept: Option<(MemoryDir, ProgramMemory)>,
    /// A sentence for the journal.
    note: Option<String>,
}

impl Memory {
    /// Loads what is known about `program` under `config` on `vcpus` vCPUs. `--fixed`, `--dry-run` and the strategy
    /// `paper` prove nothing, so they have no memory.
    pub(crate) fn open(
        root: &Root,
        args: &ControlArgs,
        config: &PolicyConfig,
        program: Option<String>,
        vcpus: usize,
    ) -> Self {
        let (Some(program), false, Mode::Adaptive) = (program, args.no_memory, &config.mode) else {
            return Self::default();
        };
        let Some(dir) = MemoryDir::default_place(root) else { return Self::default() };
        let Ok(kernel) = KernelVersion::read(root) else { return Self::default() };
        let id = root.read_opt("/etc/machine-id").ok().flatten().unwrap_or_default();
        let machine = MachineIdentity {
            id,
            kernel: kernel.release,
            vcpus,
            method: config.method,
            poll_price: config.poll_price,
        };
        let new = ProgramMemory::new(program, machine);
        match dir.load(&new) {
            Ok(known) => Self { kept: Some((dir, known.unwrap_or(new))), note: None },
            Err(error @ MemoryError::SetAside { .. }) => {
                if !args.quiet {
                    say!("gleaner: {error}");
                }
                Self { kept: Some((dir, new)), note: Some(error.to_string()) }
            }
            Err(error) => Self { kept: None, note: Some(not_kept(&error)) },
        }
    }

    /// What to pass to the policy.
    pub(crate) fn known(&self) -> Vec<KnownLoad> {
        let Some((_, program)) = &self.kept else { return Vec::new() };
        let now = unix_ms();
        let known = program.loads.iter().map(|load| {
            let long_ago =
                load.refuted_unix_ms.is_none_or(|at| now.saturating_sub(at) > REFUTATION_LIFETIME_MS);
            KnownLoad { refuted: if long_ago { 0 } else { load.known.refuted }, ..load.known }
        });
        known.collect()
    }

    /// A sentence for the journal, returned once.
    pub(crate) fn take_note(&mut self) -> Option<String> {
        self.note.take()
    }

    /// Saves what a run `learned`. Returns a sentence if that fails.
    pub(crate) fn keep(self, learned: &[Learned]) -> Option<String> {
        let (dir, mut program) = self.kept?;
        if learned.is_empty() && program.runs == 0 {
            return None;
        }
        let now = unix_ms();
        program.loads = merge(&program.loads, learned, now);
        program.runs = program.runs.saturating_add(1);
        program.used_unix_ms = now;
        dir.save(&program).err().map(|error| not_kept(&error))
    }
}

fn not_kept(error: &MemoryError) -> String {
    format!("what is learned of the program is not kept for its next run: {error}")
}

/// What is known after a run that started with `before` and ended at `now` (milliseconds since the Unix epoch).
fn merge(before: &[LoadMemory], learned: &[Learned], now: u64) -> Vec<LoadMemory> {
    let of_load = |learned: &Learned| {
        let before = before.iter().find(|b| is_same_kind(b.known.load, learned.known.load));
        let said = |outcome, before| if learned.outcome == Some(outcome) { Some(now) } else { before };
        LoadMemory {
            known: learned.known,
            proven_unix_ms: said(Outcome::Proven, before.and_then(|b| b.proven_unix_ms)),
            refuted_unix_ms: said(Outcome::Refuted, before.and_then(|b| b.refuted_unix_ms)),
        }
    };
    let mut loads: Vec<_> = learned.iter().map(of_load).collect();
    loads.sort_by_key(|load| std::cmp::Reverse(load.proven_unix_ms.max(load.refuted_unix_ms)));
    loads.truncate(MAX_LOADS);
    loads
}

/// The canonical path of what `execvp` would run for `name`. A script is its own program.
pub(crate) fn of_command(name: &OsStr) -> Option<String> {
    let runs = |path: &Path| {
        fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    let found = if name.as_encoded_bytes().contains(&b'/') {
        PathBuf::from(name)
    } else {
        let path = env::var_os("PATH")?;
        env::split_paths(&path).map(|dir| dir.join(name)).find(|path| runs(path))?
    };
    Some(fs::canonicalize(found).ok()?.to_string_lossy().into_owned())
}

/// The path of a process's executable, even if it was replaced since, as by an upgrade.
pub(crate) fn of_process(root: &Root, pid: i32) -> Option<String> {
    let link = fs::read_link(root.path(format!("/proc/{pid}/exe"))).ok()?;
    let path = link.to_string_lossy();
    Some(path.strip_suffix(" (deleted)").unwrap_or(&path).to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gleaner_policy::{Evidence, KnownRetention, Method, Retention, Signal};

    use super::*;

    fn known(load: f64, paid: bool, refuted: u32) -> KnownLoad {
        let evidence = Evidence { signal: Signal::Moved, ratio: 2.0, low: 1.9, high: 2.1, pairs: 2 };
        let setting = Retention { method: Method::Haltpoll, limit: Duration::from_micros(30) };
        let retention = paid.then_some(KnownRetention { setting, evidence });
        KnownLoad { load, retention, vcpus: None, refuted }
    }

    #[test]
    fn times_move_only_with_what_this_run_has_tried() {
        let before = [
            LoadMemory { known: known(0.4, true, 0), proven_unix_ms: Some(1), refuted_unix_ms: None },
            LoadMemory { known: known(0.1, false, 1), proven_unix_ms: None, refuted_unix_ms: Some(2) },
        ];
        let learned = [
            Learned { known: known(0.41, true, 0), outcome: None },
            Learned { known: known(0.1, false, 2), outcome: Some(Outcome::Refuted) },
            Learned { known: known(0.9, true, 0), outcome: Some(Outcome::Proven) },
        ];
        let times: Vec<_> = merge(&before, &learned, 9)
            .iter()
            .map(|load| (load.known.load, load.proven_unix_ms, load.refuted_unix_ms))
            .collect();
        assert_eq!(times, [(0.1, None, Some(9)), (0.9, Some(9), None), (0.41, Some(1), None)]);
    }

    #[test]
    fn that_nothing_paid_is_believed_for_a_week() {
        let program = |at| {
            let (id, kernel) = (String::new(), String::new());
            let machine = MachineIdentity { id, kernel, vcpus: 2, method: Method::Halt, poll_price: 0.125 };
            let load = LoadMemory { known: known(0.4, false, 3), proven_unix_ms: None, refuted_unix_ms: at };
            let program = ProgramMemory { loads: vec![load], ..ProgramMemory::new("/x".into(), machine) };
            Memory { kept: Some((MemoryDir::at("/nowhere"), program)), note: None }.known()[0].refuted
        };
        let now = unix_ms();
        assert_eq!(program(Some(now - 1000)), 3);
        // If the clock was set back, the refutation counts as recent.
        assert_eq!(program(Some(now + 1000)), 3);
        assert_eq!(program(Some(now - REFUTATION_LIFETIME_MS - 1000)), 0);
    }

    #[test]
    fn a_process_is_known_by_its_executable_also_by_one_that_was_replaced() {
        let dir = tempfile::tempdir().unwrap();
        for (pid, link) in [("7", "/usr/bin/x"), ("8", "/usr/bin/x (deleted)")] {
            fs::create_dir_all(dir.path().join("proc").join(pid)).unwrap();
            std::os::unix::fs::symlink(link, dir.path().join("proc").join(pid).join("exe")).unwrap();
        }
        let root = Root::at(dir.path());
        assert_eq!(of_process(&root, 7).as_deref(), Some("/usr/bin/x"));
        assert_eq!(of_process(&root, 8).as_deref(), Some("/usr/bin/x"));
        assert_eq!(of_process(&root, 9), None);
    }

    #[test]
    fn a_command_is_found_as_execvp_finds_it_and_named_without_links() {
        let shell = of_command(OsStr::new("sh")).unwrap();
        assert_eq!(of_command(OsStr::new("/bin/sh")).unwrap(), shell);
        assert_eq!(shell, fs::canonicalize("/bin/sh").unwrap().to_string_lossy());
        assert_eq!(of_command(OsStr::new("no-such-command")), None);
        assert_eq!(of_command(OsStr::new("./no/such")), None);
    }
}

//! What earlier runs learned about a program, and what this run adds.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use gleaner_kernel::Root;
use gleaner_kernel::preempt::KernelVersion;
use gleaner_policy::{KnownLoad, Learned, Mode, Outcome, PolicyConfig, is_same_kind};
use gleaner_proto::memory::{LoadMemory, MachineIdentity, ProgramMemory};

use super::{MemoryDir, MemoryError};
use crate::clock::unix_ms;

/// A refutation expires after a week: programs, data and hosts change while names stay.
const REFUTATION_LIFETIME_MS: u64 = 7 * 24 * 3600 * 1000;
/// More kinds of load than any program has.
const MAX_LOADS: usize = 16;

/// What is known of one program while it runs. By default nothing, and nothing is kept.
#[derive(Debug, Default)]
pub struct Memory {
    /// The directory and what it has of the program; `None` if this run neither reads nor writes memory.
    kept: Option<(MemoryDir, ProgramMemory)>,
    /// What this run had learned when it was last saved; `None` until then.
    saved: Option<Vec<Learned>>,
    /// A sentence for the journal.
    note: Option<String>,
}

impl Memory {
    /// Loads what `dir` has of `program` under `config` on `vcpus` vCPUs. Modes other than [`Mode::Adaptive`] prove
    /// nothing, so they have no memory. `warn` prints a sentence for the user at once: a file was damaged.
    pub fn open(
        root: &Root,
        dir: MemoryDir,
        config: &PolicyConfig,
        program: String,
        vcpus: usize,
        warn: fn(&str),
    ) -> Self {
        if config.mode != Mode::Adaptive {
            return Self::default();
        }
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
            Ok(known) => Self { kept: Some((dir, known.unwrap_or(new))), ..Self::default() },
            Err(error @ MemoryError::SetAside { .. }) => {
                warn(&error.to_string());
                Self { kept: Some((dir, new)), note: Some(error.to_string()), saved: None }
            }
            Err(error) => Self { note: Some(not_kept(&error)), ..Self::default() },
        }
    }

    /// What to pass to the policy.
    pub fn known(&self) -> Vec<KnownLoad> {
        let Some((_, program)) = &self.kept else { return Vec::new() };
        let now = unix_ms();
        let known = program.loads.iter().map(|load| {
            let long_ago =
                load.refuted_unix_ms.is_none_or(|at| now.saturating_sub(at) > REFUTATION_LIFETIME_MS);
            if long_ago { KnownLoad { refuted: 0, refuted_vcpus: 0, ..load.known } } else { load.known }
        });
        known.collect()
    }

    /// The program of which it is known; `None` where nothing is kept.
    pub fn program(&self) -> Option<&str> {
        self.kept.as_ref().map(|(_, program)| program.program.as_str())
    }

    /// A sentence for the journal, returned once.
    pub fn take_note(&mut self) -> Option<String> {
        self.note.take()
    }

    /// Saves what the run has `learned` so far; can be called again and again. Returns a sentence if that fails.
    pub fn keep(&mut self, learned: &[Learned]) -> Option<String> {
        let (dir, program) = self.kept.as_mut()?;
        if learned.is_empty() && program.runs == 0 {
            return None;
        }
        let now = unix_ms();
        program.loads = merge(&program.loads, learned, self.saved.as_deref().unwrap_or_default(), now);
        program.runs = program.runs.saturating_add(u32::from(self.saved.is_none()));
        program.used_unix_ms = now;
        self.saved = Some(learned.to_vec());
        dir.save(program).err().map(|error| not_kept(&error))
    }
}

fn not_kept(error: &MemoryError) -> String {
    format!("what is learned of the program is not kept for its next run: {error}")
}

/// What is known `now` (milliseconds since the Unix epoch) of a program of which `before` was known. Of what is `learned`,
/// `saved` is in `before` already, with the time of then.
fn merge(before: &[LoadMemory], learned: &[Learned], saved: &[Learned], now: u64) -> Vec<LoadMemory> {
    let of_load = |learned: &Learned| {
        let before = before.iter().find(|b| is_same_kind(b.known.load, learned.known.load));
        let new = !saved.contains(learned);
        let said = |outcome, before| if new && learned.outcome == Some(outcome) { Some(now) } else { before };
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
pub fn program_of_command(name: &OsStr) -> Option<String> {
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
pub fn program_of_process(root: &Root, pid: u32) -> Option<String> {
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
        KnownLoad { load, retention, vcpus: None, refuted, refuted_vcpus: 0 }
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
        let times: Vec<_> = merge(&before, &learned, &[], 9)
            .iter()
            .map(|load| (load.known.load, load.proven_unix_ms, load.refuted_unix_ms))
            .collect();
        assert_eq!(times, [(0.1, None, Some(9)), (0.9, Some(9), None), (0.41, Some(1), None)]);
    }

    #[test]
    fn what_was_saved_before_keeps_its_time_and_a_run_counts_once() {
        let dir = tempfile::tempdir().unwrap();
        let machine = MachineIdentity {
            id: String::new(),
            kernel: String::new(),
            vcpus: 2,
            method: Method::Halt,
            poll_price: 0.125,
        };
        let kept = Some((MemoryDir::at(dir.path().join("m")), ProgramMemory::new("/x".into(), machine)));
        let mut memory = Memory { kept, ..Memory::default() };
        let refuted = Learned { known: known(0.4, false, 1), outcome: Some(Outcome::Refuted) };
        let again = Learned { known: known(0.4, false, 2), ..refuted };
        let time = |memory: &Memory| memory.kept.as_ref().unwrap().1.loads[0].refuted_unix_ms.unwrap();
        assert_eq!(memory.keep(&[refuted]), None);
        let first = time(&memory);
        while unix_ms() == first {
            std::hint::spin_loop();
        }
        assert_eq!(memory.keep(&[refuted]), None);
        assert_eq!(time(&memory), first, "nothing was tried since");
        assert_eq!(memory.keep(&[again]), None);
        assert!(time(&memory) > first, "it was refuted again");
        assert_eq!(memory.kept.unwrap().1.runs, 1);
    }

    #[test]
    fn that_nothing_paid_is_believed_for_a_week() {
        let program = |at| {
            let (id, kernel) = (String::new(), String::new());
            let machine = MachineIdentity { id, kernel, vcpus: 2, method: Method::Halt, poll_price: 0.125 };
            let load = LoadMemory { known: known(0.4, false, 3), proven_unix_ms: None, refuted_unix_ms: at };
            let program = ProgramMemory { loads: vec![load], ..ProgramMemory::new("/x".into(), machine) };
            Memory { kept: Some((MemoryDir::at("/nowhere"), program)), ..Memory::default() }.known()[0]
                .refuted
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
        assert_eq!(program_of_process(&root, 7).as_deref(), Some("/usr/bin/x"));
        assert_eq!(program_of_process(&root, 8).as_deref(), Some("/usr/bin/x"));
        assert_eq!(program_of_process(&root, 9), None);
    }

    #[test]
    fn a_command_is_found_as_execvp_finds_it_and_named_without_links() {
        let shell = program_of_command(OsStr::new("sh")).unwrap();
        assert_eq!(program_of_command(OsStr::new("/bin/sh")).unwrap(), shell);
        assert_eq!(shell, fs::canonicalize("/bin/sh").unwrap().to_string_lossy());
        assert_eq!(program_of_command(OsStr::new("no-such-command")), None);
        assert_eq!(program_of_command(OsStr::new("./no/such")), None);
    }
}

//! One candidate, followed from survey to survey.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gleaner_kernel::stat::{ticks, user_tick};
use gleaner_kernel::workload::MemberList;
use gleaner_kernel::{KernelError, Root};

use crate::names::Name;
use crate::process::Stat;
use crate::tally::Tally;
use crate::{Activity, Candidate, Key, Kind, Main, Subject};

/// What looking into a candidate takes.
pub(super) struct Look<'a> {
    pub(super) root: &'a Root,
    pub(super) now: Duration,
    pub(super) allows: &'a mut dyn FnMut(&Subject<'_>) -> bool,
}

#[derive(Debug)]
pub(super) struct Tracked {
    pub(super) candidate: Candidate,
    pub(super) name: Name,
    /// Whether the rules were asked about what is known of it.
    pub(super) asked: bool,
    /// When it was last measured.
    measured_at: Option<Duration>,
    /// CPU time of its group at that time.
    total: Option<Duration>,
    /// Of its processes, where the group accounts none: start and CPU time, in ticks.
    processes: BTreeMap<u32, (u64, u64)>,
    tally: Tally,
    /// How many more surveys look into it although it uses too little.
    interest: u32,
}

impl Tracked {
    /// A candidate that comes and goes is looked into for so many surveys more: the tick by which processes are
    /// accounted shows a small load only in every few.
    pub(super) const CALMS_DOWN: u32 = 5;

    pub(super) fn new(key: Key, name: Name, kind: Kind, unit: Option<String>, group: PathBuf) -> Self {
        let candidate = Candidate {
            key,
            name: name.to_string(),
            kind,
            unit,
            group,
            load: 0.0,
            span: Duration::ZERO,
            main: None,
            activity: None,
        };
        Self {
            candidate,
            name,
            asked: false,
            measured_at: None,
            total: None,
            processes: BTreeMap::new(),
            tally: Tally::default(),
            interest: 0,
        }
    }

    /// CPU time since the survey before, by the sum since the group was made. A smaller sum is another group's of the
    /// same name.
    pub(super) fn since(&mut self, total: Duration) -> Duration {
        let before = self.total.replace(total).unwrap_or(total);
        total.checked_sub(before).unwrap_or(total)
    }

    /// Measures the group in `dir`. `used` is its CPU time since the survey before; `None` if its processes are to be
    /// added up. Whether the rules allow that.
    ///
    /// # Errors
    /// The group vanished.
    pub(super) fn measure_group(
        &mut self,
        used: Option<Duration>,
        dir: &Path,
        mut look: Look<'_>,
    ) -> Result<bool, KernelError> {
        let mut members = None;
        let used = if let Some(used) = used {
            used
        } else {
            let members = members.insert(MemberList::of_group(look.root, dir)?);
            self.add_up(look.root, &members.processes)
        };
        if !self.is_interesting(used, look.now) {
            return Ok(true);
        }
        let members = match members {
            Some(members) => members,
            None => MemberList::of_group(look.root, dir)?,
        };
        let main = find_main(look.root, &members.processes, self.candidate.main.as_ref());
        if main.is_some() && main != self.candidate.main {
            self.candidate.main = main;
            self.asked = false;
        }
        if !self.ask(&mut look) {
            return Ok(false);
        }
        self.look_into(&members, look.root);
        Ok(true)
    }

    /// Measures a family of processes with this CPU time since the survey before. Whether the rules allow that. A young
    /// one is not looked into, so that it can only be engaged if it is known.
    pub(super) fn measure_family(
        &mut self,
        used: Duration,
        members: &[u32],
        is_young: bool,
        mut look: Look<'_>,
    ) -> bool {
        if !self.ask(&mut look) {
            return false;
        }
        if self.is_interesting(used, look.now) && !is_young {
            let mut list = MemberList { processes: members.to_vec(), threads: Vec::new() };
            for pid in members {
                let threads = look.root.list(format!("/proc/{pid}/task")).unwrap_or_default();
                list.threads.extend(threads.iter().filter_map(|tid| tid.parse::<u32>().ok()));
            }
            list.threads.sort_unstable();
            self.look_into(&list, look.root);
        }
        true
    }

    fn ask(&mut self, look: &mut Look<'_>) -> bool {
        self.asked = self.asked || (look.allows)(&self.candidate.subject());
        self.asked
    }

    /// Takes the load; whether it is worth a closer look.
    fn is_interesting(&mut self, used: Duration, now: Duration) -> bool {
        let before = self.measured_at.replace(now);
        let span = before.map_or(Duration::ZERO, |before| now.saturating_sub(before));
        self.candidate.span = span;
        self.candidate.load = if span.is_zero() { 0.0 } else { used.as_secs_f64() / span.as_secs_f64() };
        if self.candidate.load >= Candidate::LOOK_INTO {
            self.interest = Self::CALMS_DOWN;
        } else if self.interest > 0 {
            self.interest -= 1;
        }
        if self.interest == 0 {
            self.candidate.activity = None;
            self.tally = Tally::default();
        }
        self.interest > 0
    }

    fn look_into(&mut self, members: &MemberList, root: &Root) {
        let count = |list: &[u32]| u32::try_from(list.len()).unwrap_or(u32::MAX);
        let used = self.tally.advance(root, &members.threads);
        let seconds = self.candidate.span.as_secs_f64();
        self.candidate.activity = Some(Activity {
            processes: count(&members.processes),
            threads: count(&members.threads),
            switches_per_s: used.filter(|_| seconds > 0.0).map(|used| used.switches as f64 / seconds),
        });
        // Exact, where a tick is coarse.
        if let Some(used) = used.filter(|_| seconds > 0.0 && self.total.is_none()) {
            self.candidate.load = used.run_ns as f64 / 1e9 / seconds;
        }
    }

    /// CPU time of these processes since the call before.
    fn add_up(&mut self, root: &Root, pids: &[u32]) -> Duration {
        let before = std::mem::take(&mut self.processes);
        let is_first = self.measured_at.is_none();
        let mut sum = 0;
        for pid in pids {
            let mut buffer = [0; Stat::BUFFER];
            let Ok(stat) = Stat::read(root, *pid, &mut buffer) else { continue };
            let then =
                before.get(pid).filter(|(start, _)| *start == stat.start_ticks).map(|(_, ticks)| *ticks);
            sum += stat.ticks - then.unwrap_or(if is_first { stat.ticks } else { 0 }).min(stat.ticks);
            self.processes.insert(*pid, (stat.start_ticks, stat.ticks));
        }
        ticks(sum, user_tick())
    }
}

/// The process that started first: `known`, if it is still there.
fn find_main(root: &Root, pids: &[u32], known: Option<&Main>) -> Option<Main> {
    let read = |pid: u32| {
        let mut buffer = [0; Stat::BUFFER];
        let stat = Stat::read(root, pid, &mut buffer).ok()?;
        Some(Main {
            pid,
            start_ticks: stat.start_ticks,
            command: stat.command.into_owned(),
            executable: None,
        })
    };
    if let Some(known) = known
        && let Some(now) = read(known.pid)
        && (now.start_ticks, &now.command) == (known.start_ticks, &known.command)
    {
        return Some(known.clone());
    }
    let mut main =
        pids.iter().filter_map(|pid| read(*pid)).min_by_key(|main| (main.start_ticks, main.pid))?;
    main.executable = std::fs::read_link(root.path(format!("/proc/{}/exe", main.pid))).ok();
    Some(main)
}

/// The time since boot.
///
/// # Errors
/// `/proc/uptime` is not readable or malformed.
pub(super) fn uptime(root: &Root) -> Result<Duration, KernelError> {
    let text = root.read("/proc/uptime")?;
    let seconds = text.split_ascii_whitespace().next().and_then(|seconds| seconds.parse::<f64>().ok());
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| KernelError::parse(root.path("/proc/uptime"), "seconds since boot", &text))
}

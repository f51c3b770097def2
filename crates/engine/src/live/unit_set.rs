//! The set of a unit that systemd runs: `AllowedCPUs=`, and the file of its group that follows from it.
//!
//! systemd has to know a set that lasts, but setting its property starts `systemctl` and waits for the answer. That takes too
//! long within a trial, which changes sets every few milliseconds, and when threads queue up and all vCPUs must be back at
//! once. So the property is first set to all vCPUs, which makes systemd give the unit's group a file for its CPUs; then that
//! file is written, as for any other group; and the property follows what has been in force for [`SETTLED`], but for the
//! blocks of trials that prove it again. systemd writes the file again when another property of the unit changes: the value
//! that the property had then is not somebody else's.
//!
//! The file is leased before the property, so it is put back after it: then systemd writes it no more.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use gleaner_kernel::lever::{LeverError, Target, Value, Write, cpuset};
use gleaner_policy::CpuSet;

use super::chosen::{check_below, check_group};
use super::holdings::Holdings;
use crate::lease::{LeaseBook, LeaseError};

/// How long a set must have been in force before the property follows. Longer than a trial, which ends with another set.
pub(super) const SETTLED: Duration = Duration::from_secs(5);
/// A block of a trial, in which another set is in force, takes less than this.
const BLOCK: Duration = Duration::from_secs(1);

/// The set of one unit, and what of it systemd knows.
#[derive(Debug)]
pub struct UnitSet {
    property: Target,
    group: PathBuf,
    allowed: CpuSet,
    /// What the group's file had before.
    original: Value,
    /// What the property was set to last.
    declared: Option<CpuSet>,
    /// The set in force, but for blocks of trials...
    lasting: CpuSet,
    /// ...since when.
    since: Instant,
    /// Another set that is in force, and since when.
    other: Option<(CpuSet, Instant)>,
}

impl UnitSet {
    /// The unit whose control group is the directory `group`; the vCPUs of `allowed` are active.
    pub fn new(unit: String, group: PathBuf, allowed: CpuSet) -> Self {
        Self {
            property: Target::UnitCpus { unit, group: group.clone() },
            group,
            lasting: allowed.clone(),
            since: Instant::now(),
            other: None,
            allowed,
            original: Value::Text(String::new()),
            declared: None,
        }
    }

    /// Takes note of the set in force.
    fn follow(&mut self, active: &CpuSet) {
        if let Some((set, since)) = self.other.take_if(|(_, since)| since.elapsed() >= BLOCK) {
            (self.lasting, self.since) = (set, since);
        }
        if *active == self.lasting {
            self.other = None;
        } else if self.other.as_ref().is_none_or(|(set, _)| set != active) {
            self.other = Some((active.clone(), Instant::now()));
        }
    }

    /// Makes exactly `vcpus` the set.
    pub(super) fn put(
        &mut self,
        book: &mut LeaseBook,
        holdings: &mut Holdings,
        vcpus: &CpuSet,
    ) -> Result<(), LeaseError> {
        if self.declared.is_none() {
            if *vcpus == self.allowed {
                return Ok(());
            }
            self.introduce(book, holdings)?;
        }
        self.follow(vcpus);
        self.write(book, holdings, vcpus)
    }

    /// Whether nobody else has changed the set, which is to be `active`; the property follows it if it lasts.
    ///
    /// # Errors
    /// Somebody has, or systemd does not do as it is asked to.
    pub(super) fn check(
        &mut self,
        book: &mut LeaseBook,
        holdings: &mut Holdings,
        active: &CpuSet,
    ) -> Result<(), LeaseError> {
        self.follow(active);
        let Some(declared) = &self.declared else { return Ok(()) };
        if *active != self.allowed {
            check_below(book.root(), &self.group, &self.allowed)?;
        }
        let settled = self.lasting == *active && self.since.elapsed() >= SETTLED;
        match book.check(&self.file()) {
            Ok(()) if declared != active && settled => self.declare(book, holdings, active),
            Ok(()) => Ok(()),
            // The unit has ended, or starts again.
            Err(error) if error.is_gone() && !book.root().exists(&self.group) => Ok(()),
            Err(error) => {
                self.excuse(book, error)?;
                self.write(book, holdings, active)
            }
        }
    }

    /// Call it before the leases are closed: what systemd wrote because of the property is put back, too.
    pub(super) fn end(&mut self, book: &mut LeaseBook) {
        if let Err(error) = book.check(&self.file())
            && self.is_declared(&error)
        {
            // The lease is there already, so that this records nothing that could fail.
            let _ = self.excuse(book, error);
        }
        self.declared = None;
    }

    #[cfg(test)]
    pub(super) fn settle(&mut self) {
        self.since -= SETTLED;
        self.other = self.other.take().map(|(set, since)| (set, since.checked_sub(SETTLED).unwrap()));
    }

    fn file(&self) -> Target {
        Target::File(self.group.join(cpuset::FILE))
    }

    /// Has systemd give the group a file for its CPUs.
    fn introduce(&mut self, book: &mut LeaseBook, holdings: &mut Holdings) -> Result<(), LeaseError> {
        let found = self.property.read(book.root())?;
        // Somebody can have set it since the unit was found.
        if found != Value::Unset && !book.holds(&self.property) {
            return Err(LeaseError::Theirs { target: self.property.clone(), found });
        }
        check_group(book.root(), &self.group, &self.allowed)?;
        let before = book.root().read_opt(self.group.join(cpuset::FILE)).map_err(LeverError::from)?;
        self.original = Value::Text(before.unwrap_or_default());
        let all = self.allowed.clone();
        holdings.expect(book, &self.file(), &self.original, &text(&all))?;
        self.declare(book, holdings, &all)
    }

    /// Sets the property.
    fn declare(
        &mut self,
        book: &mut LeaseBook,
        holdings: &mut Holdings,
        vcpus: &CpuSet,
    ) -> Result<(), LeaseError> {
        let value = Value::Cpus(vcpus.clone());
        holdings.set(book, &Write { target: self.property.clone(), value })?;
        self.declared = Some(vcpus.clone());
        Ok(())
    }

    fn write(
        &mut self,
        book: &mut LeaseBook,
        holdings: &mut Holdings,
        vcpus: &CpuSet,
    ) -> Result<(), LeaseError> {
        let write = Write { target: self.file(), value: text(vcpus) };
        match holdings.set(book, &write) {
            Err(error) => {
                self.excuse(book, error)?;
                holdings.set(book, &write)
            }
            done => done,
        }
    }

    /// Whether the file has what the property was set to, instead of what was written since.
    fn is_declared(&self, error: &LeaseError) -> bool {
        let found = if let LeaseError::Theirs { found, .. } = error { Some(found) } else { None };
        found.is_some() && found == self.declared.as_ref().map(text).as_ref()
    }

    /// Accepts what systemd wrote because of the property.
    ///
    /// # Errors
    /// Everything else, by its cause: an administrator's `systemctl set-property` changes the file, too, or has systemd
    /// take it away.
    fn excuse(&self, book: &mut LeaseBook, error: LeaseError) -> Result<(), LeaseError> {
        if let (true, Some(declared)) = (self.is_declared(&error), &self.declared) {
            return book.expect(&self.file(), &self.original, &text(declared));
        }
        let gone = error.is_gone() && book.root().exists(&self.group);
        if gone || matches!(error, LeaseError::Theirs { .. }) {
            book.check(&self.property)?;
        }
        Err(if gone { LeaseError::Theirs { target: self.file(), found: Value::Unset } } else { error })
    }
}

/// A set as the kernel's files have it.
fn text(vcpus: &CpuSet) -> Value {
    Value::Text(vcpus.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lasts_is_interrupted_by_blocks_of_trials_but_not_by_another_set_that_stays() {
        let [all, one, two] = ["0-2", "0", "0-1"].map(|list| list.parse::<CpuSet>().unwrap());
        let mut set = UnitSet::new("x.service".to_owned(), "/x".into(), all.clone());
        let begin = set.since;
        for active in [&one, &all, &one, &two, &one] {
            set.follow(active);
        }
        assert_eq!((&set.lasting, set.since), (&all, begin), "a trial");
        let adopted = set.other.as_ref().map(|(_, since)| since.checked_sub(BLOCK).unwrap()).unwrap();
        set.other = Some((one.clone(), adopted));
        for active in [&one, &all, &one, &all] {
            set.follow(active);
        }
        assert_eq!((&set.lasting, set.since), (&one, adopted), "proven again");
        set.other = Some((all.clone(), adopted));
        set.follow(&all);
        assert_eq!((&set.lasting, &set.other), (&all, &None), "given up");
    }
}

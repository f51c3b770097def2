//! VMs that come, work and go, several at a time.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use gleaner_print::say;
use nix::sys::signal::Signal;

use crate::error::{Error, Result};
use crate::image::Image;
use crate::kernel::Kernel;
use crate::vm::{Cpus, Guest, Lab, Step, VmSpec};

/// So many VMs that differ in workload or memory. Two more follow; one of them gets the other's PID.
pub(super) const MANY: usize = 10;
/// How long each works: while the next ones boot.
const LIFE: Duration = Duration::from_secs(10);
/// How long one works that is alone.
pub(super) const SHORT: Duration = Duration::from_secs(3);
/// Several times as long as a boot beside others takes where time is counted in instructions. Where it is not, some hang under
/// emulation, even when nothing traces the VMs.
const BOOT: Duration = Duration::from_secs(180);
const ATTEMPTS: usize = 5;
/// What they do. With two sizes of memory these are twelve different VMs.
const KINDS: [&[&str]; 6] = [
    &["wake", "--kind", "same"],
    &["freqsleep", "--threads", "1"],
    &["matmul"],
    &["pipeline"],
    &["request-response"],
    &["barrier", "--threads", "2"],
];

/// A VM by its number.
pub(super) fn spec(number: usize) -> VmSpec {
    let name = format!("churn-{number}");
    // Beside other VMs a second vCPU did not always come up; why is not known. Those that are alone have two.
    let cpus = Cpus::flat(if (MANY..MANY + 2).contains(&number) { 2 } else { 1 });
    // Linux 7 hung more often than this one where it booted beside others.
    let mut spec = VmSpec::new(&name, Image::Tiny, Kernel::V6_12, cpus);
    spec.memory_mib = if (number / KINDS.len()).is_multiple_of(2) { 320 } else { 384 };
    spec
}

/// Boots a VM; those that hang are killed. `before` is done before each attempt.
pub(super) fn boot(
    lab: &Lab,
    number: usize,
    tally: &mut Tally,
    mut before: impl FnMut() -> Result<()>,
) -> Result<Guest> {
    let mut attempts = ATTEMPTS;
    loop {
        attempts -= 1;
        before()?;
        let spec = spec(number);
        let vcpus = spec.cpus.count() as usize;
        match lab.boot_within(spec, BOOT) {
            Err(error @ Error::Hung { .. }) if attempts > 0 => {
                say!("lab: {error}");
                tally.hung += 1;
                tally.vcpus += vcpus;
            }
            result => return result,
        }
    }
}

/// Works for this long, and on: who ends it does so in the middle.
pub(super) fn work(guest: &Guest, number: usize, time: Duration) -> Result<()> {
    let words = [&["gleaner", "workload", "--for", "900s"], KINDS[number % KINDS.len()]].concat();
    let job = guest.start(Step::new(&words).timeout(Duration::from_secs(1000)))?;
    thread::sleep(time);
    // Fails if it has ended by itself.
    job.signal(Signal::SIGCONT)
}

/// What became of VMs.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Turned off from inside.
    pub(super) off: usize,
    /// Whose VMM was killed.
    pub(super) killed: usize,
    /// Killed because they did not boot.
    pub(super) hung: usize,
    /// The vCPUs of all.
    pub(super) vcpus: usize,
}

impl Tally {
    pub(super) fn powered_off(&mut self, guest: &Guest) {
        self.off += 1;
        self.vcpus += guest.spec().cpus.count() as usize;
    }

    pub(super) fn killed(&mut self, guest: &Guest) {
        self.killed += 1;
        self.vcpus += guest.spec().cpus.count() as usize;
    }

    pub(super) fn add(&mut self, more: &Self) {
        self.off += more.off;
        self.killed += more.killed;
        self.hung += more.hung;
        self.vcpus += more.vcpus;
    }
}

/// The numbers of the VMs to come.
#[derive(Debug)]
pub(super) struct Guests {
    next: AtomicUsize,
    /// Held during a boot: VMs that boot together hang more often.
    boots: Mutex<()>,
    started: Instant,
    /// So many at least.
    many: usize,
    /// For so long at least.
    least: Duration,
}

impl Guests {
    pub(super) fn new(many: usize, least: Duration) -> Self {
        Self { next: AtomicUsize::new(0), boots: Mutex::default(), started: Instant::now(), many, least }
    }

    /// One after another, as long as there is a next one.
    pub(super) fn live(&self, lab: &Lab) -> Result<Tally> {
        let mut tally = Tally::default();
        while let Some(number) = self.next() {
            let guest = {
                let _turn = self.boots.lock().unwrap_or_else(PoisonError::into_inner);
                boot(lab, number, &mut tally, || Ok(()))?
            };
            say!("lab: {} booted after {:.1} s", guest.spec().name, guest.boot_time().as_secs_f64());
            work(&guest, number, LIFE)?;
            if is_killed(number) {
                tally.killed(&guest);
                // SIGKILL for the VMM.
                drop(guest);
            } else {
                tally.powered_off(&guest);
                guest.power_off()?;
            }
        }
        Ok(tally)
    }

    fn next(&self) -> Option<usize> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        (number < self.many || self.started.elapsed() < self.least).then(|| number_after(number))
    }
}

/// The numbers from [`MANY`] on are those of the last two.
const fn number_after(number: usize) -> usize {
    if number < MANY { number } else { number + 2 }
}

/// Each kind ends in both ways.
fn is_killed(number: usize) -> bool {
    !(number + number / KINDS.len()).is_multiple_of(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_twelve_differ_and_end_in_both_ways() {
        let mut kinds: Vec<_> =
            (0..MANY + 2).map(|number| (number % KINDS.len(), spec(number).memory_mib)).collect();
        kinds.sort_unstable();
        kinds.dedup();
        assert_eq!(kinds.len(), 12);
        for kind in 0..KINDS.len() {
            assert_ne!(is_killed(kind), is_killed(kind + KINDS.len()));
        }
    }

    #[test]
    fn they_come_until_there_were_enough_and_the_time_is_over() {
        let numbers = |guests: &Guests| std::iter::from_fn(|| guests.next()).take(100).collect::<Vec<_>>();
        assert_eq!(numbers(&Guests::new(MANY, Duration::ZERO)), (0..MANY).collect::<Vec<_>>());
        let long = numbers(&Guests::new(MANY, Duration::from_secs(3600)));
        assert_eq!((long.len(), long[MANY]), (100, MANY + 2));
    }
}

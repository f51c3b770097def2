//! The experiments of all VMs whose rules have `resched-co-auto`. One VM at a time compares, so that none is another's noise.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use gleaner_scx_control::ReschedCo;

use crate::auto::{Auto, Decision, Sample};
use crate::{Options, Scheduler, ScxError, VmSeen};

/// Their controllers, by the VMM's process.
#[derive(Debug)]
pub struct Autos {
    started: Instant,
    vms: BTreeMap<u32, Entry>,
}

#[derive(Debug)]
struct Entry {
    auto: Auto,
    /// What was counted at the latest sample, and when that was.
    before: (Duration, VmSeen),
    decision: Option<Decision>,
}

impl Default for Autos {
    fn default() -> Self {
        Self { started: Instant::now(), vms: BTreeMap::new() }
    }
}

impl Autos {
    /// Time until the next sample is due, if there is a VM to sample.
    pub fn due_in(&self) -> Option<Duration> {
        let now = self.started.elapsed();
        let entries = self.vms.iter().filter(|(pid, _)| self.is_turn_of(**pid));
        entries.map(|(_, entry)| entry.due().saturating_sub(now)).min()
    }

    /// Whether no other VM compares.
    fn is_turn_of(&self, pid: u32) -> bool {
        self.vms.iter().all(|(other, entry)| *other == pid || !entry.auto.is_comparing())
    }

    /// Takes the samples that are due and puts what follows in force; returns what was decided, by process.
    ///
    /// # Errors
    /// The scheduler's maps cannot be used.
    pub fn step(
        &mut self,
        scheduler: &mut Scheduler,
        options: &Options,
    ) -> Result<Vec<(u32, Decision)>, ScxError> {
        let is_auto = |pid| options.rules_of(pid).resched_co == ReschedCo::Auto;
        if self.vms.is_empty()
            && options.rules.resched_co != ReschedCo::Auto
            && !options.vms.iter().any(|vm| is_auto(vm.pid))
        {
            return Ok(Vec::new());
        }
        let seen = scheduler.vms()?;
        let now = self.started.elapsed();
        let decisions = self.sample(&seen, now, is_auto);
        for (pid, entry) in &self.vms {
            // Each time, since a change of other rules ends it.
            scheduler.give(*pid, &options.config_with(options.rules_of(*pid), entry.auto.is_on()))?;
        }
        Ok(decisions)
    }

    /// What was decided last for a VM, as a sentence; empty if nothing was.
    pub fn says(&self, pid: u32) -> String {
        let decision = self.vms.get(&pid).and_then(|entry| entry.decision);
        decision.map_or_else(String::new, |decision| decision.to_string())
    }

    fn sample(
        &mut self,
        seen: &[VmSeen],
        now: Duration,
        is_auto: impl Fn(u32) -> bool,
    ) -> Vec<(u32, Decision)> {
        let wanted: Vec<&VmSeen> = seen.iter().filter(|vm| is_auto(vm.pid)).collect();
        self.vms.retain(|pid, _| wanted.iter().any(|vm| vm.pid == *pid));
        let mut decisions = Vec::new();
        for vm in wanted {
            let fresh = || Entry { auto: Auto::default(), before: (now, *vm), decision: None };
            let due = self.vms.entry(vm.pid).or_insert_with(fresh).due();
            if now < due || !self.is_turn_of(vm.pid) {
                continue;
            }
            let Some(entry) = self.vms.get_mut(&vm.pid) else { continue };
            let (at, before) = std::mem::replace(&mut entry.before, (now, *vm));
            let sample = Sample {
                period: now.saturating_sub(at),
                ran: vm.ran.saturating_sub(before.ran),
                reschedules: vm.reschedules.saturating_sub(before.reschedules),
                spins: vm.spins.saturating_sub(before.spins),
            };
            if let Some(decision) = entry.auto.step(now, &sample) {
                entry.decision = Some(decision);
                decisions.push((vm.pid, decision));
            }
        }
        decisions
    }
}

impl Entry {
    fn due(&self) -> Duration {
        self.before.0 + self.auto.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn seen(pid: u32, ran: Duration) -> VmSeen {
        VmSeen { pid, ran, ..VmSeen::default() }
    }

    #[test]
    fn each_vm_with_the_rule_is_sampled_when_it_is_due_and_forgotten_when_it_ends() {
        let mut autos = Autos::default();
        let is_auto = |pid| pid != 3;
        let both = [seen(1, MS), seen(2, MS), seen(3, MS)];
        assert!(autos.sample(&both, Duration::ZERO, is_auto).is_empty());
        assert_eq!(autos.vms.keys().copied().collect::<Vec<_>>(), [1, 2]);
        let mut now = Duration::ZERO;
        let mut decided = Vec::new();
        // A second of watching shows that reschedule interrupts are rare.
        while decided.is_empty() {
            now += 50 * MS;
            decided = autos.sample(&[seen(1, now), seen(3, now)], now, is_auto);
        }
        assert_eq!((now, decided.len(), decided[0].0), (1000 * MS, 1, 1));
        assert!(autos.says(1).contains("too few"), "{}", autos.says(1));
        assert_eq!(autos.says(2), "", "it has ended");
        assert!(autos.due_in().is_some_and(|due| due > 5000 * MS));
        assert!(autos.sample(&[seen(1, now)], now, |_| false).is_empty());
        assert_eq!(autos.due_in(), None);
    }

    #[test]
    fn one_vm_at_a_time_compares() {
        let mut autos = Autos::default();
        let (mut now, mut compared) = (Duration::ZERO, std::collections::BTreeSet::new());
        // Each runs for all of the time, with 4000 reschedule interrupts a second.
        while now < 30_000 * MS {
            let vm =
                |pid| VmSeen { reschedules: 4 * u64::try_from(now.as_millis()).unwrap(), ..seen(pid, now) };
            autos.sample(&[vm(1), vm(2)], now, |_| true);
            let comparing = autos.vms.iter().filter(|(_, entry)| entry.auto.is_comparing());
            let comparing: Vec<u32> = comparing.map(|(pid, _)| *pid).collect();
            assert!(comparing.len() <= 1, "{comparing:?}");
            compared.extend(comparing);
            now += 10 * MS;
        }
        assert_eq!(compared.len(), 2, "each has its turn");
    }
}

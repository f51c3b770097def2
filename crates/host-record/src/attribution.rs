//! Where a vCPU's time goes: a state machine over the events of its thread, without I/O.
//!
//! Each event ends a state, and adds the time since the event before it to that state. So the parts of a vCPU's time add
//! up to the whole, whatever is lost: a lost event moves time from one part to another. The BPF programs have the same
//! state machine (`src/bpf/machine.bpf.h`); the Rust one continues it where it stood when the counters were read, and
//! states by its tests what both do.

use serde::{Deserialize, Serialize};

use crate::Reason;

/// A thread that is woken while it leaves its pCPU has left it within this time, in ns.
const LEAVING_NS: u64 = 100_000;

/// What a vCPU's thread does.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Not known: no event was seen yet.
    #[default]
    Unknown,
    /// Executes the guest.
    Guest,
    /// On a pCPU after an exit, in KVM or in the VMM.
    Hypervisor,
    /// Off its pCPU and not runnable; after HLT: halted. Waiting for a pCPU from its wake-up on.
    Asleep,
    /// Off its pCPU although runnable.
    Preempted,
}

/// An event of a vCPU's thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The guest was left (`kvm_exit`).
    Exit(Reason),
    /// The guest is entered (`kvm_entry`).
    Entry,
    /// What the exit's code left open became known, such as which register was written.
    Refine(Reason),
    /// Switched out while runnable (`sched_switch`).
    Preempted,
    /// Switched out to sleep.
    FellAsleep,
    /// Switched to.
    SwitchedIn,
    /// A waker calls (`sched_waking`), on any pCPU.
    Waking,
    /// The exit goes on to the VMM (`kvm_userspace_exit`).
    ToVmm,
    /// Following was paused at that time of a clock that stood still meanwhile; the next event is of this kind.
    Resumed(Next),
}

/// The first event after a pause, as far as it says what the vCPU did before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// [`Event::Exit`].
    Exit,
    /// [`Event::SwitchedIn`].
    SwitchedIn,
    /// Any other.
    Other,
}

/// What happened after exits for one reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReasonTimes {
    /// Number of exits.
    pub count: u64,
    /// Time on a pCPU, in KVM or in the VMM, in ns.
    pub run_ns: u64,
    /// Time asleep, in ns. After HLT the vCPU is halted; otherwise it waits for something within the host.
    pub sleep_ns: u64,
    /// Time waiting for a pCPU after a wake-up, in ns.
    pub woken_ns: u64,
    /// Time waiting for a pCPU after preemption, in ns.
    pub preempted_ns: u64,
    /// Exits that went on to the VMM.
    pub to_vmm: u64,
}

impl ReasonTimes {
    /// Adds `more`.
    pub fn add(&mut self, more: &Self) {
        self.count += more.count;
        self.run_ns += more.run_ns;
        self.sleep_ns += more.sleep_ns;
        self.woken_ns += more.woken_ns;
        self.preempted_ns += more.preempted_ns;
        self.to_vmm += more.to_vmm;
    }

    /// The difference from `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            // A refinement takes an exit from one reason to another.
            count: self.count.saturating_sub(earlier.count),
            run_ns: self.run_ns.saturating_sub(earlier.run_ns),
            sleep_ns: self.sleep_ns.saturating_sub(earlier.sleep_ns),
            woken_ns: self.woken_ns.saturating_sub(earlier.woken_ns),
            preempted_ns: self.preempted_ns.saturating_sub(earlier.preempted_ns),
            to_vmm: self.to_vmm.saturating_sub(earlier.to_vmm),
        }
    }

    /// All of its time, in ns.
    pub fn total_ns(&self) -> u64 {
        self.run_ns + self.sleep_ns + self.woken_ns + self.preempted_ns
    }
}

/// A vCPU's state, and where its time went so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attribution {
    /// Its current state.
    pub state: State,
    /// Why the guest was left last.
    pub reason: Reason,
    /// Start of the accounted time, in ns.
    pub first_ns: u64,
    /// Start of the current state, in ns.
    pub since_ns: u64,
    /// The latest call of a waker, in ns; 0: none.
    pub woken_ns: u64,
    /// Time before the first event, in ns.
    pub unknown_ns: u64,
    /// Time in the guest, in ns.
    pub guest_ns: u64,
    /// Exits that followed no entry.
    pub unpaired: u64,
    /// Events that the state before them does not allow: others were lost.
    pub disordered: u64,
    /// By the number of the reason.
    pub reasons: Vec<ReasonTimes>,
}

impl Attribution {
    /// Starts at `now`, in ns.
    pub fn new(now: u64) -> Self {
        Self {
            state: State::Unknown,
            reason: Reason::Unknown,
            first_ns: now,
            since_ns: now,
            woken_ns: 0,
            unknown_ns: 0,
            guest_ns: 0,
            unpaired: 0,
            disordered: 0,
            reasons: vec![ReasonTimes::default(); Reason::ALL.len()],
        }
    }

    /// Takes in an event at `now`, in ns.
    pub fn apply(&mut self, event: Event, now: u64) {
        use State::{Asleep, Guest, Hypervisor, Preempted, Unknown};
        match event {
            Event::Exit(reason) => {
                // KVM handled the exit before this one on its fast path and went back without an event, or an event was
                // lost: what lies between is nearly all the guest's.
                if self.state == Hypervisor {
                    self.unpaired += 1;
                    self.state = Guest;
                } else if !matches!(self.state, Guest | Unknown) {
                    self.disordered += 1;
                }
                self.account(now);
                self.state = Hypervisor;
                self.reason = reason;
                self.sum().count += 1;
            }
            Event::Entry => {
                self.disordered += u64::from(matches!(self.state, Asleep | Preempted));
                self.account(now);
                self.state = Guest;
            }
            Event::Refine(reason) => {
                if self.state == Hypervisor && self.reason != reason {
                    self.sum().count = self.sum().count.saturating_sub(1);
                    self.reason = reason;
                    self.sum().count += 1;
                }
            }
            Event::Preempted | Event::FellAsleep => {
                self.disordered += u64::from(matches!(self.state, Guest | Asleep | Preempted));
                self.account(now);
                self.state = if event == Event::FellAsleep { Asleep } else { Preempted };
            }
            Event::SwitchedIn => {
                self.disordered += u64::from(matches!(self.state, Guest | Hypervisor));
                self.account(now);
                self.state = Hypervisor;
            }
            // It only notes the time: which state it meets is known when the thread runs again.
            Event::Waking => self.woken_ns = now,
            Event::ToVmm => {
                if self.state == Hypervisor {
                    self.sum().to_vmm += 1;
                }
            }
            Event::Resumed(next) => {
                let before = self.state;
                self.left_alone(now);
                match next {
                    Next::Exit => self.state = Guest,
                    Next::Other => self.state = Unknown,
                    // It woke up since.
                    Next::SwitchedIn if self.woken_ns >= now => {}
                    // It waited for a pCPU already.
                    Next::SwitchedIn if before == Preempted => self.state = Preempted,
                    Next::SwitchedIn => self.woken_ns = now,
                }
            }
        }
    }

    /// Following was paused at `paused`, in ns, and has resumed without an event since: the vCPU sleeps. Whoever runs has an
    /// event at each tick at least.
    pub fn left_alone(&mut self, paused: u64) {
        self.account(paused);
        if self.state != State::Asleep {
            self.state = State::Asleep;
            self.reason = Reason::Hlt;
        }
        if self.woken_ns < paused {
            self.woken_ns = 0;
        }
    }

    /// Adds the time in the current state until `now`, in ns. The state stays.
    pub fn account(&mut self, now: u64) {
        let since = self.since_ns;
        let passed = now.saturating_sub(since);
        match self.state {
            State::Unknown => self.unknown_ns += passed,
            State::Guest => self.guest_ns += passed,
            State::Hypervisor => self.sum().run_ns += passed,
            State::Preempted => self.sum().preempted_ns += passed,
            State::Asleep => {
                let woken = self.wake_up(now);
                self.sum().sleep_ns += woken.saturating_sub(since);
                self.sum().woken_ns += now.saturating_sub(woken);
            }
        }
        self.since_ns = self.since_ns.max(now);
    }

    /// All time accounted so far, in ns: the same as from the first to the latest event.
    pub fn total_ns(&self) -> u64 {
        self.unknown_ns + self.guest_ns + self.reasons.iter().map(ReasonTimes::total_ns).sum::<u64>()
    }

    /// When the sleep ended by a wake-up; `now` if it did not.
    ///
    /// A waker can call in the moment between the thread's decision to sleep and its switching away. A call that the
    /// thread met before it decided is older, or a later one follows it.
    fn wake_up(&self, now: u64) -> u64 {
        if self.woken_ns == 0 || self.woken_ns > now || self.woken_ns + LEAVING_NS < self.since_ns {
            return now;
        }
        self.woken_ns.max(self.since_ns)
    }

    fn sum(&mut self) -> &mut ReasonTimes {
        // One entry for each reason, always.
        &mut self.reasons[self.reason as usize]
    }
}

/// Where the time of a vCPU, or of several, went, in ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// Not known: before the vCPU's first event.
    pub unknown_ns: u64,
    /// In the guest.
    pub guest_ns: u64,
    /// On a pCPU, in KVM or in the VMM.
    pub hypervisor_ns: u64,
    /// Halted.
    pub halted_ns: u64,
    /// Asleep after another exit than HLT: in the VMM, or for memory.
    pub blocked_ns: u64,
    /// Waiting for a pCPU after a wake-up.
    pub woken_ns: u64,
    /// Waiting for a pCPU after preemption.
    pub preempted_ns: u64,
}

impl Times {
    /// From the sums by reason.
    pub fn of<'a>(
        unknown_ns: u64,
        guest_ns: u64,
        reasons: impl IntoIterator<Item = (&'a Reason, &'a ReasonTimes)>,
    ) -> Self {
        let mut times = Self { unknown_ns, guest_ns, ..Self::default() };
        for (reason, sum) in reasons {
            times.hypervisor_ns += sum.run_ns;
            if *reason == Reason::Hlt {
                times.halted_ns += sum.sleep_ns;
            } else {
                times.blocked_ns += sum.sleep_ns;
            }
            times.woken_ns += sum.woken_ns;
            times.preempted_ns += sum.preempted_ns;
        }
        times
    }

    /// The sum of the parts: the wall time for which the vCPU was followed.
    pub fn total_ns(&self) -> u64 {
        self.unknown_ns + self.halted_ns + self.wanted_ns()
    }

    /// Time in which the vCPU wanted to run: all but unknown and halted.
    pub fn wanted_ns(&self) -> u64 {
        self.guest_ns + self.hypervisor_ns + self.blocked_ns + self.woken_ns + self.preempted_ns
    }

    /// Each of them `scaled`.
    #[must_use]
    pub fn scaled(&self, scaled: impl Fn(u64) -> u64) -> Self {
        Self {
            unknown_ns: scaled(self.unknown_ns),
            guest_ns: scaled(self.guest_ns),
            hypervisor_ns: scaled(self.hypervisor_ns),
            halted_ns: scaled(self.halted_ns),
            blocked_ns: scaled(self.blocked_ns),
            woken_ns: scaled(self.woken_ns),
            preempted_ns: scaled(self.preempted_ns),
        }
    }

    /// Adds those of another vCPU.
    pub fn add(&mut self, more: &Self) {
        self.unknown_ns += more.unknown_ns;
        self.guest_ns += more.guest_ns;
        self.hypervisor_ns += more.hypervisor_ns;
        self.halted_ns += more.halted_ns;
        self.blocked_ns += more.blocked_ns;
        self.woken_ns += more.woken_ns;
        self.preempted_ns += more.preempted_ns;
    }
}

#[cfg(test)]
mod tests;

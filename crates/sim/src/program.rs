//! Programs: threads as generators of segments, and the objects on which they meet.

use crate::ids::Ns;
use crate::random::Dist;

/// How deep loops may nest in a thread's code.
pub const MAX_LOOPS: usize = 4;

/// How many objects a program's threads may share, those included of which queues and some barriers are made. They
/// are numbered with 16 bits.
const MOST_OBJECTS: usize = u16::MAX as usize;

/// One step of a thread. Objects are indices into [`Program::objects`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Op {
    /// Compute.
    Compute(Dist),
    /// Take a mutex.
    Lock(u16),
    /// Release it.
    Unlock(u16),
    /// Meet at a barrier.
    Barrier(u16),
    /// Append an item to a bounded queue; wait for room.
    Put(u16),
    /// Take an item from a bounded queue; wait for one. Once the queue is closed and empty, leave the innermost loop and go
    /// on at that step.
    Take(u16, u16),
    /// One producer of the queue is done; after the last one the queue is closed.
    Close(u16),
    /// Post to a channel.
    Send(u16),
    /// Wait for a post and consume it.
    Receive(u16),
    /// Wait at a condition, with the mutex of that number, which the thread holds: it is released meanwhile.
    Wait(u16, u16),
    /// Let one waiter of a condition go on: one that waits, or the next one to come.
    Signal(u16),
    /// Let every waiter of a condition go on.
    Broadcast(u16),
    /// Sleep.
    Sleep(Dist),
    /// Wait for a device.
    Io(Dist),
    /// Change the address space: every vCPU that runs a thread of this program must flush its TLB and acknowledge.
    Shootdown,
    /// `sched_yield`.
    Yield,
    /// So many operations are done.
    Done(u32),
    /// So many bytes were moved by read and write calls.
    Moved(u32),
    /// Do the steps up to the matching [`Op::Again`] so many times; 0 means for ever.
    Repeat(u64),
    /// The end of a loop.
    Again,
    /// The thread ends.
    End,
}

/// How a barrier waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BarrierKind {
    /// In the kernel.
    Block,
    /// In user mode, without end.
    Spin,
    /// In user mode for so long, then in the kernel.
    SpinThenBlock(Ns),
    /// Made of a mutex and a condition variable, as PARSEC's own and those of SPLASH-2x: who comes waits in user mode for so
    /// long, then at the condition; the last one lets all go on, and nobody comes in again before all have left. All go on one
    /// after the other, as each needs the mutex.
    Condition(Ns),
}

/// How a channel waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelKind {
    /// A futex word.
    Futex,
    /// A socket or pipe: system calls on both sides.
    Socket,
    /// In user mode, until the other side has posted.
    Spin,
}

/// An object on which threads meet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectKind {
    /// A mutex.
    Mutex {
        /// How long waiters spin in user mode before they sleep.
        spin: Ns,
        /// Whether it is handed to the first waiter at the release (the kernel's `rwsem` before Linux 3.10), or whoever comes
        /// first has it (pthread mutexes).
        handoff: bool,
    },
    /// A barrier.
    Barrier {
        /// How many threads meet.
        parties: u32,
        /// How they wait.
        kind: BarrierKind,
    },
    /// A bounded queue with a mutex and two condition variables.
    Queue {
        /// How many items it holds.
        capacity: u32,
        /// How many threads must close it.
        producers: u32,
        /// How long waiters for its mutex spin.
        spin: Ns,
        /// Whether a signal without waiters is a system call (Rust's condition variables) or not (glibc's).
        always_signals: bool,
    },
    /// A condition variable with its predicate: a signal that nobody waits for is remembered.
    Condition,
    /// A counter of posts.
    Channel(ChannelKind),
}

/// Threads with the same code.
#[derive(Debug, Clone, PartialEq)]
pub struct Role {
    /// What they do; for traces and reports.
    pub name: String,
    /// How many there are.
    pub threads: u32,
    /// What each does. Runs into an implied [`Op::End`].
    pub code: Vec<Op>,
}

/// A program.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Program {
    /// Its name.
    pub name: String,
    /// Its threads.
    pub roles: Vec<Role>,
    /// What they share.
    pub objects: Vec<ObjectKind>,
    /// What some of these are called, for reports, by their numbers.
    pub names: Vec<(u16, String)>,
}

/// What is wrong with a program.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// A program without threads.
    #[error("program `{program}` has no threads: give it at least one")]
    NoThreads {
        /// Its name.
        program: String,
    },
    /// More objects than can be numbered.
    #[error(
        "program `{program}` shares {objects} objects (a queue counts four times, a barrier with a condition three \
         times): {MOST_OBJECTS} are possible; give it fewer threads"
    )]
    Objects {
        /// Its name.
        program: String,
        /// How many there are.
        objects: usize,
    },
    /// An operation on an object that is not there or of another kind.
    #[error("program `{program}`, role `{role}`, step {step}: there is no {wanted} number {object}")]
    Object {
        /// The program's name.
        program: String,
        /// The role's.
        role: String,
        /// The step, from 0.
        step: usize,
        /// What the operation needs.
        wanted: &'static str,
        /// The object's number.
        object: u16,
    },
    /// Loops that do not close, or nest too deep.
    #[error("program `{program}`, role `{role}`: loops must be closed and nest at most {MAX_LOOPS} deep")]
    Loops {
        /// The program's name.
        program: String,
        /// The role's.
        role: String,
    },
    /// A jump out of the code.
    #[error("program `{program}`, role `{role}`, step {step}: goes on at step {target}, which is not there")]
    Jump {
        /// The program's name.
        program: String,
        /// The role's.
        role: String,
        /// The step, from 0.
        step: usize,
        /// Where it goes on.
        target: u16,
    },
}

impl Program {
    /// An empty program called `name`.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Adds an object and gives its number.
    pub fn object(&mut self, kind: ObjectKind) -> u16 {
        self.objects.push(kind);
        u16::try_from(self.objects.len() - 1).unwrap_or(u16::MAX)
    }

    /// Adds `threads` threads that run `code`.
    pub fn role(&mut self, name: &str, threads: u32, code: Vec<Op>) {
        self.roles.push(Role { name: name.to_owned(), threads, code });
    }

    /// How many threads it has; [`u32::MAX`] where that is no number of 32 bits, which
    /// [`crate::spec::Spec::check`] refuses.
    pub fn threads(&self) -> u32 {
        self.roles.iter().fold(0, |sum, role| role.threads.saturating_add(sum))
    }

    /// Whether it can be run.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn check(&self) -> Result<(), ProgramError> {
        if self.threads() == 0 {
            return Err(ProgramError::NoThreads { program: self.name.clone() });
        }
        let objects = self.objects.iter().map(ObjectKind::parts).sum();
        if objects > MOST_OBJECTS {
            return Err(ProgramError::Objects { program: self.name.clone(), objects });
        }
        self.roles.iter().try_for_each(|role| self.check_role(role))
    }

    fn check_role(&self, role: &Role) -> Result<(), ProgramError> {
        let names = || (self.name.clone(), role.name.clone());
        let mut depth = 0_usize;
        for (step, op) in role.code.iter().enumerate() {
            if let Some((object, wanted)) = self.misuse(*op) {
                let (program, role) = names();
                return Err(ProgramError::Object { program, role, step, wanted, object });
            }
            match op {
                Op::Take(_, target) if usize::from(*target) > role.code.len() => {
                    let (program, role) = names();
                    return Err(ProgramError::Jump { program, role, step, target: *target });
                }
                Op::Repeat(_) => depth += 1,
                Op::Again => depth = depth.wrapping_sub(1),
                _ => {}
            }
            if depth > MAX_LOOPS {
                let (program, role) = names();
                return Err(ProgramError::Loops { program, role });
            }
        }
        let (program, role) = names();
        if depth == 0 { Ok(()) } else { Err(ProgramError::Loops { program, role }) }
    }

    /// The object that `op` uses wrongly, and what it should be.
    fn misuse(&self, op: Op) -> Option<(u16, &'static str)> {
        let (object, wanted) = match op {
            Op::Lock(o) | Op::Unlock(o) => (o, "mutex"),
            Op::Barrier(o) => (o, "barrier"),
            Op::Put(o) | Op::Take(o, _) | Op::Close(o) => (o, "queue"),
            Op::Wait(o, mutex) if self.is(mutex, "mutex") => (o, "condition"),
            Op::Wait(_, mutex) => (mutex, "mutex"),
            Op::Signal(o) | Op::Broadcast(o) => (o, "condition"),
            Op::Send(o) | Op::Receive(o) => (o, "channel"),
            _ => return None,
        };
        (!self.is(object, wanted)).then_some((object, wanted))
    }

    fn is(&self, object: u16, wanted: &str) -> bool {
        self.objects.get(usize::from(object)).is_some_and(|kind| kind.name() == wanted)
    }
}

impl ObjectKind {
    /// What it is, in a word.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Mutex { .. } => "mutex",
            Self::Barrier { .. } => "barrier",
            Self::Queue { .. } => "queue",
            Self::Condition => "condition",
            Self::Channel(_) => "channel",
        }
    }

    /// Of how many objects of the world it is made: itself, and its mutex and conditions.
    fn parts(&self) -> usize {
        match self {
            Self::Queue { .. } => 4,
            Self::Barrier { kind: BarrierKind::Condition(_), .. } => 3,
            _ => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(code: Vec<Op>) -> Result<(), ProgramError> {
        let mut program = Program::new("p");
        program.object(ObjectKind::Mutex { spin: 0, handoff: false });
        program.role("r", 1, code);
        program.check()
    }

    #[test]
    fn finds_what_is_wrong_and_says_where() {
        assert_eq!(with(vec![Op::Lock(0), Op::Unlock(0)]), Ok(()));
        let error = with(vec![Op::Lock(0), Op::Barrier(0)]).unwrap_err().to_string();
        assert_eq!(error, "program `p`, role `r`, step 1: there is no barrier number 0");
        let error = with(vec![Op::Wait(0, 0)]).unwrap_err().to_string();
        assert_eq!(error, "program `p`, role `r`, step 0: there is no condition number 0");
        assert!(matches!(with(vec![Op::Wait(0, 7)]), Err(ProgramError::Object { object: 7, .. })));
        assert!(matches!(with(vec![Op::Lock(9)]), Err(ProgramError::Object { object: 9, .. })));
        assert!(matches!(with(vec![Op::Repeat(2)]), Err(ProgramError::Loops { .. })));
        assert!(matches!(with(vec![Op::Again]), Err(ProgramError::Loops { .. })));
        assert!(matches!(with(vec![Op::Repeat(2); 5]), Err(ProgramError::Loops { .. })));
        assert!(matches!(Program::new("p").check(), Err(ProgramError::NoThreads { .. })));
        let mut program = Program::new("p");
        program.role("r", 1, Vec::new());
        let queue = ObjectKind::Queue { capacity: 1, producers: 1, spin: 0, always_signals: false };
        program.objects = vec![queue; MOST_OBJECTS / 4 + 1];
        assert!(matches!(program.check(), Err(ProgramError::Objects { objects: 65_536, .. })));
    }
}

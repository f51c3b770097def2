//! Programs: threads as sequences of operations, and the objects on which they synchronise.

use crate::ids::Ns;
use crate::random::Dist;

/// Deepest nesting of loops in a thread's code.
pub const MAX_LOOPS: usize = 4;

/// Most objects in a program, including the parts of queues and barriers. Object numbers have 16 bits.
const MAX_OBJECTS: usize = u16::MAX as usize;

/// One step of a thread. Objects are indices into [`Program::objects`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Op {
    /// Compute for this long.
    Compute(Dist),
    /// Acquire a mutex.
    Lock(u16),
    /// Release a mutex.
    Unlock(u16),
    /// Wait at a barrier.
    Barrier(u16),
    /// Append an item to a bounded queue; block while it is full.
    Put(u16),
    /// Take an item from a bounded queue; block while it is empty. Once the queue is closed and empty, leave
    /// the innermost loop and continue at that step.
    Take(u16, u16),
    /// A producer has finished; the last one closes the queue.
    Close(u16),
    /// Post to a channel.
    Send(u16),
    /// Wait for a post and consume it.
    Receive(u16),
    /// Wait on a condition (first number), releasing a mutex (second number) that the thread holds.
    Wait(u16, u16),
    /// Wake one waiter of a condition: a present one or else the next to arrive.
    Signal(u16),
    /// Wake all waiters of a condition.
    Broadcast(u16),
    /// Sleep for this long.
    Sleep(Dist),
    /// Wait for a device for this long.
    Io(Dist),
    /// Change the address space: all vCPUs that run the program's threads must flush their TLB.
    Shootdown,
    /// `sched_yield`.
    Yield,
    /// Count this many operations as done.
    Done(u32),
    /// Count this many bytes as moved by read and write calls.
    Moved(u32),
    /// Repeat the steps up to the matching [`Op::Again`] this many times; 0: forever.
    Repeat(u64),
    /// End of a loop.
    Again,
    /// The thread exits.
    End,
}

/// How threads wait at a barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BarrierKind {
    /// In the kernel.
    Block,
    /// Spinning in user mode, without limit.
    Spin,
    /// Spinning in user mode for this long, then in the kernel.
    SpinThenBlock(Ns),
    /// Composed of a mutex and a condition variable, like the barriers of PARSEC and SPLASH-2x. Waiters spin
    /// in user mode for this long, then wait on the condition; the last arrival releases them, and nobody can
    /// enter again until all have left. They leave one after the other, as each needs the mutex.
    Condition(Ns),
}

/// How threads wait on a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChannelKind {
    /// On a futex.
    Futex,
    /// On a socket or pipe: system calls on both sides.
    Socket,
    /// Spinning in user mode until the other side has posted.
    Spin,
}

/// A synchronisation object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectKind {
    /// A mutex.
    Mutex {
        /// How long waiters spin in user mode before they sleep.
        spin: Ns,
        /// Whether a release passes it to the first waiter (the kernel's `rwsem` before Linux 3.10);
        /// otherwise anyone can take it (pthread mutexes).
        handoff: bool,
    },
    /// A barrier.
    Barrier {
        /// Number of threads that meet.
        parties: u32,
        /// How they wait.
        kind: BarrierKind,
    },
    /// A bounded queue with a mutex and two condition variables.
    Queue {
        /// Most items in the queue.
        capacity: u32,
        /// Number of producers that must close it.
        producers: u32,
        /// How long waiters for its mutex spin.
        spin: Ns,
        /// Whether a signal without waiters is a system call (Rust's condition variables) or not (glibc's).
        always_signals: bool,
    },
    /// A condition variable with a predicate, so that a signal without a waiter is not lost.
    Condition,
    /// A counter of posts.
    Channel(ChannelKind),
}

/// Threads with the same code.
#[derive(Debug, Clone, PartialEq)]
pub struct Role {
    /// Name of the role in traces and reports.
    pub name: String,
    /// Number of threads.
    pub threads: u32,
    /// Code of each thread, with an implied [`Op::End`].
    pub code: Vec<Op>,
}

/// A program: its threads and what they synchronise on.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Program {
    /// Name in reports.
    pub name: String,
    /// Its threads, by role.
    pub roles: Vec<Role>,
    /// Shared objects; operations refer to them by index.
    pub objects: Vec<ObjectKind>,
    /// Names of some objects for reports, by object number.
    pub names: Vec<(u16, String)>,
}

/// Why a program is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// A program without threads.
    #[error("program `{program}` has no threads: give it at least one")]
    NoThreads {
        /// Name of the program.
        program: String,
    },
    /// More objects than can be numbered.
    #[error(
        "program `{program}` shares {objects} objects (a queue counts four times, a barrier with a condition three \
         times): {MAX_OBJECTS} are possible; give it fewer threads"
    )]
    Objects {
        /// Name of the program.
        program: String,
        /// Number of objects.
        objects: usize,
    },
    /// An operation on an object that does not exist or is of another kind.
    #[error("program `{program}`, role `{role}`, step {step}: there is no {wanted} number {object}")]
    Object {
        /// Name of the program.
        program: String,
        /// Name of the role.
        role: String,
        /// Index of the step.
        step: usize,
        /// The kind of object that the operation needs.
        wanted: &'static str,
        /// Number of the object.
        object: u16,
    },
    /// Loops that are not closed or are nested too deeply.
    #[error("program `{program}`, role `{role}`: loops must be closed and nest at most {MAX_LOOPS} deep")]
    Loops {
        /// Name of the program.
        program: String,
        /// Name of the role.
        role: String,
    },
    /// A jump to a step that does not exist.
    #[error("program `{program}`, role `{role}`, step {step}: goes on at step {target}, which is not there")]
    Jump {
        /// Name of the program.
        program: String,
        /// Name of the role.
        role: String,
        /// Index of the step.
        step: usize,
        /// Target of the jump.
        target: u16,
    },
}

impl Program {
    /// An empty program called `name`.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), ..Self::default() }
    }

    /// Adds an object; returns its number.
    pub fn object(&mut self, kind: ObjectKind) -> u16 {
        self.objects.push(kind);
        u16::try_from(self.objects.len() - 1).unwrap_or(u16::MAX)
    }

    /// Adds `threads` threads that run `code`.
    pub fn role(&mut self, name: &str, threads: u32, code: Vec<Op>) {
        self.roles.push(Role { name: name.to_owned(), threads, code });
    }

    /// Total number of threads; saturates at [`u32::MAX`], which [`crate::spec::Spec::check`] refuses.
    pub fn threads(&self) -> u32 {
        self.roles.iter().fold(0, |sum, role| role.threads.saturating_add(sum))
    }

    /// Checks that the program can be run.
    ///
    /// # Errors
    /// The first problem found.
    pub fn check(&self) -> Result<(), ProgramError> {
        if self.threads() == 0 {
            return Err(ProgramError::NoThreads { program: self.name.clone() });
        }
        let objects = self.objects.iter().map(ObjectKind::parts).sum();
        if objects > MAX_OBJECTS {
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

    /// The object that `op` cannot be used on, and the kind that it needs.
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
    /// The kind in one word.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Mutex { .. } => "mutex",
            Self::Barrier { .. } => "barrier",
            Self::Queue { .. } => "queue",
            Self::Condition => "condition",
            Self::Channel(_) => "channel",
        }
    }

    /// How many objects of the world it consists of: itself, its mutex and its conditions.
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
        program.objects = vec![queue; MAX_OBJECTS / 4 + 1];
        assert!(matches!(program.check(), Err(ProgramError::Objects { objects: 65_536, .. })));
    }
}

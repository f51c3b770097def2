//! Programs defined in the scenario file: threads as lists of segments, and their objects.

use std::collections::BTreeMap;

use gleaner_proto::source_text::SourceText;
use serde::Deserialize;
use toml::Spanned;

use super::ScenarioError;
use super::error::{At as _, hint};
use super::file::of;
use super::units::dist;
use crate::program::{BarrierKind, ChannelKind, MAX_LOOPS, ObjectKind, Op, Program};

type Words = Option<Spanned<String>>;
type Named = Spanned<String>;

/// Maximum number of steps of a thread.
const MAX_STEPS: usize = u16::MAX as usize;

/// An object. Which keys are meaningful depends on its kind.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ObjectFile {
    kind: Spanned<String>,
    /// How long waiters spin before they sleep; for a barrier also `"ever"`.
    spin: Words,
    /// For a mutex: whether a release passes it to the first waiter.
    handoff: Option<Spanned<bool>>,
    /// For a barrier: how many threads meet; by default those with this barrier in their code.
    parties: Option<Spanned<u32>>,
    /// For a queue: its capacity in items.
    capacity: Option<Spanned<u32>>,
    /// For a queue: how many threads close it; by default those that do so in their code.
    producers: Option<Spanned<u32>>,
    /// For a queue: whether a signal without waiters is a system call.
    always_signals: Option<Spanned<bool>>,
}

/// Threads with the same code.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ThreadFile {
    name: String,
    #[serde(default = "one")]
    count: u32,
    code: Vec<Spanned<Segment>>,
}

const fn one() -> u32 {
    1
}

/// One segment of a thread's code.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Segment {
    Compute(Named),
    Lock(Named),
    Unlock(Named),
    Barrier(Named),
    Put(Named),
    Take(Named),
    Close(Named),
    Wait(WaitFile),
    Signal(Named),
    Broadcast(Named),
    Post(Named),
    Await(Named),
    SpinUntil(Named),
    Sleep(Named),
    Io(Named),
    Shootdown,
    Yield,
    Done(u32),
    Moved(u32),
    Repeat(RepeatFile),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WaitFile {
    condition: Named,
    mutex: Named,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RepeatFile {
    /// Endless by default.
    times: Option<Spanned<u64>>,
    code: Vec<Spanned<Segment>>,
}

const KINDS: [&str; 7] = ["mutex", "barrier", "condition", "queue", "futex", "socket", "flag"];

/// Builds the program `name` from `objects` and `threads`.
pub(super) fn program(
    text: &SourceText,
    name: &str,
    objects: &BTreeMap<Spanned<String>, ObjectFile>,
    threads: &[ThreadFile],
) -> Result<Program, ScenarioError> {
    let mut made = Program::new(name);
    let mut kinds = Vec::with_capacity(objects.len());
    // In file order.
    let mut sorted: Vec<_> = objects.iter().collect();
    sorted.sort_by_key(|(name, _)| name.span().start);
    for (name, file) in sorted {
        let kind = object(text, file, Users::of(name.get_ref(), threads))?;
        let number = made.object(kind);
        made.names.push((number, name.get_ref().clone()));
        kinds.push(file.kind.get_ref().as_str());
    }
    for group in threads {
        let code = Code { text, program: &made, kinds: &kinds, depth: 0, ops: Vec::new() }.of(&group.code)?;
        made.role(&group.name, group.count, code);
    }
    Ok(made)
}

/// How many threads use an object, by kind of use.
#[derive(Clone, Copy)]
struct Users {
    barrier: u32,
    close: u32,
}

impl Users {
    fn of(object: &str, threads: &[ThreadFile]) -> Self {
        fn any(code: &[Spanned<Segment>], wanted: &impl Fn(&Segment) -> bool) -> bool {
            code.iter().any(|s| match s.get_ref() {
                Segment::Repeat(inner) => any(&inner.code, wanted),
                segment => wanted(segment),
            })
        }
        let count = |wanted: &dyn Fn(&Segment) -> bool| {
            let users = threads.iter().filter(|t| any(&t.code, &wanted));
            users.fold(0, |sum: u32, threads| sum.saturating_add(threads.count))
        };
        Self {
            barrier: count(&|s| matches!(s, Segment::Barrier(o) if o.get_ref() == object)),
            close: count(&|s| matches!(s, Segment::Close(o) if o.get_ref() == object)),
        }
    }
}

fn object(text: &SourceText, file: &ObjectFile, users: Users) -> Result<ObjectKind, ScenarioError> {
    let kind = file.kind.get_ref().as_str();
    let own: &[&str] = match kind {
        "mutex" => &["spin", "handoff"],
        "barrier" => &["spin", "parties"],
        "queue" => &["spin", "capacity", "producers", "always_signals"],
        "condition" | "futex" | "socket" | "flag" => &[],
        other => {
            let message = format!("`{other}` is no kind of object{}", hint(other, KINDS.into_iter()));
            return Err(text.wrong(&file.kind.span(), format!("{message}; there are: {}", KINDS.join(", "))));
        }
    };
    let given = [
        ("spin", file.spin.as_ref().map(Spanned::span)),
        ("handoff", file.handoff.as_ref().map(Spanned::span)),
        ("parties", file.parties.as_ref().map(Spanned::span)),
        ("capacity", file.capacity.as_ref().map(Spanned::span)),
        ("producers", file.producers.as_ref().map(Spanned::span)),
        ("always_signals", file.always_signals.as_ref().map(Spanned::span)),
    ];
    for (key, span) in given {
        if let Some(span) = span.filter(|_| !own.contains(&key)) {
            return Err(text.wrong(&span, format!("`{key}` means nothing for a {kind}")));
        }
    }
    let of_users = |given: &Option<Spanned<u32>>, users: u32, what: &str| {
        let number = given.as_ref().map_or(users, |n| *n.get_ref());
        let span = given.as_ref().map_or_else(|| file.kind.span(), Spanned::span);
        if number > 0 { Ok(number) } else { Err(text.wrong(&span, format!("no thread {what}"))) }
    };
    Ok(match kind {
        "mutex" => ObjectKind::Mutex {
            spin: of(text, &file.spin)?.unwrap_or(0),
            handoff: file.handoff.as_ref().is_some_and(|h| *h.get_ref()),
        },
        "barrier" => ObjectKind::Barrier {
            parties: of_users(&file.parties, users.barrier, "meets at this barrier")?,
            kind: match &file.spin {
                None => BarrierKind::Block,
                Some(spin) if spin.get_ref() == "ever" => BarrierKind::Spin,
                Some(_) => BarrierKind::SpinThenBlock(of(text, &file.spin)?.unwrap_or(0)),
            },
        },
        "queue" => ObjectKind::Queue {
            capacity: of_users(&file.capacity, 0, "can put an item into a queue without `capacity`")?,
            // A queue that nobody closes stays open.
            producers: file.producers.as_ref().map_or(users.close.max(1), |n| *n.get_ref()),
            spin: of(text, &file.spin)?.unwrap_or(0),
            always_signals: file.always_signals.as_ref().is_some_and(|s| *s.get_ref()),
        },
        "condition" => ObjectKind::Condition,
        "futex" => ObjectKind::Channel(ChannelKind::Futex),
        "socket" => ObjectKind::Channel(ChannelKind::Socket),
        _ => ObjectKind::Channel(ChannelKind::Spin),
    })
}

/// A thread's code under construction.
struct Code<'a> {
    text: &'a SourceText<'a>,
    program: &'a Program,
    /// The kind of each object, as named in the file.
    kinds: &'a [&'a str],
    depth: usize,
    ops: Vec<Op>,
}

impl Code<'_> {
    fn of(mut self, segments: &[Spanned<Segment>]) -> Result<Vec<Op>, ScenarioError> {
        self.segments(segments)?;
        if let (true, Some(first)) = (self.ops.len() > MAX_STEPS, segments.first()) {
            let message = format!("the code has {} steps; {MAX_STEPS} are possible", self.ops.len());
            return Err(self.text.wrong(&first.span(), message));
        }
        Ok(self.ops)
    }

    /// Appends `segments`. A `take` among them continues after the last one when its queue is closed.
    fn segments(&mut self, segments: &[Spanned<Segment>]) -> Result<(), ScenarioError> {
        let mut leaving = Vec::new();
        for segment in segments {
            let op = self.segment(segment)?;
            if matches!(op, Some(Op::Take(..))) {
                leaving.push(self.ops.len());
            }
            self.ops.extend(op);
        }
        // Behind the end of the loop, if there is one.
        let after = self.ops.len() + usize::from(self.depth > 0);
        let after = u16::try_from(after).unwrap_or(u16::MAX);
        for step in leaving {
            if let Op::Take(_, target) = &mut self.ops[step] {
                *target = after;
            }
        }
        Ok(())
    }

    /// Translates a segment into a step; a loop appends its own steps.
    fn segment(&mut self, segment: &Spanned<Segment>) -> Result<Option<Op>, ScenarioError> {
        let duration = |words: &Named| dist(words.get_ref()).map_err(|m| self.text.wrong(&words.span(), m));
        let number = |name: &Named, kinds: &[&str]| self.number(name, kinds);
        Ok(Some(match segment.get_ref() {
            Segment::Compute(d) => Op::Compute(duration(d)?),
            Segment::Sleep(d) => Op::Sleep(duration(d)?),
            Segment::Io(d) => Op::Io(duration(d)?),
            Segment::Lock(o) => Op::Lock(number(o, &["mutex"])?),
            Segment::Unlock(o) => Op::Unlock(number(o, &["mutex"])?),
            Segment::Barrier(o) => Op::Barrier(number(o, &["barrier"])?),
            Segment::Put(o) => Op::Put(number(o, &["queue"])?),
            Segment::Take(o) => Op::Take(number(o, &["queue"])?, 0),
            Segment::Close(o) => Op::Close(number(o, &["queue"])?),
            Segment::Wait(w) => {
                Op::Wait(number(&w.condition, &["condition"])?, number(&w.mutex, &["mutex"])?)
            }
            Segment::Signal(o) => Op::Signal(number(o, &["condition"])?),
            Segment::Broadcast(o) => Op::Broadcast(number(o, &["condition"])?),
            Segment::Post(o) => Op::Send(number(o, &["futex", "socket", "flag"])?),
            Segment::Await(o) => Op::Receive(number(o, &["futex", "socket"])?),
            Segment::SpinUntil(o) => Op::Receive(number(o, &["flag"])?),
            Segment::Shootdown => Op::Shootdown,
            Segment::Yield => Op::Yield,
            Segment::Done(n) => Op::Done(*n),
            Segment::Moved(n) => Op::Moved(*n),
            Segment::Repeat(inner) => {
                self.repeat(segment, inner)?;
                return Ok(None);
            }
        }))
    }

    fn repeat(&mut self, at: &Spanned<Segment>, inner: &RepeatFile) -> Result<(), ScenarioError> {
        self.depth += 1;
        if self.depth > MAX_LOOPS {
            return Err(self.text.wrong(&at.span(), format!("loops nest at most {MAX_LOOPS} deep")));
        }
        let times = match &inner.times {
            None => 0,
            Some(times) if *times.get_ref() > 0 => *times.get_ref(),
            Some(times) => {
                let message = "a loop runs at least once; leave `times` out for one without end";
                return Err(self.text.wrong(&times.span(), message));
            }
        };
        self.ops.push(Op::Repeat(times));
        self.segments(&inner.code)?;
        self.ops.push(Op::Again);
        self.depth -= 1;
        Ok(())
    }

    /// Number of the object called `name`, which must be of one of these kinds.
    fn number(&self, name: &Named, kinds: &[&str]) -> Result<u16, ScenarioError> {
        let names = &self.program.names;
        let found = names.iter().position(|(_, known)| known == name.get_ref());
        let Some(index) = found else {
            let known = names.iter().map(|(_, known)| known.as_str());
            let message = format!("there is no object `{}`{}", name.get_ref(), hint(name.get_ref(), known));
            return Err(self.text.wrong(&name.span(), message));
        };
        if !kinds.contains(&self.kinds[index]) {
            let (found, wanted) = (self.kinds[index], kinds.join(" or a "));
            let message = format!("`{}` is a {found}; a {wanted} is needed here", name.get_ref());
            return Err(self.text.wrong(&name.span(), message));
        }
        Ok(names[index].0)
    }
}

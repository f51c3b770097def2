//! Records vCPU activity as spans and exports it in the Trace Event Format, which Perfetto and Chrome open.

use std::fmt::Write as _;

use crate::World;
use crate::ids::{Ns, Thread, Vcpu};
use crate::world::Category;

/// An interval of one activity of a vCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Span {
    vcpu: Vcpu,
    category: Category,
    thread: Option<Thread>,
    from: Ns,
    to: Ns,
}

/// A recording of all vCPUs.
#[derive(Debug)]
pub struct Trace {
    spans: Vec<Span>,
    most: usize,
    /// Index of each vCPU's last span.
    last: Vec<Option<usize>>,
}

impl Trace {
    pub(crate) fn new(vcpus: usize, most: usize) -> Self {
        Self { spans: Vec::new(), most, last: vec![None; vcpus] }
    }

    /// Whether spans were dropped because the recording is full.
    pub fn is_full(&self) -> bool {
        self.spans.len() >= self.most
    }

    pub(crate) fn span(&mut self, vcpu: Vcpu, category: Category, thread: Option<Thread>, from: Ns, to: Ns) {
        let last = self.last[vcpu.index()];
        if let Some(span) = last.and_then(|index| self.spans.get_mut(index))
            && (span.category, span.thread, span.to) == (category, thread, from)
        {
            span.to = to;
        } else if !self.is_full() {
            self.last[vcpu.index()] = Some(self.spans.len());
            self.spans.push(Span { vcpu, category, thread, from, to });
        }
    }
}

/// A recording as columns of the same length, in the order in which the spans began to be recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Timeline {
    /// Number of the VM, in the order of the specification.
    pub vm: Vec<u32>,
    /// Number of the vCPU within the VM.
    pub vcpu: Vec<u32>,
    /// What it did: an index of [`crate::CATEGORY_NAMES`].
    pub category: Vec<u32>,
    /// For which thread: an index of `threads`; `None` for none.
    pub thread: Vec<Option<u32>>,
    /// Start, in ns.
    pub start_ns: Vec<Ns>,
    /// End, in ns.
    pub end_ns: Vec<Ns>,
    /// Names of all threads.
    pub threads: Vec<String>,
}

/// Name of a slice; `None` if the category gets none.
fn label(category: Category) -> Option<&'static str> {
    Some(match category {
        Category::User | Category::Halted => return None,
        Category::Kernel => "kernel",
        Category::UserSpin => "spins (user)",
        Category::LockSpin => "spins (lock)",
        Category::TlbSpin => "spins (TLB)",
        Category::Irq => "interrupt",
        Category::Switch => "switch",
        Category::IdleEnter => "going idle",
        Category::Poll => "polls",
        Category::Yield => "yield thread",
        Category::HostPoll => "host polls",
        Category::Waking => "waking",
        Category::Steal => "steal",
    })
}

impl World {
    /// The recording, if there is one.
    pub fn timeline(&self) -> Option<Timeline> {
        let trace = self.trace()?;
        let mut timeline = Timeline { threads: self.thread_names(), ..Timeline::default() };
        for span in &trace.spans {
            let (vm, vcpu) = self.track_of(span.vcpu);
            // At most 65,535 VMs.
            timeline.vm.push(u32::try_from(vm).unwrap_or(u32::MAX));
            timeline.vcpu.push(vcpu);
            timeline.category.push(span.category as u32);
            timeline.thread.push(span.thread.map(|t| t.0));
            timeline.start_ns.push(span.from);
            timeline.end_ns.push(span.to);
        }
        Some(timeline)
    }

    /// Exports the recording as a JSON object of trace events: a process per VM, a track per vCPU. Halted
    /// time appears as gaps between slices.
    pub fn export(&self) -> Option<String> {
        let trace = self.trace()?;
        let mut out = String::from("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n");
        for (vm, name, cpus) in self.tracks() {
            event(
                &mut out,
                &format!(
                    "\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{vm},\"args\":{{\"name\":{}}}",
                    quoted(&name)
                ),
            );
            for cpu in 0..cpus {
                event(
                    &mut out,
                    &format!(
                        "\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{vm},\"tid\":{cpu},\"args\":{{\"name\":\"vCPU {cpu}\"}}"
                    ),
                );
            }
        }
        for span in &trace.spans {
            let thread = span.thread.map(|t| self.name_of(t));
            let name = match (label(span.category), &thread) {
                (Some(label), _) => label,
                (None, Some(thread)) if span.category == Category::User => thread,
                _ => continue,
            };
            let (vm, cpu) = self.track_of(span.vcpu);
            let args = thread
                .as_ref()
                .map_or_else(String::new, |t| format!(",\"args\":{{\"thread\":{}}}", quoted(t)));
            // Perfetto converts these via floating point and rounds down to ns. Without a gap of 1 ns,
            // adjacent slices can appear to overlap, and it drops them.
            let length = (span.to - span.from).saturating_sub(1);
            let (from, length) = (micros(span.from), micros(length));
            event(
                &mut out,
                &format!(
                    "\"ph\":\"X\",\"name\":{},\"pid\":{vm},\"tid\":{cpu},\"ts\":{from},\"dur\":{length}{args}",
                    quoted(name)
                ),
            );
        }
        // JSON does not allow a trailing comma.
        out.truncate(out.trim_end_matches(",\n").len());
        out.push_str("\n]}\n");
        Some(out)
    }
}

fn event(out: &mut String, body: &str) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "{{{body}}},");
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Microseconds with three decimals, as the format requires.
fn micros(ns: Ns) -> String {
    format!("{}.{:03}", ns / 1000, ns % 1000)
}

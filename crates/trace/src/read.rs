//! Reads the programs' maps into a [`Snapshot`].

use std::collections::BTreeMap;
use std::time::Duration;

use gleaner_kernel::interrupts::InterruptCounters;
use gleaner_policy::CpuId;
use libbpf_rs::{MapCore, MapFlags};

use crate::layout::{self, Count, Hist, Idle};
use crate::snapshot::{Edge, Events, Futexes, Lost, Snapshot, ThreadStats, Vcpu, Waits, Wakes};
use crate::{Histogram, RunLengths, spin};

pub(crate) struct Maps<'a> {
    pub(crate) hists: &'a dyn MapCore,
    pub(crate) idles: &'a dyn MapCore,
    pub(crate) counters: &'a dyn MapCore,
    pub(crate) threads: &'a dyn MapCore,
    pub(crate) edges: &'a dyn MapCore,
    pub(crate) names: &'a dyn MapCore,
    pub(crate) spots: &'a dyn MapCore,
    /// Interrupts counted by the kernel.
    pub(crate) received: &'a BTreeMap<CpuId, InterruptCounters>,
    /// The first free name.
    pub(crate) next_name: u32,
}

impl Maps<'_> {
    /// Everything in the maps. The caller adds elapsed time, cost and what is missing.
    pub(crate) fn snapshot(&self, online: impl Iterator<Item = CpuId>) -> libbpf_rs::Result<Snapshot> {
        let names = self.names()?;
        let hist = |id: Hist| sum(self.hists, id as u32).map(|words| Histogram::from_words(&words));
        let counters = per_vcpu(self.counters, 0)?;
        let all = total(&counters);
        let scope = all.get(layout::COUNTS..).unwrap_or_default();
        let counted = |what: Count| word(&all, what as usize);
        Ok(Snapshot {
            wakes: Wakes {
                same_vcpu: hist(Hist::WakeSame)?,
                awake: hist(Hist::WakeAwake)?,
                polling: hist(Hist::WakePolling)?,
                halted: hist(Hist::WakeHalted)?,
            },
            preempted: hist(Hist::Preempted)?,
            waits: Waits {
                futex: hist(Hist::WaitFutex)?,
                socket: hist(Hist::WaitSocket)?,
                poll: hist(Hist::WaitPoll)?,
                sleep: hist(Hist::WaitSleep)?,
                io: hist(Hist::WaitIo)?,
                other: hist(Hist::WaitOther)?,
            },
            kernel_spin: hist(Hist::Spin)?,
            shootdown: hist(Hist::Shootdown)?,
            events: events(scope),
            futexes: Futexes {
                wake: word(scope, Count::FutexWake as usize),
                requeue: word(scope, Count::FutexRequeue as usize),
                pi: word(scope, Count::FutexPi as usize),
            },
            vcpus: self.vcpus(online, &counters)?,
            threads: self.threads(&names)?,
            edges: self.edges(&names)?,
            lost: Lost {
                tasks: counted(Count::LostTask),
                names: counted(Count::LostName),
                edges: counted(Count::LostEdge),
            },
            ..Snapshot::default()
        })
    }

    fn names(&self) -> libbpf_rs::Result<BTreeMap<u32, String>> {
        let mut names = BTreeMap::from([
            (layout::NAME_OTHER, "(other)".to_owned()),
            (layout::NAME_INTERRUPT, "(interrupt)".to_owned()),
        ]);
        for key in self.names.keys() {
            let Some(value) = self.names.lookup(&key, MapFlags::ANY)? else { continue };
            let Ok(number) = value.as_slice().try_into().map(u32::from_ne_bytes) else { continue };
            let end = key.iter().position(|byte| *byte == 0).unwrap_or(key.len());
            names.insert(number, String::from_utf8_lossy(&key[..end]).into_owned());
        }
        Ok(names)
    }

    fn vcpus(
        &self,
        online: impl Iterator<Item = CpuId>,
        counters: &[Vec<u64>],
    ) -> libbpf_rs::Result<Vec<Vcpu>> {
        let (polls, halts) =
            (per_vcpu(self.idles, Idle::Poll as u32)?, per_vcpu(self.idles, Idle::Halt as u32)?);
        let queued = |id: Hist| per_vcpu(self.hists, id as u32);
        let queued = [queued(Hist::WakeSame)?, queued(Hist::WakeAwake)?, queued(Hist::Preempted)?];
        Ok(online
            .map(|cpu| {
                let of = |all: &[Vec<u64>]| all.get(cpu.0 as usize).cloned().unwrap_or_default();
                Vcpu {
                    cpu,
                    delays: queued
                        .iter()
                        .fold(Histogram::default(), |sum, all| sum.plus(&Histogram::from_words(&of(all)))),
                    polls: Histogram::from_words(&of(&polls)),
                    halts: Histogram::from_words(&of(&halts)),
                    events: events(&of(counters)),
                    received: self.received.get(&cpu).copied().unwrap_or_default(),
                }
            })
            .collect())
    }

    fn threads(&self, names: &BTreeMap<u32, String>) -> libbpf_rs::Result<Vec<ThreadStats>> {
        let mut threads = Vec::new();
        let spinning = self.spinning()?;
        let numbers = (layout::NAME_FIRST..self.next_name.min(layout::MAX_NAMES)).chain([layout::NAME_OTHER]);
        for number in numbers {
            let words = sum(self.threads, number)?;
            if words.iter().all(|word| *word == 0) {
                continue;
            }
            let spin_ticks = spinning.get(&number).copied().unwrap_or_default();
            threads.push(ThreadStats { spin_ticks, ..thread(name(names, number), &words) });
        }
        threads.sort_by(|a, b| b.cpu_time.cmp(&a.cpu_time).then_with(|| a.name.cmp(&b.name)));
        Ok(threads)
    }

    /// Ticks that found threads in loops that only wait, by number of the thread's name.
    fn spinning(&self) -> libbpf_rs::Result<BTreeMap<u32, u64>> {
        let mut ticks = BTreeMap::new();
        for key in self.spots.keys() {
            let Some(code) = self.spots.lookup(&key, MapFlags::ANY)? else { continue };
            let (key, count) = (words(&key), words(&code));
            let (Some(name), Some(bytes)) = (key.get(1), code.get(layout::CODE_AT..)) else { continue };
            if spin::waits_at(bytes, layout::CODE_BEFORE) {
                *ticks.entry(u32::try_from(*name).unwrap_or(layout::NAME_OTHER)).or_default() +=
                    word(&count, 0);
            }
        }
        Ok(ticks)
    }

    fn edges(&self, names: &BTreeMap<u32, String>) -> libbpf_rs::Result<Vec<Edge>> {
        use layout::Edge as Field;
        let mut edges = Vec::new();
        for key in self.edges.keys() {
            let Ok(pair) = key.as_slice().try_into().map(u32::from_ne_bytes) else { continue };
            let words = sum_at(self.edges, &key)?;
            let of = |field: Field| word(&words, field as usize);
            edges.push(Edge {
                waker: name(names, pair >> 16),
                wakee: name(names, pair & 0xffff),
                count: of(Field::Count),
                total: Duration::from_nanos(of(Field::TotalNs)),
                halted: of(Field::Halted),
                polling: of(Field::Polling),
            });
        }
        edges.sort_by(|a, b| {
            b.count.cmp(&a.count).then_with(|| (&a.waker, &a.wakee).cmp(&(&b.waker, &b.wakee)))
        });
        Ok(edges)
    }
}

fn name(names: &BTreeMap<u32, String>, number: u32) -> String {
    names.get(&number).cloned().unwrap_or_else(|| format!("(name {number})"))
}

fn thread(name: String, words: &[u64]) -> ThreadStats {
    use layout::Thread as Field;
    let of = |field: Field| word(words, field as usize);
    ThreadStats {
        name,
        cpu_time: Duration::from_nanos(of(Field::CpuNs)),
        segments: of(Field::Segments),
        segment_time: Duration::from_nanos(of(Field::SegmentNs)),
        runs: RunLengths::from_words(words.get(Field::Runs as usize..).unwrap_or_default()),
        preempted: of(Field::Preempted),
        yields: of(Field::Yields),
        yielded: of(Field::Yielded),
        ticks: of(Field::Ticks),
        user_ticks: of(Field::UserTicks),
        spin_ticks: 0,
        yield_ticks: of(Field::YieldTicks),
        woken: of(Field::Woken),
        woken_time: Duration::from_nanos(of(Field::WokenNs)),
    }
}

fn events(words: &[u64]) -> Events {
    let of = |what: Count| word(words, what as usize);
    Events {
        sent_reschedule: of(Count::SentReschedule),
        sent_call: of(Count::SentCall),
        sent_tlb: of(Count::SentTlb),
        timer_programmed: of(Count::TimerProgrammed),
        tick_stopped: of(Count::TickStopped),
        wake_without_ipi: of(Count::WakeWithoutIpi),
        wake_queued: of(Count::WakeQueued),
        yields: of(Count::Yield),
    }
}

pub(crate) fn word(words: &[u64], index: usize) -> u64 {
    words.get(index).copied().unwrap_or_default()
}

/// The value at `key` on each possible vCPU, as words.
fn per_vcpu(map: &dyn MapCore, key: u32) -> libbpf_rs::Result<Vec<Vec<u64>>> {
    values(map, &key.to_ne_bytes())
}

fn values(map: &dyn MapCore, key: &[u8]) -> libbpf_rs::Result<Vec<Vec<u64>>> {
    let values = map.lookup_percpu(key, MapFlags::ANY)?.unwrap_or_default();
    Ok(values.iter().map(|bytes| words(bytes)).collect())
}

pub(crate) fn words(bytes: &[u8]) -> Vec<u64> {
    bytes.as_chunks().0.iter().map(|chunk| u64::from_ne_bytes(*chunk)).collect()
}

pub(crate) fn sum(map: &dyn MapCore, key: u32) -> libbpf_rs::Result<Vec<u64>> {
    sum_at(map, &key.to_ne_bytes())
}

fn sum_at(map: &dyn MapCore, key: &[u8]) -> libbpf_rs::Result<Vec<u64>> {
    Ok(total(&values(map, key)?))
}

/// The sum over the vCPUs, word by word.
fn total(values: &[Vec<u64>]) -> Vec<u64> {
    let mut sum = values.first().cloned().unwrap_or_default();
    for value in values.iter().skip(1) {
        for (word, more) in sum.iter_mut().zip(value) {
            *word += more;
        }
    }
    sum
}

//! Reads the programs' maps into a [`Snapshot`].

use std::collections::BTreeMap;
use std::time::Duration;

use gleaner_kernel::interrupts::InterruptCounters;
use gleaner_policy::CpuId;
use libbpf_rs::{MapCore, MapFlags};

use crate::plain::{Plain, Summable, as_bytes, from_bytes};
use crate::skeleton::types::{self, count_id, hist_id, name_id, trace_format};
use crate::snapshot::{Edge, Events, Futexes, Lost, Snapshot, ThreadStats, Vcpu, Waits, Wakes};
use crate::{Histogram, RunLengths, spin};

pub(crate) struct Maps<'a> {
    pub(crate) hists: &'a dyn MapCore,
    pub(crate) counters: &'a dyn MapCore,
    pub(crate) threads: &'a dyn MapCore,
    pub(crate) edges: &'a dyn MapCore,
    pub(crate) names: &'a dyn MapCore,
    pub(crate) spots: &'a dyn MapCore,
    /// Interrupts counted by the kernel.
    pub(crate) received: &'a BTreeMap<CpuId, InterruptCounters>,
}

impl Maps<'_> {
    /// Everything in the maps. The caller adds elapsed time, cost and what is missing.
    pub(crate) fn snapshot(&self, online: impl Iterator<Item = CpuId>) -> libbpf_rs::Result<Snapshot> {
        let names = self.names()?;
        let hist = |id: hist_id| sum(self.hists, &id).map(|hist: types::hist| histogram(&hist));
        let counts: types::counts = sum(self.counters, &0_u32)?;
        let count = |what: count_id| counts.all[what.0 as usize];
        let count_scope = |what: count_id| counts.scope[what.0 as usize];
        Ok(Snapshot {
            wakes: Wakes {
                same_vcpu: hist(hist_id::HIST_WAKE_SAME)?,
                awake: hist(hist_id::HIST_WAKE_AWAKE)?,
                polling: hist(hist_id::HIST_WAKE_POLLING)?,
                halted: hist(hist_id::HIST_WAKE_HALTED)?,
            },
            preempted: hist(hist_id::HIST_PREEMPTED)?,
            waits: Waits {
                futex: hist(hist_id::HIST_WAIT_FUTEX)?,
                socket: hist(hist_id::HIST_WAIT_SOCKET)?,
                poll: hist(hist_id::HIST_WAIT_POLL)?,
                sleep: hist(hist_id::HIST_WAIT_SLEEP)?,
                io: hist(hist_id::HIST_WAIT_IO)?,
                other: hist(hist_id::HIST_WAIT_OTHER)?,
            },
            kernel_spin: hist(hist_id::HIST_SPIN)?,
            shootdown: hist(hist_id::HIST_SHOOTDOWN)?,
            events: events(&counts.scope),
            futexes: Futexes {
                wake: count_scope(count_id::COUNT_FUTEX_WAKE),
                requeue: count_scope(count_id::COUNT_FUTEX_REQUEUE),
                pi: count_scope(count_id::COUNT_FUTEX_PI),
            },
            vcpus: self.vcpus(online)?,
            threads: self.threads(&names)?,
            edges: self.edges(&names)?,
            lost: Lost {
                tasks: count(count_id::COUNT_LOST_TASK),
                names: count(count_id::COUNT_LOST_NAME),
                edges: count(count_id::COUNT_LOST_EDGE),
            },
            ..Snapshot::default()
        })
    }

    fn names(&self) -> libbpf_rs::Result<BTreeMap<u32, String>> {
        let mut names = BTreeMap::from([
            (name_id::NAME_OTHER.0, "(other)".to_owned()),
            (name_id::NAME_INTERRUPT.0, "(interrupt)".to_owned()),
        ]);
        for key in self.names.keys() {
            let Some(value) = self.names.lookup(&key, MapFlags::ANY)? else { continue };
            let Some(number) = from_bytes::<u32>(&value) else { continue };
            let end = key.iter().position(|byte| *byte == 0).unwrap_or(key.len());
            names.insert(number, String::from_utf8_lossy(&key[..end]).into_owned());
        }
        Ok(names)
    }

    fn vcpus(&self, online: impl Iterator<Item = CpuId>) -> libbpf_rs::Result<Vec<Vcpu>> {
        let hists = |id: hist_id| per_vcpu::<types::hist>(self.hists, &id);
        let (polls, halts) = (hists(hist_id::HIST_IDLE_POLL)?, hists(hist_id::HIST_IDLE_HALT)?);
        let queued = [hist_id::HIST_WAKE_SAME, hist_id::HIST_WAKE_AWAKE, hist_id::HIST_PREEMPTED];
        let queued = queued.into_iter().map(hists).collect::<libbpf_rs::Result<Vec<_>>>()?;
        let counters: Vec<types::counts> = per_vcpu(self.counters, &0_u32)?;
        Ok(online
            .map(|cpu| {
                let index = cpu.0 as usize;
                let of = |hists: &[types::hist]| hists.get(index).map(histogram).unwrap_or_default();
                Vcpu {
                    cpu,
                    delays: queued.iter().fold(Histogram::default(), |sum, hists| sum.plus(&of(hists))),
                    polls: of(&polls),
                    halts: of(&halts),
                    events: counters.get(index).map(|counts| events(&counts.all)).unwrap_or_default(),
                    received: self.received.get(&cpu).copied().unwrap_or_default(),
                }
            })
            .collect())
    }

    fn threads(&self, names: &BTreeMap<u32, String>) -> libbpf_rs::Result<Vec<ThreadStats>> {
        let mut threads = Vec::new();
        let spinning = self.spinning()?;
        for (number, name) in names {
            let counted: types::thread = sum(self.threads, number)?;
            if as_bytes(&counted).iter().all(|byte| *byte == 0) {
                continue;
            }
            let spin_ticks = spinning.get(&u64::from(*number)).copied().unwrap_or_default();
            threads.push(thread(name.clone(), spin_ticks, &counted));
        }
        threads.sort_by(|a, b| b.cpu_time.cmp(&a.cpu_time).then_with(|| a.name.cmp(&b.name)));
        Ok(threads)
    }

    /// Ticks that found threads in loops that only wait, by number of the thread's name.
    fn spinning(&self) -> libbpf_rs::Result<BTreeMap<u64, u64>> {
        let mut ticks = BTreeMap::new();
        for key in self.spots.keys() {
            let Some(code) = self.spots.lookup(&key, MapFlags::ANY)? else { continue };
            let (spot, code) = (from_bytes::<types::spot>(&key), from_bytes::<types::code>(&code));
            let (Some(spot), Some(code)) = (spot, code) else { continue };
            if spin::waits_at(&code.bytes, trace_format::CODE_BEFORE.0 as usize) {
                *ticks.entry(spot.name).or_default() += code.count;
            }
        }
        Ok(ticks)
    }

    fn edges(&self, names: &BTreeMap<u32, String>) -> libbpf_rs::Result<Vec<Edge>> {
        let mut edges = Vec::new();
        for key in self.edges.keys() {
            let Some(key) = from_bytes::<types::edge_key>(&key) else { continue };
            let edge: types::edge = sum(self.edges, &key)?;
            edges.push(Edge {
                waker: name(names, key.waker),
                wakee: name(names, key.wakee),
                count: edge.count,
                total: Duration::from_nanos(edge.total_ns),
                halted: edge.halted,
                polling: edge.polling,
            });
        }
        edges.sort_by(|a, b| {
            b.count.cmp(&a.count).then_with(|| (&a.waker, &a.wakee).cmp(&(&b.waker, &b.wakee)))
        });
        Ok(edges)
    }
}

fn name(names: &BTreeMap<u32, String>, number: u16) -> String {
    names.get(&u32::from(number)).cloned().unwrap_or_else(|| format!("(name {number})"))
}

fn thread(name: String, spin_ticks: u64, counted: &types::thread) -> ThreadStats {
    ThreadStats {
        name,
        cpu_time: Duration::from_nanos(counted.cpu_ns),
        segments: counted.segments,
        segment_time: Duration::from_nanos(counted.segment_ns),
        runs: RunLengths::new(&counted.runs),
        preempted: counted.preempted,
        yields: counted.yields,
        yielded: counted.yielded,
        ticks: counted.ticks,
        user_ticks: counted.user_ticks,
        spin_ticks,
        yield_ticks: counted.yield_ticks,
        woken: counted.woken,
        woken_time: Duration::from_nanos(counted.woken_ns),
    }
}

fn histogram(hist: &types::hist) -> Histogram {
    Histogram::new(hist.count, hist.total_ns, &hist.buckets)
}

fn events(counts: &[u64]) -> Events {
    let of = |what: count_id| counts[what.0 as usize];
    Events {
        sent_reschedule: of(count_id::COUNT_SENT_RESCHEDULE),
        sent_call: of(count_id::COUNT_SENT_CALL),
        sent_tlb: of(count_id::COUNT_SENT_TLB),
        timer_programmed: of(count_id::COUNT_TIMER_PROGRAMMED),
        tick_stopped: of(count_id::COUNT_TICK_STOPPED),
        wake_without_ipi: of(count_id::COUNT_WAKE_WITHOUT_IPI),
        wake_queued: of(count_id::COUNT_WAKE_QUEUED),
        yields: of(count_id::COUNT_YIELD),
    }
}

/// The value at `key` on each possible vCPU.
pub fn per_vcpu<T: Plain>(map: &dyn MapCore, key: &impl Plain) -> libbpf_rs::Result<Vec<T>> {
    let values = map.lookup_percpu(as_bytes(key), MapFlags::ANY)?.unwrap_or_default();
    Ok(values.iter().filter_map(|bytes| from_bytes(bytes)).collect())
}

/// The value at `key`, summed over the vCPUs.
pub fn sum<T: Plain + Summable + Default>(map: &dyn MapCore, key: &impl Plain) -> libbpf_rs::Result<T> {
    let mut sum = T::default();
    for value in per_vcpu::<T>(map, key)? {
        sum.accumulate(&value);
    }
    Ok(sum)
}

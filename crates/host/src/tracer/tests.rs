//! Tests that need no KVM.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

use gleaner_testing::{is_root, skipped};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use super::*;
use crate::Pcpu;

const CULPRIT_IDLE: u32 = types::steal_culprit::CULPRIT_IDLE.0;

/// Follows switches alone, for which no KVM is needed.
fn switches() -> libbpf_rs::Result<HostTracer> {
    let skel = load(Isa::Svm, Options::default(), &["on_switch"])?;
    let program = Program::attached("on_switch", &skel)?;
    Ok(HostTracer::of(skel, vec![program], Vec::new()))
}

/// Runs for a moment on each pCPU that this process is allowed to use, so that each of them has had a switch. In a thread
/// of its own, whose affinity ends with it.
fn visited() -> Vec<usize> {
    let visit = |pcpu: &usize| {
        let mut set = CpuSet::new();
        set.set(*pcpu).unwrap();
        let allowed = sched_setaffinity(Pid::from_raw(0), &set).is_ok();
        if allowed {
            // Leaves the pCPU, to which it must have come.
            std::thread::sleep(Duration::from_millis(1));
        }
        allowed
    };
    std::thread::spawn(move || (0..CpuSet::count()).filter(visit).collect()).join().unwrap()
}

#[test]
fn the_times_of_pcpus_add_up_without_a_switch_at_the_end() {
    if !is_root() {
        return skipped("needs root: it loads a BPF program");
    }
    let tracer = switches().unwrap();
    let visited = visited();
    let samples = crate::timeline::sampled(Duration::from_millis(300), |time| {
        std::thread::sleep(time);
        tracer.read_pcpus()
    });
    let samples = samples.unwrap();
    let intervals = crate::intervals(&samples);
    assert_eq!(intervals.len(), 6);
    let mut start = 0;
    for interval in &intervals {
        let length = (interval.end_ns - start) as f64;
        start = interval.end_ns;
        for number in &visited {
            let pcpu = interval.pcpus[*number];
            let sum = (pcpu.vcpu_ns + pcpu.other_ns + pcpu.idle_ns) as f64;
            assert!((sum / length - 1.0).abs() < 0.02, "pCPU {number}: {pcpu:?} in {length} ns");
            assert_eq!(pcpu.vcpu_ns, 0, "no thread is known as a vCPU");
        }
    }
}

/// Two threads of one pCPU that wake each other, as often as they can, until dropped.
struct Switching {
    ends: [UnixStream; 2],
    threads: Vec<JoinHandle<()>>,
}

impl Switching {
    fn on(pcpu: usize) -> Self {
        let (one, other) = UnixStream::pair().unwrap();
        let pass_on = |end: &UnixStream| {
            let mut end = end.try_clone().unwrap();
            std::thread::spawn(move || {
                let mut set = CpuSet::new();
                set.set(pcpu).unwrap();
                sched_setaffinity(Pid::from_raw(0), &set).unwrap();
                let mut byte = [0];
                while end.read_exact(&mut byte).is_ok() && end.write_all(&byte).is_ok() {}
            })
        };
        let threads = vec![pass_on(&one), pass_on(&other)];
        (&one).write_all(&[0]).unwrap();
        Self { ends: [one, other], threads }
    }
}

impl Drop for Switching {
    fn drop(&mut self) {
        for end in &self.ends {
            end.shutdown(Shutdown::Both).unwrap();
        }
        for thread in self.threads.drain(..) {
            thread.join().unwrap();
        }
    }
}

#[test]
fn a_reading_amid_a_switch_adds_up() {
    if !is_root() {
        return skipped("needs root: it loads a BPF program");
    }
    let tracer = switches().unwrap();
    let pcpu = *visited().last().unwrap();
    let _switching = Switching::on(pcpu);
    let unknown = || {
        let sample = tracer.read_pcpus().unwrap();
        let Pcpu { vcpu_ns, other_ns, idle_ns } = sample.pcpus[pcpu];
        sample.at_ns - (vcpu_ns + other_ns + idle_ns)
    };
    // The time before the first switch that was seen.
    let before = unknown();
    for _ in 0..200_000 {
        assert_eq!(unknown(), before);
    }
}

#[test]
fn what_vms_waited_for_is_freed_once_their_process_is_gone() {
    if !is_root() {
        return skipped("needs root: it loads a BPF program");
    }
    let mut tracer = switches().unwrap();
    let mut child = std::process::Command::new("true").spawn().unwrap();
    let (here, gone) = (std::process::id(), child.id());
    child.wait().unwrap();
    let pairs = [(here, CULPRIT_IDLE), (here, gone), (gone, here), (gone, CULPRIT_IDLE)];
    for (victim, culprit) in pairs {
        let key = types::steal_key { victim, culprit };
        let sum = as_bytes(&types::steal { count: 1, ns: 1000 }).to_vec();
        let values = vec![sum; libbpf_rs::num_possible_cpus().unwrap()];
        tracer.skel.maps.steals.update_percpu(as_bytes(&key), &values, MapFlags::ANY).unwrap();
    }
    let held =
        |tracer: &mut HostTracer| -> Vec<(u32, u32)> { tracer.read().unwrap().steals.into_keys().collect() };
    let ended = |tgid| counters(&types::vcpu { tgid, exited: 1, ..types::vcpu::default() }, &[], 0, 0, 0);
    tracer.ended = vec![ended(gone), ended(here)];
    assert_eq!(held(&mut tracer).len(), 4);
    assert_eq!(held(&mut tracer).len(), 4, "nothing was forgotten");
    tracer.forget_ended();
    assert_eq!(held(&mut tracer).len(), 4, "for the last time");
    // The other process lives on.
    assert_eq!(held(&mut tracer), [(here, CULPRIT_IDLE)]);
    assert!(tracer.forgotten.contains(&here) && !tracer.forgotten.contains(&gone));
}

#[test]
fn a_thread_whose_end_was_not_seen_ends_once_it_is_gone_for_a_while() {
    if !is_root() {
        return skipped("needs root: it loads a BPF program");
    }
    let mut tracer = switches().unwrap();
    // Its children are found whatever the namespace.
    tracer.sees_threads = true;
    let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
    let (here, gone) = (std::process::id(), child.id());
    let put = |tracer: &HostTracer, slot: u32, tid: u32| {
        let vcpu = types::vcpu {
            tgid: tid,
            tid,
            kvm: 0xffff,
            vcpu_id: slot,
            first_ns: 1000,
            seq: 2,
            ..types::vcpu::default()
        };
        clear(&tracer.skel.maps.vcpus, slot, &vcpu).unwrap();
    };
    put(&tracer, 0, here);
    put(&tracer, 1, gone);
    if let Some(data) = tracer.skel.maps.bss_data.as_deref_mut() {
        data.slots_taken = 2;
    }
    let address = types::recipient { kvm: 0xffff, vcpu_id: 1 };
    let known = |tracer: &HostTracer| {
        tracer.skel.maps.recipients.lookup(as_bytes(&address), MapFlags::ANY).unwrap().is_some()
    };
    tracer.skel.maps.recipients.update(as_bytes(&address), &1_u32.to_ne_bytes(), MapFlags::ANY).unwrap();
    let ended = |tracer: &mut HostTracer| -> Vec<(u32, bool)> {
        let mut vcpus = tracer.read().unwrap().vcpus;
        vcpus.sort_by_key(|vcpu| vcpu.ended);
        vcpus.iter().map(|vcpu| (vcpu.tid, vcpu.ended)).collect()
    };
    assert_eq!(ended(&mut tracer), [(here, false), (gone, false)]);
    child.kill().unwrap();
    child.wait().unwrap();
    // It may still be switched out.
    assert_eq!(ended(&mut tracer), [(here, false), (gone, false)]);
    assert!(known(&tracer));
    std::thread::sleep(SWITCHED_OUT);
    assert_eq!(ended(&mut tracer), [(here, false), (gone, true)]);
    assert!(!known(&tracer));
    tracer.forget_ended();
    assert_eq!(ended(&mut tracer), [(here, false)], "its slot is free");
}

#[test]
fn only_pauses_keep_the_clock_behind() {
    if !is_root() {
        return skipped("needs root: it loads a BPF program");
    }
    let mut tracer = switches().unwrap();
    let behind = |tracer: &mut HostTracer| {
        let reading = tracer.read().unwrap();
        reading.monotonic_ns - reading.at_ns
    };
    for _ in 0..1000 {
        assert_eq!(behind(&mut tracer), 0);
    }
    for _ in 0..3 {
        tracer.pause();
        let paused = behind(&mut tracer);
        assert!(behind(&mut tracer) > paused);
        tracer.go_on().unwrap();
        let after = behind(&mut tracer);
        assert!(after > paused);
        assert_eq!(behind(&mut tracer), after);
    }
}

#[test]
fn programs_run_in_windows_alone() {
    if !is_root() {
        return skipped("needs root: it loads a BPF program");
    }
    let mut tracer = switches().unwrap();
    let runs = |tracer: &HostTracer| {
        // This thread leaves its pCPU for the sleep.
        programs::take(&tracer.programs, Duration::from_millis(20))
    };
    tracer.hold_account();
    for _ in 0..2 {
        assert!(runs(&tracer) > 0.0);
        tracer.pause();
        assert_eq!(runs(&tracer).to_bits(), 0.0_f64.to_bits());
        tracer.go_on().unwrap();
    }
}

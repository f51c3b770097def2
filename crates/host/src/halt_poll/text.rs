//! What `halt-poll show` prints.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use super::Parameters;
use crate::Report;
use crate::report::Halts;
use crate::text::{length, percent};

/// Halt polling on a host, and what it did in a span of time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shown {
    /// The module's parameters.
    pub parameters: Parameters,
    /// The process that holds them under leases.
    pub held_by: Option<u32>,
    /// What is to be known about the parameters.
    pub caveats: Vec<String>,
    /// Length of the span, in ns; 0: nothing was followed.
    pub span_ns: u64,
    /// The vCPUs that had an event in it.
    pub vcpus: Vec<ShownVcpu>,
}

/// Halt polling for one vCPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownVcpu {
    /// The VM's name.
    pub vm: String,
    /// The VMM's process.
    pub pid: u32,
    /// Its number in the VM.
    pub vcpu: u32,
    /// Its thread.
    pub tid: u32,
    /// Its halts.
    pub halts: Halts,
}

impl Shown {
    /// The parameters, and what `report` has of the vCPUs.
    pub fn new(parameters: Parameters, held_by: Option<u32>, report: Option<&Report>) -> Self {
        let mut caveats = parameters.caveats();
        let vms = report.map(|report| report.vms.as_slice()).unwrap_or_default();
        let vcpus: Vec<ShownVcpu> = vms
            .iter()
            .flat_map(|vm| vm.vcpus.iter().map(move |vcpu| (vm, vcpu)))
            .map(|(vm, vcpu)| ShownVcpu {
                vm: vm.name.clone(),
                pid: vm.pid,
                vcpu: vcpu.vcpu,
                tid: vcpu.tid,
                halts: vcpu.halts,
            })
            .collect();
        let above =
            vcpus.iter().filter(|vcpu| vcpu.halts.poll_limit_ns > parameters.halt_poll_ns.into()).count();
        if above > 0 {
            caveats.push(format!(
                "{above} vCPUs have a limit above halt_poll_ns: their VMM set one (KVM_CAP_HALT_POLL), Linux is older than \
                 6.1, or they have not halted since it was lowered"
            ));
        }
        Self { parameters, held_by, caveats, span_ns: report.map_or(0, |report| report.span_ns), vcpus }
    }
}

/// What is shown, as text.
pub fn show(shown: &Shown) -> String {
    let Parameters { halt_poll_ns, grow, grow_start, shrink } = shown.parameters;
    let mut text = String::new();
    let meaning = if halt_poll_ns == 0 {
        "KVM does not poll".to_owned()
    } else {
        format!("KVM polls for at most {} before it gives the pCPU away", length(halt_poll_ns.into()))
    };
    let grows = format!("a vCPU's limit grows from 0 to {}, then by this factor", length(grow_start.into()));
    let shrinks =
        if shrink == 0 { "a halt that is too long sets it to 0" } else { "such a halt divides it by this" };
    for (name, value, meaning) in [
        ("halt_poll_ns", halt_poll_ns, meaning.as_str()),
        ("halt_poll_ns_grow", grow, grows.as_str()),
        ("halt_poll_ns_grow_start", grow_start, ""),
        ("halt_poll_ns_shrink", shrink, shrinks),
    ] {
        let line = format!("{name:<24} {value:>10}  {meaning}");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    if let Some(pid) = shown.held_by {
        let _ = writeln!(text, "held by gleaner-host (process {pid}), which puts back what it found");
    }
    for caveat in &shown.caveats {
        let _ = writeln!(text, "note: {caveat}");
    }
    if shown.span_ns > 0 {
        vcpus(&mut text, shown);
    }
    text
}

fn vcpus(text: &mut String, shown: &Shown) {
    let seconds = shown.span_ns as f64 / 1e9;
    if shown.vcpus.is_empty() {
        let _ = writeln!(text, "\nno vCPU had an event in {seconds:.1} s");
        return;
    }
    let width = shown.vcpus.iter().map(|vcpu| vcpu.vm.chars().count()).max().unwrap_or(0).max(2);
    let _ = writeln!(
        text,
        "\nin {seconds:.1} s, by vCPU: who polls, KVM's limit, halts, those that ended while KVM polled, and what polling took \
         of the time"
    );
    let _ = writeln!(
        text,
        "{:<width$}  {:>4}  {:>8}  {:<5}  {:>8}  {:>8}  {:>7}  {:>8}  {:>8}",
        "VM", "vCPU", "thread", "polls", "limit", "halts/s", "polled", "success", "in vain"
    );
    for ShownVcpu { vm, vcpu, tid, halts, .. } in &shown.vcpus {
        let count = halts.polled + halts.blocked;
        let who = if halts.guest_polls { "guest" } else { "host" };
        let _ = writeln!(
            text,
            "{vm:<width$}  {vcpu:>4}  {tid:>8}  {who:<5}  {:>8}  {:>8.1}  {:>7}  {:>8}  {:>8}",
            length(halts.poll_limit_ns),
            count as f64 / seconds,
            percent(halts.polled, count),
            percent(halts.poll_success_ns, shown.span_ns),
            percent(halts.poll_fail_ns, shown.span_ns),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(vcpus: Vec<ShownVcpu>) -> Shown {
        Shown {
            parameters: Parameters { halt_poll_ns: 200_000, grow: 2, grow_start: 10_000, shrink: 0 },
            held_by: Some(77),
            caveats: vec!["nothing".to_owned()],
            span_ns: 2_000_000_000,
            vcpus,
        }
    }

    #[test]
    fn parameters_come_with_their_meaning_and_vcpus_with_who_polls() {
        let halts = |guest_polls| Halts {
            polled: 30,
            blocked: 10,
            poll_success_ns: 20_000_000,
            poll_fail_ns: 2_000_000,
            poll_limit_ns: 80_000,
            guest_polls,
            ..Halts::default()
        };
        let vcpu = |number, polls| ShownVcpu {
            vm: "web-1".to_owned(),
            pid: 7,
            vcpu: number,
            tid: 8 + number,
            halts: halts(polls),
        };
        let text = show(&shown(vec![vcpu(0, false), vcpu(1, true)]));
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[0].starts_with("halt_poll_ns                 200000  KVM polls for at most 200 us"),
            "{text}"
        );
        assert!(lines[3].ends_with("a halt that is too long sets it to 0"), "{text}");
        assert!(lines[4].contains("process 77") && lines[5] == "note: nothing", "{text}");
        assert_eq!(
            lines[lines.len() - 2],
            "web-1     0         8  host    80.0 us      20.0   75.0 %     1.0 %     0.1 %"
        );
        assert!(lines[lines.len() - 1].starts_with("web-1     1         9  guest"), "{text}");
    }

    #[test]
    fn without_events_that_is_said_and_without_a_span_nothing() {
        assert!(show(&shown(Vec::new())).ends_with("no vCPU had an event in 2.0 s\n"));
        let parameters = shown(Vec::new()).parameters;
        let text = show(&Shown::new(parameters, None, None));
        assert_eq!(text.lines().count(), 4, "{text}");
    }
}

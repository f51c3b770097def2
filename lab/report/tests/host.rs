//! The page of a host's record as text: everything appears in words and numbers, too, and all input is escaped.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use common::{check, host};
use gleaner_host_record::attribution::ReasonTimes;
use gleaner_host_record::cause::{Cause, CauseCost};
use gleaner_host_record::discover::Vmm;
use gleaner_host_record::{Group, Lost, Pcpu, Reason, Report};
use gleaner_proto::unavailable::{NotAvailable, Reason as Why};
use gleaner_report::host::{figures, html};

fn names(record: &Report) -> Vec<String> {
    figures(record).into_iter().map(|figure| figure.name).collect()
}

fn check_all(record: &Report) {
    for figure in figures(record) {
        for svg in [figure.file(), figure.plot.draw(360.0).file()] {
            let texts = check(&svg).unwrap_or_else(|what| panic!("{}: {what}", figure.name));
            assert!(texts.len() > 3, "{}", figure.name);
        }
    }
}

#[test]
fn every_figure_is_there_and_sound() {
    let record = host();
    let expected = [
        "times",
        "groups",
        "pcpus",
        "vm-1-waking",
        "vm-1-reschedule",
        "vm-1-call",
        "vm-1-timer",
        "vm-1-device",
        "vm-1-woken",
        "vm-1-preempted",
        "vm-1-pcpu-halted",
        "vm-1-pcpu-reschedule",
        "vm-1-pcpu-call",
        "vm-2-timer",
        "vm-2-device",
        "vm-2-woken",
    ];
    assert_eq!(names(&record), expected, "and none for what did not occur");
    check_all(&record);
}

#[test]
fn the_page_says_in_words_and_numbers_what_the_plots_show() {
    let page = html(&host(), "{\"format\":1}");
    let lead = page.split("class=\"lead\">").nth(1).unwrap().split("</p>").next().unwrap();
    assert!(
        lead.starts_with(
            "ping loses the most time: 65.9 % of the time in which its vCPUs want to run. Top cause: wake-ups of idle \
             vCPUs, 65.2 %. First thing to try: in the guest: run `gleaner`"
        ),
        "{lead}"
    );
    for text in [
        "<h1>KVM host: 2 VMs on 4 pCPUs</h1>",
        "20.0 s on Linux 6.12.48",
        "<h2>ping</h2>",
        "libvirt, process 1520: 2 vCPUs, ",
        // Where the time of `ping` goes: guest and hypervisor, of two vCPUs for 20 s.
        "<td class=\"n\">19.1 %</td><td class=\"n\">26.9 %</td>",
        // The hypervisor's time after HLT, of that in which the vCPUs want to run.
        "<th scope=\"row\">ping</th><td class=\"n\">28.6 %</td>",
        "<th scope=\"row\">preemption</th>",
        "<th scope=\"row\">idle pCPU</th><td class=\"n\">559000</td><td class=\"n\">3.96 s</td>",
        "<th scope=\"row\">TSC_DEADLINE</th>",
        // Who had pCPU 0.
        "<th scope=\"row\">0</th><td class=\"n\">44.5 %</td><td class=\"n\">0.9 %</td><td class=\"n\">54.6 %</td>",
        "One sample every 333 ms.",
        "vCPUs without an event, halted throughout or never started: 1.",
        "Intel VMX",
        "up to 200 µs",
        "{\"format\":1}",
    ] {
        assert!(page.contains(text), "{text}");
    }
    for text in ["http:", "https:", " src=", " href=", "url(", "@import"] {
        assert!(!page.contains(text), "{text}");
    }
}

#[test]
fn every_cause_reason_and_group_has_a_line() {
    let mut record = host();
    let vm = &mut record.vms[0];
    vm.vmm = Some(Vmm::CloudHypervisor);
    vm.reasons = Reason::ALL
        .iter()
        .map(|reason| (*reason, ReasonTimes { count: 1, run_ns: 1000, ..ReasonTimes::default() }))
        .collect();
    vm.groups = Group::ALL.iter().map(|group| (*group, 1_000_000_000)).collect();
    vm.causes = Cause::ALL
        .iter()
        .map(|cause| CauseCost { cause: *cause, ns: 1, share: 0.01, remedies: Vec::new() })
        .collect();
    check_all(&record);
    let page = html(&record, "{}").replace("&#39;", "'");
    assert!(page.contains("Cloud Hypervisor, process 1520"));
    for group in Group::ALL {
        assert!(page.contains(&format!("<th scope=\"col\" class=\"n\">{group}</th>")), "{group}");
    }
    let rows = Reason::ALL.iter().map(|reason| reason.name()).chain(Cause::ALL.map(Cause::name));
    for name in rows {
        assert!(page.contains(&format!("<th scope=\"row\">{name}</th>")), "{name}");
    }
}

#[test]
fn what_is_not_in_the_numbers_is_said_at_the_top() {
    let mut record = host();
    record.hidden = vec!["AVIC is on".to_owned()];
    record.missing = vec![NotAvailable::new("hypercalls by kind", Why::NotPermitted)];
    record.lost = Lost { vcpus: 3, ..Lost::default() };
    let page = html(&record, "{}");
    let warnings = page.split("<ul class=\"warnings\">").nth(1).unwrap().split("</ul>").next().unwrap();
    for text in [
        "AVIC is on.",
        "Not followed: hypercalls by kind: BPF programs are refused to this user: run as root",
        "Not counted for want of room: 3 vCPUs",
    ] {
        assert!(warnings.contains(text), "{text}: {warnings}");
    }
    assert!(!html(&host(), "{}").contains("class=\"warnings\""));
}

#[test]
fn a_host_without_vms_and_a_record_without_a_timeline_are_reported_as_such() {
    let mut nothing = host();
    nothing.timeline.clear();
    assert!(!names(&nothing).contains(&"pcpus".to_owned()));
    nothing.vms.clear();
    nothing.pcpus = vec![Pcpu::default(); 2];
    assert!(figures(&nothing).is_empty());
    let page = html(&nothing, "{}");
    assert!(page.contains("No virtual machine ran here.") && page.contains("0 VMs on 4 pCPUs"));
    assert!(page.contains("There was no account of the pCPUs"));
}

#[test]
fn a_large_host_has_figures_of_what_matters_and_tables_of_all() {
    let mut record = host();
    let vm = record.vms[0].clone();
    record.vms = (0..200)
        .map(|pid| gleaner_host_record::VmRecord { pid, name: format!("vm{pid}"), ..vm.clone() })
        .collect();
    record.pcpus = (0..300).map(|number| Pcpu { vcpu_ns: 1000 + number, other_ns: 1, idle_ns: 0 }).collect();
    for interval in &mut record.timeline {
        interval.pcpus.clone_from(&record.pcpus);
    }
    assert_eq!(names(&record).len(), 3 + 8 * 10);
    check_all(&record);
    let page = html(&record, "{}");
    assert!(page.contains("The 176 VMs that lose the least are only in the table."));
    assert!(page.contains("The 284 least busy pCPUs are only in the table."));
    assert!(page.contains("<h2>vm199</h2>") && page.contains("<th scope=\"row\">vm199</th>"));
    // The busiest have the highest numbers.
    let svg = figures(&record).into_iter().find(|figure| figure.name == "pcpus").unwrap().file();
    assert!(svg.contains(">pCPU 299<") && svg.contains(">pCPU 284<") && !svg.contains(">pCPU 283<"));
}

#[test]
fn strange_names_and_numbers_stay_where_they_belong() {
    let hostile = "</script><script>alert(1)</script>\"><img src=x>&amp;]]>\u{1b}[2J\u{202e}\u{0}é😀";
    let mut strange = host();
    strange.host.kernel = hostile.to_owned();
    strange.hidden.push(hostile.to_owned());
    for vm in &mut strange.vms {
        vm.name += hostile;
        vm.waited_for.iter_mut().for_each(|by| by.who += hostile);
        for cause in &mut vm.causes {
            cause.share = f64::NAN;
            cause.remedies.push(hostile.to_owned());
        }
        vm.groups.insert(Group::Ipi, u64::MAX);
    }
    // Intervals that go back, and a pCPU that is missing in one.
    strange.timeline[3].end_ns = 0;
    strange.timeline[4].pcpus.truncate(1);
    let page = html(&strange, &format!("{{\"name\":\"{hostile}\"}}"));
    assert_eq!(page.matches("<script").count(), 2, "the data and the button");
    assert!(!page.contains("<img"));
    for figure in figures(&strange) {
        check(&figure.file()).unwrap_or_else(|what| panic!("{}: {what}", figure.name));
    }
}

//! The record of a KVM host: what its VMs spend their time on, and what costs them time.

mod figures;
mod pcpus;
mod summary;
mod tables;
mod vm;

use gleaner_host_record::{Report, VmRecord};
use maud::{Markup, html};

use crate::page::{Data, Figure, figures as shown, page};

/// Most VMs that get a bar in the figures; all are in the tables.
const MOST_BARS: usize = 24;
/// Most VMs that get histograms.
const MOST_HISTOGRAMS: usize = 8;

/// The figures of the page, each of which can become a file.
pub fn figures(record: &Report) -> Vec<Figure> {
    let vms = by_loss(record);
    let of_vms = vms.iter().take(MOST_HISTOGRAMS).enumerate();
    figures::times(&vms)
        .into_iter()
        .chain(figures::groups(&vms))
        .chain(pcpus::timeline(record))
        .chain(of_vms.flat_map(|(index, vm)| vm::histograms(record, index + 1, vm)))
        .collect()
}

/// The record as one self-contained page. `json`: the record as it was written, which becomes part of the page.
pub fn html(record: &Report, json: &str) -> String {
    let vms = by_loss(record);
    let content = html! {
        (head(record, &vms))
        section {
            h2 { "Where the vCPUs' time goes" }
            (shown(&figures::times(&vms)))
            (tables::times(&vms))
        }
        section {
            h2 { "The hypervisor's time, by what it is for" }
            (shown(&figures::groups(&vms)))
            (tables::groups(&vms))
        }
        section {
            h2 { "Where the pCPUs' time went" }
            (shown(&pcpus::timeline(record)))
            (pcpus::means(record))
        }
        @for (index, vm) in vms.iter().enumerate() {
            section {
                h2 { (vm.name) }
                (vm::details(record, (index < MOST_HISTOGRAMS).then_some(index + 1), vm))
            }
        }
        section {
            h2 { "How it was measured" }
            ul { @for note in summary::notes(record) { li { (note) } } }
        }
        section { h2 { "Host" } (tables::setup(record)) }
    };
    let data = Data { json, file_name: "host.json", about: "The record of the host is part of this page." };
    page(&format!("KVM host: {}", summary::title(record)), &content, &data)
}

/// The VMs, those that lose the most time first.
fn by_loss(record: &Report) -> Vec<&VmRecord> {
    let mut vms: Vec<&VmRecord> = record.vms.iter().collect();
    vms.sort_by_key(|vm| (std::cmp::Reverse(summary::lost_ns(vm)), vm.pid));
    vms
}

fn head(record: &Report, vms: &[&VmRecord]) -> Markup {
    let warnings = summary::warnings(record);
    html! {
        header {
            h1 { "KVM host: " (summary::title(record)) }
            p class="by" { "Diagnosis by Gleaner: " (summary::followed(record)) }
            p class="lead" { (summary::verdict(vms)) }
            @if !warnings.is_empty() { ul class="warnings" { @for warning in &warnings { li { (warning) } } } }
        }
    }
}

/// `part` as a share of `whole`, both in ns; 0 of nothing.
fn share_of(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

/// Length of the record, in s.
fn seconds(record: &Report) -> f64 {
    (record.span_ns as f64 / 1e9).max(1e-9)
}

//! The report of `gleaner diagnose`: what a program loses to virtualisation, and what was seen of it.

mod figures;
mod summary;
mod tables;
mod vcpus;

pub use gleaner_proto::diagnosis::{
    Cause, Diagnosis, DurationSummary, Lane, Lengths, Spent, Thread, Timeline, Vcpu, Wake,
};
use gleaner_proto::result::Environment;
use maud::{Markup, html};

use crate::facts::facts;
use crate::lengths;
use crate::page::{Data, Figure, figures as shown, page};

/// The figures of the page, each of which can become a file.
pub fn figures(diagnosis: &Diagnosis) -> Vec<Figure> {
    let wakes = figures::wakes(diagnosis);
    figures::causes(diagnosis)
        .into_iter()
        .chain(wakes)
        .chain(vcpus::timeline(diagnosis))
        .chain(vcpus::histograms(diagnosis))
        .collect()
}

/// The diagnosis of a program in `environment` as one self-contained page. `json`: everything that was counted, which becomes
/// part of the page.
pub fn html(diagnosis: &Diagnosis, environment: &Environment, json: &str) -> String {
    let content = html! {
        (head(diagnosis, environment))
        section {
            h2 { "Causes" }
            p {
                "Times are estimates: a guest cannot see what its hypervisor does. Causes can overlap in time, and several \
                 threads can lose time at once, so the times are no parts of a whole."
            }
            (shown(&figures::causes(diagnosis)))
            @for (index, cause) in diagnosis.causes.iter().enumerate() { (tables::cause(index + 1, cause)) }
        }
        section {
            h2 { "Wake-ups between threads" }
            p {
                "Who wakes whom, the most frequent first. Threads of the same name are one; those outside the diagnosed program \
                 appear only as wakers."
            }
            (tables::edges(diagnosis))
        }
        section {
            h2 { "From wake-up until run" }
            (shown(&figures::wakes(diagnosis)))
            (lengths::table("Wake-ups by what the wakee's vCPU did", "wake-up", &diagnosis.wakes))
            h3 { "How long threads were blocked" }
            (lengths::table("Waits by what threads waited in", "wait", &diagnosis.waits))
        }
        section {
            h2 { "Where the vCPUs' time went" }
            (shown(&vcpus::timeline(diagnosis)))
            (vcpus::spent(diagnosis))
        }
        section {
            h2 { "Waiting for a vCPU, and idle vCPUs" }
            (shown(&vcpus::histograms(diagnosis)))
            (vcpus::lengths(diagnosis))
        }
        section { h2 { "Threads" } (tables::threads(diagnosis)) }
        section {
            h2 { "How it was measured" }
            ul { @for note in &diagnosis.notes { li { (note) } } }
        }
        section { h2 { "Machine" } (facts(environment, &[])) }
    };
    let data = Data {
        json,
        file_name: "diagnosis.json",
        about: "Everything that was counted is part of this page.",
    };
    page(&format!("Diagnosis: {}", diagnosis.target), &content, &data)
}

fn head(diagnosis: &Diagnosis, environment: &Environment) -> Markup {
    html! {
        header {
            h1 { (diagnosis.target) }
            p class="by" { "Diagnosis by Gleaner: " (summary::sampled(diagnosis)) }
            p class="by" { (crate::facts::line(environment)) }
            p class="lead" { (summary::verdict(diagnosis)) }
        }
    }
}

//! A diagnosis in sentences.

use super::{Cause, Diagnosis};
use crate::number::{Unit, show};

/// How long was observed, on how many vCPUs.
pub(super) fn sampled(diagnosis: &Diagnosis) -> String {
    let vcpus = diagnosis.vcpus.len();
    format!(
        "{} on {vcpus} {}",
        show(Unit::Seconds, diagnosis.seconds),
        if vcpus == 1 { "vCPU" } else { "vCPUs" }
    )
}

/// Whether the program loses time, and to what.
pub(super) fn verdict(diagnosis: &Diagnosis) -> String {
    let Some(first) = diagnosis.causes.first().filter(|_| diagnosis.matters) else {
        return "No cause: nothing that virtualisation does to it costs 3 % of a vCPU or more.".to_owned();
    };
    let advice =
        first.advice.first().map_or_else(String::new, |advice| format!(" First thing to try: {advice}."));
    format!("Top cause: {}. It costs about {}{}.{advice}", first.name, lost(first), counted(first))
}

/// The time lost: `234 ms in each second`.
pub(super) fn lost(cause: &Cause) -> String {
    format!("{} in each second", show(Unit::Seconds, cause.lost_s))
}

fn counted(cause: &Cause) -> String {
    if cause.unit.is_empty() {
        String::new()
    } else {
        format!(", by {} {} a second", show(Unit::Plain, cause.per_second), cause.unit)
    }
}

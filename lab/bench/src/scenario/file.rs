//! The keys of a scenario file.

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use serde::Deserialize;
use toml::Spanned;

use crate::mode::UserMode;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) title: String,
    pub(super) source: Option<String>,
    pub(super) modes: Vec<Spanned<String>>,
    pub(super) rounds: Option<Spanned<usize>>,
    pub(super) max_rounds: Option<Spanned<usize>>,
    pub(super) precision: Option<Spanned<f64>>,
    #[serde(default)]
    pub(super) warmup_rounds: usize,
    pub(super) window_s: Option<Spanned<f64>>,
    #[serde(default = "first_seed")]
    pub(super) seed: u64,
    #[serde(default)]
    pub(super) user: BTreeMap<String, UserMode>,
    #[serde(default)]
    pub(super) row: Vec<Spanned<RowFile>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RowFile {
    pub(super) name: Option<String>,
    pub(super) adapter: Option<Spanned<String>>,
    // These four are repeated from `ProgramFile`: serde cannot both flatten it and refuse unknown keys.
    pub(super) workload: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) command: Vec<String>,
    pub(super) shell: Option<String>,
    #[serde(default)]
    pub(super) parameters: toml::Table,
    pub(super) window_s: Option<Spanned<f64>>,
    pub(super) operations: Option<NonZeroU64>,
    #[serde(default)]
    pub(super) metrics: Vec<Spanned<String>>,
    pub(super) unit: Option<String>,
    pub(super) primary: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) co_runners: Vec<Spanned<ProgramFile>>,
    pub(super) prepare: Option<String>,
    #[serde(default)]
    pub(super) paper: BTreeMap<Spanned<String>, f64>,
    #[serde(default)]
    pub(super) paper_ratio: BTreeMap<Spanned<String>, f64>,
    pub(super) timeout_s: Option<Spanned<f64>>,
}

/// A program: exactly one of the first three keys is set.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ProgramFile {
    pub(super) workload: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) command: Vec<String>,
    pub(super) shell: Option<String>,
    #[serde(default)]
    pub(super) parameters: toml::Table,
}

impl RowFile {
    pub(super) fn program(&self) -> ProgramFile {
        ProgramFile {
            workload: self.workload.clone(),
            command: self.command.clone(),
            shell: self.shell.clone(),
            parameters: self.parameters.clone(),
        }
    }
}

const fn first_seed() -> u64 {
    1
}

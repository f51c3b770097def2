//! The daemon's configuration, `gleaner.toml`: which files make it, what is wrong with them, and what holds for a
//! workload.
//!
//! [`Config::load`] reads all files, and finds all their problems at once. The reference of the keys is
//! `docs/config.md`; [`Config`] is their one definition, from which parsing, defaults, descriptions and the JSON schema
//! come.

mod check;
mod config;
mod glob;
mod hours;
mod keys;
mod load;
mod origins;
mod places;
mod problem;
mod reader;
mod rule;
mod show;
mod value;

pub use config::{Burstable, Config, Control, CreditGuard, Metrics, RuleRef, Terms};
pub use glob::Glob;
pub use hours::QuietHours;
pub use load::Loaded;
pub use origins::{Listed, Origins};
pub use places::Places;
pub use problem::{ConfigError, Location, Problem, Severity};
pub use rule::{Rule, Subject, Workload};
pub use show::schema;

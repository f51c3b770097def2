//! `gleanerd config`, which `gleaner config` becomes: what the files say, without a daemon.

use std::process::ExitCode;

use gleaner_config::{Config, ConfigError, Loaded, schema};
use gleaner_print::config::{ConfigAction, ConfigArgs, ConfigPlace};
use gleaner_print::{out, say};

use crate::paths;

/// Carries it out. Every mistake is a line on the standard error, and makes the status 1.
///
/// # Errors
/// The output cannot be written.
pub(crate) fn run(args: &ConfigArgs) -> anyhow::Result<ExitCode> {
    let text = match &args.action {
        ConfigAction::Check(place) => load(place).map(|loaded| checked(&loaded)),
        ConfigAction::Show(args) if args.json => load(&args.place).map(|loaded| json(&loaded.to_json())),
        ConfigAction::Show(args) => load(&args.place).map(|loaded| loaded.to_toml(args.origin)),
        ConfigAction::Schema => Ok(json(&schema())),
    };
    match text {
        Ok(text) => {
            out!("{text}")?;
            Ok(ExitCode::SUCCESS)
        }
        Err(mistakes) => {
            say!("{mistakes}");
            Ok(ExitCode::FAILURE)
        }
    }
}

fn load(place: &ConfigPlace) -> Result<Loaded, ConfigError> {
    let loaded = Config::load(&paths::config(place.config.clone()))?;
    for warning in &loaded.warnings {
        say!("{warning}");
    }
    Ok(loaded)
}

fn checked(loaded: &Loaded) -> String {
    let files: Vec<_> = loaded.files.iter().map(|file| file.to_string_lossy()).collect();
    match files[..] {
        [] => "usable: there is no file, and everything has its default\n".to_owned(),
        _ => format!("usable: {}\n", files.join(", ")),
    }
}

fn json(value: &serde_json::Value) -> String {
    format!("{value:#}\n")
}

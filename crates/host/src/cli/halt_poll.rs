//! `gleaner-host halt-poll`: its arguments, and `show`.

mod auto;
mod hold;

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use gleaner_engine::StateDir;
use gleaner_explain::wrap;
use gleaner_host::discover::discover;
use gleaner_host::halt_poll::text::{Shown, show};
use gleaner_host::halt_poll::{Parameters, STATE_DIR, journal, parse_limit};
use gleaner_host::{HostSetup, HostTracer, Options, Report};
use gleaner_kernel::Root;
use gleaner_policy::Objective;
use gleaner_print::{out, outln, say};
use gleaner_proto::LineError;

/// Show or change for how long KVM polls before it gives the pCPU of a halted vCPU away
///
/// What `set` and `auto` change is put back when they end, also after SIGKILL (`gleaner-host restore`). Whoever changes a
/// value meanwhile keeps it.
#[derive(Debug, Subcommand)]
pub(crate) enum HaltPoll {
    /// Print KVM's parameters, and by vCPU who polls, for how long and with what success
    Show(ShowArgs),
    /// Hold a limit while a command runs, for some time, or until Ctrl-C
    Set(SetArgs),
    /// Find by experiments which limit pays, if one does, and hold that until Ctrl-C
    Auto(AutoArgs),
    /// Print what the latest `auto` decided and why; needs no root
    Why(WhyArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// How long to follow the vCPUs; 0: print the parameters alone, which needs no root
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(..=86_400))]
    seconds: u64,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct SetArgs {
    /// The longest time for which KVM polls (`halt_poll_ns`): a number of ns, or as 200us; 0: it does not
    #[arg(value_name = "NS", value_parser = parse_limit)]
    limit: u32,
    /// The factor by which the limit of a vCPU grows (`halt_poll_ns_grow`)
    #[arg(long, value_name = "N")]
    grow: Option<u32>,
    /// What the limit of a vCPU grows to from 0 (`halt_poll_ns_grow_start`)
    #[arg(long, value_name = "NS", value_parser = parse_limit)]
    grow_start: Option<u32>,
    /// The divisor by which the limit of a vCPU shrinks (`halt_poll_ns_shrink`); 0: it is set to 0
    #[arg(long, value_name = "N")]
    shrink: Option<u32>,
    /// For how long to hold it, as 30s, 10m or 2h
    #[arg(long = "for", value_name = "DURATION", value_parser = duration, conflicts_with = "command")]
    time: Option<Duration>,
    /// A command during which to hold it, whose exit status is passed on
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct WhyArgs {
    /// Print the records as they are, one line of JSON each
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct AutoArgs {
    /// What polling may cost in CPU time of the host
    #[arg(long, value_name = "NAME", default_value_t, value_parser = objective())]
    objective: Objective,
    /// For how long to go on, as 30s, 10m or 2h
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    time: Option<Duration>,
    /// Print each decision as one line of JSON
    #[arg(long)]
    json: bool,
}

fn objective() -> impl TypedValueParser<Value = Objective> {
    let help = |objective| match objective {
        Objective::Latency => "short wake-ups, even if polling costs much CPU time",
        Objective::Balanced => "on an idle host polling must save at least a hundredth of its time",
        Objective::Efficiency => "on an idle host polling must save at least a tenth of its time",
    };
    let names = Objective::ALL.map(|objective| PossibleValue::new(objective.name()).help(help(objective)));
    PossibleValuesParser::new(names).try_map(|name| name.parse())
}

/// A time with its unit.
fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err("a number with the unit s, m, h or d is expected, as in 10m".to_owned()),
    };
    let number: u32 = number
        .parse()
        .map_err(|_| "a number with the unit s, m, h or d is expected, as in 10m".to_owned())?;
    Ok(Duration::from_secs(u64::from(number) * seconds))
}

pub(crate) fn run(what: &HaltPoll) -> anyhow::Result<ExitCode> {
    match what {
        HaltPoll::Show(args) => run_show(args),
        HaltPoll::Set(args) => hold::set(args),
        HaltPoll::Auto(args) => auto::run(args),
        HaltPoll::Why(args) => run_why(args),
    }
}

fn run_show(args: &ShowArgs) -> anyhow::Result<ExitCode> {
    let root = Root::system();
    let parameters = Parameters::read(&root)?;
    let report =
        if args.seconds > 0 { Some(follow(&root, Duration::from_secs(args.seconds))?) } else { None };
    let shown = Shown::new(parameters, held_by(&root), report.as_ref());
    if args.json {
        outln!("{}", serde_json::to_string(&shown)?)?;
    } else {
        out!("{}", show(&shown))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn run_why(args: &WhyArgs) -> anyhow::Result<ExitCode> {
    let path = journal::path();
    let records = match journal::read(&path) {
        Err(LineError::Read { r#source, .. }) if r#source.kind() == ErrorKind::NotFound => {
            bail!("there is no {}: `{} halt-poll auto` writes it", path.display(), crate::NAME)
        }
        records => records?,
    };
    if args.json {
        records.iter().try_for_each(|record| anyhow::Ok(outln!("{}", serde_json::to_string(record)?)?))?;
    } else {
        let mut text = String::new();
        for sentence in journal::sentences(&records, held_by(&Root::system())) {
            wrap(&mut text, "- ", &sentence);
        }
        out!("{text}")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn follow(root: &Root, time: Duration) -> anyhow::Result<Report> {
    let setup = HostSetup::read(root)?;
    let mut tracer = HostTracer::start(setup.isa, Options::default())?;
    for missing in tracer.missing() {
        say!("{}: {missing}", crate::NAME);
    }
    let earlier = tracer.read()?;
    std::thread::sleep(time);
    Ok(Report::between(&setup, &discover(root), &earlier, &tracer.read()?, None))
}

/// The process that holds the parameters. Makes no directory.
fn held_by(root: &Root) -> Option<u32> {
    StateDir::seen(STATE_DIR).holder(root)
}

/// The state directory.
pub(in crate::cli) fn state() -> anyhow::Result<StateDir> {
    if !super::is_root() {
        bail!("KVM's parameters can be changed by root alone: run it as root");
    }
    let state = StateDir::at(STATE_DIR)?;
    // Independent of the umask: everybody may ask why, and who holds the parameters.
    fs::set_permissions(state.path(), Permissions::from_mode(0o755))?;
    Ok(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("2h"), Ok(Duration::from_secs(7200)));
        for text in ["", "5", "s", "5 s", "5w", "99999999999d"] {
            assert!(duration(text).unwrap_err().contains("s, m, h or d"), "{text}");
        }
    }
}

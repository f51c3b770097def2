//! The options of `run` and `attach`, from which their parts take what concerns them.

use std::path::PathBuf;

use gleaner_engine::live::Counter;
use gleaner_policy::{Fixed, Method, Objective, Strategy};

use crate::names;

/// How settings are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum StrategyName {
    /// Try changes, and keep what proves itself
    Adaptive,
    /// Follow the rules of the Gleaner paper (USENIX ATC 2014, sections 4 to 6) to the letter, with yield threads, and
    /// prove nothing: to compare with
    Paper,
}

/// How a workload is controlled.
#[allow(clippy::struct_excessive_bools, reason = "each is a switch of its own on the command line")]
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ControlArgs {
    /// Print nothing but errors
    #[arg(short, long)]
    pub(crate) quiet: bool,
    /// Write the journal here rather than to the state directory, and without a bound
    #[arg(long, value_name = "FILE")]
    pub(crate) journal: Option<PathBuf>,
    /// The program's own progress: a command that prints a growing number, or `file:PATH` that holds one
    #[arg(long, value_name = "CMD|file:PATH")]
    pub(crate) progress: Option<Counter>,
    /// Use this retention method instead of the one that calibration chose
    #[arg(long, value_name = "METHOD", value_parser = names::method())]
    pub(crate) method: Option<Method>,
    /// Never take vCPUs away from the workload
    #[arg(long)]
    pub(crate) no_consolidate: bool,
    /// Never keep idle vCPUs from halting
    #[arg(long)]
    pub(crate) no_retain: bool,
    /// Never load BPF programs: a smaller set of vCPUs is then watched by counting runnable threads every
    /// 5 ms, and servers that use send and recv are judged by their CPU time
    #[arg(long)]
    pub(crate) no_bpf: bool,
    /// Measure by BPF how long threads wait after each wake-up, rather than estimate it from run delay and
    /// halts: more exact, and costs some percent of a program that lives on wake-ups
    #[arg(long, conflicts_with = "no_bpf")]
    pub(crate) trace_waiting: bool,
    /// How settings are chosen
    #[arg(long, default_value = "adaptive", conflicts_with_all = ["fixed", "dry_run"])]
    pub(crate) strategy: StrategyName,
    /// What keeping idle vCPUs awake may cost in CPU time of the host
    #[arg(long, value_name = "NAME", default_value_t, value_parser = names::objective(), conflicts_with = "fixed")]
    pub(crate) objective: Objective,
    /// Change nothing: observe, and say what would be tried
    #[arg(long, conflicts_with = "fixed")]
    pub(crate) dry_run: bool,
    /// Start without what earlier runs of the program showed, and keep nothing of this one
    #[arg(long)]
    pub(crate) no_memory: bool,
    /// Hold one setting without proving it, e.g. haltpoll:200us, qos-poll, consolidate:1,
    /// consolidate:1+haltpoll:50us, halt
    #[arg(long, value_name = "SETTING")]
    pub(crate) fixed: Option<Fixed>,
}

impl ControlArgs {
    pub(crate) fn strategy(&self) -> Strategy {
        match (self.fixed, self.strategy) {
            (Some(_), _) => Strategy::Fixed,
            (None, StrategyName::Paper) => Strategy::Paper,
            (None, StrategyName::Adaptive) => Strategy::Adaptive,
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) control: ControlArgs,
    /// Do not run the command where Gleaner cannot help it: say why, and exit with status 125
    #[arg(long)]
    pub(crate) require: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) command: Vec<std::ffi::OsString>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct AttachArgs {
    #[command(flatten)]
    pub(crate) control: ControlArgs,
    #[command(flatten)]
    pub(crate) target: AttachTarget,
    /// Print the account as JSON at the end
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(crate) struct AttachTarget {
    /// This process and its descendants
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pub(crate) pid: Option<i32>,
    /// Every process in this control group: its directory, or its path as in /proc/PID/cgroup
    #[arg(long, value_name = "PATH")]
    pub(crate) cgroup: Option<PathBuf>,
}

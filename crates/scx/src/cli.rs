//! The command line.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use gleaner_coordination::VcpuPlacement;
use gleaner_kernel::Root;
use gleaner_kernel::lever::ThreadKey;
use gleaner_print::Generate;
use gleaner_scx::{Options, VmRules};
use gleaner_scx_control::{Rules, parse_ns};

use crate::monitor;
use crate::run::{self, Print};

/// Schedule this KVM host by the demand of its virtual machines for coordination
///
/// Virtual CPUs that must answer an interrupt of another one, or have just sent one, run first, as far as fairness
/// between virtual machines allows. Runs until Ctrl-C; whenever it ends, however it ends, the kernel's own scheduler
/// takes over. When a pCPU goes offline or comes back, it restarts itself. Needs root and Linux 6.13 or later with `sched_ext`.
/// `gleaner-host sched` starts and ends it, and changes rules and their times while it runs.
#[derive(Debug, Parser)]
#[command(name = crate::NAME, version = crate::VERSION, max_term_width = 100, after_help = AFTER_HELP)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Cli {
    /// What makes a vCPU urgent: off, or some of resched-dp, tlb-co, tlb-wait and resched-co with commas. `resched-co-auto`
    /// is resched-co while experiments show that it helps. For guests that are not Linux: `freebsd`, or their vectors in
    /// hexadecimal, as in `reschedule:f8,shootdown:f4+f5`
    #[arg(long, value_name = "RULES", default_value_t = Rules::PAPER)]
    rules: Rules,
    /// Rules of one virtual machine, by the process of its VMM; may be given more than once
    #[arg(long = "vm", value_name = "PID=RULES")]
    vms: Vec<String>,
    /// Time for which the sender of a reschedule interrupt is not preempted
    #[arg(long, value_name = "TIME", default_value = "500us", value_parser = parse_ns)]
    preemption_delay: u64,
    /// Time for which an urgent vCPU runs before the next one, and the recipient of a reschedule interrupt is urgent
    #[arg(long, value_name = "TIME", default_value = "500us", value_parser = parse_ns)]
    urgent_slice: u64,
    /// Time on a pCPU by which an urgent vCPU may be ahead of others
    #[arg(long, value_name = "TIME", default_value = "18ms", value_parser = parse_ns)]
    allowance: u64,
    /// Slice of whoever is not urgent; cannot be changed while it runs
    #[arg(long, value_name = "TIME", default_value = "3ms", value_parser = parse_ns)]
    slice: u64,
    /// Where woken vCPUs go; cannot be changed while it runs
    #[arg(long, value_name = "RULE", default_value = "load-conscious")]
    placement: Placement,
    /// Ignore what runs on the other threads of a core when placing woken vCPUs. Otherwise, where no core is idle, vCPUs that often
    /// wait go beside tasks that compute. Without effect with `--placement none`
    #[arg(long)]
    no_symbiosis: bool,
    /// Print what it did every so many seconds, and at the end
    #[arg(long, value_name = "N", group = "interval", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    stats: Option<u64>,
    /// Schedule nothing: print what the `scx_gleaner` that runs did, every so many seconds
    #[arg(long, value_name = "N", group = "interval", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    monitor: Option<u64>,
    /// Print it as JSON
    #[arg(long, requires = "interval")]
    json: bool,
    /// Write down what it sees and decides, until it ends or a pCPU goes offline or comes back, for
    /// `gleaner-sim replay FILE`. Its rules cannot be changed meanwhile
    #[arg(long, value_name = "FILE", conflicts_with = "monitor")]
    record: Option<PathBuf>,
    /// Print what each count says
    #[arg(long, exclusive = true)]
    help_stats: bool,
    #[command(subcommand)]
    generate: Option<Generate>,
}

const AFTER_HELP: &str =
    "Exit status: 0 ended by a signal or by the kernel's request, 1 failure, 2 usage error.";

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Placement {
    /// Anywhere
    None,
    /// Not beside another vCPU of the same machine
    Balance,
    /// The same, unless all those pCPUs are overloaded
    LoadConscious,
}

impl Cli {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        if let Some(what) = &self.generate {
            return what.run::<Self>(crate::NAME, crate::VERSION);
        }
        if self.help_stats {
            return monitor::describe();
        }
        if let Some(seconds) = self.monitor {
            return monitor::watch(Duration::from_secs(seconds), self.json);
        }
        let print =
            self.stats.map(|seconds| Print { interval: Duration::from_secs(seconds), json: self.json });
        run::until_ended(self.options().map_err(anyhow::Error::msg)?, print, self.record.as_deref())
    }

    fn options(&self) -> Result<Options, String> {
        let vms = self.vms.iter().map(|text| {
            let (pid, rules) =
                text.split_once('=').ok_or_else(|| format!("--vm {text}: PID=RULES is expected"))?;
            let pid = pid.parse().map_err(|_| format!("--vm {text}: `{pid}` is no process"))?;
            Ok(VmRules {
                pid,
                process: ThreadKey::of(&Root::system(), pid).ok(),
                rules: rules.parse().map_err(|error| format!("--vm {text}: {error}"))?,
            })
        });
        let options = Options {
            rules: self.rules,
            preemption_delay_ns: self.preemption_delay,
            urgent_slice_ns: self.urgent_slice,
            allowance_ns: self.allowance,
            vms: vms.collect::<Result<_, String>>()?,
            placement: match self.placement {
                Placement::None => VcpuPlacement::Uncoordinated,
                Placement::Balance => VcpuPlacement::Balance,
                Placement::LoadConscious => VcpuPlacement::LoadConscious,
            },
            symbiosis: !self.no_symbiosis,
            slice_ns: self.slice,
        };
        if self.record.is_some() && options.has_auto() {
            return Err(
                "--record: resched-co-auto changes rules while it runs; choose resched-co, or leave it out"
                    .to_owned(),
            );
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_vm_has_rules_of_its_own() {
        let options = |arguments: &[&str]| Cli::parse_from([&["scx_gleaner"], arguments].concat()).options();
        let with = options(&["--vm", "42=off", "--urgent-slice", "300us", "--placement", "none"]).unwrap();
        assert_eq!((with.rules, with.urgent_slice_ns), (Rules::PAPER, 300_000));
        assert_eq!((with.vms[0].pid, with.vms[0].rules), (42, Rules::OFF));
        for wrong in ["42", "x=off", "42=all"] {
            assert!(options(&["--vm", wrong]).unwrap_err().contains(wrong));
        }
    }

    #[test]
    fn a_record_has_one_set_of_rules() {
        let options = |rules: &[&str]| {
            let command = [&["scx_gleaner", "--record", "/nowhere"], rules].concat();
            Cli::parse_from(command).options()
        };
        assert!(options(&["--rules", "tlb-co,resched-co"]).is_ok());
        for auto in [&["--rules", "resched-co-auto"][..], &["--vm", "42=resched-co-auto"]] {
            assert!(options(auto).unwrap_err().contains("choose resched-co"), "{auto:?}");
        }
    }

    #[test]
    fn whoever_only_reads_schedules_nothing() {
        let refused =
            |arguments: &[&str]| Cli::try_parse_from([&["scx_gleaner"], arguments].concat()).is_err();
        for wrong in [
            &["--json"][..],
            &["--stats", "1", "--monitor", "1"],
            &["--help-stats", "--rules", "off"],
            &["--rules", "off", "man"],
            &["--record", "FILE", "--monitor", "1"],
        ] {
            assert!(refused(wrong), "{wrong:?}");
        }
        assert!(!refused(&["--monitor", "1", "--json"]));
    }
}

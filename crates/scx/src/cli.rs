//! The command line.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use gleaner_coordination::{UrgentConfig, VcpuPlacement};
use gleaner_kernel::Root;
use gleaner_kernel::lever::ThreadKey;
use gleaner_print::{outln, say};
use gleaner_scx::{Ended, Options, Scheduler, Stats, VmRules, parse_ns, parse_rules};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// Schedule this KVM host by the demand of its virtual machines for coordination
///
/// Virtual CPUs that must answer an interrupt of another one, or have just sent one, run first, as far as fairness
/// between virtual machines allows. Runs until Ctrl-C; whenever it ends, however it ends, the kernel's own scheduler
/// takes over. When a pCPU goes offline or comes back, it restarts itself. Needs root and Linux 6.13 or later with `sched_ext`.
#[derive(Debug, Parser)]
#[command(name = crate::NAME, version = crate::VERSION, max_term_width = 100, after_help = AFTER_HELP)]
pub(crate) struct Cli {
    /// What makes a vCPU urgent: off, or some of resched-dp, tlb-co and resched-co with commas
    #[arg(long, value_name = "RULES", default_value = "resched-dp,tlb-co")]
    rules: String,
    /// Rules of one virtual machine, by the process of its VMM; may be given more than once
    #[arg(long = "vm", value_name = "PID=RULES")]
    vms: Vec<String>,
    /// Time for which an urgent vCPU runs before the next one, and for which a reschedule interrupt makes urgent
    #[arg(long, value_name = "TIME", default_value = "500us", value_parser = parse_ns)]
    urgent_slice: u64,
    /// Virtual time by which an urgent vCPU may be ahead of others
    #[arg(long, value_name = "TIME", default_value = "18ms", value_parser = parse_ns)]
    allowance: u64,
    /// Slice of whoever is not urgent
    #[arg(long, value_name = "TIME", default_value = "3ms", value_parser = parse_ns)]
    slice: u64,
    /// Where woken vCPUs go
    #[arg(long, value_name = "RULE", default_value = "load-conscious")]
    placement: Placement,
    /// Print what it did every so many seconds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    stats: Option<u64>,
    /// Print it as JSON
    #[arg(long, requires = "stats")]
    json: bool,
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

/// How long a signal, or the end by the kernel, may wait to be noticed.
const INTERVAL: Duration = Duration::from_millis(200);

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn stop(_: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

impl Cli {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        let mut options = self.options().map_err(anyhow::Error::msg)?;
        for signal in [Signal::SIGINT, Signal::SIGTERM] {
            let action = SigAction::new(SigHandler::Handler(stop), SaFlags::empty(), SigSet::empty());
            // SAFETY: the handler only stores a flag.
            unsafe { sigaction(signal, &action)? };
        }
        loop {
            let scheduler = Scheduler::start(&Root::system(), &options)?;
            say!("{}: schedules this host until Ctrl-C", crate::NAME);
            if !scheduler.sees_kvm() {
                say!(
                    "{}: KVM is not loaded, so nothing becomes urgent; load it and start again",
                    crate::NAME
                );
            }
            let Some(ended) = self.watch(&scheduler)? else {
                return Ok(ExitCode::SUCCESS);
            };
            let then = if ended.restart { "; it starts again" } else { "" };
            say!("{}: the kernel ended it: {} {}{then}", crate::NAME, ended.reason, ended.message);
            if self.stats.is_some() {
                self.print(&scheduler.stats()?)?;
            }
            if !ended.restart {
                return Ok(if ended.failed { ExitCode::FAILURE } else { ExitCode::SUCCESS });
            }
            options.forget_ended(&Root::system());
        }
    }

    /// Prints what the scheduler does, until a signal, or until the kernel has ended it.
    fn watch(&self, scheduler: &Scheduler) -> anyhow::Result<Option<Ended>> {
        let mut printed = Instant::now();
        while !STOP.load(Ordering::Relaxed) {
            std::thread::sleep(INTERVAL);
            if let Some(ended) = scheduler.ended() {
                return Ok(Some(ended));
            }
            if self.stats.is_some_and(|seconds| printed.elapsed() >= Duration::from_secs(seconds)) {
                printed = Instant::now();
                self.print(&scheduler.stats()?)?;
            }
        }
        Ok(None)
    }

    fn print(&self, stats: &Stats) -> anyhow::Result<()> {
        if self.json {
            outln!("{}", serde_json::to_string(&stats.by_name())?)?;
        } else {
            outln!("{}", stats.text())?;
        }
        Ok(())
    }

    fn options(&self) -> Result<Options, String> {
        let base =
            UrgentConfig { slice_ns: self.urgent_slice, allowance_ns: self.allowance, ..UrgentConfig::OFF };
        let vms = self.vms.iter().map(|text| {
            let (pid, rules) =
                text.split_once('=').ok_or_else(|| format!("--vm {text}: PID=RULES is expected"))?;
            let pid = pid.parse().map_err(|_| format!("--vm {text}: `{pid}` is no process"))?;
            Ok(VmRules {
                pid,
                process: ThreadKey::of(&Root::system(), pid).ok(),
                rules: parse_rules(rules, base).map_err(|error| format!("--vm {text}: {error}"))?,
            })
        });
        Ok(Options {
            rules: parse_rules(&self.rules, base).map_err(|error| format!("--rules: {error}"))?,
            vms: vms.collect::<Result<_, String>>()?,
            placement: match self.placement {
                Placement::None => VcpuPlacement::Uncoordinated,
                Placement::Balance => VcpuPlacement::Balance,
                Placement::LoadConscious => VcpuPlacement::LoadConscious,
            },
            slice_ns: self.slice,
        })
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
        assert_eq!((with.rules.resched_dp_ns, with.rules.tlb_co), (300_000, true));
        assert_eq!(with.vms[0].pid, 42);
        assert_eq!((with.vms[0].rules.resched_dp_ns, with.vms[0].rules.tlb_co), (0, false));
        for wrong in ["42", "x=off", "42=all"] {
            assert!(options(&["--vm", wrong]).unwrap_err().contains(wrong));
        }
    }
}

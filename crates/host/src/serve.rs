//! `gleaner-host serve`: metrics for a Prometheus, until it is ended.

use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use gleaner_host::discover::{Vm, discover};
use gleaner_host::metrics::{Own, Totals};
use gleaner_host::{HostError, HostSetup, HostTracer, Options, Reading, Report};
use gleaner_kernel::Root;
use gleaner_metrics::Exporter;
use gleaner_print::say;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;

use crate::cli::{percent, warn};
use crate::privileges;

/// The counters are read at least so often, which frees those of threads that ended.
const LONGEST: Duration = Duration::from_secs(15);
/// And at most so often, however many ask.
const SHORTEST: Duration = Duration::from_secs(1);
/// The VMs are looked for at least so often, since a process' number can come again.
const DISCOVER: Duration = Duration::from_secs(60);

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where to listen. Whoever reaches it can read the metrics: no address but loopback without a firewall
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:9840")]
    listen: SocketAddr,
    /// Largest share of the vCPUs' time, in per cent, that following them may take
    #[arg(long, value_name = "PERCENT", default_value_t = 3.0, value_parser = percent)]
    budget: f64,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let address = args.listen;
    let listener = TcpListener::bind(address)
        .with_context(|| format!("cannot listen at {address}: choose another address with --listen"))?;
    let root = Root::system();
    let setup = HostSetup::read(&root)?;
    let mut tracer = HostTracer::start(setup.isa, Options::default())?;
    tracer.hold_account();
    tracer.keep_within(args.budget / 100.0)?;
    warn(tracer.missing(), &setup.hidden());
    privileges::keep_needed().context("cannot give up the capabilities that serving does not need")?;
    let own = Own {
        version: crate::VERSION.to_owned(),
        cost: tracer.cost(),
        missing: tracer.missing().len(),
        cpu: Duration::ZERO,
    };
    say!("{}: the metrics are at http://{}/metrics", crate::NAME, listener.local_addr()?);
    let mut exporter = Exporter::new(listener)?;
    let mut counting = Counting::start(&root, &setup, &mut tracer)?;
    loop {
        let due = tracer.due().map_or(LONGEST, |due| due.saturating_duration_since(Instant::now()));
        wait(&exporter, LONGEST.saturating_sub(counting.age()).min(due))?;
        tracer.turn()?;
        if counting.age() >= LONGEST {
            counting.read(&mut tracer)?;
        }
        let mut read = Ok(());
        exporter.serve(&mut || {
            if counting.age() >= SHORTEST {
                read = counting.read(&mut tracer);
            }
            counting.totals.encode(&Own { cost: tracer.cost(), cpu: cpu_time(), ..own.clone() })
        });
        read?;
    }
}

/// Waits for a client, or until the time is over.
fn wait(exporter: &Exporter, longest: Duration) -> anyhow::Result<()> {
    let mut fds: Vec<PollFd<'_>> =
        exporter.fds().into_iter().map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
    // Rounded up, or the last millisecond would be spent in a loop.
    let timeout = longest + Duration::from_millis(1);
    match poll(&mut fds, PollTimeout::try_from(timeout).unwrap_or(PollTimeout::MAX)) {
        Ok(_) | Err(nix::Error::EINTR) => Ok(()),
        Err(error) => Err(error).context("cannot wait for clients"),
    }
}

/// CPU time of this process.
fn cpu_time() -> Duration {
    let of = |time: TimeVal| {
        let (seconds, us) = (time.tv_sec(), time.tv_usec());
        Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
            + Duration::from_micros(u64::try_from(us).unwrap_or(0))
    };
    getrusage(UsageWho::RUSAGE_SELF)
        .map_or(Duration::ZERO, |usage| of(usage.user_time()) + of(usage.system_time()))
}

/// Replaces the known VMs by those that are there now. Returns those that ended and are still among the `counted`
/// processes: whose their counters are is known for the last time.
fn renew(known: &mut Vec<Vm>, now: Vec<Vm>, counted: &BTreeSet<u32>) -> Vec<Vm> {
    let before = std::mem::replace(known, now);
    let is_over = |vm: &Vm| !known.iter().any(|other| other.pid == vm.pid);
    before.into_iter().filter(|vm| is_over(vm) && counted.contains(&vm.pid)).collect()
}

/// The counters at the last reading, and what they add up to.
struct Counting<'a> {
    root: &'a Root,
    setup: &'a HostSetup,
    started: Instant,
    read_at: Instant,
    discovered_at: Instant,
    vms: Vec<Vm>,
    earlier: Reading,
    totals: Totals,
}

impl<'a> Counting<'a> {
    fn start(root: &'a Root, setup: &'a HostSetup, tracer: &mut HostTracer) -> Result<Self, HostError> {
        let now = Instant::now();
        let mut counting = Self {
            root,
            setup,
            started: now,
            read_at: now,
            discovered_at: now,
            vms: discover(root),
            earlier: tracer.read()?,
            totals: Totals::default(),
        };
        // So that the series of what is there exist, at zero, before anybody asks.
        let nothing = Report::between(setup, &counting.vms, &counting.earlier, &counting.earlier, None);
        counting.totals.add(&nothing, Duration::ZERO);
        Ok(counting)
    }

    fn age(&self) -> Duration {
        self.read_at.elapsed()
    }

    fn read(&mut self, tracer: &mut HostTracer) -> Result<(), HostError> {
        if tracer.read_pcpus()?.at_ns == self.earlier.at_ns {
            // In one pause: this time is counted with the next window.
            return Ok(());
        }
        // What ended before the last reading is in the totals.
        tracer.forget_ended();
        let later = tracer.read()?;
        let known = |pid| self.vms.iter().any(|vm| vm.pid == pid);
        let news = later.vcpus.iter().any(|vcpu| vcpu.ended || !known(vcpu.pid));
        let mut ended = Vec::new();
        if news || self.discovered_at.elapsed() >= DISCOVER {
            let counted = later.vcpus.iter().map(|vcpu| vcpu.pid).collect();
            ended = renew(&mut self.vms, discover(self.root), &counted);
            self.discovered_at = Instant::now();
        }
        let vms = [self.vms.as_slice(), &ended].concat();
        let report = Report::between(self.setup, &vms, &self.earlier, &later, None);
        self.read_at = Instant::now();
        self.totals.add(&report, self.read_at - self.started);
        self.earlier = later;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use gleaner_host::discover::Vmm;

    use super::*;

    fn vm(pid: u32, name: &str) -> Vm {
        Vm { pid, name: name.to_owned(), vmm: Vmm::Qemu, vcpus: BTreeSet::from([0]), threads: Vec::new() }
    }

    #[test]
    fn what_an_ended_vm_did_last_is_still_its_own() {
        let mut known = vec![vm(1, "ended"), vm(2, "ended before"), vm(3, "old")];
        let ended = renew(&mut known, vec![vm(3, "new")], &BTreeSet::from([1, 3]));
        assert_eq!((ended, known), (vec![vm(1, "ended")], vec![vm(3, "new")]));
    }
}

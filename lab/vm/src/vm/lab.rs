//! Boots machines.

use gleaner_print::say;
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getpgrp, tcsetpgrp};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

use crate::cache::Cache;
use crate::emulator;
use crate::error::{Error, Result};
use crate::image::{self, Image, Media, QEMU, Store};
use crate::kernel::Kernel;
use crate::payload::Payload;
use crate::tool;
use crate::vm::channel::Channel;
use crate::vm::console::Console;
use crate::vm::guest::Guest;
use crate::vm::process::{Process, empty_memory_file, memory_file};
use crate::vm::qemu::{self, Accelerator, Files};
use crate::vm::spec::{HOST_ADDRESS, LINK, VmSpec};

/// Longest time from QEMU's start to the agent's greeting: three times that of the slowest boot.
const TIMEOUT: Duration = Duration::from_secs(180);

/// Boots images of the cache under emulation, or, in a nested host, its guests' files under KVM.
#[derive(Debug, Clone)]
pub struct Lab {
    /// `None` in a nested host.
    store: Option<Store>,
    accelerator: Accelerator,
    failures: PathBuf,
    records: PathBuf,
    is_short: bool,
}

impl Lab {
    /// The lab of this machine.
    pub fn open() -> Result<Self> {
        if image::is_nested_host() {
            let failures = std::env::temp_dir();
            let records = failures.clone();
            let accelerator = Accelerator::Kvm;
            return Ok(Self { store: None, accelerator, failures, records, is_short: false });
        }
        let cache = Cache::open()?;
        let (failures, records) = (cache.scratch("failures")?, cache.scratch("records")?);
        let store = Store::new(cache, Payload::find()?);
        let accelerator = Accelerator::Emulated;
        Ok(Self { store: Some(store), accelerator, failures, records, is_short: false })
    }

    /// Builds everything that any claim needs from packages, so that a missing program or network is noticed first.
    pub fn prepare(&self) -> Result<()> {
        let Some(store) = &self.store else { return Ok(()) };
        store.prepare(Image::Host, Kernel::V7)?;
        Kernel::ALL.iter().try_for_each(|&kernel| store.prepare(Image::Systemd, kernel))
    }

    /// The same, in which claims repeat their measurements a third as often: enough to see that something is broken.
    #[must_use]
    pub fn short(self) -> Self {
        Self { is_short: true, ..self }
    }

    /// Whether claims are proven in the short form.
    pub fn is_short(&self) -> bool {
        self.is_short
    }

    /// How often a claim measures what it repeats `full` times in the full form; at least once.
    pub fn rounds(&self, full: usize) -> usize {
        if self.is_short { full.div_ceil(3) } else { full }
    }

    /// For how long a claim lets something go on that lasts for `full` in the full form.
    pub fn span(&self, full: Duration) -> Duration {
        if self.is_short { full / 3 } else { full }
    }

    /// Whether this is a nested host, whose guests are real KVM guests.
    pub fn is_nested(&self) -> bool {
        self.accelerator == Accelerator::Kvm
    }

    /// Directory for consoles of failed machines.
    pub(crate) fn failures(&self) -> &Path {
        &self.failures
    }

    /// Directory for what claims recorded in a nested host; the latest of each name is kept.
    pub(crate) fn records(&self) -> &Path {
        &self.records
    }

    fn media(&self, spec: &VmSpec) -> Result<Media> {
        match &self.store {
            Some(store) => store.media(spec),
            None => image::nested_media(spec.image, spec.kernel),
        }
    }

    /// Boots a machine, waits for its agent and pins its vCPUs. Retries once after a hang, and reports that: under
    /// emulation, about one in several dozen boots of Linux 7 hangs before its first console output, for unknown
    /// reasons.
    pub fn boot(&self, spec: VmSpec) -> Result<Guest> {
        self.boot_within(spec.clone(), TIMEOUT).or_else(|error| match error {
            Error::Hung { .. } => {
                say!("lab: {error}\nlab: it is booted once more");
                self.boot_within(spec, TIMEOUT)
            }
            other => Err(other),
        })
    }

    /// Boots without a retry, within this time from QEMU's start to the agent's greeting.
    pub fn boot_within(&self, spec: VmSpec, timeout: Duration) -> Result<Guest> {
        let (console, console_end) = pair()?;
        let (agent, agent_end) = pair()?;
        let (monitor, monitor_end) = pair()?;
        let started = Instant::now();
        let process = self.start(&spec, &agent_end, &monitor_end, Some(&console_end))?;
        // Close our copies, so that the connections end when QEMU exits.
        drop((agent_end, monitor_end, console_end));
        let console = Console::read(console);
        let (channel, greeting) = Channel::open(agent).map_err(Error::system("speak to QEMU"))?;
        let linked = spec.linked;
        let guest = Guest::new(spec, process, console, channel, self.failures());
        let guest = guest.wait_for_agent(&greeting, started, timeout, monitor)?;
        if linked {
            take_address()?;
        }
        Ok(guest)
    }

    /// Boots a machine with a shell on this program's terminal, and waits for its end.
    pub fn shell(&self, spec: VmSpec) -> Result<ExitStatus> {
        let spec = spec.cmdline(&["lab.shell"]);
        let (_agent, agent_end) = pair()?;
        let (_monitor, monitor_end) = pair()?;
        let process = self.start(&spec, &agent_end, &monitor_end, None)?;
        // QEMU has a process group of its own, and only the terminal's foreground group can read from it. Taking the
        // terminal back from the background would stop this program if the signal were not blocked.
        let stop = SigSet::from(Signal::SIGTTOU);
        stop.thread_block().map_err(Error::system("block a signal"))?;
        let terminal = std::io::stdin();
        let own = getpgrp();
        // Without a terminal nothing is typed.
        let _ = tcsetpgrp(&terminal, Pid::from_raw(process.id().cast_signed()));
        let ended = process.wait_forever();
        let _ = tcsetpgrp(&terminal, own);
        ended
    }

    fn start(
        &self,
        spec: &VmSpec,
        agent: &OwnedFd,
        monitor: &OwnedFd,
        console: Option<&OwnedFd>,
    ) -> Result<Process> {
        spec.check()?;
        if spec.linked && !self.is_nested() {
            return Err(Error::Spec(format!(
                "`{}`: only a guest of a nested host can be linked to it",
                spec.name
            )));
        }
        let media = self.media(spec)?;
        let initramfs = memory_file("initramfs", &media.initramfs)?;
        let scratch =
            (spec.scratch_mib > 0).then(|| empty_memory_file("scratch", spec.scratch_mib)).transpose()?;
        let files = Files {
            initramfs: initramfs.as_raw_fd(),
            monitor: monitor.as_raw_fd(),
            agent: agent.as_raw_fd(),
            scratch: scratch.as_ref().map(AsRawFd::as_raw_fd),
            console: console.map(AsRawFd::as_raw_fd),
        };
        let mut command = media.emulator.as_deref().map_or_else(|| Command::new(QEMU), emulator::command);
        command.args(qemu::arguments(spec, self.accelerator, &media.kernel, media.disk.as_deref(), files));
        let inherited = [Some(&initramfs), Some(agent), Some(monitor), scratch.as_ref(), console];
        Process::start(command, &inherited.into_iter().flatten().map(AsRawFd::as_raw_fd).collect::<Vec<_>>())
    }
}

/// Gives this machine its address on the network that QEMU has made to link it with a guest.
fn take_address() -> Result<()> {
    let address = format!("{HOST_ADDRESS}/24");
    tool::run(Command::new("ip").args(["address", "add", &address, "dev", LINK]))?;
    tool::run(Command::new("ip").args(["link", "set", LINK, "up"])).map(drop)
}

/// A pair of connected ends: ours, and the one that QEMU inherits.
fn pair() -> Result<(UnixStream, OwnedFd)> {
    let (ours, theirs) = UnixStream::pair().map_err(Error::system("make a pair of sockets"))?;
    Ok((ours, theirs.into()))
}

//! The description of a machine.

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::image::Image;
use crate::kernel::Kernel;

/// vCPUs by sockets, cores and threads, and the NUMA nodes that the sockets are spread over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpus {
    /// Number of sockets.
    pub sockets: u32,
    /// Cores per socket.
    pub cores: u32,
    /// Threads per core: 2 for SMT.
    pub threads: u32,
    /// Number of NUMA nodes, which divide the vCPUs evenly.
    pub nodes: u32,
}

impl Cpus {
    /// `n` vCPUs, as cores of one socket.
    pub const fn flat(n: u32) -> Self {
        Self { sockets: 1, cores: n, threads: 1, nodes: 1 }
    }

    /// `cores` cores of one socket, with two threads each.
    pub const fn smt(cores: u32) -> Self {
        Self { sockets: 1, cores, threads: 2, nodes: 1 }
    }

    /// `sockets` sockets with `cores` cores each, every socket a NUMA node.
    pub const fn numa(sockets: u32, cores: u32) -> Self {
        Self { sockets, cores, threads: 1, nodes: sockets }
    }

    /// Number of vCPUs.
    pub const fn count(self) -> u32 {
        self.sockets * self.cores * self.threads
    }
}

impl std::fmt::Display for Cpus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} vCPUs", self.count())?;
        if self.threads > 1 {
            write!(f, ", SMT")?;
        }
        if self.nodes > 1 {
            write!(f, ", {} NUMA nodes", self.nodes)?;
        }
        Ok(())
    }
}

/// A KVM host's address on the network that links it with a guest.
pub const HOST_ADDRESS: &str = "192.0.2.1";
/// The linked guest's address there.
pub const GUEST_ADDRESS: &str = "192.0.2.2";
/// The host's end of that network.
pub(crate) const LINK: &str = "link0";

/// Memory of a KVM host with guests.
const HOST_MIB: u32 = 4096;

/// The description of a machine, also as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VmSpec {
    /// Name in messages and of its console's file; unique among machines that run together.
    pub name: String,
    /// Its image.
    pub image: Image,
    /// Its kernel.
    pub kernel: Kernel,
    /// Its vCPUs.
    pub cpus: Cpus,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Additional kernel parameters.
    #[serde(default)]
    pub cmdline: Vec<String>,
    /// Kernels of its own guests, for [`Image::Host`]; with some, [`Image::Systemd`] is a KVM host, too.
    #[serde(default)]
    pub guests: Vec<Kernel>,
    /// Whether its own guests can have the systemd image, too, for [`Image::Host`].
    #[serde(default)]
    pub systemd_guests: bool,
    /// Whether it is linked to its KVM host by a network of their own, see [`VmSpec::linked`].
    #[serde(default)]
    pub linked: bool,
    /// Host CPUs for each vCPU's thread: one set per vCPU, or none to pin nothing.
    #[serde(default)]
    pub pins: Vec<Vec<usize>>,
    /// Size in MiB of an empty disk in memory, `/dev/vda`; 0: none.
    #[serde(default)]
    pub scratch_mib: u32,
    /// Features that its processor does not have, as QEMU names them.
    #[serde(default)]
    pub without: Vec<String>,
    /// If emulated, run all vCPUs in one thread, in turn.
    #[serde(default)]
    pub in_turn: bool,
    /// If emulated, let its clocks advance by 2^n ns with each instruction that any of its vCPUs executes, and with the time
    /// that passes only while all are halted.
    #[serde(default)]
    pub counted: Option<i8>,
}

impl VmSpec {
    /// A machine with this image and the memory that it needs. Nested hosts boot Linux 7 and have 4 GiB.
    pub fn new(name: &str, image: Image, kernel: Kernel, cpus: Cpus) -> Self {
        let memory_mib = match image {
            Image::Tiny => 512 + 32 * cpus.count(),
            Image::Systemd => 1024 + 64 * cpus.count(),
            Image::Host => HOST_MIB,
        };
        let guests = if image == Image::Host { vec![Kernel::V7] } else { Vec::new() };
        Self {
            name: name.to_owned(),
            image,
            kernel,
            cpus,
            memory_mib,
            cmdline: Vec::new(),
            guests,
            systemd_guests: false,
            linked: false,
            pins: Vec::new(),
            scratch_mib: 0,
            without: Vec::new(),
            in_turn: false,
            counted: None,
        }
    }

    /// Adds kernel parameters.
    #[must_use]
    pub fn cmdline(mut self, words: &[&str]) -> Self {
        self.cmdline.extend(words.iter().map(|&word| word.to_owned()));
        self
    }

    /// Pins each vCPU's thread to the next of these CPUs, in turn.
    #[must_use]
    pub fn pinned_to(mut self, cpus: &[usize]) -> Self {
        self.pins = cpus.iter().cycle().take(self.cpus.count() as usize).map(|&cpu| vec![cpu]).collect();
        self
    }

    /// Adds an empty disk of this size in MiB.
    #[must_use]
    pub fn scratch(mut self, mib: u32) -> Self {
        self.scratch_mib = mib;
        self
    }

    /// Makes it a KVM host, which has the boot files of guests with these kernels.
    #[must_use]
    pub fn hosting(mut self, guests: &[Kernel]) -> Self {
        self.guests = guests.to_vec();
        self.memory_mib = self.memory_mib.max(HOST_MIB);
        self
    }

    /// Gives it the systemd image for its guests: as a disk, which they share.
    #[must_use]
    pub fn with_systemd_guests(mut self) -> Self {
        self.systemd_guests = true;
        self
    }

    /// Links it to its KVM host: the host has the address [`HOST_ADDRESS`] on that network, and the machine, whose only network
    /// device is `eth0`, can take [`GUEST_ADDRESS`]. One guest of a host at a time.
    #[must_use]
    pub fn linked(mut self) -> Self {
        self.linked = true;
        self.cmdline(&["net.ifnames=0"])
    }

    /// Takes a feature from its processor, as QEMU names it.
    #[must_use]
    pub fn without(mut self, feature: &str) -> Self {
        self.without.push(feature.to_owned());
        self
    }

    /// Emulates all vCPUs in one thread, in turn. For kernels whose code is patched while it runs (static keys,
    /// tracepoints): with several threads, one can still execute a breakpoint that the kernel has already removed, and
    /// the kernel panics.
    #[must_use]
    pub fn in_turn(mut self) -> Self {
        self.in_turn = true;
        self
    }

    /// Counts its time in instructions, of 2^n ns each, so that whatever else the machine does that emulates it changes
    /// nothing. What takes more instructions takes longer; caches and the like cost nothing, as always under emulation. Its
    /// vCPUs are emulated in turn, so that each has its part of the instructions: with n = -2 four vCPUs have one per ns each.
    /// With a small n more happens in a time slice, and each second takes longer. Only hosts can have less than 0.
    #[must_use]
    pub fn counted(mut self, n: i8) -> Self {
        self.in_turn = true;
        self.counted = Some(n);
        self
    }

    /// Whether it is a KVM host.
    pub(crate) fn is_host(&self) -> bool {
        self.image == Image::Host || !self.guests.is_empty()
    }

    /// Whether such a machine is possible.
    pub(crate) fn check(&self) -> Result<()> {
        let Cpus { sockets, cores, threads, nodes } = self.cpus;
        let count = self.cpus.count();
        let wrong = |what: String| Err(Error::Spec(format!("`{}`: {what}", self.name)));
        if [sockets, cores, threads, nodes].contains(&0) || count > 64 {
            return wrong(format!("{sockets} sockets, {cores} cores, {threads} threads, {nodes} nodes"));
        }
        if !count.is_multiple_of(nodes) {
            return wrong(format!("{count} vCPUs on {nodes} NUMA nodes"));
        }
        if !self.pins.is_empty() && self.pins.len() != count as usize {
            return wrong(format!("{} pins for {count} vCPUs", self.pins.len()));
        }
        if self.in_turn && !self.pins.is_empty() {
            return wrong("vCPUs that are emulated in turn have no threads of their own to pin".to_owned());
        }
        if self.image == Image::Tiny && !self.guests.is_empty() {
            return wrong("a tiny image has nothing to boot guests with".to_owned());
        }
        if self.image != Image::Host && self.systemd_guests {
            return wrong("only a nested host has systems for its guests".to_owned());
        }
        if self.linked && self.image != Image::Systemd {
            return wrong("only a systemd image has a network device, so that it can be linked".to_owned());
        }
        if self.memory_mib < 128 {
            return wrong(format!("{} MiB of memory", self.memory_mib));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_go_round() {
        let spec = VmSpec::new("a", Image::Tiny, Kernel::V7, Cpus::flat(4)).pinned_to(&[0, 1]);
        assert_eq!(spec.pins, [vec![0], vec![1], vec![0], vec![1]]);
        spec.check().unwrap();
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        let mut spec = VmSpec::new("odd", Image::Tiny, Kernel::V7, Cpus::flat(3));
        spec.cpus.nodes = 2;
        assert_eq!(spec.check().unwrap_err().to_string(), "no such machine: `odd`: 3 vCPUs on 2 NUMA nodes");
        spec.cpus = Cpus::flat(0);
        assert!(spec.check().is_err());
        spec.cpus = Cpus::flat(2);
        spec.pins = vec![vec![0]];
        assert!(spec.check().is_err());
        let tiny = VmSpec::new("a", Image::Tiny, Kernel::V7, Cpus::flat(2)).hosting(&[Kernel::V7]);
        assert!(tiny.check().unwrap_err().to_string().contains("guests"));
        let systemd = VmSpec::new("a", Image::Systemd, Kernel::V7, Cpus::flat(2)).with_systemd_guests();
        assert!(systemd.check().unwrap_err().to_string().contains("only a nested host"));
        let linked = VmSpec::new("a", Image::Tiny, Kernel::V7, Cpus::flat(2)).linked();
        assert!(linked.check().unwrap_err().to_string().contains("linked"));
        let in_turn = VmSpec::new("a", Image::Tiny, Kernel::V7, Cpus::flat(2)).pinned_to(&[0]).in_turn();
        assert!(in_turn.check().unwrap_err().to_string().contains("in turn"));
    }

    #[test]
    fn a_description_is_read_back_from_json() {
        let spec = VmSpec::new("a", Image::Host, Kernel::V6_12, Cpus::numa(2, 2)).cmdline(&["x=1"]);
        let json = serde_json::to_string(&spec).unwrap();
        assert!(json.contains("\"6.12\""), "{json}");
        assert_eq!(serde_json::from_str::<VmSpec>(&json).unwrap(), spec);
    }
}

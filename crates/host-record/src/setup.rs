//! How KVM is set up on this host.

use gleaner_kernel::{KernelError, Root};
use serde::{Deserialize, Serialize};

use crate::{HostError, Isa};

/// KVM's settings that decide what an exit costs, and what can be seen of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostSetup {
    /// `uname -r`.
    pub kernel: String,
    /// The processor's virtualisation.
    pub isa: Isa,
    /// Number of online pCPUs.
    pub pcpus: u32,
    /// The longest time for which KVM polls before it gives the pCPU of a halted vCPU away, in ns; 0: never.
    pub halt_poll_ns: Option<u64>,
    /// Whether the processor delivers interrupts to running vCPUs without an exit (AVIC, `APICv`).
    pub delivers_interrupts: bool,
    /// Whether the processor reports PAUSE loops: the size of the window, or of the filter, is not 0.
    pub detects_spinning: bool,
}

impl HostSetup {
    /// Reads it from `/sys/module` and `/proc`.
    ///
    /// # Errors
    /// KVM is not loaded, or the kernel is too old.
    pub fn read(root: &Root) -> Result<Self, HostError> {
        const KVM: &str = "/sys/module/kvm";
        let exists = |path: &str| root.path(path).exists();
        if !exists(KVM) {
            return Err(HostError::NoKvm { path: root.path(KVM).display().to_string() });
        }
        let (isa, module, apic, spinning) = if exists("/sys/module/kvm_amd") {
            (Isa::Svm, "kvm_amd", "avic", "pause_filter_count")
        } else if exists("/sys/module/kvm_intel") {
            (Isa::Vmx, "kvm_intel", "enable_apicv", "ple_window")
        } else {
            return Err(HostError::NoVendor);
        };
        let parameter = |module: &str, name: &str| {
            root.read(format!("/sys/module/{module}/parameters/{name}")).ok().unwrap_or_default()
        };
        let kernel = root.read("/proc/sys/kernel/osrelease")?;
        if version(&kernel).is_some_and(|version| version < (5, 17)) {
            return Err(HostError::OldKernel { release: kernel });
        }
        Ok(Self {
            kernel,
            isa,
            pcpus: pcpus(root)?,
            halt_poll_ns: parameter("kvm", "halt_poll_ns").parse().ok(),
            delivers_interrupts: matches!(parameter(module, apic).as_str(), "Y" | "1"),
            detects_spinning: parameter(module, spinning).parse::<u64>().is_ok_and(|value| value > 0),
        })
    }

    /// What cannot be seen on this host because the processor does it alone, and what that means.
    pub fn hidden(&self) -> Vec<String> {
        let mut hidden = Vec::new();
        if self.delivers_interrupts {
            let name = if self.isa == Isa::Svm { "AVIC" } else { "APICv" };
            hidden.push(format!(
                "{name} is on: the processor delivers interrupts to running vCPUs without an exit; such interrupts are \
                 missing in the numbers of interrupts and in their latencies"
            ));
        }
        if !self.detects_spinning {
            hidden.push(
                "the processor reports no PAUSE loops: guests that spin show as time in the guest, not as PLE"
                    .to_owned(),
            );
        }
        hidden
    }
}

fn pcpus(root: &Root) -> Result<u32, KernelError> {
    let online = gleaner_kernel::topology::online(root)?;
    Ok(u32::try_from(online.iter().count()).unwrap_or(u32::MAX))
}

/// Major and minor version in `uname -r`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(['.', '-']).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use gleaner_testing::tree::tree;

    use super::*;

    const COMMON: [(&str, &str); 3] = [
        ("proc/sys/kernel/osrelease", "6.12.1-amd64\n"),
        ("sys/devices/system/cpu/online", "0-3\n"),
        ("sys/module/kvm/parameters/halt_poll_ns", "200000\n"),
    ];

    #[test]
    fn what_the_processor_hides_is_named() {
        let dir = tree(
            &[
                &COMMON[..],
                &[
                    ("sys/module/kvm_amd/parameters/avic", "Y\n"),
                    ("sys/module/kvm_amd/parameters/pause_filter_count", "3000\n"),
                ],
            ]
            .concat(),
        );
        let root = Root::at(dir.path());
        let setup = HostSetup::read(&root).unwrap();
        assert_eq!((setup.isa, setup.pcpus, setup.halt_poll_ns), (Isa::Svm, 4, Some(200_000)));
        assert!(setup.detects_spinning && setup.hidden().len() == 1, "{:?}", setup.hidden());
        assert!(setup.hidden()[0].starts_with("AVIC is on"));
    }

    #[test]
    fn without_kvm_there_is_a_remedy() {
        let dir = tree(&COMMON[..2]);
        let root = Root::at(dir.path());
        let error = HostSetup::read(&root).unwrap_err();
        assert!(error.to_string().contains("modprobe kvm-amd"), "{error}");
        let dir = tree(&COMMON);
        let root = Root::at(dir.path());
        assert!(matches!(HostSetup::read(&root), Err(HostError::NoVendor)));
    }

    #[test]
    fn old_kernels_are_refused() {
        let dir = tree(&[
            ("proc/sys/kernel/osrelease", "5.15.0-91-generic\n"),
            ("sys/module/kvm/x", ""),
            ("sys/module/kvm_intel/parameters/ple_window", "4096\n"),
        ]);
        let root = Root::at(dir.path());
        assert!(matches!(HostSetup::read(&root), Err(HostError::OldKernel { .. })));
        assert_eq!(version("6.1.0-50-cloud-amd64"), Some((6, 1)));
    }
}

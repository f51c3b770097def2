//! Which hypervisor runs this machine, and what KVM offers its guest.

use std::fmt;

use serde::Serialize;

use crate::Root;

/// The hypervisor that runs this kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HypervisorKind {
    /// Linux KVM.
    Kvm,
    /// Xen.
    Xen,
    /// Microsoft Hyper-V.
    HyperV,
    /// `VMware`.
    VMware,
    /// Another one, by its own name; `unknown` if it gives none.
    Other(String),
    /// None: bare metal, or a hypervisor that does not show itself.
    None,
}

impl fmt::Display for HypervisorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Kvm => "KVM",
            Self::Xen => "Xen",
            Self::HyperV => "Hyper-V",
            Self::VMware => "VMware",
            Self::Other(name) => name,
            Self::None => "none (bare metal)",
        })
    }
}

/// Paravirtual features (kernel: Documentation/virt/kvm/x86/cpuid.rst, leaf 0x40000001), and two facts of the
/// CPU model that turn some of them off. All false unless the hypervisor is KVM.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
// Each is one bit of a register, independent of the others.
#[allow(clippy::struct_excessive_bools)]
pub struct KvmFeatures {
    /// Bit 5: steal time is reported.
    pub steal_time: bool,
    /// Bit 7: a waiter for a spin lock can halt and be kicked.
    pub pv_unhalt: bool,
    /// Bit 9: TLB shootdowns skip vCPUs that are not running.
    pub pv_tlb_flush: bool,
    /// Bit 11: one hypercall sends an IPI to many vCPUs.
    pub pv_send_ipi: bool,
    /// Bit 12: the guest can stop the host's own halt polling; cpuidle-haltpoll does.
    pub poll_control: bool,
    /// Bit 13: the sender of an IPI to a preempted vCPU yields to it.
    pub pv_sched_yield: bool,
    /// EDX bit 0, `KVM_HINTS_REALTIME`: vCPUs are never preempted for long. PV spin locks, PV TLB flush and PV
    /// sched-yield are off then, and cpuidle-haltpoll loads by itself.
    pub realtime_hint: bool,
    /// CPUID 1, ECX bit 3: the guest can use MWAIT, so idling need not leave the guest. PV TLB flush and PV
    /// sched-yield are off then.
    pub mwait: bool,
}

/// The hypervisor that runs this kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hypervisor {
    /// Vendor of the hypervisor.
    pub kind: HypervisorKind,
    /// KVM's features.
    pub kvm: KvmFeatures,
}

impl Hypervisor {
    /// Reads CPUID on a running x86 system; elsewhere the `hypervisor` flag of `/proc/cpuinfo` and the vendor
    /// in `/sys/class/dmi/id/sys_vendor`, without features. Never fails: a hypervisor that does not show itself
    /// is [`HypervisorKind::None`].
    pub fn read(root: &Root) -> Self {
        #[cfg(target_arch = "x86_64")]
        if root.is_system() {
            return from_cpuid(|leaf| {
                let r = raw_cpuid::native_cpuid::cpuid_count(leaf, 0);
                [r.eax, r.ebx, r.ecx, r.edx]
            });
        }
        from_files(root)
    }
}

/// `cpuid` returns EAX, EBX, ECX and EDX of a leaf.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
fn from_cpuid(cpuid: impl Fn(u32) -> [u32; 4]) -> Hypervisor {
    let [_, _, model, _] = cpuid(1);
    if model & (1 << 31) == 0 {
        return Hypervisor { kind: HypervisorKind::None, kvm: KvmFeatures::default() };
    }
    // A host that also emulates Hyper-V puts its own leaves 0x100 higher, so search all bases for KVM before
    // trusting the first one (kernel: hypervisor_cpuid_base).
    let bases = (0x4000_0000..0x4001_0000).step_by(0x100);
    if let Some(base) = bases.into_iter().find(|base| signature(cpuid(*base)) == "KVMKVMKVM") {
        let [features, _, _, hints] = cpuid(base + 1);
        let has = |bit: u32| features & (1 << bit) != 0;
        let kvm = KvmFeatures {
            steal_time: has(5),
            pv_unhalt: has(7),
            pv_tlb_flush: has(9),
            pv_send_ipi: has(11),
            poll_control: has(12),
            pv_sched_yield: has(13),
            realtime_hint: hints & 1 != 0,
            mwait: model & (1 << 3) != 0,
        };
        return Hypervisor { kind: HypervisorKind::Kvm, kvm };
    }
    let kind = match signature(cpuid(0x4000_0000)).as_str() {
        "XenVMMXenVMM" => HypervisorKind::Xen,
        "Microsoft Hv" => HypervisorKind::HyperV,
        "VMwareVMware" => HypervisorKind::VMware,
        "" => HypervisorKind::Other("unknown".to_owned()),
        other => HypervisorKind::Other(other.to_owned()),
    };
    Hypervisor { kind, kvm: KvmFeatures::default() }
}

/// The twelve characters in EBX, ECX and EDX, without padding.
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
fn signature([_, ebx, ecx, edx]: [u32; 4]) -> String {
    let bytes: Vec<u8> = [ebx, ecx, edx].into_iter().flat_map(u32::to_le_bytes).collect();
    let text: String =
        bytes.iter().map(|b| char::from(*b)).filter(|c| c.is_ascii_graphic() || *c == ' ').collect();
    text.trim().to_owned()
}

fn from_files(root: &Root) -> Hypervisor {
    let vendor = root.read("/sys/class/dmi/id/sys_vendor").unwrap_or_default();
    let kind = match vendor.as_str() {
        // These vendors sell bare metal under the same name; the flag below distinguishes it.
        "Amazon EC2" | "Google" => HypervisorKind::Kvm,
        "Xen" => HypervisorKind::Xen,
        "Microsoft Corporation" => HypervisorKind::HyperV,
        "VMware, Inc." => HypervisorKind::VMware,
        "" => HypervisorKind::Other("unknown".to_owned()),
        other => HypervisorKind::Other(other.to_owned()),
    };
    let cpuinfo = root.read("/proc/cpuinfo").unwrap_or_default();
    let in_guest = cpuinfo
        .lines()
        .find(|line| line.starts_with("flags"))
        .is_some_and(|flags| flags.split_ascii_whitespace().any(|flag| flag == "hypervisor"));
    let kind = if in_guest { kind } else { HypervisorKind::None };
    Hypervisor { kind, kvm: KvmFeatures::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{fake, put};

    const GUEST: u32 = 1 << 31;

    fn register(text: &str) -> [u32; 4] {
        let mut bytes = [0; 12];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        let word = |i: usize| u32::from_le_bytes(bytes[4 * i..4 * i + 4].try_into().unwrap());
        [0, word(0), word(1), word(2)]
    }

    #[test]
    fn kvm_features_are_decoded() {
        let found = from_cpuid(|leaf| match leaf {
            1 => [0, 0, GUEST | 1 << 3, 0],
            0x4000_0000 => register("KVMKVMKVM"),
            0x4000_0001 => [1 << 5 | 1 << 12, 0, 0, 1],
            _ => [0; 4],
        });
        let expected = KvmFeatures {
            steal_time: true,
            poll_control: true,
            realtime_hint: true,
            mwait: true,
            ..KvmFeatures::default()
        };
        assert_eq!(found, Hypervisor { kind: HypervisorKind::Kvm, kvm: expected });
    }

    #[test]
    fn kvm_behind_a_hyperv_face_is_kvm() {
        let found = from_cpuid(|leaf| match leaf {
            1 => [0, 0, GUEST, 0],
            0x4000_0000 => register("Microsoft Hv"),
            0x4000_0100 => register("KVMKVMKVM"),
            0x4000_0101 => [1 << 13, 0, 0, 0],
            _ => [0; 4],
        });
        assert_eq!(found.kind, HypervisorKind::Kvm);
        assert!(found.kvm.pv_sched_yield && !found.kvm.steal_time);
    }

    #[test]
    fn others_are_named() {
        let kind = |name: &'static str| {
            from_cpuid(move |leaf| match leaf {
                1 => [0, 0, GUEST, 0],
                0x4000_0000 => register(name),
                _ => [0; 4],
            })
            .kind
        };
        assert_eq!(kind("XenVMMXenVMM"), HypervisorKind::Xen);
        assert_eq!(kind("Microsoft Hv"), HypervisorKind::HyperV);
        assert_eq!(kind("VMwareVMware"), HypervisorKind::VMware);
        assert_eq!(kind("TCGTCGTCGTCG"), HypervisorKind::Other("TCGTCGTCGTCG".to_owned()));
        assert_eq!(kind(""), HypervisorKind::Other("unknown".to_owned()));
        assert_eq!(from_cpuid(|_| [0; 4]).kind, HypervisorKind::None);
    }

    #[test]
    fn a_fake_root_answers_by_its_files() {
        let (_dir, root) = fake();
        assert_eq!(Hypervisor::read(&root).kind, HypervisorKind::None);
        put(&root, "/proc/cpuinfo", "processor : 0\nflags\t\t: fpu hypervisor lahf_lm\n");
        assert_eq!(Hypervisor::read(&root).kind, HypervisorKind::Other("unknown".to_owned()));
        put(&root, "/sys/class/dmi/id/sys_vendor", "Amazon EC2\n");
        assert_eq!(Hypervisor::read(&root).kind, HypervisorKind::Kvm);
        put(&root, "/proc/cpuinfo", "processor : 0\nflags\t\t: fpu lahf_lm\n");
        assert_eq!(Hypervisor::read(&root).kind, HypervisorKind::None);
    }

    #[test]
    fn this_machine_agrees_with_its_cpu_flags() {
        let by_cpuid = Hypervisor::read(&Root::system()).kind == HypervisorKind::None;
        let by_files = from_files(&Root::system()).kind == HypervisorKind::None;
        assert_eq!(by_cpuid, by_files);
    }
}

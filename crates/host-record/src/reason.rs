//! Why guests are left: the exit codes of AMD and Intel by name, and the groups of the paper's Figure 9.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The processor's virtualisation extension, which numbers the exits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Isa {
    /// AMD's SVM.
    Svm,
    /// Intel's VMX.
    Vmx,
}

impl Isa {
    /// The exit codes that have a name here (`arch/x86/include/uapi/asm/svm.h` and `vmx.h`, without `SVM_EXIT_` and
    /// `EXIT_REASON_`), and the reason that each of them is counted as.
    pub const fn codes(self) -> &'static [(u16, &'static str, Reason)] {
        match self {
            Self::Svm => SVM,
            Self::Vmx => VMX,
        }
    }

    /// The reason that an exit code is counted as, by number: what the BPF programs look up.
    pub fn table<const N: usize>(self) -> [u8; N] {
        let mut table = [Reason::Other as u8; N];
        if self == Self::Svm {
            // Sixteen control and debug registers, read and written, and 32 exceptions.
            table[0x00..0x20].fill(Reason::ControlRegister as u8);
            table[0x20..0x40].fill(Reason::DebugRegister as u8);
            table[0x40..0x60].fill(Reason::Exception as u8);
        }
        for (code, _, reason) in self.codes() {
            if let Some(entry) = table.get_mut(usize::from(*code)) {
                *entry = *reason as u8;
            }
        }
        table
    }

    /// The kernel's names of the exit codes that are counted as `reason`.
    pub fn names_of(self, reason: Reason) -> impl Iterator<Item = &'static str> {
        self.codes().iter().filter(move |(_, _, of)| *of == reason).map(|(_, name, _)| *name)
    }
}

/// Causes of overhead, as Figure 9 of *Quantifying the Overhead of Virtualization* (TPDS 2021) groups them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Group {
    /// The guest's vCPU idles (HLT): polling for its wake-up, giving the pCPU away, getting it back.
    Scheduling,
    /// Interrupts that the guest sends to its own vCPUs.
    Ipi,
    /// The guest programs its timer, and timers that run out.
    TscDeadline,
    /// The guest ends an interrupt.
    Eoi,
    /// Spinning that the processor detects (PAUSE loops), and the guest's own remedies.
    Ple,
    /// Guest memory that is not mapped.
    Ept,
    /// Devices: ports and device memory.
    Io,
    /// Other model-specific registers.
    Msr,
    /// Everything else, the host's own interrupts among it.
    Other,
}

impl Group {
    /// Every group.
    pub const ALL: [Self; 9] = [
        Self::Scheduling,
        Self::Ipi,
        Self::TscDeadline,
        Self::Eoi,
        Self::Ple,
        Self::Ept,
        Self::Io,
        Self::Msr,
        Self::Other,
    ];

    /// The name in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Scheduling => "scheduling",
            Self::Ipi => "IPI",
            Self::TscDeadline => "TSC_DEADLINE",
            Self::Eoi => "EOI",
            Self::Ple => "PLE",
            Self::Ept => "EPT",
            Self::Io => "I/O",
            Self::Msr => "MSR",
            Self::Other => "other",
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

macro_rules! reasons {
    ($($(#[doc = $about:literal])* $reason:ident, $name:literal, $group:ident;)*) => {
        /// Why a guest was left, the same for AMD and Intel. The order is that of `enum exit_reason` in `src/bpf/host.h`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        #[repr(u8)]
        pub enum Reason {
            $($(#[doc = $about])* $reason,)*
        }

        impl Reason {
            /// Every reason, by number.
            pub const ALL: &'static [Self] = &[$(Self::$reason),*];

            /// The name in tables.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$reason => $name,)* }
            }

            /// The group that its time belongs to.
            pub const fn group(self) -> Group {
                match self { $(Self::$reason => Group::$group,)* }
            }
        }
    };
}

reasons! {
    /// The vCPU was outside of the guest when it was first seen.
    Unknown, "unknown", Other;
    /// The vCPU idles.
    Hlt, "HLT", Scheduling;
    /// Write of the interrupt command register.
    Ipi, "IPI", Ipi;
    /// Interrupts sent by a hypercall (`KVM_HC_SEND_IPI`).
    PvIpi, "PV IPI", Ipi;
    /// Write of the TSC deadline.
    TscDeadline, "TSC_DEADLINE", TscDeadline;
    /// Write of the local APIC's other timer registers.
    ApicTimer, "APIC timer", TscDeadline;
    /// The VMX preemption timer ran out, with which KVM implements the guest's timer.
    PreemptionTimer, "preemption timer", TscDeadline;
    /// End of an interrupt.
    Eoi, "EOI", Eoi;
    /// Other registers of the local APIC.
    ApicOther, "APIC", Other;
    /// A PAUSE loop.
    Ple, "PLE", Ple;
    /// The guest yields to a preempted vCPU by a hypercall (`KVM_HC_SCHED_YIELD`).
    PvYield, "PV yield", Ple;
    /// The guest wakes a vCPU that waits for a spin lock (`KVM_HC_KICK_CPU`).
    PvKick, "PV kick", Ple;
    /// Guest memory that is not mapped (EPT violation, nested page fault).
    Ept, "EPT", Ept;
    /// Device memory.
    Mmio, "MMIO", Io;
    /// Ports.
    Pio, "port I/O", Io;
    /// Read of another model-specific register.
    MsrRead, "MSR read", Msr;
    /// Write of another model-specific register.
    MsrWrite, "MSR write", Msr;
    /// CPUID.
    Cpuid, "CPUID", Other;
    /// An interrupt of the host: its timer, its devices, an IPI to this pCPU.
    Interrupt, "host interrupt", Other;
    /// The guest can take an interrupt again.
    InterruptWindow, "interrupt window", Other;
    /// A non-maskable interrupt.
    Nmi, "NMI", Other;
    /// Other hypercalls.
    Hypercall, "hypercall", Other;
    /// A control register.
    ControlRegister, "CR access", Other;
    /// A debug register.
    DebugRegister, "DR access", Other;
    /// An exception.
    Exception, "exception", Other;
    /// INVLPG and INVPCID.
    Invlpg, "INVLPG", Other;
    /// RDTSC, RDTSCP and RDPMC.
    Tsc, "RDTSC", Other;
    /// MONITOR, MWAIT, UMWAIT and TPAUSE.
    Mwait, "MWAIT", Other;
    /// INVD and WBINVD.
    Cache, "WBINVD", Other;
    /// The guest's own virtual machines.
    Nested, "nested", Other;
    /// Calls of confidential guests (SEV, TDX).
    Confidential, "confidential", Other;
    /// A split lock.
    BusLock, "bus lock", Other;
    /// Shutdown, triple fault, INIT and SIPI.
    Shutdown, "shutdown", Other;
    /// The processor refused to enter the guest.
    Failed, "failed entry", Other;
    /// Everything else.
    Other, "other", Other;
}

impl Reason {
    /// The reason with this number; [`Reason::Other`] if there is none.
    pub fn from_number(number: u32) -> Self {
        usize::try_from(number).ok().and_then(|number| Self::ALL.get(number)).copied().unwrap_or(Self::Other)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

const SVM: &[(u16, &str, Reason)] = &[
    (0x60, "INTR", Reason::Interrupt),
    (0x61, "NMI", Reason::Nmi),
    (0x62, "SMI", Reason::Interrupt),
    (0x63, "INIT", Reason::Shutdown),
    (0x64, "VINTR", Reason::InterruptWindow),
    (0x65, "CR0_SEL_WRITE", Reason::ControlRegister),
    (0x66, "IDTR_READ", Reason::Other),
    (0x67, "GDTR_READ", Reason::Other),
    (0x68, "LDTR_READ", Reason::Other),
    (0x69, "TR_READ", Reason::Other),
    (0x6a, "IDTR_WRITE", Reason::Other),
    (0x6b, "GDTR_WRITE", Reason::Other),
    (0x6c, "LDTR_WRITE", Reason::Other),
    (0x6d, "TR_WRITE", Reason::Other),
    (0x6e, "RDTSC", Reason::Tsc),
    (0x6f, "RDPMC", Reason::Tsc),
    (0x70, "PUSHF", Reason::Other),
    (0x71, "POPF", Reason::Other),
    (0x72, "CPUID", Reason::Cpuid),
    (0x73, "RSM", Reason::Other),
    (0x74, "IRET", Reason::Nmi),
    (0x75, "SWINT", Reason::Other),
    (0x76, "INVD", Reason::Cache),
    (0x77, "PAUSE", Reason::Ple),
    (0x78, "HLT", Reason::Hlt),
    (0x79, "INVLPG", Reason::Invlpg),
    (0x7a, "INVLPGA", Reason::Invlpg),
    (0x7b, "IOIO", Reason::Pio),
    // Reads and writes: the programs distinguish them by EXITINFO1, and the register by RCX.
    (0x7c, "MSR", Reason::MsrWrite),
    (0x7d, "TASK_SWITCH", Reason::Other),
    (0x7e, "FERR_FREEZE", Reason::Other),
    (0x7f, "SHUTDOWN", Reason::Shutdown),
    (0x80, "VMRUN", Reason::Nested),
    (0x81, "VMMCALL", Reason::Hypercall),
    (0x82, "VMLOAD", Reason::Nested),
    (0x83, "VMSAVE", Reason::Nested),
    (0x84, "STGI", Reason::Nested),
    (0x85, "CLGI", Reason::Nested),
    (0x86, "SKINIT", Reason::Nested),
    (0x87, "RDTSCP", Reason::Tsc),
    (0x88, "ICEBP", Reason::Exception),
    (0x89, "WBINVD", Reason::Cache),
    (0x8a, "MONITOR", Reason::Mwait),
    (0x8b, "MWAIT", Reason::Mwait),
    (0x8c, "MWAIT_COND", Reason::Mwait),
    (0x8d, "XSETBV", Reason::Other),
    (0x8e, "RDPRU", Reason::Tsc),
    (0x8f, "EFER_WRITE_TRAP", Reason::Confidential),
    (0x90, "CR0_WRITE_TRAP", Reason::Confidential),
    (0x94, "CR4_WRITE_TRAP", Reason::Confidential),
    (0x98, "CR8_WRITE_TRAP", Reason::Confidential),
    (0xa2, "INVPCID", Reason::Invlpg),
    (0xa5, "BUS_LOCK", Reason::BusLock),
    (0xa6, "IDLE_HLT", Reason::Hlt),
    (0x400, "NPF", Reason::Ept),
    (0x401, "AVIC_INCOMPLETE_IPI", Reason::Ipi),
    (0x402, "AVIC_UNACCELERATED_ACCESS", Reason::ApicOther),
    (0x403, "VMGEXIT", Reason::Confidential),
];

const VMX: &[(u16, &str, Reason)] = &[
    (0, "EXCEPTION_NMI", Reason::Exception),
    (1, "EXTERNAL_INTERRUPT", Reason::Interrupt),
    (2, "TRIPLE_FAULT", Reason::Shutdown),
    (3, "INIT_SIGNAL", Reason::Shutdown),
    (4, "SIPI_SIGNAL", Reason::Shutdown),
    (6, "OTHER_SMI", Reason::Interrupt),
    (7, "INTERRUPT_WINDOW", Reason::InterruptWindow),
    (8, "NMI_WINDOW", Reason::Nmi),
    (9, "TASK_SWITCH", Reason::Other),
    (10, "CPUID", Reason::Cpuid),
    (12, "HLT", Reason::Hlt),
    (13, "INVD", Reason::Cache),
    (14, "INVLPG", Reason::Invlpg),
    (15, "RDPMC", Reason::Tsc),
    (16, "RDTSC", Reason::Tsc),
    (18, "VMCALL", Reason::Hypercall),
    (19, "VMCLEAR", Reason::Nested),
    (20, "VMLAUNCH", Reason::Nested),
    (21, "VMPTRLD", Reason::Nested),
    (22, "VMPTRST", Reason::Nested),
    (23, "VMREAD", Reason::Nested),
    (24, "VMRESUME", Reason::Nested),
    (25, "VMWRITE", Reason::Nested),
    (26, "VMOFF", Reason::Nested),
    (27, "VMON", Reason::Nested),
    (28, "CR_ACCESS", Reason::ControlRegister),
    (29, "DR_ACCESS", Reason::DebugRegister),
    (30, "IO_INSTRUCTION", Reason::Pio),
    (31, "MSR_READ", Reason::MsrRead),
    (32, "MSR_WRITE", Reason::MsrWrite),
    (33, "INVALID_STATE", Reason::Failed),
    (34, "MSR_LOAD_FAIL", Reason::Failed),
    (36, "MWAIT_INSTRUCTION", Reason::Mwait),
    (37, "MONITOR_TRAP_FLAG", Reason::Other),
    (39, "MONITOR_INSTRUCTION", Reason::Mwait),
    (40, "PAUSE_INSTRUCTION", Reason::Ple),
    (41, "MCE_DURING_VMENTRY", Reason::Failed),
    (43, "TPR_BELOW_THRESHOLD", Reason::ApicOther),
    (44, "APIC_ACCESS", Reason::ApicOther),
    (45, "EOI_INDUCED", Reason::Eoi),
    (46, "GDTR_IDTR", Reason::Other),
    (47, "LDTR_TR", Reason::Other),
    (48, "EPT_VIOLATION", Reason::Ept),
    (49, "EPT_MISCONFIG", Reason::Mmio),
    (50, "INVEPT", Reason::Nested),
    (51, "RDTSCP", Reason::Tsc),
    (52, "PREEMPTION_TIMER", Reason::PreemptionTimer),
    (53, "INVVPID", Reason::Nested),
    (54, "WBINVD", Reason::Cache),
    (55, "XSETBV", Reason::Other),
    (56, "APIC_WRITE", Reason::ApicOther),
    (57, "RDRAND", Reason::Other),
    (58, "INVPCID", Reason::Invlpg),
    (59, "VMFUNC", Reason::Nested),
    (60, "ENCLS", Reason::Other),
    (61, "RDSEED", Reason::Other),
    (62, "PML_FULL", Reason::Ept),
    (63, "XSAVES", Reason::Other),
    (64, "XRSTORS", Reason::Other),
    (67, "UMWAIT", Reason::Mwait),
    (68, "TPAUSE", Reason::Mwait),
    (74, "BUS_LOCK", Reason::BusLock),
    (75, "NOTIFY", Reason::Other),
    (76, "SEAMCALL", Reason::Nested),
    (77, "TDCALL", Reason::Confidential),
    (84, "MSR_READ_IMM", Reason::MsrRead),
    (85, "MSR_WRITE_IMM", Reason::MsrWrite),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_in_order_and_named_once() {
        for isa in [Isa::Svm, Isa::Vmx] {
            assert!(isa.codes().windows(2).all(|pair| pair[0].0 < pair[1].0), "{isa:?}");
            let mut names: Vec<&str> = isa.codes().iter().map(|(_, name, _)| *name).collect();
            names.sort_unstable();
            assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{isa:?}");
        }
    }

    #[test]
    fn the_table_knows_registers_exceptions_and_nested_page_faults() {
        let table = Isa::Svm.table::<0x410>();
        for (code, reason) in [
            (0x00, Reason::ControlRegister),
            (0x3f, Reason::DebugRegister),
            (0x4e, Reason::Exception),
            (0x78, Reason::Hlt),
            (0x400, Reason::Ept),
            (0x409, Reason::Other),
        ] {
            assert_eq!(Reason::from_number(u32::from(table[code])), reason, "{code:#x}");
        }
        let table = Isa::Vmx.table::<0x410>();
        assert_eq!(Reason::from_number(u32::from(table[12])), Reason::Hlt);
        assert_eq!(Reason::from_number(u32::from(table[0x78])), Reason::Other);
    }

    #[test]
    fn numbers_are_places() {
        for (number, reason) in (0..).zip(Reason::ALL) {
            assert_eq!((*reason as u32, Reason::from_number(number)), (number, *reason));
        }
        assert_eq!(Reason::from_number(1000), Reason::Other);
        assert_eq!(Isa::Svm.names_of(Reason::Hlt).collect::<Vec<_>>(), ["HLT", "IDLE_HLT"]);
    }
}

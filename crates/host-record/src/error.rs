//! Why nothing can be said about this host.

use gleaner_proto::unavailable::NotAvailable;

/// Why the host's VMs cannot be followed. The message has the remedy.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// The kernel has no KVM.
    #[error(
        "this machine runs no virtual machines: KVM is not loaded ({path} is missing); on the host, run: modprobe \
         kvm-amd, or kvm-intel"
    )]
    NoKvm {
        /// Where the module would be.
        path: String,
    },
    /// Neither AMD's nor Intel's part of KVM is loaded.
    #[error(
        "KVM is loaded without kvm-amd or kvm-intel, the only parts of it that are known here: run modprobe kvm-amd or \
         kvm-intel on a processor that has it"
    )]
    NoVendor,
    /// The tracepoint passes other arguments.
    #[error("Linux {release} is too old: exits are counted since Linux 5.17")]
    OldKernel {
        /// `uname -r`.
        release: String,
    },
    /// The programs cannot be loaded or attached.
    #[error(transparent)]
    NotAvailable(#[from] NotAvailable),
    /// The counters cannot be read.
    #[error("cannot read what the BPF programs counted: {0}")]
    Read(String),
    /// The programs cannot be attached at the end of a pause.
    #[error("cannot attach the BPF programs again after a pause: {0}")]
    Attach(String),
    /// `/proc` cannot be read.
    #[error(transparent)]
    Kernel(#[from] gleaner_kernel::KernelError),
    /// There is no such VM.
    #[error("no VM is called `{name}`; there are: {known}")]
    NoVm {
        /// What was asked for.
        name: String,
        /// The names that there are.
        known: String,
    },
}

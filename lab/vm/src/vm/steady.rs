//! Keeps KVM of a nested host from patching its own code while guests boot and end.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::ptr;

use crate::error::{Error, Result};

const KVM: &str = "/dev/kvm";
/// `include/uapi/linux/kvm.h`
const KVM_CREATE_VM: libc::Ioctl = 0xae01;
const KVM_GET_VCPU_MMAP_SIZE: libc::Ioctl = 0xae04;
const KVM_CREATE_VCPU: libc::Ioctl = 0xae41;
const KVM_CREATE_IRQCHIP: libc::Ioctl = 0xae60;

/// Makes a VM with one vCPU that never runs, and that stays until this process ends.
///
/// KVM has branches that it patches when the first VM comes, when the last one goes (`preempt_notifier_key`), when the first
/// vCPU has its local APIC disabled, and a second after the last one has enabled it (`apic_sw_disabled`): each vCPU starts with
/// a disabled one. An emulated pCPU can go on with code as it was while it was being patched, and then the host panics.
/// `qemu/1-stale-code.patch` repairs that; that it suffices alone is not shown yet.
/// This vCPU's APIC is never enabled, so both branches stay as they are.
pub(super) fn hold_branches() -> Result<()> {
    let failed = |error| Error::system("make a VM that keeps KVM's branches as they are")(error);
    let kvm = File::open(KVM).map_err(Error::file("open", KVM))?;
    let vm = descriptor(request(&kvm, KVM_CREATE_VM).map_err(failed)?);
    // Without it, a vCPU has no local APIC in the kernel.
    request(&vm, KVM_CREATE_IRQCHIP).map_err(failed)?;
    let vcpu = descriptor(request(&vm, KVM_CREATE_VCPU).map_err(failed)?);
    let size = request(&kvm, KVM_GET_VCPU_MMAP_SIZE).map_err(failed)?;
    // Without open descriptors, so that whoever looks for VMs does not take this process for one; the memory keeps it.
    // SAFETY: the kernel chooses where, so no other memory is replaced; nobody uses it.
    let memory = unsafe {
        libc::mmap(
            ptr::null_mut(),
            usize::try_from(size).unwrap_or_default(),
            libc::PROT_READ,
            libc::MAP_SHARED,
            vcpu.as_raw_fd(),
            0,
        )
    };
    if memory == libc::MAP_FAILED { Err(failed(io::Error::last_os_error())) } else { Ok(()) }
}

fn request(file: &File, request: libc::Ioctl) -> io::Result<RawFd> {
    // SAFETY: these requests take a number, 0 here, and touch no memory of this process.
    let answer = unsafe { libc::ioctl(file.as_raw_fd(), request, 0) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

fn descriptor(new: RawFd) -> File {
    // SAFETY: the kernel has just made it, and nobody else has it.
    unsafe { File::from_raw_fd(new) }
}

//! Claim 7: on a KVM host, `gleaner-host` counts what KVM counts, its times add up, the top cause is right, following the
//! vCPUs costs little, VMs that come and go leave nothing behind, halt polling is held and put back, and its record gives
//! `δη_r` with the hypervisor's part.

mod agreement;
mod causes;
mod churn;
mod joined;
mod overhead;
mod package;
mod polling;

use gleaner_host::{HostSetup, HostTracer, Options};
use gleaner_kernel::Root;

use crate::claims::{Claim, ClaimHost};
use crate::error::{Error, Result};
use crate::image::Image;
use crate::kernel::Kernel;
use crate::vm::{Cpus, VmSpec};

pub(super) const AGREEMENT: Claim = Claim {
    name: "host-agreement",
    group: 7,
    says: "on a KVM host, exits agree with KVM's own counters, the times of each vCPU add up, and interrupts agree with \
           what the guest counts",
    quick: false,
    place: ClaimHost::NestedHost,
    prove: agreement::prove,
};

pub(super) const CAUSES: Claim = Claim {
    name: "host-causes",
    group: 7,
    says: "on a KVM host, the top cause is right for guests that wake threads, shoot down TLBs, sleep, write to a disk, \
           spin on too few pCPUs, and compute",
    quick: false,
    place: ClaimHost::NestedHost,
    prove: causes::prove,
};

pub(super) const OVERHEAD: Claim = Claim {
    name: "host-overhead",
    group: 7,
    says: "on a KVM host, following the vCPUs costs a guest that exits all the time at most 3 % of its work",
    quick: false,
    // Each second is short, so that there are many pairs.
    place: ClaimHost::CountedHost { pcpus: Cpus::flat(4), n: 3 },
    prove: overhead::prove,
};

pub(super) const CHURN: Claim = Claim {
    name: "host-churn",
    group: 7,
    says: "on a KVM host, twelve VMs come and go while they are followed, some killed, one with the PID of another: their times \
           add up, and no map, link, file or counter is left of them",
    quick: false,
    place: ClaimHost::NestedHost,
    prove: churn::prove,
};

pub(super) const JOINED: Claim = Claim {
    name: "host-joined",
    group: 7,
    says: "δη_r of ping-pong and matmul, alone on the pCPUs and beside a second VM, has the hypervisor's part in it, which \
           is that of the wake-ups",
    quick: false,
    place: ClaimHost::NestedHost,
    prove: joined::prove,
};

pub(super) const POLLING: Claim = Claim {
    name: "host-polling",
    group: 7,
    says: "on a KVM host, what halt-poll set and auto put in force is as before afterwards, also after SIGKILL, and the \
           journal says what was decided and why",
    quick: false,
    place: ClaimHost::NestedHost,
    prove: polling::prove,
};

pub(super) const PACKAGE: Claim = Claim {
    name: "host-package",
    group: 7,
    says: "apt installs the Debian package gleaner-host on a KVM host, its unit serves what a VM does from a closed sandbox, and \
           killing, stopping, removing and purging it leave nothing behind",
    quick: false,
    place: ClaimHost::Emulated,
    prove: package::prove,
};

/// A guest with 2 vCPUs.
fn guest(name: &str, kernel: Kernel) -> VmSpec {
    VmSpec::new(name, Image::Tiny, kernel, Cpus::flat(2))
}

/// Follows all vCPUs of this host.
pub(super) fn follow() -> Result<(HostSetup, HostTracer)> {
    let setup = HostSetup::read(&Root::system()).map_err(|error| failed(&error))?;
    let tracer = HostTracer::start(setup.isa, Options::default()).map_err(|error| failed(&error))?;
    Ok((setup, tracer))
}

fn failed(error: &gleaner_host::HostError) -> Error {
    Error::Guest { vm: "host".to_owned(), error: error.to_string() }
}

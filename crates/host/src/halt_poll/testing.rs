//! What the tests of this module share.

use gleaner_kernel::Root;
use gleaner_testing::tree::tree;
use tempfile::TempDir;

/// KVM's parameters by default.
pub(crate) const KVM: [(&str, &str); 4] = [
    ("sys/module/kvm/parameters/halt_poll_ns", "200000\n"),
    ("sys/module/kvm/parameters/halt_poll_ns_grow", "2\n"),
    ("sys/module/kvm/parameters/halt_poll_ns_grow_start", "10000\n"),
    ("sys/module/kvm/parameters/halt_poll_ns_shrink", "2\n"),
];

/// A host with these parameters.
pub(crate) fn kvm() -> (TempDir, Root) {
    let dir = tree(&KVM);
    let root = Root::at(dir.path());
    (dir, root)
}

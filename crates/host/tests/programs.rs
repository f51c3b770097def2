//! The BPF programs on this kernel, whether or not a virtual machine runs here.

use gleaner_host::{HostError, HostTracer, Isa, Options};
use gleaner_trace::{NotAvailable, Reason};

#[test]
fn the_kernel_accepts_every_program() {
    if !gleaner_testing::is_root() {
        return gleaner_testing::skipped("needs root: it loads BPF programs");
    }
    for isa in [Isa::Svm, Isa::Vmx] {
        match HostTracer::start(isa, Options::default()) {
            Ok(tracer) => assert_eq!(tracer.missing(), [], "{isa:?}"),
            Err(HostError::NotAvailable(NotAvailable { why: Reason::NoEvent { event }, .. })) => {
                return gleaner_testing::left_out(format!("KVM's modules are not loaded: no {event}"));
            }
            Err(error) => panic!("{isa:?}: {error}"),
        }
    }
}

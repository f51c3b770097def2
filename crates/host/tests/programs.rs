//! The BPF programs on this kernel, whether or not a virtual machine runs here.

use gleaner_host::{HostError, HostSetup, HostTracer, Isa, Options};
use gleaner_trace::{NotAvailable, Reason};

#[test]
fn the_kernel_accepts_every_program() {
    if !gleaner_testing::is_root() {
        return;
    }
    for isa in [Isa::Svm, Isa::Vmx] {
        let setup = HostSetup {
            kernel: String::new(),
            isa,
            pcpus: 1,
            halt_poll_ns: None,
            delivers_interrupts: false,
            detects_spinning: false,
        };
        match HostTracer::start(&setup, Options::default()) {
            Ok(tracer) => assert_eq!(tracer.missing(), [], "{isa:?}"),
            Err(HostError::NotAvailable(NotAvailable { why: Reason::NoEvent { event }, .. })) => {
                return gleaner_testing::left_out(format!("KVM's modules are not loaded: no {event}"));
            }
            Err(error) => panic!("{isa:?}: {error}"),
        }
    }
}

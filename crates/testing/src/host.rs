//! A record of a KVM host.

/// What `gleaner-host diagnose --json` could have printed. Written by hand, not recorded: in 20 s on 4 pCPUs, two vCPUs of the
/// VM `ping` pass a turn back and forth 400,000 times, and `quiet` has one idle vCPU, and another one without any event.
/// The lengths of exits are those of a current processor, and the parts of each vCPU's time add up to the span.
///
/// On pCPUs, `ping` has 7.63924 s in the guest and 10.75216 s in the hypervisor: 6.4 s after HLT, 1.76 s for IPIs (2.2 us
/// each), 2.08 s for the TSC deadline (1.3 us each), 0.48 s for the ends of interrupts.
pub const RECORD: &str = include_str!("host-record.json");

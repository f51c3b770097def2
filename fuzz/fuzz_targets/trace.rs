//! A trace, as `gleaner replay` reads it.

#![no_main]

use std::time::Duration;

use gleaner_policy::CpuSet;
use gleaner_proto::trace_file::{Reader, Reconstruction};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(mut reader) = Reader::open(bytes) else { return };
    let vcpus: CpuSet = "0-3".parse().expect("a set");
    let mut made = Reconstruction::new(&vcpus, reader.clone());
    let mut at_ns = 0;
    for event in reader.by_ref() {
        assert!(event.at_ns >= at_ns, "events are in the order of time within a block");
        at_ns = 0;
        made.event(&event);
    }
    assert!(reader.end().is_some() != reader.damage().is_some(), "a trace has an end or damage");
    let _ = made.observe(Duration::from_secs(1));
    let _ = made.pattern();
});

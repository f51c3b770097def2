//! A record of a KVM host, and what programs in guests take from it.

#![no_main]

use gleaner_fuzz::file;
use gleaner_host_record::Report;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(record) = Report::read(&file("host", bytes)) {
        let _ = record.vm(None).is_ok();
        for vm in &record.vms {
            let _ = record.vm(Some(&vm.name)).is_ok();
            let _ = (vm.vcpu_count(), vm.exits(), vm.injected(), vm.times.total_ns());
            let of = vm.latency(|latencies| &latencies.waking);
            let _ = (of.mean(), of.median(), of.bins().count());
        }
    }
});

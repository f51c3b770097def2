//! The lease file of a killed Gleaner. What is read is written again in the same words.

#![no_main]

use gleaner_fuzz::file;
use gleaner_proto::lease;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(Some((pid, records))) = lease::read(&file("leases", bytes)) {
        let holder = lease::LeaseRecord::Holder { version: lease::VERSION, pid };
        let line =
            |record: &lease::LeaseRecord| serde_json::to_string(record).expect("records have a text") + "\n";
        let text: String = std::iter::once(&holder).chain(&records).map(line).collect();
        let again = lease::read(&file("again", text.as_bytes()));
        assert_eq!(again.expect("what was written can be read"), Some((pid, records)));
    }
});

//! The report of `gleaner doctor --json`.

#![no_main]

use gleaner_proto::doctor;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(report) = serde_json::from_slice::<doctor::Report>(bytes) {
        let text = serde_json::to_vec(&report).expect("a report has a text");
        let again: doctor::Report = serde_json::from_slice(&text).expect("what was written can be read");
        assert_eq!(again, report);
    }
});

//! The findings of `gleaner diagnose --json`, and their page.

#![no_main]

use gleaner_proto::diagnosis::Diagnosis;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(diagnosis) = serde_json::from_slice::<Diagnosis>(bytes) {
        let _ = diagnosis.timeline.resolution_s();
        let _ = gleaner_report::diagnosis::figures(&diagnosis);
    }
});

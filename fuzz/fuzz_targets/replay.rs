//! A journal whose observations a policy decides on again, as `gleaner replay` has it.

#![no_main]

use gleaner_fuzz::file;
use gleaner_policy::Policy;
use gleaner_proto::journal::{self, Record};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(records) = journal::read(&file("journal", bytes)) else { return };
    let Some(Record::Start { vcpus, config, .. }) = records.first() else { return };
    let Ok(mut policy) = Policy::new((**config).clone(), vcpus.clone()) else { return };
    for record in &records {
        if let Record::Observation { observation, skipped: 0, last: false, .. } = record {
            let _ = policy.step(observation);
        }
    }
});

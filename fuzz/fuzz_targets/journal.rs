//! A journal, as `gleaner why` reads and explains it.

#![no_main]

use gleaner_fuzz::file;
use gleaner_proto::journal;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(records) = journal::read(&file("journal", bytes)) {
        for sentence in gleaner_explain::journal_sentences(&records) {
            assert!(!sentence.to_string().is_empty());
        }
        let _ = gleaner_explain::one_line_summary(&records);
        for record in &records {
            if let journal::Record::End { summary, .. } = record {
                let _ = gleaner_explain::summary::text(summary, false);
                let _ = gleaner_explain::summary::outcome(summary);
            }
        }
    }
});

//! A result file of `gleaner bench`, and its page.

#![no_main]

use gleaner_fuzz::file;
use gleaner_proto::result::BenchResult;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(result) = BenchResult::read(&file("result", bytes)) {
        for row in &result.rows {
            for metric in row.metrics() {
                let _ = row.comparison("gleaner", metric);
            }
        }
        let _ = gleaner_report::bench::html(&result);
    }
});

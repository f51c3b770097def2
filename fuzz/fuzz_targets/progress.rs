//! The text of a progress counter.

#![no_main]

use gleaner_engine::live::Counter;
use gleaner_fuzz::file;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(number) = Counter::File(file("progress", bytes)).read_once() {
        assert!(number.is_finite());
    }
    if let Ok(text) = std::str::from_utf8(bytes) {
        if let Ok(counter) = text.parse::<Counter>() {
            assert_eq!(counter.to_string().parse(), Ok(counter));
        }
    }
});

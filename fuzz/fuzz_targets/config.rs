//! A configuration: a mistake is reported with its place, everything else means something.

#![no_main]

use std::path::Path;

use gleaner_config::{Config, Places, Subject};
use gleaner_fuzz::file;
use jiff::civil::date;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let path = file("gleaner.toml", bytes);
    match Config::load(&Places::named(&path)) {
        Ok(loaded) => {
            let subject = Subject {
                unit: Some("redis-server.service"),
                group: Path::new("/system.slice/redis-server.service"),
                executable: Some(Path::new("/usr/bin/redis-server")),
            };
            let _ = (loaded.config.terms(&subject), loaded.config.credit_guard());
            for hour in [0, 12, 23] {
                let _ = loaded.config.quiet_at(date(2026, 2, 28).at(hour, 59, 59, 0));
            }
            let shown = loaded.to_toml(false);
            let again = Config::load(&Places::named(file("again.toml", shown.as_bytes())));
            let again =
                again.unwrap_or_else(|error| panic!("what is shown cannot be read: {error}\n{shown}"));
            assert_eq!(again.to_toml(false), shown);
            let _ = (loaded.to_toml(true), loaded.to_json());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});

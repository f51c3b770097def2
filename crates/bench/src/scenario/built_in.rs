//! The scenarios that are part of the program, so that an installed binary has them.

/// Names and texts of the files in `bench/scenarios`.
pub const BUILT_IN: &[(&str, &str)] = &[("quick", include_str!("../../../../bench/scenarios/quick.toml"))];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_file_is_built_in_and_understood() {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/scenarios");
        let mut files: Vec<String> = std::fs::read_dir(dir)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
            .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
            .collect();
        files.sort_unstable();
        let mut known: Vec<&str> = BUILT_IN.iter().map(|(name, _)| *name).collect();
        known.sort_unstable();
        assert_eq!(files, known);
        for (name, text) in BUILT_IN {
            super::super::parse(text, name).unwrap();
        }
    }
}

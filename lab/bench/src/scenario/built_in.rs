//! The scenarios that are part of the program, so that an installed binary has them.

/// Names and texts of the files in `lab/bench/scenarios`.
pub const BUILT_IN: &[(&str, &str)] = &[
    ("quick", include_str!("../../scenarios/quick.toml")),
    ("table1", include_str!("../../scenarios/table1.toml")),
    ("table2", include_str!("../../scenarios/table2.toml")),
    ("figure1", include_str!("../../scenarios/figure1.toml")),
    ("figure2", include_str!("../../scenarios/figure2.toml")),
    ("figure5", include_str!("../../scenarios/figure5.toml")),
    ("figure6", include_str!("../../scenarios/figure6.toml")),
    ("figure7", include_str!("../../scenarios/figure7.toml")),
    ("figure7b", include_str!("../../scenarios/figure7b.toml")),
    ("figure8", include_str!("../../scenarios/figure8.toml")),
    ("figure9", include_str!("../../scenarios/figure9.toml")),
    ("figure9-oltp", include_str!("../../scenarios/figure9-oltp.toml")),
    ("hp3c-figure2", include_str!("../../scenarios/hp3c-figure2.toml")),
    ("hp3c-figure3", include_str!("../../scenarios/hp3c-figure3.toml")),
    ("hp3c-figure4", include_str!("../../scenarios/hp3c-figure4.toml")),
    ("hp3c-figure5", include_str!("../../scenarios/hp3c-figure5.toml")),
    ("evaluation", include_str!("../../scenarios/evaluation.toml")),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_file_is_built_in_and_understood() {
        let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios");
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

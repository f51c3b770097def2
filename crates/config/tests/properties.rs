//! What holds for any file.

mod common;

use std::fs;

use common::{MAIN, Tree};
use proptest::prelude::*;

/// A line that could be in a file: a key, right or wrong, with a value, right or wrong.
fn line() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec![
        "objective",
        "polling-share",
        "retain",
        "most-workloads",
        "include",
        "exclude",
        "quiet-hours",
        "workload",
        "burstable",
        "burstable.credits",
        "burstable.least",
        "metrics",
        "listen",
        "unit",
        "group",
        "x y",
        "\"\"",
    ]);
    let value = prop::sample::select(vec![
        "true",
        "0.5",
        "-1",
        "1e999",
        "99999999999999999999",
        "nan",
        "\"\"",
        "\"latency\"",
        "'file:/x'",
        "[]",
        "{}",
        "[[]]",
        "[\"22:00-06:00\"]",
        "[\"00:00-24:00\"]",
        "[{ unit = \"a.service\" }]",
        "[{ unit = \"[\" }, 5]",
        "2026-11-24",
        "{ least = 5 }",
        "{ unit = 5 }",
        "\"äöü\"",
        "\"\\u0000\"",
        "latency",
        "[1, [2, {a = [",
        "",
    ]);
    let header = prop::sample::select(vec![
        "[metrics]",
        "[[workload]]",
        "[burstable]",
        "[workload.x]",
        "[control",
        "]",
        "\u{feff}",
    ]);
    prop_oneof![
        6 => (name, value).prop_map(|(name, value)| format!("{name} = {value}")),
        1 => header.prop_map(str::to_owned),
        1 => ".{0,20}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_a_configuration_or_problems_with_a_place(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let tree = Tree::with("");
        fs::write(tree.path(MAIN), &bytes).unwrap();
        if let Err(error) = tree.load() {
            prop_assert!(!error.problems.is_empty());
        }
    }

    #[test]
    fn any_lines_are_a_configuration_or_problems_with_a_place(lines in prop::collection::vec(line(), 0..12)) {
        let text = lines.join("\n");
        match Tree::with(&text).load() {
            Ok(loaded) => {
                // What is shown means the same.
                for origins in [false, true] {
                    let again = Tree::with(&loaded.to_toml(origins)).load().unwrap();
                    prop_assert_eq!(&again.to_json()["config"], &loaded.to_json()["config"]);
                }
            }
            Err(error) => {
                let count = text.lines().count().max(1);
                for problem in &error.problems {
                    let (line, column) = problem.position.unwrap();
                    prop_assert!((1..=count + 1).contains(&line) && column >= 1, "{}", problem);
                }
            }
        }
    }

    /// Each file sets some keys, and some add to a list or empty it.
    #[test]
    fn the_last_file_that_sets_a_key_has_the_last_word(
        files in prop::collection::vec((prop::option::of(1_u32..=256), prop::option::of(any::<bool>()), 0_u8..3), 1..5),
    ) {
        let tree = Tree::new();
        let (mut workloads, mut retain, mut excluded) = (32, true, Vec::new());
        for (i, (number, polls, list)) in files.iter().enumerate() {
            let mut lines = vec!["# a file".to_owned()];
            if let Some(number) = number {
                lines.push(format!("most-workloads = {number}"));
                workloads = *number;
            }
            if let Some(polls) = polls {
                lines.push(format!("retain = {polls}"));
                retain = *polls;
            }
            let rules = ["service", "scope"].map(|kind| format!("{{ unit = \"{i}.{kind}\" }}"));
            match list {
                0 => {}
                1 => {
                    lines.push("exclude = []".to_owned());
                    excluded.clear();
                }
                _ => {
                    lines.push(format!("exclude = [{}]", rules.join(", ")));
                    excluded.splice(0..0, rules);
                }
            }
            tree.write(&format!("etc/gleaner/gleaner.toml.d/{i}.toml"), &lines.join("\n"));
        }
        let config = tree.load().unwrap().config;
        let rules: Vec<String> = config.exclude.iter().map(|rule| rule.to_string()).collect();
        prop_assert_eq!((config.most_workloads, config.retain, rules), (workloads, retain, excluded));
    }
}

#[test]
fn depth_and_length_have_an_end() {
    for text in [
        format!("include = {}", "[".repeat(500_000)),
        format!("include = {}", "{a=".repeat(300_000)),
        format!("{}a = 1", "a.".repeat(500_000)),
        "[[a]]\n".repeat(150_000),
        format!("include = [{}]", "5,".repeat(500_000)),
        "a=1\n".repeat(250_000),
        format!("metrics = {{{}}}", (0..90_000).map(|i| format!("a{i}=1,")).collect::<Vec<_>>().concat()),
        format!("include = [{}]", "5 ".repeat(500_000)),
        format!("{} = 1", "a".repeat(1_000_000)),
        format!("objective = \"{}\"", "\\n".repeat(500_000)),
    ] {
        assert!(Tree::with(&text).load().is_err());
    }
}

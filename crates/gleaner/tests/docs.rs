//! What pages say of other files of the tree is true: places in the source, and numbers of generated pages.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Reading more files than this takes more than ten minutes.
const MOST_FILES: usize = 5;

#[test]
fn every_step_of_the_ten_minute_read_is_where_it_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let design = fs::read_to_string(root.join("docs/design.md")).unwrap();
    let (_, section) = design.split_once("\n## The ten-minute read\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let steps = section.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    let (mut files, mut wrong) = (BTreeSet::new(), Vec::new());
    for step in steps {
        // 1. `Type::function` (`path:line`) does this.
        let parts: Vec<&str> = step.split('`').collect();
        let [_, name, " (", place, ..] = parts[..] else { panic!("no `function` (`path:line`): {step}") };
        let (path, line) = place.split_once(':').unwrap();
        let line: usize = line.parse().unwrap();
        let source = fs::read_to_string(root.join(path)).unwrap();
        let head = format!("fn {}", name.rsplit("::").next().unwrap());
        let stands =
            |text: &str| text.split_once(&head).is_some_and(|(_, rest)| rest.starts_with(['(', '<']));
        let found: Vec<usize> =
            (1..).zip(source.lines()).filter(|(_, text)| stands(text)).map(|(number, _)| number).collect();
        if !found.contains(&line) {
            wrong.push(format!("`{name}` is not at {place}, but in line {found:?}"));
        }
        files.insert(path);
    }
    assert!(wrong.is_empty(), "docs/design.md: {}", wrong.join("; "));
    assert!((1..=MOST_FILES).contains(&files.len()), "these are too many or too few files: {files:?}");
}

/// The cells of a table's row, without the frame.
fn cells(line: &str) -> Vec<&str> {
    line.trim_matches(|c| c == '|' || c == ' ').split('|').map(str::trim).collect()
}

#[test]
fn the_numbers_of_the_readme_are_those_of_the_benchmarks() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let [readme, page] =
        ["README.md", "docs/benchmarks.md"].map(|f| fs::read_to_string(root.join(f)).unwrap());
    let measured: Vec<Vec<&str>> = page.lines().filter(|line| line.starts_with("| ")).map(cells).collect();
    let head = &measured[0];
    let column = |name: &str| head.iter().position(|cell| *cell == name).unwrap();
    let columns = ["gleaner", "haltpoll:200us", "consolidate:1"].map(column);
    let mut rows = 0;
    for row in readme.lines().filter(|line| line.starts_with("| ") && line.contains("(`")).map(cells) {
        let Some((_, name)) = row[0].split_once("(`") else { continue };
        let name = name.trim_end_matches("`)");
        let numbers = measured.iter().find(|row| row[0] == name);
        let numbers = numbers.unwrap_or_else(|| panic!("README.md: docs/benchmarks.md has no row {name}"));
        let median = |column: usize| numbers[column].split(' ').next().unwrap();
        let expected = [numbers[columns[0]], median(columns[1]), median(columns[2])];
        let first = row[1].replace('*', "");
        assert_eq!(
            [first.as_str(), row[2], row[3]],
            expected,
            "README.md, row {name}: docs/benchmarks.md has other numbers"
        );
        rows += 1;
    }
    assert!(rows >= 5, "README.md shows {rows} rows of docs/benchmarks.md");
}

//! Messages: every kind of problem, as a user sees it.

mod common;

use common::{MAIN, Tree};

/// The messages for a system with these files.
fn messages(files: &[(&str, &str)]) -> String {
    let tree = Tree::new();
    for (name, text) in files {
        tree.write(name, text);
    }
    let text = match tree.load() {
        Ok(loaded) => {
            let warnings: Vec<String> = loaded.warnings.iter().map(ToString::to_string).collect();
            format!("usable\n{}", warnings.join("\n"))
        }
        Err(error) => error.to_string(),
    };
    tree.hide(&text)
}

#[test]
fn values() {
    insta::assert_snapshot!(messages(&[(MAIN, include_str!("errors/values.toml"))]));
}

#[test]
fn keys() {
    insta::assert_snapshot!(messages(&[(MAIN, include_str!("errors/keys.toml"))]));
}

#[test]
fn rules() {
    insta::assert_snapshot!(messages(&[(MAIN, include_str!("errors/rules.toml"))]));
}

#[test]
fn syntax() {
    let texts = [
        "objective = latency\nretain = yes\n",
        "objective = \"latency\nretain = 3\n",
        "quiet-hours = [22:00-06:00]\n",
        "retain =\nbpf = 1\n",
        "retain true\n",
        "retain = true\nretain = false\n",
        "[metrics]\nlisten = \"\"\n[metrics]\n",
        "exclude = [{ unit = \"a.service\" }\n[metrics]\n",
        "exclude = [\"a.service\" \"b.service\"]\n",
        "[[workload]\nunit = \"a.service\"\n",
        "exclude = [{ unit = \"a\\x2d\\y.service\" }]\n",
        "{\"objective\": \"latency\"}\n",
        "objective: latency\n",
    ];
    let all = texts.map(|text| format!("{text}--> {}\n", messages(&[(MAIN, text)])));
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn contradictions() {
    insta::assert_snapshot!(messages(&[(MAIN, include_str!("errors/contradictions.toml"))]));
}

#[test]
fn contradictions_between_files() {
    let packaged = "\
exclude = [{ unit = \"a.service\" }]
[[workload]]
unit = \"b.service\"
retain = false
";
    let own = "\
include = [{ unit = \"a.service\" }]
retain = false
consolidate = false
[metrics]
listen = \"0.0.0.0:9839\"
";
    let drop_in = "[[workload]]\nunit = \"b.service\"\nretain = true\n";
    insta::assert_snapshot!(messages(&[
        ("usr/lib/gleaner/gleaner.toml", packaged),
        (MAIN, own),
        ("etc/gleaner/gleaner.toml.d/10-b.toml", drop_in),
    ]));
}

#[test]
fn the_problems_of_one_file_have_an_end() {
    let text = (0..200).map(|i| format!("nothing-{i} = 1")).collect::<Vec<_>>().join("\n");
    let messages = messages(&[(MAIN, &text)]);
    let last = messages.lines().last().unwrap();
    assert_eq!(last, "/etc/gleaner/gleaner.toml: there are more problems: repair these first");
    assert_eq!(messages.lines().count(), 51);
}

#[test]
fn a_list_without_end_is_refused() {
    let text = format!("exclude = [{}]", "{ unit = \"a.service\" },".repeat(1001));
    assert_eq!(
        messages(&[(MAIN, &text)]),
        "/etc/gleaner/gleaner.toml:1:1: exclude: has 1001 elements, and 1000 are allowed: use patterns"
    );
}

#[test]
fn what_a_file_says_is_shown_as_one_line() {
    let messages = messages(&[(MAIN, "\"a\\u001b[2Jb\\nc\" = 1\nexclude = [{ unit = \"a\\nb\" }]\n")]);
    assert_eq!(messages.lines().count(), 2, "{messages}");
    assert!(!messages.contains('\u{1b}'));
}

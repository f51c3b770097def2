//! Judging what checks print.

use super::*;

const FILE: &str = r#"
about = "Numbers."

[checks]
two = "printf 'slow 3.5 s\nslow 4.5 s\n'; echo 'rate 2.0' >&2"
none = "[ $CI = true ]"
never = "echo slow never"
broken = "echo 'speed 9.0'; exit 3"

[[section]]
title = "Speed"

[[section.promise]]
name = "slow"
says = "it is not slow"
at_most = 4.0
unit = "s"
check = "two"
find = '^slow ([0-9.]+)'

[[section.promise]]
name = "rate"
says = "it is fast"
at_least = 2.0
unit = "× default"
check = "two"
find = '^rate ([0-9.]+)'

[[section.promise]]
name = "ends"
says = "it ends"
check = "none"

[[section.promise]]
name = "lost"
says = "a number"
at_least = 1.0
check = "none"
find = 'number ([0-9.]+)'

[[section.promise]]
name = "never"
says = "it comes"
at_most = 1.0
check = "never"
find = 'slow ([0-9.]+|never)'

[[section.promise]]
name = "half"
says = "it is measured"
at_least = 1.0
check = "broken"
find = 'speed ([0-9.]+)'

[[section.promise]]
name = "works"
says = "it works"
check = "broken"
"#;

fn checked(promises: &Promises, outcomes: &mut Outcomes) {
    for check in promises.checks(&[]).unwrap() {
        let output = promises.run(check).unwrap();
        promises.judge(check, &output, "2026-01-02T03:04:05Z", "a machine", outcomes);
    }
}

#[test]
fn the_worst_number_counts_and_a_check_without_one_says_so() {
    let promises = Promises::parse(FILE).unwrap();
    let mut outcomes = Outcomes::new();
    checked(&promises, &mut outcomes);
    let of = |name: &str| (outcomes[name].verdict, outcomes[name].found.as_deref());
    assert_eq!(of("slow"), (Verdict::Missed, Some("4.5")));
    assert_eq!(of("rate"), (Verdict::Kept, Some("2.0")), "standard error counts, too");
    assert_eq!(of("ends"), (Verdict::Kept, None));
    assert_eq!(of("lost"), (Verdict::Unknown, None));
    assert_eq!(of("never"), (Verdict::Missed, Some("never")));
}

#[test]
fn a_check_that_fails_keeps_no_promise_whatever_it_printed() {
    let promises = Promises::parse(FILE).unwrap();
    let mut outcomes = Outcomes::new();
    checked(&promises, &mut outcomes);
    for name in ["half", "works"] {
        let Outcome { verdict, found, failure, .. } = &outcomes[name];
        assert_eq!((*verdict, found.as_deref()), (Verdict::Missed, None), "{name}");
        assert_eq!(failure.as_deref(), Some("exit status: 3"), "{name}");
    }
    assert_eq!(outcomes["slow"].failure, None, "it is missed by its number");
    let page = promises.page(&outcomes);
    let missed =
        "| it is measured | ≥ 1  |  | 2026-01-02 | **missed**, the check failed: exit status: 3 | broken |";
    assert!(page.contains(missed), "{page}");
}

#[test]
fn too_few_numbers_are_no_number() {
    let mut outcomes = Outcomes::new();
    let three = FILE.replace("at_most = 4.0", "count = 3\nat_most = 4.0");
    checked(&Promises::parse(&three).unwrap(), &mut outcomes);
    assert_eq!((outcomes["slow"].verdict, &outcomes["slow"].found), (Verdict::Unknown, &None));
}

#[test]
fn misses_in_a_row_are_counted_and_are_on_the_page() {
    let promises = Promises::parse(FILE).unwrap();
    let mut outcomes = Outcomes::new();
    let page = promises.page(&outcomes);
    assert!(page.contains("| it is fast | ≥ 2 × default | | | not checked | two |"), "{page}");
    checked(&promises, &mut outcomes);
    checked(&promises, &mut outcomes);
    assert_eq!((outcomes["slow"].misses, outcomes["rate"].misses), (2, 0));
    let page = promises.page(&outcomes);
    let missed = "| it is not slow | ≤ 4 s | 4.5 | 2026-01-02 | **missed**, 2 times in a row | two |";
    assert!(page.contains(missed) && page.contains("| it ends |  |  | 2026-01-02 | kept | none |"), "{page}");
    assert!(page.ends_with("Checked on: a machine.\n"), "{page}");
}

#[test]
fn a_file_that_makes_no_sense_is_refused_with_the_reason() {
    let wrong = [
        (FILE.replace("name = \"rate\"", "name = \"slow\""), "two promises `slow`"),
        (FILE.replace("check = \"never\"", "check = \"nothing\""), "the check `nothing`"),
        (FILE.replace("at_most = 1.0\n", ""), "`never` needs `find` and one of"),
        (FILE.replace("([0-9.]+|never)", "[0-9.]+"), "`never`: `slow [0-9.]+` needs one group"),
        (FILE.replace("unit = \"s\"", "units = \"s\""), "unknown field `units`"),
    ];
    for (text, reason) in wrong {
        let error = Promises::parse(&text).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
    let unknown = Promises::parse(FILE).unwrap().checks(&["fast".to_owned()]).unwrap_err().to_string();
    assert!(unknown.contains("unknown promise `fast`") && unknown.contains("slow, rate"), "{unknown}");
}

#[test]
fn a_check_runs_once_for_all_its_promises() {
    let promises = Promises::parse(FILE).unwrap();
    assert_eq!(promises.checks(&[]).unwrap(), ["two", "none", "never", "broken"]);
    assert_eq!(promises.checks(&["rate".to_owned(), "slow".to_owned()]).unwrap(), ["two"]);
    assert_eq!(promises.checks(&["none".to_owned()]).unwrap(), ["none"], "the name of a check");
}

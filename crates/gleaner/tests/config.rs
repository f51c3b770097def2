//! `gleaner config`, which becomes `gleanerd`.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::process::{GLEANER, gleaner, text};
use gleaner_testing::skipped;

/// The daemon's program; `None`, with a message, if it is not built beside this package's.
fn daemon() -> Option<PathBuf> {
    let path = Path::new(GLEANER).with_file_name("gleanerd");
    if !path.exists() {
        skipped("needs `cargo build -p gleaner-daemon`");
        return None;
    }
    Some(path)
}

fn status(output: &Output) -> (Option<i32>, String, String) {
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

#[test]
fn a_configuration_is_checked_and_shown() {
    if daemon().is_none() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (place, file) = (dir.path().to_str().unwrap(), dir.path().join("gleaner.toml"));
    let name = file.display();

    fs::write(&file, "retain = false\n").unwrap();
    let checked = gleaner(&["config", "check", "--config", place]);
    assert_eq!(status(&checked), (Some(0), format!("usable: {name}\n"), String::new()));
    let shown = gleaner(&["config", "show", "--origin", "--config", place]);
    let line = format!("retain = false          # {name}:1\n");
    assert!(shown.status.success() && text(&shown.stdout).contains(&line), "{}", text(&shown.stdout));
    let json = gleaner(&["config", "show", "--json", "--config", place]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!((&json["config"]["retain"], &json["origins"]["retain"]["line"]), (&false.into(), &1.into()));

    fs::write(&file, "retain = 1\nreplay = 2\n").unwrap();
    for action in ["check", "show"] {
        let output = gleaner(&["config", action, "--config", place]);
        let (code, out, mistakes) = status(&output);
        assert_eq!((code, out.as_str()), (Some(1), ""));
        let starts: Vec<bool> = mistakes.lines().map(|line| line.starts_with(&name.to_string())).collect();
        assert_eq!(starts, [true, true], "{mistakes}");
    }
}

#[test]
fn the_schema_is_json() {
    if daemon().is_none() {
        return;
    }
    let schema: serde_json::Value = serde_json::from_slice(&gleaner(&["config", "schema"]).stdout).unwrap();
    assert!(schema["properties"]["objective"].is_object());
}

#[test]
fn the_daemon_is_found_in_sbin_as_packages_have_it() {
    let Some(daemon) = daemon() else { return };
    let prefix = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let place = |from: &Path, dir: &str| {
        let to = prefix.path().join(dir).join(from.file_name().unwrap());
        fs::create_dir(to.parent().unwrap()).unwrap();
        fs::hard_link(from, &to).or_else(|_| fs::copy(from, &to).map(drop)).unwrap();
        to
    };
    let own = place(Path::new(GLEANER), "bin");
    let schema = |own: &Path| Command::new(own).args(["config", "schema"]).output().unwrap();
    let missing = schema(&own);
    assert_eq!(missing.status.code(), Some(1));
    assert!(text(&missing.stderr).contains("this needs gleanerd beside it"), "{}", text(&missing.stderr));
    place(&daemon, "sbin");
    assert!(schema(&own).status.success());
}

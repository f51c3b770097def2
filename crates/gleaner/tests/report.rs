//! Runs `gleaner report` on a result that `gleaner bench` measured.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use gleaner_testing::is_root;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn gleaner(args: &[&str], dir: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gleaner")).args(args).current_dir(dir).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Measures something small but real in `dir`.
fn measured(dir: &Path) -> PathBuf {
    let run = ["bench", "run", "--quiet", "--mode", "default", "--rounds", "2", "-o", "r.json", "--", "true"];
    let output = gleaner(&run, dir);
    assert!(output.status.success(), "{}", stderr(&output));
    dir.join("r.json")
}

#[test]
fn a_result_becomes_a_page_and_plots() {
    let dir = tempfile::tempdir().unwrap();
    measured(dir.path());
    let output = gleaner(&["report", "r.json", "-o", "out.html", "--svg", "plots/all"], dir.path());
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("wrote out.html") && output.stdout.is_empty());
    let page = fs::read_to_string(dir.path().join("out.html")).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("Only the mode default was measured"));
    let svg = fs::read_to_string(dir.path().join("plots/all/samples-1.svg")).unwrap();
    assert!(svg.contains("<svg") && svg.contains("wall time"));

    let output = gleaner(&["report", "r.json"], dir.path());
    assert!(output.status.success());
    assert_eq!(
        fs::read_to_string(dir.path().join("r.html")).unwrap(),
        page,
        "the same result, the same page"
    );
}

#[test]
fn bad_results_are_refused_by_name_and_reason() {
    let dir = tempfile::tempdir().unwrap();
    let result = measured(dir.path());
    let fails = |file: &str, texts: &[&str]| {
        let output = gleaner(&["report", file, "-o", "out.html"], dir.path());
        assert_eq!(output.status.code(), Some(1));
        for text in texts {
            assert!(stderr(&output).contains(text), "{}", stderr(&output));
        }
        assert!(!dir.path().join("out.html").exists());
    };
    fails("missing.json", &["cannot read the result file missing.json"]);
    fs::write(dir.path().join("text.json"), "hello").unwrap();
    fails("text.json", &["text.json is not a result file"]);
    let mut value: serde_json::Value = serde_json::from_slice(&fs::read(result).unwrap()).unwrap();
    value["schema"] = 99.into();
    fs::write(dir.path().join("new.json"), value.to_string()).unwrap();
    fails("new.json", &["new.json has result schema 99", "measure again"]);
}

#[test]
fn a_full_or_forbidden_disk_is_reported_and_the_earlier_page_stays() {
    let dir = tempfile::tempdir().unwrap();
    measured(dir.path());
    let output = gleaner(&["report", "r.json", "-o", "/dev/full"], dir.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr(&output).contains("cannot write /dev/full: No space left on device"),
        "{}",
        stderr(&output)
    );
    let output = gleaner(&["report", "r.json", "-o", "no/such/dir/out.html"], dir.path());
    assert!(
        !output.status.success() && stderr(&output).contains("no/such/dir/out.html"),
        "{}",
        stderr(&output)
    );
    fs::write(dir.path().join("file"), "").unwrap();
    let output = gleaner(&["report", "r.json", "--svg", "file/plots"], dir.path());
    assert!(stderr(&output).contains("give another one with --svg"), "{}", stderr(&output));
    assert!(!dir.path().join("r.html").exists(), "nothing is half done");

    // A file system that is really full.
    if !is_root() {
        return;
    }
    let full = Mounted::new(&dir.path().join("small"));
    let page = full.0.join("out.html");
    fs::write(&page, "earlier").unwrap();
    let output = gleaner(&["report", "r.json", "-o", page.to_str().unwrap()], dir.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("what was there before is untouched"), "{}", stderr(&output));
    assert_eq!(fs::read_to_string(&page).unwrap(), "earlier");
    assert_eq!(fs::read_dir(&full.0).unwrap().count(), 1, "no temporary file is left");
}

/// A file system of 16 KiB, unmounted when dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn new(place: &Path) -> Self {
        fs::create_dir(place).unwrap();
        let mount =
            Command::new("mount").args(["-t", "tmpfs", "-o", "size=16k", "tmpfs"]).arg(place).status();
        assert!(mount.unwrap().success());
        Self(place.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

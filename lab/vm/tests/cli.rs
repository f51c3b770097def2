//! The command line: errors come with their remedy, and no machine outlives the program.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::symlink;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use gleaner_testing::{is_root, skipped};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// No server listens there.
const NO_MIRROR: &str = "http://127.0.0.1:9/debian";
const TIMEOUT: Duration = Duration::from_secs(60);

fn lab(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_gleaner-lab"));
    command.args(args);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn fails(output: &Output, words: &[&str]) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("gleaner-lab: ") || said.contains("\ngleaner-lab: "), "{said}");
    for word in words {
        assert!(said.contains(word), "`{word}` is not in: {said}");
    }
}

#[test]
fn a_closed_or_full_standard_output_is_no_panic() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = lab(&["claims", "--list"]).stdout(writer).output().unwrap();
    assert_eq!((output.status.signal(), text(&output.stderr).as_str()), (Some(Signal::SIGPIPE as i32), ""));
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    fails(
        &lab(&["claims", "--list"]).stdout(full).output().unwrap(),
        &["cannot write to the standard output"],
    );
}

#[test]
#[ignore = "boots machines, needs images: make test-lab"]
fn without_network_a_cold_cache_is_reported() {
    let cache = tempfile::tempdir().unwrap();
    let output = lab(&["images", "--image", "tiny", "--kernel", "6.12"])
        .env("GLEANER_LAB_CACHE", cache.path())
        .env("GLEANER_LAB_MIRROR", NO_MIRROR)
        .output()
        .unwrap();
    fails(&output, &[NO_MIRROR, "trixie", "needs the network once"]);
    // Nothing half-built is left.
    let left = fs::read_dir(cache.path().join("kernels")).unwrap().count();
    assert_eq!(left, 0);
}

#[test]
#[ignore = "boots machines, needs images: make test-lab"]
fn without_a_program_the_command_that_installs_it_is_printed() {
    let path = tempfile::tempdir().unwrap();
    symlink(which("ldd"), path.path().join("ldd")).unwrap();
    let output = lab(&["run", "--", "true"]).env("PATH", path.path()).env_remove("CARGO").output().unwrap();
    fails(&output, &["`strip` is not installed", "`scripts/setup lab`"]);
}

#[test]
#[ignore = "boots machines, needs images: make test-lab"]
fn no_qemu_of_the_machine_is_needed() {
    let Some(()) = warm() else { return };
    let path = tempfile::tempdir().unwrap();
    for program in ["strip", "ldd"] {
        symlink(which(program), path.path().join(program)).unwrap();
    }
    let output = lab(&["run", "--", "echo", "booted"]).env("PATH", path.path()).env_remove("CARGO").output();
    let output = output.unwrap();
    assert_eq!(text(&output.stdout), "booted\n", "{}", text(&output.stderr));
}

#[test]
#[ignore = "boots machines, needs images: make test-lab"]
fn a_full_disk_is_reported_before_anything_is_fetched() {
    if !is_root() {
        return;
    }
    let cache = tempfile::tempdir().unwrap();
    let script = format!(
        "mount -t tmpfs -o size=64m small {0} && GLEANER_LAB_CACHE={0} exec {1} images --image tiny --kernel 7",
        cache.path().display(),
        env!("CARGO_BIN_EXE_gleaner-lab"),
    );
    let output = Command::new("unshare").args(["--mount", "sh", "-c", &script]).output().unwrap();
    fails(&output, &["has 6", "MiB free; building images needs 4096", "GLEANER_LAB_CACHE"]);
}

#[test]
#[ignore = "boots machines, needs images: make test-lab"]
fn the_commands_status_and_output_pass_through() {
    let Some(()) = warm() else { return };
    // With a warm cache no network is needed.
    let output = lab(&["run", "--", "sh", "-c", "gleaner --version; echo why >&2; exit 7"])
        .env("GLEANER_LAB_MIRROR", NO_MIRROR)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    assert!(text(&output.stdout).starts_with("gleaner "), "{}", text(&output.stdout));
    assert!(text(&output.stderr).ends_with("why\n"), "{}", text(&output.stderr));
}

#[test]
#[ignore = "boots machines, needs images: make test-lab"]
fn a_shell_is_one_and_its_end_is_the_machines() {
    let Some(()) = warm() else { return };
    let mut shell =
        lab(&["shell", "--vcpus", "4"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let (mut said, mut block) = (Vec::new(), [0; 4096]);
    let mut stdout = shell.stdout.take().unwrap();
    // Input before the shell's prompt is lost.
    while !text(&said).contains("lab:~# ") {
        let read = stdout.read(&mut block).unwrap();
        assert!(read > 0, "it ended without a shell: {}", text(&said));
        said.extend(&block[..read]);
    }
    shell.stdin.take().unwrap().write_all(b"echo cpus=$(nproc)\ngleaner --version\nexit\n").unwrap();
    stdout.read_to_end(&mut said).unwrap();
    let said = text(&said);
    assert!(shell.wait().unwrap().success(), "{said}");
    assert!(said.contains("cpus=4") && said.contains("gleaner 0."), "{said}");
}

#[test]
#[ignore = "boots machines, needs images: make test-lab"]
fn no_machine_outlives_the_program() {
    let Some(()) = warm() else { return };
    for signal in [Signal::SIGINT, Signal::SIGKILL] {
        let mut running = lab(&["run", "--", "sleep", "1000"]).stderr(Stdio::null()).spawn().unwrap();
        let qemu = until("QEMU runs", || child_with(running.id(), "qemu-system"));
        kill(Pid::from_raw(running.id().cast_signed()), signal).unwrap();
        running.wait().unwrap();
        // It has been orphaned, and its new parent can leave it a zombie.
        let stat = Path::new("/proc").join(qemu.to_string()).join("stat");
        let ended = || fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z "));
        until("QEMU has ended", || ended().then_some(()));
    }
}

/// The images for these tests, or `None` with the reason why not; a CI machine must have them.
fn warm() -> Option<()> {
    let output = lab(&["images", "--image", "tiny", "--kernel", "6.12"]).output().unwrap();
    if output.status.success() {
        return Some(());
    }
    skipped(text(&output.stderr));
    None
}

fn which(program: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap();
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.exists()).unwrap()
}

/// A child with this word in its command line: started through its own loader, it has the loader's name.
fn child_with(parent: u32, word: &str) -> Option<u32> {
    let pids = fs::read_dir("/proc")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().to_string_lossy().parse::<u32>().ok());
    pids.into_iter().find(|pid| {
        // pid (name) state parent ...
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let Some((_, tail)) = stat.rsplit_once(") ") else { return false };
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        text(&line).contains(word) && tail.split(' ').nth(1) == Some(&parent.to_string())
    })
}

#[track_caller]
fn until<T>(what: &str, mut condition: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + TIMEOUT;
    loop {
        if let Some(found) = condition() {
            return found;
        }
        assert!(Instant::now() < end, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

use std::os::fd::AsFd as _;
use std::thread;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::*;

/// Far longer than any test takes, even on a busy machine.
const LONG: Duration = Duration::from_secs(60);

fn reader(counter: &str) -> CounterReader {
    let mut reader = CounterReader::new(counter.parse().unwrap(), SigSet::empty(), |_| ());
    reader.first_pause = Duration::from_micros(1);
    // A shell can take a second on a busy machine; the limit has its own test.
    reader.shell.time_limit = LONG;
    reader
}

#[test]
fn a_command_that_is_too_slow_for_one_number_leaves_no_zombie() {
    let mut shell = Shell::new(SigSet::empty(), Duration::from_millis(50));
    shell.ask("sleep 60", &[]).unwrap_err();
    drop(shell);
    // Others of this process have children of their own.
    let own = std::process::id().to_string();
    let of_us = |stat: &str| {
        let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        stat.contains("(sh)") && rest.split_whitespace().take(2).eq(["Z", &own])
    };
    let stats = std::fs::read_dir("/proc").unwrap().flatten();
    let stats = stats.filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
    assert_eq!(stats.filter(|stat| of_us(stat)).count(), 0);
}

/// Reads until the counter is dropped; returns the sentences for the journal.
fn until_dropped(mut reader: CounterReader) -> Vec<String> {
    let end = Instant::now() + LONG;
    while !reader.is_dropped() {
        assert_eq!(reader.read(&[]), None);
        assert!(Instant::now() < end, "{reader:?}");
        thread::yield_now();
    }
    reader.take_notes()
}

#[test]
fn reads_the_first_number() {
    assert_eq!(first_number("total_commands_processed:1234\r\n"), Some(1234.0));
    assert_eq!(first_number("queries = 1.5e3 (12)"), Some(1500.0));
    assert_eq!(first_number("none - here"), None);
}

#[test]
fn reads_files_and_commands() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("n");
    fs::write(&path, "42\n").unwrap();
    assert_eq!(reader(&format!("file:{}", path.display())).read(&[]), Some(42.0));
    assert_eq!(reader("echo 7").read(&[]), Some(7.0));
    assert!("file:".parse::<Counter>().is_err());
    assert!(" ".parse::<Counter>().is_err());
}

#[test]
fn a_counter_that_fails_is_reported_once_with_what_it_says_and_then_dropped() {
    let gone = "file:/nonexistent";
    for (counter, hint) in [
        ("echo first >&2; echo second >&2; exit 3", "exit status: 3 (first)"),
        ("echo nothing", "no number in `nothing`"),
        (gone, "No such file"),
    ] {
        let notes = until_dropped(reader(counter));
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes.iter().all(|note| note.contains(hint) && note.contains(counter)), "{notes:?}");
        assert!(notes[0].contains("other signals") && notes[1].contains("not read any more"), "{notes:?}");
    }
}

#[test]
fn a_counter_that_never_answers_is_given_up_in_time() {
    let mut hangs = reader("sleep 1000");
    hangs.shell.time_limit = Duration::from_millis(20);
    let notes = until_dropped(hangs);
    assert!(notes[0].contains("no answer within 20ms"), "{notes:?}");
}

#[test]
fn a_counter_that_writes_without_end_is_stopped() {
    for endless in ["yes", "yes >&2"] {
        let notes = until_dropped(reader(endless));
        assert!(notes[0].contains("more than 64 KiB"), "{notes:?}");
    }
}

#[test]
fn a_fifo_is_no_counter_and_nobody_waits_for_its_writer() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("fifo");
    mkfifo(&path, Mode::S_IRWXU).unwrap();
    let notes = until_dropped(reader(&format!("file:{}", path.display())));
    assert!(notes[0].contains("name a regular file"), "{notes:?}");
}

#[test]
fn what_is_urgent_ends_the_reading_and_is_no_failure() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("bell");
    mkfifo(&path, Mode::S_IRWXU).unwrap();
    let bell = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path).unwrap();
    let mut hangs = reader(&format!("exec 3>{}; echo >&3; sleep 1000", path.display()));
    hangs.shell.time_limit = Duration::from_secs(1000);
    hangs.slow = Duration::ZERO;
    let start = Instant::now();
    assert_eq!(hangs.read(&[bell.as_fd()]), None);
    // Nothing is even started while something is urgent.
    assert_eq!(hangs.read(&[bell.as_fd()]), None);
    assert!(start.elapsed() < LONG);
    assert_eq!((hangs.failures, hangs.take_notes()), (0, Vec::new()));
    // It was never read, which the user should know.
    assert_eq!(hangs.read_at_the_end(), None);
    assert!(hangs.take_notes()[0].contains("no answer before the end"));
}

#[test]
fn a_counter_answers_when_its_shell_ends_and_leaves_nothing_behind() {
    let mut leaves = reader("sleep 1000 & echo $!");
    let pid = leaves.read(&[]).unwrap();
    let stat = format!("/proc/{pid}/stat");
    let end = Instant::now() + LONG;
    // The orphan can stay a zombie until its new parent reaps it.
    while fs::read_to_string(&stat).is_ok_and(|text| !text.contains(") Z ") && !text.contains(") X ")) {
        assert!(Instant::now() < end, "process {pid} lives on");
        thread::yield_now();
    }
}

#[test]
fn one_that_never_worked_is_reported_at_the_end_and_one_that_did_is_not() {
    let mut never = reader("exit 3");
    assert_eq!((never.read(&[]), never.take_notes()), (None, Vec::new()), "it might only be late");
    never.read_at_the_end();
    assert!(never.take_notes()[0].contains("exit status: 3"));

    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("n");
    fs::write(&path, "1").unwrap();
    let mut worked = reader(&format!("file:{}", path.display()));
    assert_eq!(worked.read(&[]), Some(1.0));
    fs::remove_file(&path).unwrap();
    // The program removed it at its end.
    assert_eq!((worked.read_at_the_end(), worked.take_notes()), (None, Vec::new()));
}

#[test]
fn a_counter_that_comes_back_is_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("n");
    let mut late = reader(&format!("file:{}", path.display()));
    assert_eq!(late.read(&[]), None);
    fs::write(&path, "5").unwrap();
    let end = Instant::now() + LONG;
    while late.read(&[]) != Some(5.0) {
        assert!(Instant::now() < end, "{late:?}");
    }
    assert_eq!((late.failures, late.take_notes()), (0, Vec::new()));
}

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use gleaner_policy::{CpuSet, Evidence, Purpose, Setting, Signal};
use gleaner_proto::journal::Names;

use super::*;

/// In a child alone; holds the test that it is of.
const CHILD: &str = "GLEANER_TEST_LOGS";

fn proven() -> Decision {
    let evidence = Evidence { signal: Signal::Sockets, ratio: 1.84, low: 1.5, high: 2.25, pairs: 4 };
    let candidate = Setting::untouched(&CpuSet::first(2));
    Decision::TrialEnded {
        candidate: candidate.clone(),
        purpose: Purpose::Adopt,
        verdict: Verdict::Proven(evidence),
        kept: candidate,
        again_at: Duration::from_secs(10),
    }
}

/// Collects what is written.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn sentence(decision: &Decision) -> String {
    gleaner_explain::decision(decision, &Names::default())
}

#[test]
fn a_decision_is_one_line_of_text_with_time_and_level() {
    let written = Written::default();
    let writer = written.clone();
    let messages = tracing_subscriber::registry().with(LevelFilter::INFO).with(text(move || writer.clone()));
    tracing::subscriber::with_default(messages, || {
        decision("redis-server.service", &proven(), &sentence(&proven()));
        tracing::debug!("not of interest");
    });
    let written = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
    let [line] = written.lines().collect::<Vec<_>>()[..] else { panic!("not one line: {written}") };
    let (time, rest) = line.split_once(' ').unwrap();
    assert!(time.ends_with('Z') && time.starts_with("20"), "{line}");
    assert!(rest.trim_start().starts_with("INFO redis-server.service: "), "{line}");
    assert!(line.contains("1.84") && !line.contains('\x1b') && !line.contains("workload="), "{line}");
}

/// The fields of a message, as the journal gets them.
#[derive(Default)]
struct Fields(Vec<(String, String)>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.push((field.name().to_owned(), format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.push((field.name().to_owned(), value.to_owned()));
    }
}

struct Keep(Arc<Mutex<Fields>>);

impl<S: Subscriber> Layer<S> for Keep {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        event.record(&mut *self.0.lock().unwrap());
    }
}

#[test]
fn a_decision_has_its_numbers_as_fields() {
    let fields = |decided: &Decision| {
        let fields = Arc::new(Mutex::new(Fields::default()));
        let keep = tracing_subscriber::registry().with(Keep(fields.clone()));
        tracing::subscriber::with_default(keep, || decision("redis", decided, &sentence(decided)));
        let fields = fields.lock().unwrap();
        fields.0.iter().filter(|(name, _)| name != "message").cloned().collect::<Vec<_>>()
    };
    let expected = [
        ("workload", "redis"),
        ("event", "trial-ended"),
        ("candidate", "vCPUs 0-1 with halt"),
        ("setting", "vCPUs 0-1 with halt"),
        ("verdict", "proven"),
        ("ratio", "1.84"),
        ("ratio_low", "1.5"),
        ("ratio_high", "2.25"),
    ];
    assert_eq!(fields(&proven()), expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let released = Decision::Released { why: gleaner_policy::ReleaseReason::Long };
    assert_eq!(fields(&released).len(), 2, "a field without a value is not there");
}

#[test]
fn the_journal_is_known_by_the_device_and_inode_of_stderr() {
    assert!(names("9:1234", 9, 1234));
    for other in ["", "9", "9:", ":1234", "9:1235", "8:1234", "9:1234:1", "x:1234"] {
        assert!(!names(other, 9, 1234), "{other}");
    }
}

#[test]
fn of_warnings_that_repeat_themselves_a_few_are_written() {
    let mut kinds = Kinds::default();
    let start = Instant::now();
    for number in 0..MOST {
        assert_eq!(kinds.admit(&format!("cannot read /proc/{number}/io"), start), Some(0));
    }
    assert_eq!(kinds.admit("cannot read /proc/123/io", start), None);
    assert_eq!(kinds.admit("cannot read /proc/4567/io", start + WINDOW.mul_f64(0.99)), None);
    assert_eq!(kinds.admit("cannot write /proc/123/io", start), Some(0), "another one");
    assert_eq!(kinds.admit("cannot read /proc/9/io", start + WINDOW), Some(2));
    assert_eq!(kinds.admit("cannot read /proc/9/io", start + WINDOW), Some(0));
}

#[test]
fn only_so_many_kinds_are_counted() {
    let mut kinds = Kinds::default();
    let start = Instant::now();
    for kind in 0..2 * MOST_KINDS {
        assert_eq!(kinds.admit(&"x".repeat(kind), start), Some(0));
    }
    assert_eq!(kinds.seen.len(), MOST_KINDS);
}

/// In its own process, since a subscriber is for the whole of it.
#[test]
fn child() {
    match std::env::var(CHILD).as_deref() {
        Ok("text") => {
            start(LevelFilter::INFO);
            for number in 0..100 {
                warn_sentence(&format!("workload {number} is gone"));
            }
            info!("said {} times", 100);
            info!("said {} times", 100);
        }
        Ok("counted") => {
            let window = Duration::from_millis(20);
            let repeats = Repeats(Mutex::new(Kinds { window, ..Kinds::default() }));
            tracing_subscriber::registry().with(repeats).with(text(io::stderr)).init();
            let start = Instant::now();
            while start.elapsed() < window * 2 {
                warn!("again");
                error!("worse");
            }
        }
        Ok("journal") => journal(),
        _ => {}
    }
}

fn run(test: &str, mut command: Command) -> Output {
    command
        .args(["--exact", "log::tests::child", "--nocapture"])
        .env(CHILD, test)
        .env_remove("JOURNAL_STREAM");
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"), "{output:?}");
    output
}

#[test]
fn outside_of_systemd_messages_go_to_stderr_and_repeated_warnings_do_not() {
    let output = run("text", Command::new(std::env::current_exe().unwrap()));
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text.matches(" WARN workload ").count(), MOST as usize, "{text}");
    assert_eq!(text.matches(" INFO said 100 times").count(), 2, "{text}");
}

#[test]
fn what_was_left_out_is_counted_in_the_next_message_of_its_kind() {
    let output = run("counted", Command::new(std::env::current_exe().unwrap()));
    let text = String::from_utf8(output.stderr).unwrap();
    for counted in [" WARN again (", "ERROR worse ("] {
        assert!(text.contains(counted), "{text}");
    }
    assert!(text.contains(" similar messages suppressed)"), "{text}");
}

#[test]
fn under_systemd_the_journal_gets_fields() {
    if !gleaner_testing::is_root() {
        return;
    }
    // A mount namespace of its own, in which the journal's socket is the test's.
    let mut unshare = Command::new("unshare");
    unshare.arg("--mount").arg(std::env::current_exe().unwrap()).stderr(Stdio::piped());
    let output = run("journal", unshare);
    assert!(output.stderr.is_empty(), "the journal has it: {output:?}");
}

/// Plays the journal, in a mount namespace of its own.
fn journal() {
    let mounted = Command::new("mount").args(["-t", "tmpfs", "tmpfs", "/run"]).status().unwrap();
    assert!(mounted.success());
    fs::create_dir_all("/run/systemd/journal").unwrap();
    let socket = UnixDatagram::bind("/run/systemd/journal/socket").unwrap();
    socket.set_nonblocking(true).unwrap();
    let stderr = nix::sys::stat::fstat(io::stderr().as_fd()).unwrap();
    // SAFETY: the tests' other threads do not read the environment: this process runs one test.
    unsafe { std::env::set_var("JOURNAL_STREAM", format!("{}:{}", stderr.st_dev, stderr.st_ino)) };
    start(LevelFilter::INFO);
    decision("redis-server.service", &proven(), &sentence(&proven()));
    let mut message = [0; 4096];
    let messages: Vec<_> =
        std::iter::from_fn(|| socket.recv(&mut message).ok().map(|n| message[..n].to_vec()))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .filter(|message| !message.is_empty())
            .collect();
    let [message] = &messages[..] else { panic!("not one message: {messages:?}") };
    // A value that can have lines has its length before it.
    for field in ["GLEANER_WORKLOAD", "GLEANER_EVENT", "GLEANER_SETTING", "GLEANER_VERDICT", "GLEANER_RATIO"]
    {
        assert!(message.contains(&format!("\n{field}\n")), "{message:?}");
    }
    assert!(
        message.contains("redis-server.service: ") && message.contains("PRIORITY\n\x01\0\0\0\0\0\0\x006\n"),
        "{message:?}"
    );
}

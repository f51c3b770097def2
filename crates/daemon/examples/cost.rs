//! Measures what gleanerd itself costs: on an idle machine, and beside 500 services with 5,000 threads. As root, on a
//! machine where nothing else runs, after `cargo build --release -p gleaner-daemon`:
//!
//! ```sh
//! cargo run --release -p gleaner-daemon --example cost [SECONDS]
//! ```

#![allow(clippy::print_stdout, reason = "a table is what this program is for")]

use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use gleaner_testing::group::Slice;
use gleaner_testing::placement::{field, threads};

const SERVICES: usize = 500;
const THREADS: usize = 10;
/// One service in so many has threads that wake up...
const BUSY_ONE_IN: usize = 10;
/// ...this often.
const PAUSE: Duration = Duration::from_millis(20);
/// Until a daemon that has just started, and what it finds, have calmed down.
const WARM_UP: Duration = Duration::from_secs(10);
/// The argument that makes this program one of the services.
const SERVICE: &str = "--service";

type Failed = Box<dyn Error>;

fn main() -> Result<(), Failed> {
    let mut args = std::env::args().skip(1);
    match args.next().as_deref() {
        Some(SERVICE) => serve(args.next().as_deref() == Some("busy")),
        seconds => measure(Duration::from_secs(seconds.unwrap_or("30").parse()?))?,
    }
    Ok(())
}

/// A process whose threads sleep, for ever or for a moment at a time.
fn serve(busy: bool) {
    let sleep = move || loop {
        if busy { thread::sleep(PAUSE) } else { thread::park() }
    };
    for _ in 1..THREADS {
        thread::spawn(sleep);
    }
    sleep();
}

/// Kills its process when dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn measure(time: Duration) -> Result<(), Failed> {
    let own = std::env::current_exe()?;
    let built = own.parent().and_then(Path::parent).ok_or("no directory of programs")?;
    let gleanerd = built.join("gleanerd");
    println!("| | share of one vCPU | resident | wake-ups per second |\n|---|--:|--:|--:|");
    row(&gleanerd, "idle", time)?;

    let slice = Slice::new().ok_or("there are no control groups with CPU sets")?;
    let mut services = Vec::new();
    for number in 0..SERVICES {
        let service = slice.service(&format!("service{number}"));
        let mode = if number % BUSY_ONE_IN == 0 { "busy" } else { "asleep" };
        let process = Command::new(&own).args([SERVICE, mode]).stdin(Stdio::null()).spawn()?;
        service.add(process.id());
        services.push(Process(process));
    }
    let what = format!("{SERVICES} services, {} threads", SERVICES * THREADS);
    row(&gleanerd, &what, time)
}

/// Starts a daemon, measures it for `time`, and prints a row.
fn row(gleanerd: &Path, what: &str, time: Duration) -> Result<(), Failed> {
    let dir = std::env::temp_dir().join(format!("gleanerd-cost-{}", std::process::id()));
    fs::create_dir_all(&dir)?;
    fs::write(dir.join("gleaner.toml"), "")?;
    let mut command = Command::new(gleanerd);
    command.arg("--config").arg(&dir).arg("--socket").arg(dir.join("socket")).stderr(Stdio::null());
    let mut daemon = command.env("GLEANER_MEMORY", dir.join("memory")).spawn()?;
    let pid = daemon.id();
    thread::sleep(WARM_UP);
    let (begin, before) = (Instant::now(), Usage::of(pid));
    thread::sleep(time);
    let (seconds, after) = (begin.elapsed().as_secs_f64(), Usage::of(pid));
    println!(
        "| {what} | {:.3} % | {:.1} MiB | {:.2} |",
        (after.run_ns - before.run_ns) as f64 / 1e7 / seconds,
        after.resident_kib as f64 / 1024.0,
        (after.wakeups - before.wakeups) as f64 / seconds,
    );
    // In order: everything is put back.
    Command::new("kill").arg(pid.to_string()).status()?;
    daemon.wait()?;
    fs::remove_dir_all(&dir)?;
    Ok(())
}

#[derive(Debug, Default)]
struct Usage {
    run_ns: u64,
    wakeups: u64,
    resident_kib: u64,
}

impl Usage {
    /// Of all threads; 0 where it cannot be read.
    fn of(pid: u32) -> Self {
        let number = |text: Option<&str>| text.and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        let mut usage = Self::default();
        for tid in threads(pid) {
            let stat = fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).unwrap_or_default();
            usage.run_ns += number(stat.split_whitespace().next());
            usage.wakeups += number(field(tid, "voluntary_ctxt_switches").as_deref());
        }
        let resident = field(pid, "VmRSS").unwrap_or_default();
        usage.resident_kib = number(resident.split_whitespace().next());
        usage
    }
}

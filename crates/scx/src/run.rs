//! Schedules, answers clients, and starts again where the kernel asks for it.

use std::fs::OpenOptions;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use gleaner_kernel::Root;
use gleaner_print::{outln, say};
use gleaner_scx::{Autos, Ended, Options, Scheduler, Stats, answer};
use gleaner_scx_control::{SCX_SOCKET, SOCKET, Server};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// How long the end by the kernel may wait to be noticed.
const INTERVAL: Duration = Duration::from_millis(200);

static STOP: AtomicBool = AtomicBool::new(false);

extern "C" fn stop(_: libc::c_int) {
    STOP.store(true, Ordering::Relaxed);
}

/// How to print the counts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Print {
    pub(crate) interval: Duration,
    pub(crate) json: bool,
}

/// Schedules this host until a signal, or until the kernel ends it for good.
pub(crate) fn until_ended(
    mut options: Options,
    print: Option<Print>,
    record: Option<&Path>,
) -> anyhow::Result<ExitCode> {
    // What is in it is lost once the scheduler has started, and not before: it may be that of one that runs.
    let open = |path: &Path| {
        let opened = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        opened.with_context(|| format!("the record {} cannot be written", path.display()))
    };
    let mut record = record.map(open).transpose()?;
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let action = SigAction::new(SigHandler::Handler(stop), SaFlags::empty(), SigSet::empty());
        // SAFETY: the handler only stores a flag.
        unsafe { sigaction(signal, &action)? };
    }
    // From the first start to the last end.
    let mut server = None;
    loop {
        let mut scheduler = Scheduler::start(&Root::system(), &options, record.take())?;
        say!("{}: schedules this host until Ctrl-C", crate::NAME);
        if !scheduler.sees_kvm() {
            say!("{}: KVM is not loaded, so nothing becomes urgent; load it and start again", crate::NAME);
        }
        let server = server.get_or_insert_with(listen);
        let ended = watch(&mut scheduler, &mut options, server, print);
        end_record(&mut scheduler);
        let ended = ended?;
        if let Some(print) = print {
            print.stats(&scheduler.stats()?)?;
        }
        let Some(ended) = ended else {
            return Ok(ExitCode::SUCCESS);
        };
        let then = if ended.restart { "; it starts again" } else { "" };
        say!("{}: the kernel ended it: {} {}{then}", crate::NAME, ended.reason, ended.message);
        if !ended.restart {
            return Ok(if ended.failed { ExitCode::FAILURE } else { ExitCode::SUCCESS });
        }
        options.forget_ended(&Root::system());
    }
}

fn end_record(scheduler: &mut Scheduler) {
    match scheduler.end_record() {
        Ok(None) => {}
        Ok(Some(0)) => say!("{}: the record is complete", crate::NAME),
        Ok(Some(lost)) => {
            say!("{}: {lost} events are missing in the record, which cannot be replayed", crate::NAME);
        }
        Err(error) => say!("{}: {error}", crate::NAME),
    }
}

/// Scheduling goes on where nobody can be answered.
fn listen() -> Server {
    let mut server = Server::default();
    for path in [SOCKET, SCX_SOCKET] {
        if let Err(error) = server.listen(Path::new(path)) {
            say!("{}: {error}; it schedules all the same", crate::NAME);
        }
    }
    server
}

/// Answers clients and prints what the scheduler does, until a signal, or until the kernel has ended it.
fn watch(
    scheduler: &mut Scheduler,
    options: &mut Options,
    server: &mut Server,
    print: Option<Print>,
) -> anyhow::Result<Option<Ended>> {
    let root = Root::system();
    let (mut printed, mut autos) = (Instant::now(), Autos::default());
    while !STOP.load(Ordering::Relaxed) {
        let timeout = autos.due_in().map_or(INTERVAL, |due| due.min(INTERVAL));
        server.serve(timeout, &mut |call| answer(scheduler, options, &autos, &root, call));
        for (pid, decision) in autos.step(scheduler, options)? {
            say!("{}: process {pid}: {decision}", crate::NAME);
        }
        if let Err(error) = scheduler.write_record() {
            say!("{}: {error}; it schedules all the same", crate::NAME);
        }
        if let Some(ended) = scheduler.ended() {
            return Ok(Some(ended));
        }
        if let Some(print) = print.filter(|print| printed.elapsed() >= print.interval) {
            printed = Instant::now();
            print.stats(&scheduler.stats()?)?;
        }
    }
    Ok(None)
}

impl Print {
    fn stats(self, stats: &Stats) -> anyhow::Result<()> {
        if self.json {
            outln!("{}", serde_json::to_string(&stats.by_name())?)?;
        } else {
            outln!("{}", stats.text())?;
        }
        Ok(())
    }
}

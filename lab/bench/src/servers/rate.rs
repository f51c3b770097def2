//! A load that reports its rate once per second, for tests that change something else meanwhile.

use std::io::{BufRead as _, BufReader};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::{Duration, Instant};

use super::cell::{place, prepare};
use super::error::{Result, ServersError};
use super::launch::Launch;
use super::rows::{Load, Row};
use super::window::sleep;
use super::{mariadb, redis};
use crate::runner::interrupted;

/// Runs the load of `row` and passes each second's rate to `each` until that breaks. Only Redis and `MariaDB`
/// can be queried that often without disturbing them.
///
/// # Errors
/// If server or client do not start or end early, a signal arrives, or the row is of another kind.
pub fn watch(row: &Row, state: &Path, each: impl FnMut(f64) -> ControlFlow<()>) -> Result<()> {
    prepare(row, state)?;
    let place = place(row, state, &[])?;
    match row.load {
        Load::Redis { connections } => by_counter(&mut redis::start(&place, connections)?, each),
        Load::MariaDb { script, threads } => {
            let _server = mariadb::start(&place)?;
            by_lines(&mariadb::endless(&place, script, threads), each)
        }
        _ => Err(ServersError::Unknown {
            what: "load with a rate for each second",
            name: row.name.to_owned(),
            known: "redis-*, point-select-*, read-write-*".to_owned(),
        }),
    }
}

fn by_counter(load: &mut redis::Started, mut each: impl FnMut(f64) -> ControlFlow<()>) -> Result<()> {
    let mut last = (Instant::now(), load.commands()?);
    loop {
        sleep(Duration::from_secs(1))?;
        let now = (Instant::now(), load.commands()?);
        if let Some(status) = load.client.wait(Duration::ZERO)? {
            return Err(load.client.ended(status));
        }
        let rate = now.1.saturating_sub(last.1) as f64 / (now.0 - last.0).as_secs_f64();
        if each(rate).is_break() {
            return Ok(());
        }
        last = now;
    }
}

fn by_lines(client: &Launch, mut each: impl FnMut(f64) -> ControlFlow<()>) -> Result<()> {
    let (running, output) = client.start_piped()?;
    let mut log = String::new();
    for line in BufReader::new(output).lines() {
        let line = line.map_err(ServersError::system("read a client's output"))?;
        // Reading resumes by itself after a signal.
        if interrupted() {
            running.stop()?;
            return Err(ServersError::Interrupted);
        }
        match mariadb::rate(&line) {
            Some(rate) if each(rate).is_break() => return running.stop(),
            Some(_) => {}
            None => log.extend([line.as_str(), "\n"]),
        }
    }
    running.failed(&log)
}

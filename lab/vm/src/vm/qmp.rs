//! QEMU's monitor (QMP): which thread runs which vCPU.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::{Error, Result};

/// The monitor of one machine.
#[derive(Debug)]
pub(crate) struct Monitor {
    lines: BufReader<UnixStream>,
}

/// A vCPU and its host thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(crate) struct VcpuThread {
    #[serde(rename = "cpu-index")]
    pub(crate) vcpu: usize,
    #[serde(rename = "thread-id")]
    pub(crate) thread: i32,
}

impl Monitor {
    /// Opens the connection.
    pub(crate) fn open(stream: UnixStream) -> Result<Self> {
        let mut monitor = Self { lines: BufReader::new(stream) };
        monitor.line()?;
        monitor.ask("qmp_capabilities")?;
        Ok(monitor)
    }

    /// The vCPUs' threads, by vCPU.
    pub(crate) fn vcpu_threads(&mut self) -> Result<Vec<VcpuThread>> {
        let answer = self.ask("query-cpus-fast")?;
        let mut threads: Vec<VcpuThread> =
            serde_json::from_value(answer).map_err(|error| unexpected_answer(error.to_string()))?;
        threads.sort_by_key(|thread| thread.vcpu);
        Ok(threads)
    }

    /// Sends a command and returns its result; skips events in between.
    fn ask(&mut self, command: &str) -> Result<Value> {
        let words = format!("{}\n", json!({ "execute": command }));
        self.lines.get_mut().write_all(words.as_bytes()).map_err(Error::system("ask QEMU's monitor"))?;
        loop {
            let mut answer = self.line()?;
            if let Some(value) = answer.get_mut("return") {
                return Ok(value.take());
            }
            if let Some(error) = answer.get("error") {
                return Err(unexpected_answer(format!("`{command}`: {error}")));
            }
        }
    }

    fn line(&mut self) -> Result<Value> {
        let mut line = String::new();
        self.lines.read_line(&mut line).map_err(Error::system("listen to QEMU's monitor"))?;
        if line.is_empty() {
            return Err(unexpected_answer("it hung up".to_owned()));
        }
        serde_json::from_str(&line).map_err(|error| unexpected_answer(format!("{error}: {line}")))
    }
}

fn unexpected_answer(what: String) -> Error {
    Error::Protocol { who: "QEMU's monitor".to_owned(), what }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_come_sorted_and_events_are_passed_over() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let said = "{\"QMP\":{}}\n{\"return\":{}}\n{\"event\":\"RESUME\"}\n\
                    {\"return\":[{\"cpu-index\":1,\"thread-id\":12},{\"cpu-index\":0,\"thread-id\":11}]}\n\
                    {\"error\":{\"desc\":\"no\"}}\n";
        theirs.write_all(said.as_bytes()).unwrap();
        let mut monitor = Monitor::open(ours).unwrap();
        let threads = monitor.vcpu_threads().unwrap();
        assert_eq!(threads.iter().map(|t| t.thread).collect::<Vec<_>>(), [11, 12]);
        assert!(monitor.vcpu_threads().unwrap_err().to_string().contains("\"no\""));
        drop(theirs);
        assert!(monitor.vcpu_threads().is_err());
    }
}

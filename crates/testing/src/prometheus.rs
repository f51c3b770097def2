//! A real Prometheus, which scrapes what a test gives it.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::skipped;

const TIMEOUT: Duration = Duration::from_secs(60);

/// A file of `packaging/`.
pub fn packaging(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(file)
}

/// A Prometheus of its own, which ends with it.
#[derive(Debug)]
pub struct Prometheus {
    process: Child,
    address: SocketAddr,
}

impl Prometheus {
    /// Scrapes `target` four times a second, with the packaged alerts and its data in `dir`; `None` if it is not installed, and the test is skipped.
    pub fn start(dir: &Path, target: SocketAddr) -> Option<Self> {
        let config = dir.join("prometheus.yml");
        let text = format!(
            "global: {{ scrape_interval: 250ms, scrape_timeout: 250ms, evaluation_interval: 250ms }}\n\
             rule_files: ['{}']\n\
             scrape_configs: [{{ job_name: gleaner, static_configs: [{{ targets: ['{target}'] }}] }}]\n",
            packaging("prometheus/gleaner.rules.yml").display(),
        );
        fs::write(&config, text).unwrap();
        let process = Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!("--storage.tsdb.path={}", dir.join("data").display()))
            .arg("--web.listen-address=127.0.0.1:0")
            .stderr(Stdio::piped())
            .spawn();
        let Ok(mut process) = process else {
            skipped("there is no prometheus; `scripts/setup test` installs it");
            return None;
        };
        // It says on which port it listens, and more later, which nobody reads: the pipe has room for that.
        let mut log = BufReader::new(process.stderr.take().unwrap()).lines().map_while(Result::ok);
        let listening = log.find(|line| line.contains("msg=\"Listening on\""));
        let address =
            listening.as_deref().and_then(|line| line.split("address=").nth(1)).unwrap().parse().unwrap();
        std::thread::spawn(move || log.for_each(drop));
        Some(Self { process, address })
    }

    /// The answer to a query of its API: `data`.
    ///
    /// # Errors
    /// The error, as text.
    pub fn get(&self, path: &str, parameters: &[(&str, &str)]) -> Result<Value, String> {
        let encoded: Vec<_> =
            parameters.iter().map(|(name, value)| format!("{name}={}", percent(value))).collect();
        let mut stream = TcpStream::connect(self.address).map_err(|error| error.to_string())?;
        // Version 1.0, so that the answer comes in one piece.
        let request = format!("GET /api/v1/{path}?{} HTTP/1.0\r\n\r\n", encoded.join("&"));
        stream.write_all(request.as_bytes()).map_err(|error| error.to_string())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).map_err(|error| error.to_string())?;
        let body = answer.split_once("\r\n\r\n").unwrap_or_default().1;
        let mut body: Value = serde_json::from_str(body).map_err(|error| format!("{error}: {answer}"))?;
        if body["status"] == "success" { Ok(body["data"].take()) } else { Err(body.to_string()) }
    }

    /// The samples of a query: labels and value.
    ///
    /// # Errors
    /// The error, as text.
    pub fn query(&self, query: &str) -> Result<Vec<Value>, String> {
        Ok(self.get("query", &[("query", query)])?["result"].as_array().cloned().unwrap_or_default())
    }

    /// Waits for a sample of the query, for a minute at most.
    pub fn wait_for(&self, query: &str) -> Vec<Value> {
        let started = Instant::now();
        loop {
            let answer = self.query(query);
            match &answer {
                Ok(samples) if !samples.is_empty() => return answer.unwrap(),
                _ if started.elapsed() > TIMEOUT => panic!("no sample of `{query}`: {answer:?}"),
                // Prometheus has no event for a new sample.
                _ => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn percent(text: &str) -> String {
    text.bytes()
        .map(|b| if b.is_ascii_alphanumeric() { char::from(b).to_string() } else { format!("%{b:02X}") })
        .collect()
}

//! `make bench-trace`: what tracing costs real servers, how well it agrees with independent measurements, and how fast
//! fast expansion is. Prints a table, whose numbers `make promises` judges; exits with status 1 if a part failed. Run it
//! as root on an otherwise idle machine, with `gleaner` and `gleaner-bench` built. Arguments select parts.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a measurement for developers: the end of its output may end it"
)]

mod agreement;
mod interleaved;
mod overload;
mod sockets;
mod throughput;
mod waiting;

use std::error::Error;
use std::process::ExitCode;

type Outcome = Result<(), Box<dyn Error>>;
type Part = fn() -> Outcome;

const PARTS: [(&str, &str, Part); 9] = [
    ("redis", "redis, 1 connection, under gleaner run, with tracing beside it", throughput::redis),
    ("mariadb", "MariaDB, 16 threads, under gleaner run, with tracing beside it", throughput::mariadb),
    ("waiting", "Measuring wake-up latencies for the decision, interleaved", waiting::waiting),
    ("sockets", "Counting traffic through sockets, interleaved", sockets::cost),
    ("messages", "What counting adds to each message", sockets::messages),
    ("answers", "What goes through sockets for each answer", sockets::answers),
    ("latency", "Wake-up latencies beside the ping-pong's own clock", agreement::latencies),
    ("counters", "Counters beside the kernel's own, over 10 s", agreement::counters),
    ("overload", "Fast expansion: from two runnable threads on one vCPU to the event", overload::overload),
];

fn main() -> ExitCode {
    let chosen: Vec<String> = std::env::args().skip(1).collect();
    if let Some(unknown) = chosen.iter().find(|name| !PARTS.iter().any(|(known, ..)| known == name)) {
        let known = PARTS.map(|(name, ..)| name).join(", ");
        eprintln!("bench-trace: there is no part `{unknown}`; there are: {known}");
        return ExitCode::from(2);
    }
    let mut status = ExitCode::SUCCESS;
    for (name, title, part) in PARTS {
        if !chosen.is_empty() && !chosen.iter().any(|c| c == name) {
            continue;
        }
        println!("\n{title}");
        if let Err(error) = part() {
            println!("  failed: {error}");
            status = ExitCode::FAILURE;
        }
    }
    status
}

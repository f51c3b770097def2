//! A machine's serial console. The last lines are kept in memory, and written to a file on a failure.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use crate::tool;

/// Bytes kept from its end.
const KEPT_BYTES: usize = 256 << 10;
/// Lines in an error message.
const REPORTED_LINES: usize = 25;
const PANIC: &str = "Kernel panic";
const OOPS: &str = "Oops: ";

/// The console of a running machine, read by a thread until QEMU closes it.
#[derive(Debug)]
pub(crate) struct Console {
    text: Arc<Mutex<Vec<u8>>>,
    reader: Mutex<Option<JoinHandle<()>>>,
}

impl Console {
    pub(crate) fn read(mut from: UnixStream) -> Self {
        let text = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&text);
        let reader = thread::spawn(move || {
            let mut block = vec![0; 16 << 10];
            while let Ok(read @ 1..) = from.read(&mut block) {
                let mut text = into.lock().unwrap_or_else(PoisonError::into_inner);
                text.extend(&block[..read]);
                let excess = text.len().saturating_sub(KEPT_BYTES);
                text.drain(..excess);
            }
        });
        Self { text, reader: Mutex::new(Some(reader)) }
    }

    /// Everything that is kept, as plain lines.
    pub(crate) fn text(&self) -> String {
        plain(&String::from_utf8_lossy(&self.text.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Waits until QEMU has closed the console, on exit.
    pub(crate) fn wait(&self) {
        let reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(reader) = reader {
            let _ = reader.join();
        }
    }
}

/// The last lines, for an error message.
pub(crate) fn end(text: &str) -> String {
    tool::tail(text, REPORTED_LINES)
}

/// From the start of the oops that led to a panic, or from the panic on; `None` without a panic.
pub(crate) fn panic(text: &str) -> Option<String> {
    let line_of = |at: usize| text[..at].rfind('\n').map_or(0, |end| end + 1);
    let panic = line_of(text.rfind(PANIC)?);
    let oops = text[..panic].rfind(OOPS).map_or("", |oops| &text[line_of(oops)..panic]);
    let lines: Vec<&str> =
        oops.lines().take(REPORTED_LINES).chain(text[panic..].lines().take(REPORTED_LINES)).collect();
    Some(lines.join("\n"))
}

/// Removes empty lines and the firmware's escape sequences.
fn plain(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\u{1b}' => {
                if rest.next_if(|&c| c == '[').is_some() {
                    while rest.next().is_some_and(|c| !c.is_ascii_alphabetic()) {}
                } else {
                    rest.next();
                }
            }
            '\n' if out.ends_with('\n') => {}
            '\r' => {}
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_found_with_what_follows() {
        let text = "booting\n[ 1.0] Kernel panic - not syncing: sysrq\n[ 1.1] CPU: 0\n";
        assert_eq!(panic(text).unwrap(), "[ 1.0] Kernel panic - not syncing: sysrq\n[ 1.1] CPU: 0");
        assert_eq!(panic("all is well\n"), None);
        let oops = "[ 0.8] Oops: int3: 0000 [#1] PREEMPT SMP\n[ 0.9] RIP: 0010:bpf_trace_run1";
        let panicked = "[ 1.0] Kernel panic - not syncing: Fatal exception in interrupt";
        assert_eq!(panic(&format!("booting\n{oops}\n{panicked}\n")).unwrap(), format!("{oops}\n{panicked}"));
    }

    #[test]
    fn escape_sequences_are_no_text() {
        assert_eq!(plain("\u{1b}c\u{1b}[?7l\u{1b}[2JSeaBIOS\r\n\r\nBooting\r\n"), "SeaBIOS\nBooting\n");
    }
}

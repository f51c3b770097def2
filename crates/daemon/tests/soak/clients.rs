//! Clients of the control socket that send garbage, read slowly or not at all, or do what they should.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::common::random::Random;
use crate::common::user::{GROUP, NOBODY, become_user};

/// As many as the daemon accepts.
const CLIENTS: u64 = 64;
const STATUS: &[u8] = b"{\"method\":\"io.gleaner.Control.Status\"}\0";
const WATCH: &[u8] =
    b"{\"method\":\"io.gleaner.Control.Watch\",\"parameters\":{\"interval_ms\":100},\"more\":true}\0";
const WHY: &[u8] = b"{\"method\":\"io.gleaner.Control.Why\",\"parameters\":{},\"more\":true}\0";
const PAUSE: &[u8] = b"{\"method\":\"io.gleaner.Control.Pause\"}\0";

/// All of them, until they are dropped.
pub(crate) struct Clients {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    socket: PathBuf,
    stop: AtomicBool,
    /// Nobody connects meanwhile.
    hold: AtomicBool,
}

impl Clients {
    /// They are in the group that may read.
    pub(crate) fn start(socket: PathBuf) -> Self {
        let shared = Arc::new(Shared { socket, stop: false.into(), hold: false.into() });
        let client = |seed| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                become_user(NOBODY, &[GROUP.1]);
                shared.run(&mut Random::new(seed));
            })
        };
        Self { threads: (1..=CLIENTS).map(client).collect(), shared }
    }

    /// Whether they stay away.
    pub(crate) fn hold(&self, hold: bool) {
        self.shared.hold.store(hold, Ordering::Relaxed);
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self, random: &mut Random) {
        while !self.stop.load(Ordering::Relaxed) {
            let pause = Duration::from_millis(200 + random.next() % 1800);
            if !self.hold.load(Ordering::Relaxed)
                && let Ok(mut stream) = UnixStream::connect(&self.socket)
            {
                self.use_it(&mut stream, random);
            }
            thread::sleep(pause);
        }
    }

    /// Whatever goes wrong is the client's own business.
    fn use_it(&self, stream: &mut UnixStream, random: &mut Random) {
        let wait = Duration::from_millis(random.next() % 1500);
        let _ = stream.set_write_timeout(Some(Duration::from_millis(100)));
        let _ = stream.set_read_timeout(Some(Duration::from_millis(100)));
        let mut answer = [0; 512];
        match random.next() % 7 {
            0 => {
                let garbage: Vec<u8> =
                    (0..random.next() % 5000).map(|_| random.next().to_le_bytes()[0]).collect();
                let _ = stream.write_all(&garbage);
            }
            1 => drop(stream.write_all(&vec![b'['; 100_000])),
            // Half of a request, and then nothing.
            2 => drop(stream.write_all(&STATUS[..STATUS.len() / 2])),
            3 => drop(stream.write_all(PAUSE)),
            // Asked for much, and never reads.
            4 => drop(stream.write_all(WHY)),
            5 => {
                let _ = stream.write_all(WATCH);
                for _ in 0..3 {
                    let _ = stream.read(&mut answer);
                }
            }
            _ => {
                let _ = stream.write_all(STATUS);
                let _ = stream.read(&mut answer);
            }
        }
        if !self.hold.load(Ordering::Relaxed) {
            thread::sleep(wait);
        }
    }
}

//! The harness's end of the connection to the agent. Many requests can be pending, each with its own receiver.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;

use crate::wire::{self, Answer, Request};

/// An answer and its body.
pub(crate) type Reply = (Answer, Vec<u8>);
type Waiting = Arc<Mutex<BTreeMap<u64, mpsc::Sender<Reply>>>>;

/// The connection.
#[derive(Debug)]
pub(crate) struct Channel {
    stream: Mutex<UnixStream>,
    waiting: Waiting,
    next: AtomicU64,
}

impl Channel {
    /// Opens the connection. Returns also the receiver of the agent's greeting. If QEMU hangs up, all receivers fail.
    pub(crate) fn open(stream: UnixStream) -> io::Result<(Self, mpsc::Receiver<Reply>)> {
        let waiting: Waiting = Arc::default();
        let (greeted, greeting) = mpsc::channel();
        lock(&waiting).insert(0, greeted);
        let mut from = stream.try_clone()?;
        let answers = Arc::clone(&waiting);
        thread::spawn(move || {
            while let Ok((answer, body)) = wire::receive::<Answer>(&mut from) {
                if let Some(asked) = lock(&answers).remove(&answer.id) {
                    let _ = asked.send((answer.message, body));
                }
            }
            lock(&answers).clear();
        });
        Ok((Self { stream: Mutex::new(stream), waiting, next: AtomicU64::new(1) }, greeting))
    }

    /// Sends a request. Returns its number and the receiver of the answer, which fails if QEMU hangs up.
    pub(crate) fn ask(&self, request: &Request, body: &[u8]) -> (u64, mpsc::Receiver<Reply>) {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = mpsc::channel();
        lock(&self.waiting).insert(id, answer);
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        if wire::send(&mut *stream, id, request, body).is_err() {
            lock(&self.waiting).remove(&id);
        }
        (id, answered)
    }
}

fn lock(waiting: &Waiting) -> std::sync::MutexGuard<'_, BTreeMap<u64, mpsc::Sender<Reply>>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_find_their_askers_in_any_order() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (channel, greeting) = Channel::open(ours).unwrap();
        wire::send(&mut theirs, 0, Answer::Hello { release: "7".to_owned() }, b"").unwrap();
        assert!(matches!(greeting.recv().unwrap().0, Answer::Hello { .. }));
        let (first, one) = channel.ask(&Request::PowerOff, b"");
        let (second, two) = channel.ask(&Request::PowerOff, b"");
        wire::send(&mut theirs, second, Answer::Done, b"2").unwrap();
        wire::send(&mut theirs, first, Answer::Done, b"1").unwrap();
        assert_eq!(one.recv().unwrap().1, b"1");
        assert_eq!(two.recv().unwrap().1, b"2");
        let (_, lost) = channel.ask(&Request::PowerOff, b"");
        drop(theirs);
        assert!(lost.recv().is_err());
    }
}

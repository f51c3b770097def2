//! Everything that happens without the daemon: accepting, reading, writing, timeouts.

use std::io::{ErrorKind, Write as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use nix::sys::epoll::{EpollEvent, EpollFlags, EpollTimeout};

use super::connection::{Connection, InProgress, Input, Progress};
use super::{Event, LISTENER, Reason, Refusal, Server};
use crate::wire::{self, Asked, Message};
use crate::{Call, CallId, Error, Peer, To};

/// How long nothing is accepted after the kernel refused to (no descriptors left).
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);
/// A client that was served this recently is not disconnected to make room.
const RECENT: Duration = Duration::from_secs(1);
/// The most events that are taken from the kernel at once; the others are next.
const EVENTS: usize = 64;

impl Server {
    pub(super) fn progress(&mut self, now: Instant) {
        let mut ready = [EpollEvent::empty(); EVENTS];
        // Interrupted: the descriptor stays readable, so that this is called again.
        let count = self.epoll.wait(&mut ready, EpollTimeout::ZERO).unwrap_or(0);
        for event in &ready[..count] {
            match event.data() {
                LISTENER => self.accept(now),
                key => self.receive(key, event.events(), now),
            }
        }
        if self.accept_after.is_some_and(|after| now >= after) {
            self.accept(now);
        }
        for index in 0..self.connections.len() {
            while self.advance(index, now) {}
            self.expire(index, now);
        }
        self.settle(now);
    }

    fn accept(&mut self, now: Instant) {
        let after = loop {
            if !self.accepts.is_ready(now) {
                break Some(self.accepts.ready_at());
            }
            match self.listener.accept() {
                Ok((stream, _)) => {
                    self.accepts.take(now);
                    self.admit(stream, now);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break None,
                Err(error)
                    if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
                Err(_) => break Some(now + ACCEPT_PAUSE),
            }
        };
        if after.is_some() != self.accept_after.is_some() {
            let interest = if after.is_some() { EpollFlags::empty() } else { EpollFlags::EPOLLIN };
            // Cannot fail: the socket was added.
            let _ = self.epoll.modify(&self.listener, &mut EpollEvent::new(interest, LISTENER));
        }
        self.accept_after = after;
    }

    /// Takes a new client, if the kernel says who it is and there is room.
    fn admit(&mut self, stream: UnixStream, now: Instant) {
        let Ok(peer) = Peer::of(&stream, self.group) else { return };
        if stream.set_nonblocking(true).is_err() {
            return;
        }
        if !self.make_room(&peer, now) {
            let clients = self.connections.len();
            let mut reply = Vec::new();
            wire::append(&mut reply, &Error::Busy { reason: format!("there are {clients} clients already") });
            // It fits into an empty socket, and nobody waits for whoever is gone.
            let _ = (&stream).write(&reply);
            return self.refused(peer, Reason::Full { clients }, now);
        }
        self.last_key += 1;
        let connection = Connection::new(stream, self.last_key, peer, &self.limits, now);
        if self.epoll.add(&connection, EpollEvent::new(connection.interest, connection.key)).is_ok() {
            self.connections.push(connection);
        }
    }

    /// Whether there is room for a client of `peer`, if need be in place of one that has been idle for longest.
    fn make_room(&mut self, peer: &Peer, now: Instant) -> bool {
        let reserved = if peer.is_owner { 0 } else { self.limits.for_root };
        let most = self.limits.clients.saturating_sub(reserved);
        while self.connections.len() >= most {
            let idle = self.connections.iter().enumerate().filter(|(_, other)| {
                other.is_idle() && now >= other.active_at + RECENT && (peer.is_owner || !other.peer.is_owner)
            });
            let Some((index, _)) = idle.min_by_key(|(_, other)| other.active_at) else { return false };
            self.connections.swap_remove(index);
        }
        true
    }

    fn receive(&mut self, key: u64, ready: EpollFlags, now: Instant) {
        let Some(index) = self.connections.iter().position(|connection| connection.key == key) else {
            return;
        };
        let connection = &mut self.connections[index];
        let is_gone = ready.intersects(EpollFlags::EPOLLHUP | EpollFlags::EPOLLERR);
        if (is_gone || ready.contains(EpollFlags::EPOLLIN)) && !connection.end_of_input {
            match connection.read(self.limits.message, now) {
                Input::Open => {}
                Input::End => self.hung_up(index),
                Input::Broken => connection.closed = true,
                Input::TooLong => {
                    connection.closed = true;
                    let (peer, most) = (connection.peer, self.limits.message);
                    self.refused(peer, Reason::Oversize { most }, now);
                }
            }
        }
        if is_gone {
            // What it sent before is done: a request of which it does not want to know the answer.
            while self.advance(index, now) {}
            self.connections[index].closed = true;
        }
    }

    /// Lets the daemon know, once, that the caller of an `Attach` is gone.
    fn hung_up(&mut self, index: usize) {
        if let Some(InProgress { id, progress: Progress::Attached { hung_up }, .. }) =
            &mut self.connections[index].call
            && !std::mem::replace(hung_up, true)
        {
            self.events.push_back(Event::HungUp(*id));
        }
    }

    /// Does the next thing for a client. Whether it did, so that there may be another one.
    fn advance(&mut self, index: usize, now: Instant) -> bool {
        let connection = &mut self.connections[index];
        if connection.closed {
            return false;
        }
        match &mut connection.call {
            None => {
                if !connection.can_be_served(&self.limits) || !connection.bucket.take(now) {
                    return false;
                }
                let Some(message) = connection.take_message(now) else { return false };
                self.handle(index, &message, now);
                true
            }
            Some(InProgress { id, progress: Progress::Watch { due, .. }, .. }) => {
                if connection.output.is_empty() && due.is_some_and(|due| now >= due) {
                    *due = None;
                    let (peer, call) = (connection.peer, Call::Status(To::new(*id)));
                    self.events.push_back(Event::Call { peer, call });
                }
                false
            }
            Some(InProgress { progress: Progress::Records(records), .. }) => {
                while connection.output.len() < self.limits.backlog {
                    let next = records.rest.next();
                    wire::append_reply(&mut connection.output, &records.next, next.is_some());
                    let Some(next) = next else {
                        connection.call = None;
                        return true;
                    };
                    records.next = next;
                }
                false
            }
            Some(_) => false,
        }
    }

    fn handle(&mut self, index: usize, message: &[u8], now: Instant) {
        let connection = &mut self.connections[index];
        let peer = connection.peer;
        let message = match Message::parse(message) {
            Ok(message) => message,
            Err(error) => {
                connection.closed = true;
                return self.refused(peer, Reason::Garbage { error: error.to_string() }, now);
            }
        };
        self.last_call += 1;
        let (id, oneway, method) = (CallId(self.last_call), message.oneway(), message.method.clone());
        let in_progress = |progress| Some(InProgress { id, oneway, progress });
        match message.asked(&peer, id) {
            Ok(Asked::Introspection(reply)) if !oneway => {
                wire::append_reply(&mut connection.output, &reply, false);
            }
            Ok(Asked::Introspection(_)) => {}
            Ok(Asked::Watch(every)) => {
                let every = every.max(self.limits.shortest_interval);
                connection.call = in_progress(Progress::Watch { every, due: Some(now) });
            }
            Ok(Asked::Daemon(call)) => {
                let attached = matches!(call, Call::Attach(..));
                let progress =
                    if attached { Progress::Attached { hung_up: false } } else { Progress::Answer };
                connection.call = in_progress(progress);
                let at_end = connection.end_of_input;
                self.events.push_back(Event::Call { peer, call });
                if at_end {
                    self.hung_up(index);
                }
            }
            Err(error) => {
                if !oneway {
                    wire::append(&mut connection.output, &error);
                }
                if matches!(error, Error::PermissionDenied { .. }) {
                    self.refused(peer, Reason::Permission { method }, now);
                }
            }
        }
    }

    /// Disconnects a client that is too slow.
    fn expire(&mut self, index: usize, now: Instant) {
        let connection = &mut self.connections[index];
        let reason = if connection.is_incomplete(&self.limits, now) {
            Reason::Incomplete
        } else if connection.is_slow(&self.limits, now) {
            Reason::Slow
        } else {
            return;
        };
        if !std::mem::replace(&mut connection.closed, true) {
            let peer = connection.peer;
            self.refused(peer, reason, now);
        }
    }

    /// Writes what can be written, removes who is gone, and sets what the kernel is to report.
    pub(super) fn settle(&mut self, now: Instant) {
        for index in 0..self.connections.len() {
            let connection = &mut self.connections[index];
            // Also to whoever is about to be disconnected: an answer is owed to what came before.
            let broken = connection.flush(now).is_err();
            connection.closed |= broken || (connection.end_of_input && connection.is_done());
            if connection.closed {
                self.hung_up(index);
                continue;
            }
            let wanted = connection.wanted();
            if wanted != connection.interest {
                connection.interest = wanted;
                let mut event = EpollEvent::new(wanted, connection.key);
                connection.closed = self.epoll.modify(&*connection, &mut event).is_err();
            }
        }
        // The kernel forgets a descriptor that is closed.
        self.connections.retain(|connection| !connection.closed);
    }

    fn refused(&mut self, peer: Peer, reason: Reason, now: Instant) {
        if self.reports.take(now) {
            let unreported = std::mem::take(&mut self.unreported);
            self.events.push_back(Event::Refused(Refusal { peer, reason, unreported }));
        } else {
            self.unreported = self.unreported.saturating_add(1);
        }
    }
}

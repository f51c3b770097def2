//! What a client sends to the control socket, in pieces. Whatever comes back is messages of Varlink.

#![no_main]

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use gleaner_control::{Call, Error, Event, Limits, Nothing, Server};
use gleaner_fuzz::scratch;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let path = scratch("control.sock");
    let (server, _) = Server::bind(&path, None).expect("a socket");
    let limits = Limits { timeout: Duration::from_secs(3600), requests_per_s: 1e6, ..Limits::default() };
    let mut server = server.with_limits(limits);
    let mut client = UnixStream::connect(&path).expect("a connection");
    client.set_nonblocking(true).expect("it does not wait");
    let mut received = Vec::new();
    // The first byte says how long the pieces are.
    let (piece, bytes) =
        bytes.split_first().map_or((1, bytes), |(first, rest)| (usize::from(*first) * 16 + 1, rest));
    for piece in bytes.chunks(piece) {
        // The server ends a connection that breaks the rules.
        let _ = client.write_all(piece);
        turn(&mut server);
        let _ = client.read_to_end(&mut received);
    }
    let _ = client.shutdown(std::net::Shutdown::Write);
    turn(&mut server);
    let _ = client.read_to_end(&mut received);
    for message in received.split(|byte| *byte == 0).filter(|message| !message.is_empty()) {
        let message: serde_json::Value = serde_json::from_slice(message).expect("a message is JSON");
        assert!(message.is_object());
    }
});

fn turn(server: &mut Server) {
    while let Some(event) = server.serve() {
        let Event::Call { peer, call } = event else { continue };
        assert!(peer.can_read());
        match call {
            Call::Status(to) => server.answer(to, no()),
            Call::Why(_, to) => server.answer(to, no()),
            Call::Attach(_, to) => server.answer(to, no()),
            Call::Detach(_, to) | Call::Pause(_, to) | Call::Resume(to) => server.answer(to, Ok(Nothing {})),
            Call::Forget(_, to) => server.answer(to, no()),
            Call::Reload(to) => server.answer(to, no()),
            Call::Metrics(to) => server.answer(to, no()),
        }
    }
}

fn no<R>() -> Result<R, Error> {
    Err(Error::failed("no"))
}

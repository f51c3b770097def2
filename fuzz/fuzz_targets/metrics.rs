//! What a client sends to the exporter of metrics. Whatever comes back is HTTP.

#![no_main]

use std::cell::RefCell;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

use gleaner_metrics::Exporter;
use libfuzzer_sys::fuzz_target;

thread_local! {
    static SERVER: RefCell<(Exporter, SocketAddr)> = {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
        let address = listener.local_addr().expect("its address");
        RefCell::new((Exporter::new(listener).expect("an exporter"), address))
    };
}

fuzz_target!(|bytes: &[u8]| {
    SERVER.with_borrow_mut(|(exporter, address)| {
        let mut client = TcpStream::connect(*address).expect("a connection");
        client.set_nonblocking(true).expect("it does not wait");
        let mut received = Vec::new();
        for piece in bytes.chunks(1 + bytes.len() / 3) {
            let _ = client.write_all(piece);
            exporter.serve(&mut || "# EOF\n".to_owned());
            let _ = client.read_to_end(&mut received);
        }
        let _ = client.shutdown(std::net::Shutdown::Write);
        for _ in 0..2 {
            exporter.serve(&mut || "# EOF\n".to_owned());
        }
        let _ = client.read_to_end(&mut received);
        assert!(received.is_empty() || received.starts_with(b"HTTP/1.1 "));
    });
});

//! memcached: its text protocol over loopback TCP, four worker threads (its default).

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::context::{CellContext, Server};
use super::error::Result;
use super::launch::{Launch, free_address};

/// Timeout of an answer; long enough for a machine that stalls for a while.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Starts a server; returns it and its port.
pub(super) fn server(place: &CellContext) -> Result<(Server, u16)> {
    let (address, pid_file) = (free_address()?, place.path("memcached.pid"));
    let launch = Launch::new("memcached")
        // By default it refuses to run as root; without root it ignores this.
        .args(["-u", "root", "-l", "127.0.0.1", "-U", "0", "-p", &address.port().to_string(), "-P"])
        .arg(&pid_file);
    let server = place.server(launch, &pid_file, || answers(address).is_ok())?;
    Ok((server, address.port()))
}

fn answers(address: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(b"version\r\n")?;
    let mut answer = [0; 8];
    stream.read_exact(&mut answer)?;
    if answer == *b"VERSION " { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

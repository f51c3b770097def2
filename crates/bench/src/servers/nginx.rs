//! nginx: one small file over loopback TCP, one worker process.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use nix::unistd::Uid;

use super::cell::{Measured, Place};
use super::launch::{Launch, make_dir};
use super::{Error, Result, Window};

/// The size of the file, in bytes: small enough to be one segment.
const FILE_SIZE: usize = 612;

pub(super) fn measure(place: &Place, connections: u32, window: Window) -> Result<Measured> {
    let address = free_address()?;
    let (config, pid_file) = (place.path("nginx.conf"), place.path("nginx.pid"));
    make_dir(&place.path("html"), None)?;
    write(&place.path("html/index.html"), &"x".repeat(FILE_SIZE))?;
    write(&config, &configuration(&place.path(""), address))?;
    let launch = Launch::new("nginx").arg("-e").arg(place.path("error.log")).arg("-c").arg(&config);
    let server = place.server(launch, &pid_file, || requests(address).is_ok())?;
    let url = format!("http://{address}/index.html");
    // Stopped long before it is through: the window is taken from the server's own counter.
    let connections = connections.to_string();
    let client = Launch::new("wrk").args(["-t", "1", "-c", &connections, "-d", "1h", &url]);
    let mut running = client.start(&place.path("client.log"))?;
    let sample = window.of_counter(&mut running, || requests(address))?;
    running.stop()?;
    server.running.stop()?;
    Ok(Measured { sample, commands: vec![server.command, client.line()] })
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(Error::file("write", path))
}

fn configuration(dir: &Path, address: SocketAddr) -> String {
    let user = if Uid::effective().is_root() { "user root;" } else { "" };
    let dir = dir.display();
    let temp: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("    {kind}_temp_path {dir}/{kind};\n"))
        .concat();
    format!(
        "daemon off;\n{user}\nworker_processes 1;\npid {dir}/nginx.pid;\nevents {{}}\nhttp {{\n    access_log off;\n\
         \x20   keepalive_requests 1000000000;\n{temp}    server {{\n        listen {address};\n        root {dir}/html;\n\
         \x20       location = /status {{ stub_status; }}\n    }}\n}}\n"
    )
}

/// A loopback port that is free now. Somebody else could take it before nginx does; then nginx says so and ends.
fn free_address() -> Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map_err(Error::system("find a free port"))
}

/// How many requests the server has had (`ngx_http_stub_status_module`): the third number of the third line.
fn requests(address: SocketAddr) -> Result<u64> {
    let talk = || -> io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"GET /status HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let answer = talk().map_err(Error::system(format!("ask nginx at {address}")))?;
    count(&answer).ok_or(Error::Answer { program: "nginx", answer })
}

fn count(answer: &str) -> Option<u64> {
    let mut lines = answer.lines().skip_while(|line| !line.starts_with("server accepts handled requests"));
    lines.nth(1)?.split_whitespace().nth(2)?.parse().ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_status_page_is_read() {
        let page = "HTTP/1.1 200 OK\r\n\r\nActive connections: 2 \nserver accepts handled requests\n \
                    16 17 31070 \nReading: 0 Writing: 1 Waiting: 1 \n";
        assert_eq!(super::count(page), Some(31070));
        assert_eq!(super::count("404 Not Found"), None);
    }
}

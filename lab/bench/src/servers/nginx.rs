//! nginx: one small file over loopback TCP, one worker process.

use std::fs;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use nix::unistd::Uid;

use super::context::{CellContext, Server};
use super::error::{Result, ServersError};
use super::launch::{Launch, free_address, make_dir};
use super::sample::{Measured, Sample};
use super::window::Window;

/// Size of the file in bytes: fits into one segment.
const FILE_SIZE: usize = 612;
/// Timeout of an answer; long enough for a machine that stalls for a while.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(super) fn measure(place: &CellContext, connections: u32, window: Window) -> Result<Measured> {
    let (server, address) = file_server(place)?;
    let (sample, client) = load(place, address, connections, window)?;
    server.running.stop()?;
    Ok(Measured { sample, commands: vec![server.command, client] })
}

/// A reverse proxy: a second nginx forwards every request to the file server over keep-alive connections.
pub(super) fn measure_proxy(place: &CellContext, connections: u32, window: Window) -> Result<Measured> {
    let (back, back_address) = file_server(&place.below("back")?)?;
    let front_place = place.below("front")?;
    let (upstream, location) = proxy_to(back_address);
    let (front, address) = start(&front_place, &upstream, location)?;
    let (sample, client) = load(place, address, connections, window)?;
    front.running.stop()?;
    back.running.stop()?;
    Ok(Measured { sample, commands: vec![back.command, front.command, client] })
}

/// Starts a server for the file.
fn file_server(place: &CellContext) -> Result<(Server, SocketAddr)> {
    make_dir(&place.path("html"), None)?;
    write(&place.path("html/index.html"), &"x".repeat(FILE_SIZE))?;
    start(place, "", "")
}

/// Starts a server with these additional lines in the `http` and `server` sections of its configuration.
fn start(place: &CellContext, in_http: &str, in_server: &str) -> Result<(Server, SocketAddr)> {
    let address = free_address()?;
    let (config, pid_file) = (place.path("nginx.conf"), place.path("nginx.pid"));
    write(&config, &configuration(&place.path(""), address, in_http, in_server))?;
    let launch = Launch::new("nginx").arg("-e").arg(place.path("error.log")).arg("-c").arg(&config);
    let server = place.server(launch, &pid_file, || requests(address).is_ok())?;
    Ok((server, address))
}

/// Loads the server with wrk; returns the sample and wrk's command line.
fn load(
    place: &CellContext,
    address: SocketAddr,
    connections: u32,
    window: Window,
) -> Result<(Sample, String)> {
    let url = format!("http://{address}/index.html");
    // Stopped long before its end: the rate comes from the server's own counter.
    let connections = connections.to_string();
    let client = Launch::new("wrk").args(["-t", "1", "-c", &connections, "-d", "1h", &url]);
    let mut running = client.start(&place.path("client.log"))?;
    let sample = window.of_counter(&mut running, || requests(address))?;
    running.stop()?;
    Ok((sample, client.line()))
}

fn write(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(ServersError::file("write", path))
}

/// Lines for `http` and `server` that forward requests to `back`.
fn proxy_to(back: SocketAddr) -> (String, &'static str) {
    let upstream =
        format!("    upstream back {{ server {back}; keepalive 64; keepalive_requests 1000000000; }}\n");
    let location = "        location / { proxy_pass http://back; proxy_http_version 1.1; proxy_set_header Connection \"\"; }\n";
    (upstream, location)
}

fn configuration(dir: &Path, address: SocketAddr, in_http: &str, in_server: &str) -> String {
    let user = if Uid::effective().is_root() { "user root;" } else { "" };
    let dir = dir.display();
    let temp: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("    {kind}_temp_path {dir}/{kind};\n"))
        .concat();
    format!(
        "daemon off;\n{user}\nworker_processes 1;\npid {dir}/nginx.pid;\nevents {{}}\nhttp {{\n    access_log off;\n\
         \x20   keepalive_requests 1000000000;\n{temp}{in_http}    server {{\n        listen {address};\n        root {dir}/html;\n\
         \x20       location = /status {{ stub_status; }}\n{in_server}    }}\n}}\n"
    )
}

/// Number of requests that the server has handled (`ngx_http_stub_status_module`): the third number of the
/// third line.
fn requests(address: SocketAddr) -> Result<u64> {
    let talk = || -> io::Result<String> {
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.write_all(b"GET /status HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    };
    let answer = talk().map_err(ServersError::system(format!("ask nginx at {address}")))?;
    count(&answer).ok_or(ServersError::Answer { program: "nginx", answer })
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

//! Compares the socket sensor with what the test itself sends and receives. Needs root.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use std::ffi::c_int;
use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::{Child, Command};
use std::thread;

use common::{own_tree, turn};
use gleaner_kernel::Root;
use gleaner_kernel::cgroup::CgroupSetup;
use gleaner_trace::{Directions, Scope, SocketSensor, SocketTraffic};
use nix::errno::Errno;

/// Length of a message in bytes.
const LENGTH: usize = 100;

/// The traffic during `talk`.
fn traffic(scope: &Scope, talk: impl FnOnce()) -> SocketTraffic {
    let mut sensor = SocketSensor::start(scope, Directions::Both).unwrap();
    sensor.read().unwrap();
    talk();
    sensor.read().unwrap()
}

/// The traffic of `sent` calls that send and `received` calls that receive `LENGTH` bytes each.
fn counted(sent: u64, received: u64) -> SocketTraffic {
    let bytes = |messages| messages * u64::try_from(LENGTH).unwrap();
    SocketTraffic {
        sent_messages: sent,
        sent_bytes: bytes(sent),
        received_messages: received,
        received_bytes: bytes(received),
    }
}

/// A connection over loopback.
fn tcp() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (near, listener.accept().unwrap().0)
}

/// Sends one message with send(2).
fn send(socket: &impl AsFd) {
    let message = [7_u8; LENGTH];
    // SAFETY: an open descriptor, and memory of this length.
    let sent = unsafe { libc::send(raw(socket), message.as_ptr().cast(), LENGTH, 0) };
    assert_eq!(sent, length());
}

/// Calls recv(2) with `flags`. Returns its result.
fn recv(socket: &impl AsFd, flags: c_int) -> isize {
    let mut room = [0_u8; LENGTH];
    // SAFETY: an open descriptor, and writable memory of this length.
    unsafe { libc::recv(raw(socket), room.as_mut_ptr().cast(), LENGTH, flags) }
}

/// Calls sendmsg(2) or recvmsg(2), with a message in two buffers.
fn by_message(call: impl FnOnce(*mut libc::msghdr) -> isize) {
    let (mut head, mut body) = ([7_u8; 10], [7_u8; LENGTH - 10]);
    let part = |bytes: &mut [u8]| libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut parts = [part(&mut head), part(&mut body)];
    // SAFETY: all zeros are valid for this struct of integers and pointers.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (parts.as_mut_ptr(), parts.len());
    assert_eq!(call(&raw mut message), length());
}

fn raw(socket: &impl AsFd) -> c_int {
    socket.as_fd().as_raw_fd()
}

fn length() -> isize {
    LENGTH.try_into().unwrap()
}

/// Five messages from `near` to `far`: by write, send and sendmsg, to read, recv and recvmsg.
fn every_call(near: &impl AsFd, far: &impl AsFd) {
    assert_eq!(nix::unistd::write(near, &[7; LENGTH]).unwrap(), LENGTH);
    assert_eq!(nix::unistd::read(far, &mut [0; LENGTH]).unwrap(), LENGTH);
    send(near);
    assert_eq!(recv(far, 0), length());
    // SAFETY: an open descriptor, and a message whose buffers outlive the call.
    by_message(|message| unsafe { libc::sendmsg(raw(near), message, 0) });
    // SAFETY: as above, and the buffers are writable.
    by_message(|message| unsafe { libc::recvmsg(raw(far), message, 0) });
    send(near);
    send(near);
    for _ in 0..2 {
        assert_eq!(recv(far, 0), length());
    }
}

#[test]
fn counts_are_what_was_sent_and_received_on_every_kind_of_socket() {
    let Some(_turn) = turn() else { return };
    let (near, far) = tcp();
    near.set_nodelay(true).unwrap();
    let found = traffic(&own_tree(), || every_call(&near, &far));
    assert_eq!(found, counted(5, 5), "TCP");

    let (near, far) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    near.connect(far.local_addr().unwrap()).unwrap();
    let found = traffic(&own_tree(), || every_call(&near, &far));
    assert_eq!(found, counted(5, 5), "UDP");

    let (near, far) = UnixStream::pair().unwrap();
    let found = traffic(&own_tree(), || every_call(&near, &far));
    assert_eq!(found, counted(5, 5), "unix stream");

    let (near, far) = UnixDatagram::pair().unwrap();
    let found = traffic(&own_tree(), || every_call(&near, &far));
    assert_eq!(found, counted(5, 5), "unix datagram");
}

#[test]
fn of_one_direction_the_other_is_not_counted() {
    let Some(_turn) = turn() else { return };
    let mut sensor = SocketSensor::start(&own_tree(), Directions::Sent).unwrap();
    let (near, far) = UnixStream::pair().unwrap();
    every_call(&near, &far);
    assert_eq!(sensor.read().unwrap(), counted(5, 0));
}

#[test]
fn what_moves_nothing_or_is_only_peeked_at_is_no_message() {
    let Some(_turn) = turn() else { return };
    let (near, far) = UnixStream::pair().unwrap();
    let found = traffic(&own_tree(), || {
        assert_eq!((recv(&far, libc::MSG_DONTWAIT), Errno::last()), (-1, Errno::EAGAIN));
        send(&near);
        assert_eq!(recv(&far, libc::MSG_PEEK), length());
        assert_eq!(recv(&far, 0), length());
        // End of the stream.
        near.shutdown(Shutdown::Both).unwrap();
        assert_eq!(recv(&far, 0), 0);
    });
    assert_eq!(found, counted(1, 1));
}

#[test]
fn pipes_and_files_are_no_sockets_and_sendfile_is_counted_where_it_sends() {
    let Some(_turn) = turn() else { return };
    let (near, mut far) = UnixStream::pair().unwrap();
    let mut file = tempfile::tempfile().unwrap();
    let found = traffic(&own_tree(), || {
        let (reader, writer) = nix::unistd::pipe().unwrap();
        nix::unistd::write(&writer, &[7; LENGTH]).unwrap();
        nix::unistd::read(&reader, &mut [0; LENGTH]).unwrap();
        file.write_all(&[7; LENGTH]).unwrap();
    });
    assert_eq!(found, counted(0, 0));
    let found = traffic(&own_tree(), || {
        let mut offset = 0;
        // SAFETY: two open descriptors, and a pointer to an integer that outlives the call.
        let sent = unsafe { libc::sendfile(near.as_raw_fd(), file.as_raw_fd(), &raw mut offset, LENGTH) };
        assert_eq!(usize::try_from(sent).unwrap(), LENGTH);
        far.read_exact(&mut [0; LENGTH]).unwrap();
    });
    assert_eq!(found, counted(1, 1));
}

#[test]
fn threads_and_children_that_come_later_are_counted() {
    let Some(_turn) = turn() else { return };
    let found = traffic(&own_tree(), || {
        thread::spawn(|| {
            let (near, far) = UnixStream::pair().unwrap();
            every_call(&near, &far);
        })
        .join()
        .unwrap();
    });
    assert_eq!(found, counted(5, 5));
    let found = traffic(&own_tree(), || {
        let (mut child, mut far) = cat();
        ask(&mut child, &mut far);
    });
    assert_eq!(found, counted(2, 2), "both ends");
}

#[test]
fn others_are_not_counted_and_those_that_are_there_already_are() {
    let Some(_turn) = turn() else { return };
    let childs = echo(Scope::Tree);
    assert_eq!(childs, counted(1, 1), "only the child's end");
    let both = echo(|_| own_tree());
    assert_eq!(both, counted(2, 2), "the child descends from us");
    let everybodys = echo(|_| Scope::System);
    assert!(everybodys.sent_messages >= 2 && everybodys.received_messages >= 2, "{everybodys:?}");
}

/// The traffic of one message to a child and back, as counted in the scope that is made from the child's PID.
fn echo(scope: impl FnOnce(u32) -> Scope) -> SocketTraffic {
    let (mut child, mut far) = cat();
    traffic(&scope(child.id()), || ask(&mut child, &mut far))
}

/// A child that sends back what it receives, and its socket.
fn cat() -> (Child, UnixStream) {
    let (near, far) = UnixStream::pair().unwrap();
    let output = OwnedFd::from(near.try_clone().unwrap());
    (Command::new("cat").stdin(OwnedFd::from(near)).stdout(output).spawn().unwrap(), far)
}

/// Sends the child one message and receives it back. Then the child ends, so that all it sent is counted.
fn ask(child: &mut Child, far: &mut UnixStream) {
    far.write_all(&[7; LENGTH]).unwrap();
    far.read_exact(&mut [0; LENGTH]).unwrap();
    far.shutdown(Shutdown::Write).unwrap();
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_control_group_is_a_scope_in_each_hierarchy() {
    let Some(_turn) = turn() else { return };
    let setup = CgroupSetup::detect(&Root::system()).unwrap();
    let v1 = ["cpuset", "cpu"].iter().filter_map(|name| setup.v1.get(*name));
    for hierarchy in v1.chain(&setup.v2) {
        let (near, far) = UnixStream::pair().unwrap();
        // Other processes can be in the test's group.
        let found = traffic(&Scope::Cgroup(hierarchy.own.clone()), || {
            every_call(&near, &far);
        });
        assert!(
            found.sent_messages >= 5 && found.received_messages >= 5,
            "{}: {found:?}",
            hierarchy.own.display()
        );
    }
}

/// Number of open BPF descriptors of this process.
fn links() -> usize {
    let targets = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    targets
        .filter(|fd| std::fs::read_link(fd.path()).is_ok_and(|to| to.to_string_lossy().contains("bpf")))
        .count()
}

#[test]
fn only_what_happens_while_it_is_armed_is_counted() {
    let Some(_turn) = turn() else { return };
    let mut sensor = SocketSensor::load(&own_tree(), Directions::Both).unwrap();
    let disarmed = links();
    let (near, far) = UnixStream::pair().unwrap();
    for _ in 0..3 {
        every_call(&near, &far);
        sensor.arm().unwrap();
        assert_eq!(sensor.read().unwrap(), counted(0, 0));
        every_call(&near, &far);
        sensor.arm().unwrap();
        assert_eq!(sensor.read().unwrap(), counted(5, 5), "armed twice is armed once");
        sensor.disarm();
        assert_eq!(links(), disarmed);
    }
}

#[test]
fn nothing_is_left_after_it_is_dropped() {
    let Some(_turn) = turn() else { return };
    let before = links();
    let sensor = SocketSensor::start(&own_tree(), Directions::Both).unwrap();
    assert!(links() > before);
    drop(sensor);
    assert_eq!(links(), before);
}

#[test]
fn it_is_read_in_another_thread_than_it_was_made_in() {
    let Some(_turn) = turn() else { return };
    let made = thread::spawn(|| SocketSensor::start(&own_tree(), Directions::Both).unwrap());
    let mut sensor = made.join().unwrap();
    sensor.read().unwrap();
    let (near, far) = UnixStream::pair().unwrap();
    every_call(&near, &far);
    assert_eq!(sensor.read().unwrap(), counted(5, 5));
}

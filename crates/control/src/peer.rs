//! Who is at the other end of a connection, as the kernel says.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, RawFd};
use std::os::unix::net::UnixStream;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use nix::unistd::{Gid, Group, geteuid};

/// A client's process, as it was when it connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its effective user.
    pub uid: u32,
    /// Its effective group.
    pub gid: u32,
    /// The process; 0 if it is in another PID namespace.
    pub pid: i32,
    /// Whether it is in the group that is allowed to read.
    pub in_group: bool,
    /// Whether it is root's, or of the user that serves.
    pub is_owner: bool,
}

impl Peer {
    /// The process that connected by `stream`. `group` is the one that is allowed to read.
    ///
    /// # Errors
    /// The kernel does not say; the connection is to be closed then.
    pub(crate) fn of(stream: &UnixStream, group: Option<Gid>) -> io::Result<Self> {
        let (uid, gid, pid) = credentials(stream)?;
        let in_group = match group {
            Some(group) => gid == group.as_raw() || groups(stream.as_raw_fd())?.contains(&group.as_raw()),
            None => false,
        };
        let is_owner = uid == 0 || uid == geteuid().as_raw();
        Ok(Self { uid, gid, pid, in_group, is_owner })
    }

    /// Whether it is allowed to use methods that only read.
    pub fn can_read(&self) -> bool {
        self.can_change() || self.in_group
    }

    /// Whether it is allowed to use methods that change something.
    pub fn can_change(&self) -> bool {
        self.is_owner
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "user {} (pid {})", self.uid, self.pid)
    }
}

/// The group `name`, or a sentence that says why there is none.
pub(crate) fn group(name: &str) -> Result<Gid, String> {
    let remedy = format!("only root can use the control socket: `groupadd --system {name}` makes the group");
    match Group::from_name(name) {
        Ok(Some(group)) => Ok(group.gid),
        Ok(None) => Err(format!("there is no group `{name}`, so {remedy}")),
        Err(errno) => Err(format!("cannot find the group `{name}` ({errno}), so {remedy}")),
    }
}

/// The effective user and group, and the process, of the socket's peer: of whoever listens, for a client.
pub(crate) fn credentials(socket: &impl AsFd) -> io::Result<(u32, u32, i32)> {
    let found = getsockopt(socket, PeerCredentials)?;
    Ok((found.uid(), found.gid(), found.pid()))
}

/// The size of a socket option's value; none is larger than the type can say.
fn length<T: ?Sized>(value: &T) -> libc::socklen_t {
    libc::socklen_t::try_from(size_of_val(value)).unwrap_or(libc::socklen_t::MAX)
}

/// The supplementary groups of the socket's peer.
fn groups(fd: RawFd) -> io::Result<Vec<u32>> {
    // 65536 is the most that a process can have.
    let mut groups = vec![0u32; 64];
    loop {
        let mut len = length(&groups[..]);
        // SAFETY: the kernel writes at most `len` bytes to `groups`, which has as many.
        let done = unsafe {
            let to = groups.as_mut_ptr().cast();
            libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERGROUPS, to, &raw mut len)
        };
        let found = len as usize / size_of::<u32>();
        if done == 0 {
            groups.truncate(found);
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ERANGE) || found <= groups.len() {
            return Err(error);
        }
        groups.resize(found, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_who_connected() {
        let (one, _other) = UnixStream::pair().unwrap();
        let own = nix::unistd::getegid();
        let peer = Peer::of(&one, Some(own)).unwrap();
        assert_eq!((peer.uid, peer.gid), (nix::unistd::geteuid().as_raw(), own.as_raw()));
        assert_eq!(peer.pid, std::process::id().cast_signed());
        assert!(peer.in_group && peer.can_read());
        assert!(!Peer::of(&one, None).unwrap().in_group);
    }

    #[test]
    fn without_the_group_only_root_is_left_and_a_sentence_says_so() {
        let sentence = group("no-such-group-here").unwrap_err();
        assert!(sentence.contains("only root") && sentence.contains("groupadd"), "{sentence}");
    }
}

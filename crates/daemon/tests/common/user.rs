//! Doing something as another user.

/// A user that every system has, without any right.
pub(crate) const NOBODY: u32 = 65534;
/// A group that every Debian system has, and its number.
pub(crate) const GROUP: (&str, u32) = ("daemon", 1);

/// Makes this thread, and no other, one of another user: the kernel's identities are those of a thread. The first group
/// is the user's own.
pub(crate) fn become_user(uid: u32, groups: &[u32]) {
    let gid = groups.first().copied().unwrap_or(uid);
    // SAFETY: the system calls take numbers and a list of as many numbers as they are given.
    unsafe {
        assert_eq!(libc::syscall(libc::SYS_setgroups, groups.len(), groups.as_ptr()), 0);
        assert_eq!(libc::syscall(libc::SYS_setresgid, gid, gid, gid), 0);
        assert_eq!(libc::syscall(libc::SYS_setresuid, uid, uid, uid), 0);
    }
}

/// Does something as another user, on a thread of its own.
pub(crate) fn as_user<T: Send>(uid: u32, groups: &[u32], what: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let other = || {
            become_user(uid, groups);
            what()
        };
        scope.spawn(other).join().unwrap()
    })
}

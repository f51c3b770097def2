//! Memory that the allocator keeps for later.

/// Blocks from this size on, in bytes, come from the kernel and go back to it, each by itself. Unless it is set, the
/// allocator raises its own limit with each large block that is freed, and takes later ones from among the small blocks
/// that stay (mallopt(3)): replies and requests of clients would leave gaps as large as themselves.
#[cfg(target_env = "gnu")]
const LARGE: libc::c_int = 32 * 1024;

/// Keeps large blocks apart from small ones. To be called before others allocate much.
pub(crate) fn keep_large_blocks_apart() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt(3) changes a setting of the allocator, and this process has one thread here.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
    }
}

/// What takes memory for a while.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Users {
    /// A few hundred kilobytes for each, which come and go with BPF programs and records.
    pub(crate) engaged: bool,
    /// Replies that a client has not read yet, up to some megabytes.
    pub(crate) clients: bool,
}

impl Users {
    /// Gives the kernel back what is free, once one of those that there were is gone. Else the gaps between what stays
    /// would be kept until the daemon ends.
    pub(crate) fn now_are(&mut self, now: Self) {
        let before = std::mem::replace(self, now);
        if before.engaged && !now.engaged || before.clients && !now.clients {
            trim();
        }
    }
}

fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) has no preconditions and can be called from any thread; it moves nothing that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

//! Memory that the allocator keeps for later.

/// Blocks from this size on come from the kernel and go back to it, each by itself: the replies of `why`, up to a few
/// megabytes, and a BPF object's types. Unless it is set, the allocator raises its own limit, which is the same at first,
/// with each large block that is freed, and takes later ones from among the small blocks that stay (mallopt(3)).
const LARGE: libc::c_int = 128 * 1024;

/// Keeps large blocks apart from small ones. To be called before others allocate much.
pub(crate) fn keep_large_blocks_apart() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt(3) changes a setting of the allocator, and this process has one thread here.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
    }
}

/// Gives the kernel back what is free. An engaged workload takes a few hundred kilobytes that come and go with its BPF
/// programs and records; without this, the gaps between what stays are kept until the daemon ends.
pub(crate) fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) has no preconditions and can be called from any thread; it moves nothing that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

//! Memory that the allocator keeps for later.

/// Gives the kernel back what is free. An engaged workload takes a few hundred kilobytes that come and go with its BPF
/// programs and records; without this, the gaps between what stays are kept until the daemon ends.
pub(crate) fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: malloc_trim(3) has no preconditions and can be called from any thread; it moves nothing that is in use.
    unsafe {
        libc::malloc_trim(0);
    }
}

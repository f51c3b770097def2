/// Why the scheduler does not run.
#[derive(Debug, thiserror::Error)]
pub enum ScxError {
    /// The kernel is too old, or built without it.
    #[error(
        "this kernel has no sched_ext ({path} does not exist): it needs Linux 6.13 or later with CONFIG_SCHED_CLASS_EXT=y"
    )]
    NoSchedExt {
        /// Directory that every kernel with it has.
        path: String,
    },
    /// `sched_ext` runs one scheduler at a time.
    #[error("another scheduler runs already: {name}; stop it first")]
    Occupied {
        /// Its name.
        name: String,
    },
    /// Known to hang the host (sched-ext/scx issue 3715).
    #[error(
        "processes have core-scheduling cookies, process {pid} for one, and hyperthreading is on: with sched_ext such hosts \
         are known to hang; start those processes without cookies, or turn hyperthreading off"
    )]
    Cookies {
        /// One of them.
        pid: u32,
    },
    /// The kernel refuses the programs.
    #[error(
        "the scheduler cannot be loaded: {detail}; it needs root, a kernel with BTF, and Linux 6.13 or later"
    )]
    Load {
        /// What the kernel says.
        detail: String,
    },
    /// Its maps cannot be read or written.
    #[error("the scheduler's maps cannot be used: {detail}")]
    Maps {
        /// What the kernel says.
        detail: String,
    },
    /// What it sees and decides cannot be written down.
    #[error("no more is recorded: {detail}")]
    Record {
        /// Why not.
        detail: String,
    },
    /// A file of the kernel cannot be read.
    #[error(transparent)]
    Kernel(#[from] gleaner_kernel::KernelError),
}

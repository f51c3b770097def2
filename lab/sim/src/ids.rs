//! Identities: small numbers that index the slabs of a [`crate::World`].

/// Nanoseconds of simulated time, or of work at full speed.
pub type Ns = u64;

/// For a phase without an end of its own, which only another event ends.
pub(crate) const FOREVER: Ns = Ns::MAX;

macro_rules! id {
    ($(#[$doc:meta])* $visibility:vis $name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $visibility struct $name($visibility u32);

        impl $name {
            /// Index in the slab.
            pub(crate) const fn index(self) -> usize {
                self.0 as usize
            }

            /// The ID of the entity at `index`.
            #[allow(clippy::cast_possible_truncation, reason = "slabs have far fewer than 2^32 entries")]
            pub(crate) const fn at(index: usize) -> Self {
                Self(index as u32)
            }
        }
    };
}

id! {
    /// A physical CPU (hardware thread) of the host.
    pub(crate) Pcpu
}
id! {
    /// A virtual CPU, numbered across all VMs.
    pub(crate) Vcpu
}
id! {
    /// A thread of a program, numbered across all VMs.
    pub(crate) Thread
}
id! {
    /// A virtual machine.
    pub Vm
}
id! {
    /// A running program.
    pub(crate) Task
}
id! {
    /// A synchronisation object.
    pub(crate) Obj
}

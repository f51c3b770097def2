//! Values that the BPF programs share with user space.

use gleaner_trace::bpf::{Plain, Summable};

use crate::skeleton::types;

macro_rules! plain {
    ($($name:ident),*) => {
        $(
            // SAFETY: these types have integer fields only, and the fields fill them.
            unsafe impl Plain for types::$name {}
        )*
    };
}

plain! { vcpu, recipient, hist, steal_key, steal, lost, pcpu }

#[cfg(test)]
// SAFETY: these types have integer fields only, and the fields fill them.
unsafe impl Plain for crate::replay_skeleton::types::vcpu {}
#[cfg(test)]
// SAFETY: the same.
unsafe impl Plain for crate::replay_skeleton::types::replay {}

impl Summable for types::steal {
    fn accumulate(&mut self, more: &Self) {
        let Self { count, ns } = self;
        *count += more.count;
        *ns += more.ns;
    }
}

impl Summable for types::lost {
    fn accumulate(&mut self, more: &Self) {
        let Self { vcpus, storage, pairs, recipients } = self;
        *vcpus += more.vcpus;
        *storage += more.storage;
        *pairs += more.pairs;
        *recipients += more.recipients;
    }
}

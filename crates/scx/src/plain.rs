//! Values that the BPF programs share with user space.

use gleaner_trace::bpf::Plain;

use crate::skeleton::types;

// SAFETY: it has integer fields and `urgent_rules`, whose padding is zero in every value that user space makes.
unsafe impl Plain for types::vm {}

//! Values that the BPF programs share with user space.

use gleaner_trace::bpf::Plain;

use crate::skeleton::types;

// SAFETY: it has integer fields only, without padding.
unsafe impl Plain for types::vm {}
// SAFETY: the same.
unsafe impl Plain for types::event {}
// SAFETY: its padding is zero in every value that user space makes, and none is read.
unsafe impl Plain for types::urgent_rules {}

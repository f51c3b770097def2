//! Values that the BPF programs share with user space. libbpf-cargo generates their types from the programs' BTF, so
//! what is in them, and where, stands in `src/bpf` only.

/// A shared value.
///
/// # Safety
/// The type consists of integers without gaps: any bytes are a value, and each byte of a value is initialised.
pub unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($skeleton:ident { $($name:ident),* })*) => {
        $($(
            // SAFETY: these types have integer fields only, and the fields fill them.
            unsafe impl Plain for crate::$skeleton::types::$name {}
        )*)*
    };
}

plain! {
    skeleton { code, counts, edge, edge_key, hist, hist_id, spot, thread, vcpu, window }
    overload_skeleton { overload }
    record_skeleton { record, record_name }
    sockets_skeleton { traffic }
    waiting_skeleton { waits }
}

// SAFETY: it is an integer.
unsafe impl Plain for u32 {}
// SAFETY: the same.
unsafe impl Plain for u64 {}

/// The value at the start of `bytes`; `None` if they are too few.
pub fn from_bytes<T: Plain>(bytes: &[u8]) -> Option<T> {
    let bytes = bytes.get(..size_of::<T>())?;
    // SAFETY: all bytes of a `T` are there, any bytes are one, and the read does not need alignment.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

/// The bytes of a value.
pub fn as_bytes<T: Plain>(value: &T) -> &[u8] {
    // SAFETY: each byte of the value is initialised, and the slice borrows the value.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast::<u8>(), size_of::<T>()) }
}

/// Counters of one vCPU, which are added to those of the others.
pub trait Summable {
    /// Adds `more`.
    fn accumulate(&mut self, more: &Self);
}

impl Summable for u64 {
    fn accumulate(&mut self, more: &Self) {
        *self += more;
    }
}

impl<const N: usize> Summable for [u64; N] {
    fn accumulate(&mut self, more: &Self) {
        self.iter_mut().zip(more).for_each(|(sum, more)| sum.accumulate(more));
    }
}

/// Lists every field, as the compiler checks: one that is new, or no counter, cannot be overlooked.
macro_rules! summable {
    ($($skeleton:ident::$name:ident { $($field:ident),* })*) => {
        $(impl Summable for crate::$skeleton::types::$name {
            fn accumulate(&mut self, more: &Self) {
                let Self { $($field),* } = self;
                $($field.accumulate(&more.$field);)*
            }
        })*
    };
}

summable! {
    skeleton::counts { all, scope }
    skeleton::edge { count, total_ns, halted, polling }
    skeleton::hist { count, total_ns, buckets }
    skeleton::thread {
        cpu_ns, segments, segment_ns, preempted, yields, yielded, ticks, user_ticks, yield_ticks, woken, woken_ns, runs
    }
    sockets_skeleton::traffic { sent_messages, sent_bytes, received_messages, received_bytes }
    waiting_skeleton::hist { count, total_ns, buckets }
    waiting_skeleton::waits { woken, latencies }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skeleton::types::counts;

    #[test]
    fn bytes_become_a_value_if_there_are_enough_of_them() {
        let mut sum = counts::default();
        sum.scope[0] = 3;
        let unaligned = [&[0][..], as_bytes(&sum)].concat();
        sum.accumulate(&from_bytes::<counts>(&unaligned[1..]).unwrap());
        assert_eq!((sum.all[0], sum.scope[0], sum.scope[1]), (0, 6, 0));
        assert!(from_bytes::<counts>(&unaligned[2..]).is_none());
    }
}

//! Numbers of one to ten bytes: seven bits each, the lowest first; the highest bit is set if more bytes follow
//! (LEB128).

/// Appends `value` to `out`.
pub(super) fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

/// Takes a number from the front of `bytes`; `None` if there is none that fits 64 bits.
pub(super) fn take(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..u64::BITS).step_by(7) {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            return None;
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_truncated_or_too_long_is_no_number() {
        assert_eq!(take(&mut [].as_slice()), None);
        assert_eq!(take(&mut [0x80].as_slice()), None);
        assert_eq!(take(&mut [0xff; 10].as_slice()), None);
        assert_eq!(take(&mut [0x80; 11].as_slice()), None);
    }

    proptest! {
        #[test]
        fn putting_and_taking_are_inverse(shift in 0..64_u32, value: u64, next: u8) {
            let value = value >> shift;
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            bytes.push(next);
            let mut left = bytes.as_slice();
            prop_assert_eq!(take(&mut left), Some(value));
            prop_assert_eq!(left, &[next]);
        }
    }
}

//! What the interrupts between vCPUs mean to a guest's operating system.

use std::fmt;

/// Vectors of interrupts between vCPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Vectors {
    /// Those that say that a thread is to run on the recipient.
    pub reschedule: VectorSet,
    /// Those that the sender of a TLB shootdown waits for.
    pub shootdown: VectorSet,
}

/// A set of vectors, 0 to 255.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VectorSet([u64; 4]);

impl Vectors {
    /// Of Linux (`arch/x86/include/asm/irq_vectors.h`): since Linux 3.6 TLB shootdowns are function calls.
    pub const LINUX: Self =
        Self { reschedule: VectorSet::of(&[0xfd]), shootdown: VectorSet::of(&[0xfb, 0xfc]) };
    /// Of FreeBSD (`sys/x86/include/apicvar.h`): those that run a thread share a vector, those that invalidate TLBs have
    /// one each.
    pub const FREEBSD: Self =
        Self { reschedule: VectorSet::of(&[0xf8]), shootdown: VectorSet::of(&[0xf4, 0xf5, 0xf6]) };
}

impl Default for Vectors {
    fn default() -> Self {
        Self::LINUX
    }
}

impl VectorSet {
    /// These.
    pub const fn of(vectors: &[u8]) -> Self {
        let (mut set, mut i) = ([0; 4], 0);
        while i < vectors.len() {
            set[(vectors[i] / 64) as usize] |= 1 << (vectors[i] % 64);
            i += 1;
        }
        Self(set)
    }

    /// Whether this one is among them.
    pub fn contains(&self, vector: u8) -> bool {
        self.0[usize::from(vector / 64)] & 1 << (vector % 64) != 0
    }

    /// Those in both.
    pub fn common(&self, other: &Self) -> Option<u8> {
        (0..=u8::MAX).find(|vector| self.contains(*vector) && other.contains(*vector))
    }

    /// Parses hexadecimal numbers with `+` between, or `none`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self::default());
        }
        let number = |text| {
            u8::from_str_radix(text, 16)
                .ok()
                // Lower ones are of exceptions.
                .filter(|vector| *vector >= 0x10)
                .ok_or_else(|| {
                    format!("`{text}` is no vector: use hexadecimal numbers, 10 to ff, with + between")
                })
        };
        let vectors = text.split('+').map(number).collect::<Result<Vec<u8>, String>>()?;
        Ok(Self::of(&vectors))
    }
}

impl fmt::Display for VectorSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = (0..=u8::MAX).filter(|vector| self.contains(*vector));
        let names: Vec<String> = all.map(|vector| format!("{vector:x}")).collect();
        f.write_str(if names.is_empty() { "none".to_owned() } else { names.join("+") }.as_str())
    }
}

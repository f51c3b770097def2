//! The input of dedup: text with repetitions of every length, always the same.

use super::super::work::mix;

/// Size of the input in bytes: the table of a pass and the archive then fit into a processor's cache.
const LENGTH: usize = 1 << 20;
/// The input consists of segments; about every second one repeats an earlier one.
const SEGMENT: usize = 32 << 10;
const WORDS: usize = 512;

/// Generates the input, which takes a few milliseconds.
pub(super) fn generate() -> Vec<u8> {
    let mut random = Random(1);
    let mut input: Vec<u8> = Vec::with_capacity(LENGTH);
    while input.len() < LENGTH {
        let segments = input.len() / SEGMENT;
        if segments > 0 && random.below(2) == 0 {
            let copied = random.below(segments) * SEGMENT;
            input.extend_from_within(copied..copied + SEGMENT);
        } else {
            let end = input.len() + SEGMENT;
            while input.len() < end {
                word(random.below(WORDS), &mut input);
            }
            input.truncate(end);
        }
    }
    input
}

/// Appends a word of a vocabulary: two to eight letters and a space.
fn word(number: usize, text: &mut Vec<u8>) {
    let letters = mix(number as u64 + 1, 4).to_le_bytes();
    text.extend(letters[..2 + number % 7].iter().map(|byte| b'a' + byte % 26));
    text.push(b' ');
}

/// Pseudo-random numbers of sufficient quality.
struct Random(u64);

impl Random {
    /// A number from 0 to `bound` − 1; the bound must be small.
    fn below(&mut self, bound: usize) -> usize {
        self.0 += 1;
        usize::from((mix(self.0, 4) >> 48) as u16) % bound
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::{CHUNK_LENGTHS, FastCDC, digest_of};
    use super::*;

    #[test]
    fn the_input_is_always_the_same_and_has_duplicates() {
        let input = generate();
        assert_eq!(input.len(), LENGTH);
        assert_eq!(input, generate());
        let [least, mean, most] = CHUNK_LENGTHS;
        let chunks: Vec<_> = FastCDC::new(&input, least, mean, most)
            .map(|cut| digest_of(&input[cut.offset..cut.offset + cut.length]))
            .collect();
        let unique: HashSet<_> = chunks.iter().collect();
        assert!(chunks.len() > 100, "{} chunks", chunks.len());
        let duplicates = chunks.len() - unique.len();
        assert!((chunks.len() / 5..chunks.len() * 4 / 5).contains(&duplicates), "{duplicates} duplicates");
        let compressed = lz4_flex::block::compress(&input[..4096]).len();
        assert!((1000..3500).contains(&compressed), "4096 bytes become {compressed}");
    }
}

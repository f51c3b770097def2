//! The archive that dedup writes, and reading it back.

use std::collections::HashMap;

use lz4_flex::block;

use super::super::WorkloadError;
use super::super::work::check;
use super::{Digest, digest_of};

/// One chunk in an archive.
pub(super) enum Record {
    /// A new chunk.
    Content { digest: Digest, length: usize, compressed: Vec<u8> },
    /// The content of a record with the same digest, before or after it: concurrent stages do not determine
    /// in order which of two equal chunks is the new one.
    Reference { digest: Digest, length: usize },
}

impl Record {
    /// Compresses a chunk.
    pub(super) fn new(digest: Digest, data: &[u8]) -> Self {
        Self::Content { digest, length: data.len(), compressed: block::compress(data) }
    }

    /// Number of input bytes that it stands for.
    fn length(&self) -> usize {
        match self {
            Self::Content { length, .. } | Self::Reference { length, .. } => *length,
        }
    }
}

/// Records in the order of the input.
#[derive(Default)]
pub(super) struct Archive {
    records: Vec<Record>,
    length: usize,
}

impl Archive {
    pub(super) fn append(&mut self, record: Record) {
        self.length += record.length();
        self.records.push(record);
    }

    /// Number of input bytes contained so far.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// Reads the archive back: fails unless it yields the start of `input`.
    pub(super) fn check(&self, workload: &'static str, input: &[u8]) -> Result<(), WorkloadError> {
        let expected = digest_of(&input[..self.length.min(input.len())]);
        let found = self.reassemble().map_or_else(|problem| problem, |data| hex(&digest_of(&data)));
        check(workload, "archive", hex(&expected).as_str(), found.as_str())
    }

    /// Restores the archived input.
    fn reassemble(&self) -> Result<Vec<u8>, String> {
        let mut contents = HashMap::new();
        for record in &self.records {
            if let Record::Content { digest, length, compressed } = record {
                let data = block::decompress(compressed, *length);
                contents
                    .insert(*digest, data.map_err(|error| format!("a chunk that does not unpack: {error}"))?);
            }
        }
        let mut whole = Vec::with_capacity(self.length);
        for record in &self.records {
            let (Record::Content { digest, length, .. } | Record::Reference { digest, length }) = record;
            let data = contents.get(digest).filter(|data| data.len() == *length);
            whole.extend_from_slice(data.ok_or("a reference to a chunk that is missing")?);
        }
        Ok(whole)
    }
}

fn hex(digest: &Digest) -> String {
    digest.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const INPUT: &[u8] = b"a chunk, and another chunk, a chunk, and another chunk, the last chunk";

    /// Two chunks, each twice, and a last one; modified by `change`.
    fn archive(change: impl FnOnce(&mut Vec<Record>)) -> Result<(), String> {
        let cuts = [0..9, 9..28, 28..37, 37..56, 56..INPUT.len()];
        let mut records = Vec::new();
        for (place, cut) in cuts.into_iter().enumerate() {
            let (digest, length) = (digest_of(&INPUT[cut.clone()]), cut.len());
            records.push(match place {
                // The second one refers to a later record.
                1 | 2 => Record::Reference { digest, length },
                _ => Record::new(digest, &INPUT[cut]),
            });
        }
        change(&mut records);
        let mut archive = Archive::default();
        for record in records {
            archive.append(record);
        }
        archive.check("w", INPUT).map_err(|error| error.to_string())
    }

    #[test]
    fn what_was_archived_comes_back() {
        assert_eq!(archive(|_| {}), Ok(()));
        assert_eq!(archive(|records| records.truncate(4)), Ok(()), "interrupted");
        assert_eq!(archive(Vec::clear), Ok(()));
    }

    #[test]
    fn notices_every_change() {
        let changes: [fn(&mut Vec<Record>); 6] = [
            |records| records.swap(0, 1),
            |records| drop(records.remove(1)),
            |records| drop(records.remove(0)),
            |records| {
                let Some(Record::Content { compressed, .. }) = records.first_mut() else { panic!() };
                *compressed.last_mut().unwrap() ^= 1;
            },
            |records| {
                let Some(Record::Content { compressed, .. }) = records.last_mut() else { panic!() };
                compressed.clear();
            },
            |records| records.extend([Record::new(digest_of(b"more"), b"more")]),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let error = archive(change).expect_err(&format!("change {number} was not noticed"));
            assert!(error.contains("wrong archive"), "{error}");
        }
    }
}

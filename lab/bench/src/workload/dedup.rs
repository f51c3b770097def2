//! `pipeline` of kind `dedup`: does what PARSEC's dedup does, with real chunking, hashing and compression.
//!
//! ```text
//! chunk ──► hash ──► compress ──► write
//!             └──── duplicates ────┘
//! ```
//!
//! One thread cuts the input at content-defined boundaries, `threads` threads look up each chunk's digest in
//! a table under one mutex, as many compress the new chunks, and one restores the order and writes the
//! archive. The input is small and is archived over and over, each time with an empty table.
//!
//! Synchronisation: bounded [`Queue`]s, and the table's mutex. Each stage needs a few microseconds for a
//! chunk of 1 KiB, so stages mostly wait for each other. Self-check: each archive is decompressed,
//! reassembled and compared with its input by digest; an interrupted last one, as far as it got.

mod archive;
mod input;

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use fastcdc::v2020::FastCDC;
use sha2::{Digest as _, Sha256};

use super::amount::WorkMeter;
use super::queue::Queue;
use super::spec::{Threads, Variant};
use super::work::{check, run_threads};
use super::{Amount, Kind, Outcome, WorkloadError};
use archive::{Archive, Record};

pub(super) const VARIANT: Variant = Variant {
    kind: Some(Kind::Dedup),
    threads: Threads::fixed("threads in each of the two middle stages; two more feed and write", 1, 1),
    granularity: None,
    imbalance: None,
};

/// Minimum, mean and maximum length of a chunk, in bytes.
const CHUNK_LENGTHS: [usize; 3] = [256, 1 << 10, 4 << 10];
/// As short as in the synthetic kind, so that stages keep in step.
const QUEUE_LENGTH: usize = 2;
/// The clock is read once per this many chunks.
const CHUNKS_PER_CLOCK: u64 = 8;

type Digest = [u8; 32];

fn digest_of(data: &[u8]) -> Digest {
    Sha256::digest(data).into()
}

/// A piece of the input in the pipeline.
struct Chunk<'i> {
    /// Position in everything that is archived, over all passes.
    sequence: u64,
    /// How often the input has been archived before.
    pass: u64,
    data: &'i [u8],
}

/// A chunk that is not in the archive yet.
struct NewChunk<'i> {
    chunk: Chunk<'i>,
    digest: Digest,
}

/// The queues between the stages, and the table of known digests.
struct Pipeline<'i> {
    to_hash: Queue<Chunk<'i>>,
    to_compress: Queue<NewChunk<'i>>,
    to_write: Queue<(u64, Record)>,
    /// The last pass in which each digest occurred.
    seen: Mutex<HashMap<Digest, u64>>,
    /// Number of threads still in each of the two middle stages.
    hashing: AtomicUsize,
    compressing: AtomicUsize,
}

/// Result of one thread.
#[derive(Default)]
struct Tally {
    chunked: u64,
    written: u64,
}

pub(super) fn run(workload: &'static str, amount: Amount, width: usize) -> Result<Outcome, WorkloadError> {
    let input = input::generate();
    let pipeline = Pipeline::new(width);
    let (tallies, elapsed) = run_threads(workload, 2 * width + 2, |index, start| {
        let mut closing = Closing { pipeline: &pipeline, armed: true };
        let tally = if index == 0 {
            let meter = amount.whole().since(start, CHUNKS_PER_CLOCK);
            Tally { chunked: pipeline.chunk(&input, &meter), written: 0 }
        } else if index <= width {
            pipeline.hash();
            Tally::default()
        } else if index <= 2 * width {
            pipeline.compress();
            Tally::default()
        } else {
            Tally { chunked: 0, written: pipeline.write(workload, &input)? }
        };
        closing.armed = false;
        Ok(tally)
    })?;
    let chunked = tallies.iter().map(|tally| tally.chunked).sum();
    let written = tallies.iter().map(|tally| tally.written).sum();
    check(workload, "number of chunks", chunked, written)?;
    Ok(Outcome { operations: written, elapsed, checks: written })
}

impl<'i> Pipeline<'i> {
    fn new(width: usize) -> Self {
        Self {
            to_hash: Queue::new(QUEUE_LENGTH),
            to_compress: Queue::new(QUEUE_LENGTH),
            to_write: Queue::new(QUEUE_LENGTH),
            seen: Mutex::new(HashMap::new()),
            hashing: AtomicUsize::new(width),
            compressing: AtomicUsize::new(width),
        }
    }

    /// The first stage: cuts the input into chunks, over and over. Returns their number.
    fn chunk(&self, input: &'i [u8], meter: &WorkMeter) -> u64 {
        let [least, mean, most] = CHUNK_LENGTHS;
        let passes = (0_u64..).flat_map(|pass| {
            FastCDC::new(input, least, mean, most).map(move |cut| (pass, cut.offset, cut.length))
        });
        let mut sequence = 0;
        for (pass, offset, length) in passes {
            let chunk = Chunk { sequence, pass, data: &input[offset..offset + length] };
            if !meter.more(sequence) || !self.to_hash.push(chunk) {
                break;
            }
            sequence += 1;
        }
        self.to_hash.close();
        sequence
    }

    /// The second stage: determines which chunks are new.
    fn hash(&self) {
        while let Some(chunk) = self.to_hash.pop() {
            let digest = digest_of(chunk.data);
            let before = self.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(digest, chunk.pass);
            let passed_on = if before == Some(chunk.pass) {
                let reference = Record::Reference { digest, length: chunk.data.len() };
                self.to_write.push((chunk.sequence, reference))
            } else {
                self.to_compress.push(NewChunk { chunk, digest })
            };
            if !passed_on {
                break;
            }
        }
        if self.hashing.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.to_compress.close();
        }
    }

    /// The third stage: compresses new chunks.
    fn compress(&self) {
        while let Some(NewChunk { chunk, digest }) = self.to_compress.pop() {
            let record = Record::new(digest, chunk.data);
            if !self.to_write.push((chunk.sequence, record)) {
                break;
            }
        }
        // The hashing threads, which also write, ended before this stage's queue was closed.
        if self.compressing.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.to_write.close();
        }
    }

    /// The last stage: writes the archives in input order and checks them. Returns the number of chunks.
    fn write(&self, workload: &'static str, input: &[u8]) -> Result<u64, WorkloadError> {
        let mut early = BTreeMap::new();
        let mut archive = Archive::default();
        let mut written = 0;
        while let Some((sequence, record)) = self.to_write.pop() {
            early.insert(sequence, record);
            while let Some(record) = early.remove(&written) {
                archive.append(record);
                written += 1;
                if archive.length() >= input.len() {
                    archive.check(workload, input)?;
                    archive = Archive::default();
                }
            }
        }
        check(workload, "number of chunks behind a gap", 0, early.len())?;
        archive.check(workload, input)?;
        Ok(written)
    }

    fn close(&self) {
        self.to_hash.close();
        self.to_compress.close();
        self.to_write.close();
    }
}

/// Closes all queues if a stage fails, so that the others end, too.
struct Closing<'p, 'i> {
    pipeline: &'p Pipeline<'i>,
    armed: bool,
}

impl Drop for Closing<'_, '_> {
    fn drop(&mut self) {
        if self.armed {
            self.pipeline.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use super::*;

    #[test]
    fn an_exact_number_of_chunks_is_archived() {
        // Several passes, of which the last one is interrupted.
        let amount = Amount::Operations(NonZeroU64::new(5003).unwrap());
        let outcome = run("pipeline", amount, 2).unwrap();
        assert_eq!((outcome.operations, outcome.checks), (5003, 5003));
    }

    #[test]
    fn a_lost_chunk_is_noticed() {
        let input = input::generate();
        let pipeline = Pipeline::new(1);
        let cut = input.len() / 2;
        for (sequence, data) in [(0, &input[..cut]), (2, &input[cut..])] {
            assert!(pipeline.to_write.push((sequence, Record::new(digest_of(data), data))));
        }
        pipeline.to_write.close();
        let error = pipeline.write("w", &input).unwrap_err().to_string();
        assert!(error.contains("behind a gap: expected 0, found 1"), "{error}");
    }
}

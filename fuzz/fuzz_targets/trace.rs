//! A trace, as `gleaner replay` reads it: as it is, and with the checksums that its blocks should have.

#![no_main]

use std::time::Duration;

use gleaner_policy::CpuSet;
use gleaner_proto::trace_file::{Reader, Reconstruction};
use libfuzzer_sys::fuzz_target;

/// Magic number and version, then blocks: kind, length, checksum (little-endian), payload.
const FILE_HEAD: usize = 12;
const BLOCK_HEAD: usize = 9;

fuzz_target!(|bytes: &[u8]| {
    read(bytes);
    read(&repaired(bytes));
});

fn read(bytes: &[u8]) {
    let Ok(mut reader) = Reader::open(bytes) else { return };
    let vcpus: CpuSet = "0-3".parse().expect("a set");
    let mut made = Reconstruction::new(&vcpus, reader.clone());
    for event in reader.by_ref() {
        made.event(&event);
    }
    assert!(reader.end().is_some() != reader.damage().is_some(), "a trace has an end or damage");
    let _ = made.observe(Duration::from_secs(1));
    let _ = made.pattern();
}

/// With sound checksums, and a last block that ends where the file does; else only the header would ever be read.
fn repaired(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_owned();
    let mut at = FILE_HEAD;
    while let Some(rest) = bytes.get_mut(at..).filter(|rest| rest.len() >= BLOCK_HEAD) {
        let there = rest.len() - BLOCK_HEAD;
        let said = u32::from_le_bytes([rest[1], rest[2], rest[3], rest[4]]) as usize;
        let length = said.min(there);
        rest[1..5].copy_from_slice(&u32::try_from(length).expect("inputs are short").to_le_bytes());
        let mut checksum = crc32fast::Hasher::new();
        checksum.update(&rest[..5]);
        checksum.update(&rest[BLOCK_HEAD..BLOCK_HEAD + length]);
        rest[5..BLOCK_HEAD].copy_from_slice(&checksum.finalize().to_le_bytes());
        at += BLOCK_HEAD + length;
    }
    bytes
}

//! Short kernel files, read with as few system calls as opening by path allows.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use gleaner_kernel::{KernelError, Root};

/// Reads at most `buffer.len()` bytes of a file that returns everything in one read. Three system calls, where
/// [`Root::read`] takes six. Bytes, since the name of a program need not be UTF-8.
pub(crate) fn read_short<'b>(
    root: &Root,
    absolute: impl AsRef<Path>,
    buffer: &'b mut [u8],
) -> Result<&'b [u8], KernelError> {
    let path = root.path(absolute);
    match File::open(&path).and_then(|mut file| file.read(buffer)) {
        Ok(length) => Ok(&buffer[..length]),
        Err(source) => Err(KernelError::read(path, source)),
    }
}

/// The numbers of one line; ends at the first word that is none.
pub(crate) fn numbers(text: &[u8]) -> impl Iterator<Item = u64> {
    let words = text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
    words.map_while(|word| std::str::from_utf8(word).ok()?.parse().ok())
}

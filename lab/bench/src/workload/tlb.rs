//! `tlb`: changes of an address space that several threads use, as caused by the allocator in PARSEC's dedup
//! and vips (§6.2.2 of the TPDS paper).
//!
//! Synchronisation: none of its own. Each thread writes to its own pages and revokes their write permission,
//! or unmaps them; the kernel then interrupts every vCPU that runs another thread of the process, to flush
//! the translations (a TLB shootdown), and waits for all of them. The kernel's lock on the address space is
//! contended, too. Self-check: pages must hold what was written to them, and new ones zeros.

use std::hint::black_box;
use std::io;
use std::ptr::NonNull;

use super::amount::operations_per_clock;
use super::spec::{Granularity, Spec, Threads, Variant};
use super::work::{check, mix, rounds, run_threads};
use super::{Amount, Kind, Outcome, Settings, WorkloadError};

pub(super) const SPEC: Spec = Spec {
    name: "tlb",
    about: "threads write to 16 pages and write-protect or unmap them, which interrupts the other vCPUs; one \
            operation is one such change",
    variants: &[variant(Kind::Mprotect), variant(Kind::Munmap)],
};

const fn variant(kind: Kind) -> Variant {
    Variant {
        kind: Some(kind),
        threads: Threads::per_vcpu("threads that share the address space", 2),
        granularity: Some(Granularity::us("a thread's computation between two changes", 5)),
        imbalance: None,
    }
}

const PAGES: usize = 16;
/// If the kernel's pages are larger, several of these lie in one.
const PAGE_SIZE: usize = 4096;

pub(super) fn run(amount: Amount, settings: &Settings) -> Result<Outcome, WorkloadError> {
    let rounds = rounds(settings.granularity);
    let change = if settings.kind == Some(Kind::Munmap) { unmap } else { protect };
    let (changes, elapsed) = run_threads(SPEC.name, settings.threads, |index, start| {
        let meter = amount
            .share(index, settings.threads)
            .since(start, operations_per_clock(settings.granularity).min(4));
        let mut mapped = None;
        let mut changes = 0;
        while meter.more(changes) {
            black_box(mix(changes, rounds));
            let pages = mapped.take().map_or_else(fresh, Ok)?;
            mapped = change(pages, mix(index as u64 + changes, 1))?;
            changes += 1;
        }
        Ok(changes)
    })?;
    let operations = changes.iter().sum();
    Ok(Outcome { operations, elapsed, checks: operations })
}

/// New pages, which must contain zeros.
fn fresh() -> Result<Pages, WorkloadError> {
    let pages = Pages::map().map_err(|source| failed("mmap", source))?;
    check_words("word of a fresh page", &pages, |_| 0)?;
    Ok(pages)
}

/// Writes, revokes the write permission, reads, and restores it (which interrupts nobody).
fn protect(mut pages: Pages, value: u64) -> Result<Option<Pages>, WorkloadError> {
    pages.write(value);
    pages.set_writable(false).map_err(|source| failed("mprotect", source))?;
    check_words("word of a protected page", &pages, |page| value ^ page as u64)?;
    pages.set_writable(true).map_err(|source| failed("mprotect", source))?;
    Ok(Some(pages))
}

/// Writes, reads, and unmaps.
fn unmap(mut pages: Pages, value: u64) -> Result<Option<Pages>, WorkloadError> {
    pages.write(value);
    check_words("word of a page", &pages, |page| value ^ page as u64)?;
    Ok(None)
}

fn check_words(
    what: &'static str,
    pages: &Pages,
    expected: impl Fn(usize) -> u64,
) -> Result<(), WorkloadError> {
    (0..PAGES).try_for_each(|page| check(SPEC.name, what, expected(page), pages.read(page)))
}

fn failed(operation: &'static str, source: io::Error) -> WorkloadError {
    WorkloadError::Io { workload: SPEC.name, operation, source }
}

/// Anonymous private memory; dropping it unmaps it.
struct Pages(NonNull<u64>);

impl Pages {
    const LENGTH: usize = PAGES * PAGE_SIZE;

    fn map() -> io::Result<Self> {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: the kernel chooses an unused address; no file is involved.
        let address = unsafe { libc::mmap(std::ptr::null_mut(), Self::LENGTH, protection, flags, -1, 0) };
        if address == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        NonNull::new(address.cast()).map(Self).ok_or_else(io::Error::last_os_error)
    }

    /// Address of the first word of a page, which must be one of [`PAGES`].
    fn word(&self, page: usize) -> *mut u64 {
        self.0.as_ptr().wrapping_byte_add(page * PAGE_SIZE)
    }

    /// Writes the value and the page's number to the first word of every page. They must be writable.
    fn write(&mut self, value: u64) {
        for page in 0..PAGES {
            // SAFETY: the word lies in this mapping, is aligned, and the mapping is writable whenever
            // `protect` and `unmap` call this; volatile, since the access itself is the purpose.
            unsafe { self.word(page).write_volatile(value ^ page as u64) };
        }
    }

    /// Reads the first word of a page.
    fn read(&self, page: usize) -> u64 {
        // SAFETY: the word lies in this mapping, is aligned, initialised (by the kernel, with zero) and
        // always readable.
        unsafe { self.word(page).read_volatile() }
    }

    fn set_writable(&mut self, writable: bool) -> io::Result<()> {
        let protection = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        // SAFETY: the range is exactly this mapping, to which no reference exists.
        let rc = unsafe { libc::mprotect(self.0.as_ptr().cast(), Self::LENGTH, protection) };
        if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: the range is exactly this mapping, and nothing can use it any more. Unmapping a whole
        // mapping can only fail for lack of memory; then it stays until the process ends.
        unsafe { libc::munmap(self.0.as_ptr().cast(), Self::LENGTH) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_a_word_that_was_not_kept() {
        let mut pages = fresh().unwrap();
        pages.write(7);
        let written = |value| move |page| value ^ page as u64;
        assert!(check_words("w", &pages, written(7)).is_ok());
        assert!(check_words("w", &pages, written(8)).is_err());
        assert!(check_words("w", &pages, |_| 0).is_err(), "used pages are not fresh");
        // SAFETY: the page is in the mapping, which is writable.
        unsafe { pages.word(PAGES - 1).write_volatile(0) };
        assert!(check_words("w", &pages, written(7)).is_err());
    }

    #[test]
    fn protected_pages_are_writable_again() {
        let pages = protect(fresh().unwrap(), 1).unwrap().unwrap();
        assert!(protect(pages, 2).unwrap().is_some());
        assert!(unmap(fresh().unwrap(), 3).unwrap().is_none());
    }
}

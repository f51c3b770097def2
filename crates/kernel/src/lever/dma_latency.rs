//! A latency request for the whole machine, bound to a file descriptor (kernel: kernel/power/qos.c).

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::time::Duration;

use crate::{KernelError, Root};

/// The device of the `PM QoS` framework.
pub const DEVICE: &str = "/dev/cpu_dma_latency";

/// A limit on the wake-up latency of every CPU. Dropping it, or the death of the process, withdraws it: the
/// kernel itself is the lease.
#[derive(Debug)]
pub struct DmaLatency {
    _device: File,
}

impl DmaLatency {
    /// Requests a wake-up latency of at most `latency` (whole microseconds, rounded down, at most 2^31 - 1).
    ///
    /// Zero keeps every idle CPU polling. The strictest request of all processes applies.
    ///
    /// # Errors
    /// Opening the device usually requires root.
    pub fn request(root: &Root, latency: Duration) -> Result<Self, KernelError> {
        let microseconds = i32::try_from(latency.as_micros()).unwrap_or(i32::MAX);
        let path = root.path(DEVICE);
        // The device accepts a binary number, or text that must be hexadecimal; the binary form is unambiguous.
        OpenOptions::new()
            .write(true)
            .open(&path)
            .and_then(|mut device| {
                device.write_all(&microseconds.to_ne_bytes())?;
                Ok(Self { _device: device })
            })
            .map_err(|source| KernelError::write(path, microseconds.to_string(), source))
    }

    /// The strictest request of all processes.
    pub fn in_force(root: &Root) -> Result<Duration, KernelError> {
        let path = root.path(DEVICE);
        let mut bytes = [0; 4];
        File::open(&path)
            .and_then(|mut device| device.read_exact(&mut bytes))
            .map_err(|source| KernelError::read(path, source))?;
        Ok(Duration::from_micros(u64::try_from(i32::from_ne_bytes(bytes)).unwrap_or(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_request_is_a_binary_number_of_microseconds() {
        let dir = tempfile::tempdir().unwrap();
        let root = Root::at(dir.path());
        std::fs::create_dir(root.path("/dev")).unwrap();
        std::fs::write(root.path(DEVICE), [0xff; 4]).unwrap();
        let _held = DmaLatency::request(&root, Duration::from_micros(300)).unwrap();
        assert_eq!(std::fs::read(root.path(DEVICE)).unwrap(), 300_i32.to_ne_bytes());
        assert_eq!(DmaLatency::in_force(&root).unwrap(), Duration::from_micros(300));
        assert!(DmaLatency::request(&Root::at(dir.path().join("x")), Duration::ZERO).unwrap_err().is_gone());
    }
}

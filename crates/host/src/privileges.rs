//! What a server of metrics does not need any more once it has started.

use std::io;

/// `include/uapi/linux/capability.h`.
const CAP_DAC_READ_SEARCH: u32 = 2;
const CAP_SYS_PTRACE: u32 = 19;
const CAP_PERFMON: u32 = 38;
const CAP_BPF: u32 = 39;

/// To find VMs among other users' processes, and to read the BPF programs' counters.
const NEEDED: [u32; 4] = [CAP_DAC_READ_SEARCH, CAP_SYS_PTRACE, CAP_PERFMON, CAP_BPF];

/// `_LINUX_CAPABILITY_VERSION_3`: two words of each set.
const VERSION: u32 = 0x2008_0522;

#[repr(C)]
struct Header {
    version: u32,
    pid: i32,
}

/// The first word has capabilities 0 to 31, the second one those from 32 on.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
struct Words {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// Gives up every capability of this thread that serving does not need; those that the thread lacks stay away.
///
/// # Errors
/// The kernel refuses.
pub(crate) fn keep_needed() -> io::Result<()> {
    let mut header = Header { version: VERSION, pid: 0 };
    let mut words = [Words::default(); 2];
    // SAFETY: the kernel reads a header and writes two words of each set, which are there and outlive the call.
    checked(unsafe { libc::syscall(libc::SYS_capget, &raw mut header, words.as_mut_ptr()) })?;
    for (number, word) in (0..).zip(&mut words) {
        let needed = NEEDED.iter().filter(|capability| *capability / 32 == number);
        let mask = needed.fold(0, |mask, capability| mask | 1 << (capability % 32));
        *word = Words { effective: word.permitted & mask, permitted: word.permitted & mask, inheritable: 0 };
    }
    // SAFETY: the kernel reads a header and two words of each set, which are there and outlive the call.
    checked(unsafe { libc::syscall(libc::SYS_capset, &raw mut header, words.as_ptr()) })
}

fn checked(answer: libc::c_long) -> io::Result<()> {
    if answer == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use gleaner_host::{HostError, HostTracer, Isa, Options};
    use gleaner_trace::{NotAvailable, Reason};

    use super::*;

    /// Longer than the windows in which vCPUs are followed, and shorter than the pauses where the budget is tiny.
    const WINDOW: Duration = Duration::from_millis(150);
    const LONGEST: Duration = Duration::from_secs(30);

    #[test]
    fn what_following_costs_is_measured_without_the_capability_for_it() {
        if !gleaner_testing::is_root() {
            return gleaner_testing::skipped("needs root: it loads BPF programs");
        }
        let test = || match HostTracer::start(Isa::Svm, Options::default()) {
            Ok(mut tracer) => {
                tracer.hold_account();
                let before = tracer.keep_within(0.03).unwrap();
                keep_needed().unwrap();
                let after = tracer.keep_within(0.03).unwrap();
                assert!(before.is_some() && after.is_some(), "{before:?}, {after:?}");
                assert_ne!(before, after);
                // Nor is it needed to attach the programs after a pause.
                tracer.keep_within(f64::MIN_POSITIVE).unwrap();
                let started = Instant::now();
                assert!(tracer.due() <= Some(started + WINDOW), "the first window is due at once");
                while tracer.due() <= Some(Instant::now() + WINDOW) {
                    assert!(started.elapsed() < LONGEST, "no window ends");
                    tracer.wait(WINDOW).unwrap();
                }
                tracer.keep_within(0.03).unwrap();
            }
            Err(HostError::NotAvailable(NotAvailable { why: Reason::NoEvent { event }, .. })) => {
                gleaner_testing::left_out(format!("KVM's modules are not loaded: no {event}"));
            }
            Err(error) => panic!("{error}"),
        };
        // Capabilities are a thread's.
        std::thread::spawn(test).join().unwrap();
    }

    /// Permitted and effective capabilities of this thread.
    fn held() -> [u64; 2] {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        ["CapPrm:", "CapEff:"].map(|name| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            u64::from_str_radix(line.trim(), 16).unwrap()
        })
    }

    #[test]
    fn nothing_but_what_is_needed_stays() {
        // Capabilities are a thread's: those of other tests stay.
        let test = || {
            let needed = NEEDED.iter().fold(0, |mask: u64, capability| mask | 1 << capability);
            let [before, _] = held();
            keep_needed().unwrap();
            assert_eq!(held(), [before & needed; 2]);
            keep_needed().unwrap();
            assert_eq!(held(), [before & needed; 2]);
        };
        std::thread::spawn(test).join().unwrap();
    }
}

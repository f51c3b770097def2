//! When the pCPUs' counters are sampled.

use std::time::{Duration, Instant};

use gleaner_host_record::PcpuSample;

use crate::error::HostError;

/// Most intervals of a timeline: as many as a page has room for.
const MOST_INTERVALS: u32 = 60;
/// The shortest interval: in shorter ones, one time slice fills it.
const SHORTEST: Duration = Duration::from_millis(50);

/// The ends of the intervals into which a span of this length is divided, as times since its start. The last is the span.
pub fn ends(span: Duration) -> Vec<Duration> {
    let fitting = u32::try_from(span.as_nanos() / SHORTEST.as_nanos()).unwrap_or(u32::MAX);
    let count = fitting.clamp(1, MOST_INTERVALS);
    (1..=count).map(|number| span * number / count).collect()
}

/// The samples at the start of `span` and at each of the [`ends`]. `after` lets a time pass, and takes a sample.
///
/// # Errors
/// That of `after`.
pub fn sampled(
    span: Duration,
    mut after: impl FnMut(Duration) -> Result<PcpuSample, HostError>,
) -> Result<Vec<PcpuSample>, HostError> {
    let start = Instant::now();
    let mut samples = vec![after(Duration::ZERO)?];
    for end in ends(span) {
        samples.push(after(end.saturating_sub(start.elapsed()))?);
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_divided_evenly_into_as_many_intervals_as_are_long_enough() {
        let of = |ms| ends(Duration::from_millis(ms));
        assert_eq!((of(10_000).len(), of(10_000)[0]), (60, Duration::from_nanos(166_666_666)));
        assert_eq!((of(1000).len(), of(1000)[0]), (20, Duration::from_millis(50)));
        assert_eq!(of(10), [Duration::from_millis(10)]);
        for ms in [10, 1000, 10_000, 86_400_000] {
            assert_eq!(of(ms).last(), Some(&Duration::from_millis(ms)));
            assert!(of(ms).windows(2).all(|pair| pair[0] < pair[1]));
        }
    }

    #[test]
    fn samples_are_taken_at_the_start_and_at_each_end() {
        let mut taken = 0;
        let samples = sampled(Duration::from_millis(120), |time| {
            taken += 1;
            std::thread::sleep(time);
            Ok(PcpuSample { at_ns: taken, pcpus: Vec::new() })
        });
        assert_eq!(samples.unwrap().iter().map(|sample| sample.at_ns).collect::<Vec<_>>(), [1, 2, 3]);
        let failed = sampled(Duration::from_secs(3600), |_| Err(HostError::Read("gone".to_owned())));
        assert_eq!(failed.unwrap_err().to_string(), "cannot read what the BPF programs counted: gone");
    }
}

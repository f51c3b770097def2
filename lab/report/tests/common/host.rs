//! A record of a host with everything that a page can show.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

use std::path::Path;

use gleaner_host_record::{Interval, Pcpu, Report};
use gleaner_proto::histogram::Histogram;
use gleaner_testing::host::RECORD;

use super::noise;

/// Intervals of the timeline.
const INTERVALS: u64 = 60;

/// Lengths around that of `bucket`, about `count` of them.
fn lengths(bucket: u16, count: u64) -> Histogram {
    let height = |step: u16| {
        let from_middle = f64::from(step) - 20.0;
        let share = (-from_middle * from_middle / 60.0).exp() * (1.0 + 0.3 * noise(usize::from(step)));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small number")]
        let n = (count as f64 * share / 14.0) as u64;
        n
    };
    let mut histogram = Histogram::default();
    for step in 0..40 {
        let n = height(step);
        if n > 0 {
            histogram.buckets.insert(bucket + step - 20, n);
            histogram.count += n;
        }
    }
    histogram.total_ns = 4_000 * histogram.count;
    histogram
}

/// The record of `gleaner_testing`, with a timeline, and latencies that vary.
pub(crate) fn host() -> Report {
    let mut record = Report::parse(RECORD.as_bytes(), Path::new("host-record.json")).unwrap();
    for (place, vcpu) in record.vms.iter_mut().flat_map(|vm| &mut vm.vcpus).enumerate() {
        let waits = &mut vcpu.latencies;
        let of = [&mut waits.waking, &mut waits.reschedule, &mut waits.call, &mut waits.woken];
        for (kind, histogram) in of.into_iter().enumerate().filter(|(_, histogram)| histogram.count > 0) {
            let bucket = u16::try_from(70 + 4 * kind + place).unwrap();
            *histogram = lengths(bucket, histogram.count);
        }
    }
    let each = record.span_ns / INTERVALS;
    let at = |interval: u64, pcpu: usize| {
        let busy = 0.5 + 0.4 * noise(usize::try_from(interval).unwrap() + 61 * pcpu) / (pcpu as f64 + 1.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of an interval")]
        let vcpu_ns = (each as f64 * busy) as u64;
        Pcpu { vcpu_ns, other_ns: each / 50, idle_ns: each - vcpu_ns - each / 50 }
    };
    record.timeline = (0..INTERVALS)
        .map(|interval| Interval {
            end_ns: (interval + 1) * each,
            pcpus: (0..record.pcpus.len()).map(|pcpu| at(interval, pcpu)).collect(),
        })
        .collect();
    record
}

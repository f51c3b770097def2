//! The cost of each cause, and wake-up latencies.

use super::summary::lost;
use super::{Diagnosis, Lengths};
use crate::axis::Axis;
use crate::number::{Unit, show};
use crate::page::Figure;
use crate::plot::{Bar, BarGroup, Bars, Histogram, Interval};
use crate::scale::Kind;

/// One bar per cause; no figure without a cause.
pub(super) fn causes(diagnosis: &Diagnosis) -> Vec<Figure> {
    if diagnosis.causes.is_empty() {
        return Vec::new();
    }
    let bars = diagnosis.causes.iter().enumerate().map(|(index, cause)| Bar {
        label: format!("{}. {}", index + 1, cause.name),
        series: 1,
        interval: Some(Interval { value: cause.lost_s, low: cause.lost_s, high: cause.lost_s }),
        // Pale bars: not worth acting on.
        unsure: !(diagnosis.matters && index == 0),
        note: format!("{}: {}; {}", cause.name, lost(cause), cause.estimate),
    });
    let title = "Time lost in each second, by cause";
    vec![Figure {
        name: "causes".to_owned(),
        title: title.to_owned(),
        caption: "Estimated, all threads and vCPUs together. The full bar is the top cause.".to_owned(),
        half: false,
        plot: Box::new(Bars {
            title: title.to_owned(),
            about:
                "Bars: the time that each cause costs in each second; the table of causes has the numbers."
                    .to_owned(),
            axis: Axis::new("lost in each second", Unit::Seconds, Kind::Linear),
            reference: 0.0,
            reference_label: "nothing lost".to_owned(),
            groups: vec![BarGroup { label: String::new(), bars: bars.collect() }],
        }),
    }]
}

/// One histogram per kind of wake-up that occurred, all on the same axis.
pub(super) fn wakes(diagnosis: &Diagnosis) -> Vec<Figure> {
    let within = reach(&diagnosis.wakes);
    let seen = diagnosis.wakes.iter().enumerate();
    seen.filter_map(|(index, lengths)| {
        let title = title(lengths);
        histogram(
            format!("wakes-{}", index + 1),
            &title,
            "from wake-up until run",
            "wake-ups",
            lengths,
            within,
        )
    })
    .collect()
}

/// Name, rate and typical length.
fn title(lengths: &Lengths) -> String {
    let median =
        lengths.typical.map_or_else(String::new, |t| format!(", median {}", show(Unit::Seconds, t.median_s)));
    format!("{}: {} a second{median}", lengths.label, show(Unit::Plain, lengths.per_second))
}

/// Range over all of them, so that they can share an axis.
pub(super) fn reach<'a>(all: impl IntoIterator<Item = &'a Lengths>) -> Option<(f64, f64)> {
    let bins = all.into_iter().flat_map(|lengths| &lengths.bins);
    bins.filter(|bin| Kind::Log.shows(bin.from) && Kind::Log.shows(bin.to)).fold(None, |reach, bin| {
        let (low, high) = reach.unwrap_or((bin.from, bin.to));
        Some((f64::min(low, bin.from), f64::max(high, bin.to)))
    })
}

/// A histogram of the lengths; `None` if there are none.
pub(super) fn histogram(
    name: String,
    title: &str,
    length: &str,
    counted: &str,
    lengths: &Lengths,
    within: Option<(f64, f64)>,
) -> Option<Figure> {
    let typical = lengths.typical?;
    Some(Figure {
        name,
        title: title.to_owned(),
        caption: String::new(),
        half: true,
        plot: Box::new(Histogram {
            title: title.to_owned(),
            about: format!(
                "Histogram: median {}, mean {}, 99 % are shorter than {}.",
                show(Unit::Seconds, typical.median_s),
                show(Unit::Seconds, typical.mean_s),
                show(Unit::Seconds, typical.p99_s)
            ),
            axis: Axis::new(length, Unit::Seconds, Kind::Log),
            counted: counted.to_owned(),
            bins: lengths.bins.clone(),
            within,
        }),
    })
}

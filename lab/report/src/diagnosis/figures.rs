//! The cost of each cause, and wake-up latencies.

use super::Diagnosis;
use super::summary::lost;
use crate::axis::Axis;
use crate::lengths::{histogram, reach, title};
use crate::number::Unit;
use crate::page::Figure;
use crate::plot::{Bar, BarGroup, Bars, Interval};
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

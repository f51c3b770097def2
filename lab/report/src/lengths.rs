//! Distributions of durations: a histogram of each, and their statistics as a table.

use gleaner_proto::diagnosis::Lengths;
use maud::{Markup, html};

use crate::axis::Axis;
use crate::number::{Unit, show};
use crate::page::Figure;
use crate::plot::Histogram;
use crate::scale::Kind;
use crate::table::expandable;

/// Name, rate and typical length.
pub(crate) fn title(lengths: &Lengths) -> String {
    let median =
        lengths.typical.map_or_else(String::new, |t| format!(", median {}", show(Unit::Seconds, t.median_s)));
    format!("{}: {} a second{median}", lengths.label, show(Unit::Plain, lengths.per_second))
}

/// Range over all of them, so that they can share an axis.
pub(crate) fn reach<'a>(all: impl IntoIterator<Item = &'a Lengths>) -> Option<(f64, f64)> {
    let bins = all.into_iter().flat_map(|lengths| &lengths.bins);
    bins.filter(|bin| Kind::Log.shows(bin.from) && Kind::Log.shows(bin.to)).fold(None, |reach, bin| {
        let (low, high) = reach.unwrap_or((bin.from, bin.to));
        Some((f64::min(low, bin.from), f64::max(high, bin.to)))
    })
}

/// A histogram of the lengths; `None` if there are none.
pub(crate) fn histogram(
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

/// Statistics of durations, one line per kind.
pub(crate) fn table(label: &str, what: &str, all: &[Lengths]) -> Markup {
    let heads = html! {
        th scope="col" { (what) }
        (heads())
    };
    let row = |lengths: &Lengths| html! { tr { th scope="row" { (lengths.label) } (cells(lengths)) } };
    expandable(label, what, &heads, all, row)
}

/// Headings for [`cells`].
pub(crate) fn heads() -> Markup {
    html! {
        th scope="col" class="n" { "a second" }
        th scope="col" class="n" { "median" }
        th scope="col" class="n" { "mean" }
        th scope="col" class="n" { "p99" }
    }
}

/// Rate, median, mean and 99th percentile.
pub(crate) fn cells(lengths: &Lengths) -> Markup {
    let times = lengths.typical.map(|t| [t.median_s, t.mean_s, t.p99_s]);
    html! {
        td class="n" { (show(Unit::Plain, lengths.per_second)) }
        @for index in 0..3 {
            td class="n" { (times.map_or_else(|| "–".to_owned(), |times| show(Unit::Seconds, times[index]))) }
        }
    }
}

//! The page of a diagnosis as text: everything appears in words and numbers, too, and all input is escaped.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use common::{check, diagnosis, environment};
use gleaner_report::diagnosis::{Lane, Timeline, figures, html};

#[test]
fn every_figure_is_there_and_sound() {
    let figures = figures(&diagnosis());
    let names: Vec<&str> = figures.iter().map(|figure| figure.name.as_str()).collect();
    let expected =
        ["causes", "wakes-1", "wakes-2", "wakes-4", "timeline", "delay-0", "delay-1", "halt-0", "halt-1"];
    assert_eq!(names, expected, "and none for what was not seen");
    for figure in &figures {
        for svg in [figure.file(), figure.plot.draw(360.0).file()] {
            let texts = check(&svg).unwrap_or_else(|what| panic!("{}: {what}", figure.name));
            assert!(texts.len() > 3, "{}", figure.name);
        }
    }
}

#[test]
fn the_page_says_in_words_and_numbers_what_the_plots_show() {
    let page = html(&diagnosis(), &environment(), "{\"version\":1}");
    let lead = page.split("class=\"lead\">").nth(1).unwrap().split("</p>").next().unwrap();
    assert!(
        lead.starts_with(
            "Top cause: blocking synchronisation: HLT. It costs about 296 ms in each second, by 18.4k wake-ups of halted \
             vCPUs a second. First thing to try: run it under `gleaner run`"
        ),
        "{lead}"
    );
    for text in [
        "TPDS'21 section 6.2.1",
        "<td>mariadbd</td><td class=\"n share\" style=\"--share:",
        "AMD EPYC, 2 vCPUs",
        "Tracing cost 1.4 %",
        "read every 50 ms",
        "other vCPU, halted",
        "steal, within the others",
        "iouring_pool",
        "{\"version\":1}",
    ] {
        assert!(page.contains(text), "{text}");
    }
    for text in ["http:", "https:", " src=", " href=", "url(", "@import"] {
        assert!(!page.contains(text), "{text}");
    }
}

#[test]
fn what_was_not_seen_is_reported_as_such() {
    let mut nothing = diagnosis();
    nothing.matters = false;
    nothing.causes.clear();
    nothing.edges.clear();
    nothing.threads.clear();
    nothing.wakes.iter_mut().chain(&mut nothing.waits).for_each(|lengths| {
        lengths.typical = None;
        lengths.bins.clear();
    });
    nothing.vcpus.clear();
    nothing.timeline = Timeline::default();
    assert!(figures(&nothing).is_empty());
    let page = html(&nothing, &environment(), "{}");
    assert!(page.contains("No cause: nothing that virtualisation does to it costs 3 % of a vCPU or more."));
    assert!(page.contains("There was no wake-up."));
}

#[test]
fn strange_names_and_numbers_stay_where_they_belong() {
    let hostile = "</script><script>alert(1)</script>\"><img src=x>&amp;]]>\u{1b}[2J\u{202e}\u{0}é😀";
    let mut strange = diagnosis();
    strange.target = hostile.to_owned();
    for (index, edge) in strange.edges.iter_mut().enumerate() {
        edge.wakee += hostile;
        edge.per_second = [f64::NAN, f64::INFINITY, -1.0, 0.0, 1e300][index % 5];
        edge.mean_s = [0.0, f64::NAN][index % 2];
    }
    for cause in &mut strange.causes {
        cause.name = hostile.to_owned();
        cause.lost_s = f64::NAN;
    }
    strange.timeline.lanes.push(Lane { vcpu: 9, buckets: Vec::new() });
    strange.timeline.lanes[0].buckets[3].workload = f64::NAN;
    let page = html(&strange, &environment(), &format!("{{\"target\":\"{hostile}\"}}"));
    assert_eq!(page.matches("<script").count(), 2, "the data and the button");
    assert!(!page.contains("<img"));
    for figure in figures(&strange) {
        check(&figure.file()).unwrap_or_else(|what| panic!("{}: {what}", figure.name));
    }
}

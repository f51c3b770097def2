//! The page and its drawings as text: input is escaped, nothing is fetched, overlaps or is left out.

#![allow(clippy::unwrap_used, reason = "a test may fail here")]

mod common;

use common::{check, reproduction, result};
use gleaner_proto::result::{BenchResult, Ending, Metric, Verdict};
use gleaner_report::bench::{figures, html};

/// The result embedded in the page.
fn embedded(page: &str) -> BenchResult {
    let start = page.split("<script type=\"application/json\" id=\"data\">").nth(1).unwrap();
    serde_json::from_str(start.split("</script>").next().unwrap()).unwrap()
}

#[test]
fn every_kind_of_figure_is_there_and_sound() {
    let figures = figures(&result());
    for name in ["speed", "slowdown-idle", "cost", "latency-1", "samples-7", "timeline-1-1"] {
        assert!(figures.iter().any(|figure| figure.name == name), "{name}");
    }
    for figure in &figures {
        for svg in [figure.file(), figure.plot.draw(360.0).file()] {
            let texts = check(&svg).unwrap_or_else(|what| panic!("{}: {what}", figure.name));
            assert!(texts.len() > 3, "{}", figure.name);
        }
        assert!(figure.name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "{}", figure.name);
    }
}

/// Figure 2 of the Gleaner paper: one point per command that is measured alone and beside two others.
#[test]
fn the_variation_by_co_runner_needs_a_command_alone_and_beside_two() {
    let mut result = result();
    let variation = |result: &BenchResult| {
        figures(result).into_iter().find(|figure| figure.name == "variation-idle").map(|figure| figure.file())
    };
    assert!(variation(&result).is_none());
    let alone = result.rows.clone();
    for co_runner in ["matmul", "freqsleep"] {
        assert!(variation(&result).is_none(), "beside one there is no difference");
        for (row, factor) in alone.iter().zip([1.1, 1.2, 1.3, 1.4]) {
            let mut row = row.clone();
            row.name = format!("{} + {co_runner}", row.name);
            row.co_runners.push(co_runner.to_owned());
            for comparison in row.comparisons.iter_mut().filter(|_| co_runner == "matmul") {
                comparison.ratio.median *= factor;
            }
            result.rows.push(row);
        }
    }
    let svg = variation(&result).unwrap();
    let texts = check(&svg).unwrap();
    let text = |wanted: &str| texts.iter().any(|text| text.text.contains(wanted));
    assert!(text("n = 4") && text("difference of the slowdowns") && text(&alone[3].name), "{texts:?}");
    assert!(!text(&alone[4].name), "it has no row beside another");
    assert!(!text("matmul"), "one point for each command");
    // Losses caused by co-runners are not a cost of halting.
    let slowdown = figures(&result).into_iter().find(|figure| figure.name == "slowdown-idle").unwrap();
    assert!(slowdown.file().contains(&format!("n = {}", alone.len())));
}

#[test]
fn the_summary_says_what_won_and_by_how_much() {
    let page = html(&result()).unwrap();
    let lead = page.split("class=\"lead\">").nth(1).unwrap().split("</p>").next().unwrap();
    assert!(lead.starts_with("7 programs in 5 modes, 9 samples each, interleaved. "), "{lead}");
    assert!(
        lead.contains("Mode gleaner was better than default in 4 of 7 rows and worse in none."),
        "{lead}"
    );
    let best = result();
    let ratio = best.rows[0].comparison("gleaner", Metric::Throughput).unwrap().ratio;
    let expected = format!(
        "Most in request-response: {:.2} times as many requests per second in gleaner as in default (95 % interval \
         {:.2} to {:.2}).",
        ratio.median, ratio.low, ratio.high
    );
    assert!(lead.contains(&expected), "{lead}\n{expected}");
    assert!(lead.contains("No difference was found in convoy, compute and tlb."), "{lead}");
}

#[test]
fn the_page_says_everything_that_a_reviewer_needs() {
    let result = result();
    let page = html(&result).unwrap();
    for text in [
        "in round 4 the host gave 6.2 % of the vCPUs&#39; time to others; repeat it",
        "AMD EPYC, 2 vCPUs",
        "driver haltpoll, governor haltpoll",
        "guest_halt_poll_ns = 0",
        "gleaner bench run lab/bench/scenarios/quick.toml --rounds 9",
        "default: gleaner run --quiet --fixed default -- gleaner workload convoy",
        "0.10 % of the vCPUs&#39; time during the samples",
        "no difference",
    ] {
        assert!(page.replace('\'', "&#39;").contains(text), "{text}");
    }
    assert_eq!(embedded(&page), result);
}

#[test]
fn nothing_is_fetched() {
    let page = html(&result()).unwrap();
    for text in
        ["http:", "https:", " src=", " href=", "url(", "@import", "@font-face", "<link", "<iframe", "<img"]
    {
        assert!(!page.contains(text), "{text}");
    }
    for figure in figures(&result()) {
        let svg = figure.file().replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
        assert!(!svg.contains("http") && !svg.contains("url("), "{}", figure.name);
    }
}

#[test]
fn hostile_names_stay_names() {
    let hostile =
        "</script><script>alert(1)</script>\"><img src=x onerror=alert(1)>&amp;]]>\u{1b}[2J\u{202e}\u{0}é😀";
    let mut result = result();
    let mode = result.modes[1].name.clone();
    result.title = hostile.to_owned();
    result.source = hostile.to_owned();
    result.repeat_with = hostile.to_owned();
    result.environment.cpu_model = hostile.to_owned();
    result.environment.knobs.insert(hostile.to_owned(), hostile.to_owned());
    result.modes[1].name = hostile.to_owned();
    result.ending = Ending::Failed {
        row: hostile.to_owned(),
        mode: hostile.to_owned(),
        round: Some(2),
        message: hostile.to_owned(),
    };
    for row in &mut result.rows {
        row.unit = hostile.to_owned();
        row.name += hostile;
        let cells = row.cells.iter_mut().map(|cell| &mut cell.mode);
        let comparisons = row.comparisons.iter_mut().map(|comparison| &mut comparison.mode);
        for name in cells.chain(comparisons).filter(|name| **name == mode) {
            hostile.clone_into(name);
        }
    }
    let page = html(&result).unwrap();
    assert_eq!(page.matches("<script").count(), 2, "the data and the button");
    assert!(!page.contains("<img") && !page.contains("alert(1)>\""));
    assert!(page.chars().all(|c| c == '\n' || !c.is_control()) && !page.contains('\u{202e}'));
    assert_eq!(embedded(&page), result);
    for figure in figures(&result) {
        check(&figure.file()).unwrap_or_else(|what| panic!("{}: {what}", figure.name));
    }
}

#[test]
fn strange_numbers_are_left_out() {
    let mut result = result();
    for (index, row) in result.rows.iter_mut().enumerate() {
        let strange = [0.0, -1.0, f64::MAX, f64::MIN_POSITIVE, 1e-290, f64::NAN, f64::INFINITY][index % 7];
        for cell in &mut row.cells {
            for sample in &mut cell.samples {
                sample.metrics.values_mut().for_each(|value| *value = strange);
            }
            for estimate in cell.summaries.values_mut() {
                (estimate.median, estimate.low, estimate.high) = (strange, strange, strange);
            }
        }
        for comparison in &mut row.comparisons {
            comparison.ratio.median = strange;
            comparison.ratio.low = -strange;
        }
    }
    for figure in figures(&result) {
        check(&figure.file()).unwrap_or_else(|what| panic!("{}: {what}", figure.name));
    }
}

#[test]
fn a_run_that_ended_early_says_so_and_shows_what_it_has() {
    let mut result = result();
    result.ending = Ending::Failed {
        row: "barrier".to_owned(),
        mode: "consolidate:1".to_owned(),
        round: Some(2),
        message: "exit status 3.".to_owned(),
    };
    for row in &mut result.rows {
        row.comparisons.iter_mut().for_each(|comparison| comparison.verdict = Verdict::TooFew);
        row.cells.iter_mut().for_each(|cell| cell.samples.truncate(2));
    }
    let page = html(&result).unwrap();
    assert!(page.contains("barrier in mode consolidate:1 failed in round 3: exit status 3."));
    assert!(page.contains("The samples are too few to judge"));
    assert!(!page.contains("better than"), "nothing was judged, so nothing is counted");

    result.ending = Ending::Interrupted;
    result.rows.clear();
    let page = html(&result).unwrap();
    assert!(page.contains("ended by a signal") && page.contains("nothing is compared"));
    assert!(figures(&result).is_empty());
}

#[test]
fn the_reproduction_page_shows_each_row_with_its_verdict_and_the_scores() {
    let report = reproduction();
    let page = gleaner_report::reproduction::html(&report).unwrap();
    let of_row = |says: &str| {
        let after = page.split(&format!(">{says}<")).nth(1).unwrap_or_else(|| panic!("{says}"));
        after.split("</tr>").next().unwrap().to_owned()
    };
    let near = of_row("dedup on 16 vCPUs");
    assert!(near.contains(">37.5<") && near.contains(">10.0<") && near.contains(">yes<"), "{near}");
    assert!(of_row("streamcluster on 16 vCPUs").contains(">no<"), "30 % more are too far");
    assert!(of_row("facesim on 16 vCPUs").contains('–'), "what did not end has no number");
    let anyway = of_row("Gleaner makes a program with a rather long name faster");
    assert!(anyway.contains("without it, too"), "{anyway}");
    assert!(of_row("the database is faster").contains("lacks: no database in the library"));
    for text in [
        // Fitted: one of one; development: none of three; test: two are evidence, one is not.
        "fitted: 1 + 0 of 1",
        "development: 0 + 0 of 3",
        "test: 2 + 1 of 4",
        "not modelled: 1",
        "grows, as said (repeats 1-01)",
        "Of 1 rows about programs with a fitted parameter, 1 come out with their own and 0 with the mean",
        "Gleaner 0.1.0",
    ] {
        assert!(page.contains(text), "{text}");
    }
    for text in ["http:", "https:", " src=", "url(", "@import", "<link", "<img"] {
        assert!(!page.contains(text), "{text}");
    }
    let start = page.split("<script type=\"application/json\" id=\"data\">").nth(1).unwrap();
    let data: serde_json::Value = serde_json::from_str(start.split("</script>").next().unwrap()).unwrap();
    assert_eq!(data, serde_json::to_value(&report).unwrap());
    let figures = gleaner_report::reproduction::figures(&report);
    let names: Vec<&str> = figures.iter().map(|f| f.name.as_str()).collect();
    assert_eq!(names, ["first-values", "second-figure1", "second-figure2a", "second-figure2b"]);
    for figure in figures {
        for svg in [figure.file(), figure.plot.draw(360.0).file()] {
            check(&svg).unwrap_or_else(|what| panic!("{}: {what}", figure.name));
        }
    }
}

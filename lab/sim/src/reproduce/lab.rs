//! What `scx_gleaner` did in the lab, in the form of the paper's figures, beside those that are simulated.

use serde::Deserialize;

use super::{Bar, Chart, Figure, Group, Quantity};

/// A claim's outcome, as `gleaner-lab claims --markdown` keeps it (`docs/lab.json`).
#[derive(Debug, Deserialize)]
pub struct Outcome {
    name: String,
    checks: Vec<Check>,
}

#[derive(Debug, Deserialize)]
struct Check {
    what: String,
    measured: Option<Measured>,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct Measured {
    median: f64,
    low: f64,
    high: f64,
}

/// A figure whose bars are checks of a claim.
struct Kind {
    place: &'static str,
    title: &'static str,
    value: &'static str,
    quantity: Quantity,
    claim: &'static str,
    /// What the checks begin and end with; the label of a bar is what is between.
    begin: &'static str,
    end: &'static str,
    /// Whether what is before the first colon of a check is the label of its group.
    grouped: bool,
}

const CAPTION: &str = "scx_gleaner in the lab's nested host, whose time is counted in instructions; programs of gleaner-bench. \
                       Medians of interleaved rounds with their range.";

const KINDS: [Kind; 5] = [
    Kind {
        place: "Figure 7a, in the lab",
        title: "Delayed preemption",
        value: "preempted sections of 1000",
        quantity: Quantity::Plain,
        claim: "sched-holders",
        begin: "preempted sections of 1000 under scx_gleaner, preemption delay ",
        end: "",
        grouped: false,
    },
    Kind {
        place: "Figure 7b, in the lab",
        title: "Urgent slice, beside two VMs that wake threads",
        value: "mean wait of a recipient for a pCPU, us",
        quantity: Quantity::Plain,
        claim: "sched-times",
        begin: "--urgent-slice ",
        end: ": mean wait of recipients",
        grouped: false,
    },
    Kind {
        place: "Figure 7c, in the lab",
        title: "Urgent allowance, beside two VMs that sleep often",
        value: "mean wait of a recipient for a pCPU, us",
        quantity: Quantity::Plain,
        claim: "sched-times",
        begin: "--allowance ",
        end: ": mean wait of recipients",
        grouped: false,
    },
    Kind {
        place: "Figure 8, in the lab",
        title: "A parallel VM beside four small ones",
        value: "relative to the kernel's scheduler",
        quantity: Quantity::Factor,
        claim: "sched-small",
        begin: "",
        end: "",
        grouped: true,
    },
    Kind {
        place: "Figure 9, in the lab",
        title: "Two parallel VMs",
        value: "weighted speed-up",
        quantity: Quantity::Factor,
        claim: "sched-pairs",
        begin: "weighted speed-up under ",
        end: "",
        grouped: true,
    },
];

impl Kind {
    /// The label of the check's group, and that of its bar.
    fn labels<'a>(&self, what: &'a str) -> Option<(&'a str, &'a str)> {
        let (group, rest) = if self.grouped { what.split_once(": ")? } else { ("", what) };
        Some((group, rest.strip_prefix(self.begin)?.strip_suffix(self.end)?))
    }

    /// `None`: the claim was not run, or could not be proven.
    fn figure(&self, outcomes: &[Outcome]) -> Option<Figure> {
        let outcome = outcomes.iter().find(|outcome| outcome.name == self.claim)?;
        let mut groups: Vec<Group> = Vec::new();
        for check in &outcome.checks {
            let (Some((group, label)), Some(measured)) = (self.labels(&check.what), check.measured) else {
                continue;
            };
            if groups.last().is_none_or(|last| last.label != group) {
                groups.push(Group { label: group.to_owned(), bars: Vec::new() });
            }
            let Some(last) = groups.last_mut() else { continue };
            last.bars.push(Bar {
                label: label.to_owned(),
                series: last.bars.len() + 1,
                value: Some(measured.median),
                range: Some((measured.low, measured.high)),
            });
        }
        let reference = if self.quantity == Quantity::Factor { 1.0 } else { 0.0 };
        (!groups.is_empty()).then(|| Figure {
            place: self.place,
            title: self.title.to_owned(),
            caption: CAPTION.to_owned(),
            value: self.value,
            quantity: self.quantity,
            chart: Chart::Bars { reference, groups },
        })
    }

    /// Whether a figure of the paper is the one that this is to be beside.
    fn is_beside(&self, figure: &Figure) -> bool {
        self.place.split(',').next().is_some_and(|number| figure.place.starts_with(number))
    }
}

/// Puts what was measured in the lab after the simulated figures of the same number.
pub fn put_beside(figures: &mut Vec<Figure>, outcomes: &[Outcome]) {
    for kind in &KINDS {
        if let (Some(measured), Some(last)) =
            (kind.figure(outcomes), figures.iter().rposition(|figure| kind.is_beside(figure)))
        {
            figures.insert(last + 1, measured);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(place: &'static str) -> Figure {
        let chart = Chart::Bars { reference: 0.0, groups: Vec::new() };
        let (title, caption) = (String::new(), String::new());
        Figure { place, title, caption, value: "", quantity: Quantity::Plain, chart }
    }

    #[test]
    fn each_is_put_after_the_simulated_ones_of_its_number() {
        let check =
            |what: &str| format!(r#"{{"what": "{what}", "measured": {{"median": 2, "low": 1, "high": 3}}}}"#);
        let outcome = |name: &str, checks: &[&str]| {
            let checks: Vec<String> = checks.iter().map(|what| check(what)).collect();
            format!(r#"{{"name": "{name}", "checks": [{}]}}"#, checks.join(","))
        };
        let holders = ["0us", "1ms"]
            .map(|us| format!("preempted sections of 1000 under scx_gleaner, preemption delay {us}"));
        let outcomes = [
            outcome("sched-holders", &[&holders[0], &holders[1], "500us against no delay"]),
            outcome(
                "sched-times",
                &["--urgent-slice 100us: mean wait of recipients", "--urgent-slice: last against first"],
            ),
            outcome("sched-small", &["tlb beside small VMs: its progress with load-conscious balance"]),
            outcome(
                "sched-pairs",
                &[
                    "a beside b: weighted speed-up under the kernel's scheduler",
                    "a beside b: weighted speed-up under scx_gleaner",
                    "a beside b: weighted speed-up",
                ],
            ),
        ];
        let outcomes: Vec<Outcome> = serde_json::from_str(&format!("[{}]", outcomes.join(","))).unwrap();
        let simulated = [
            "Figure 7a",
            "Figure 7b, run time",
            "Figure 7b, spinning",
            "Figure 8a",
            "Figure 9a",
            "Figure 10a",
        ];
        let mut figures: Vec<Figure> = simulated.map(figure).into();
        put_beside(&mut figures, &outcomes);
        let places: Vec<&str> = figures.iter().map(|figure| figure.place).collect();
        let after = |first: &str, second| places.windows(2).any(|pair| pair == [first, second]);
        assert!(after("Figure 7a", "Figure 7a, in the lab"), "{places:?}");
        assert!(after("Figure 8a", "Figure 8, in the lab"), "{places:?}");
        assert!(after("Figure 9a", "Figure 9, in the lab"), "{places:?}");
        let bars = |place| {
            let found = figures.iter().find(|figure| figure.place == place).unwrap();
            let Chart::Bars { groups, .. } = &found.chart else { panic!("{found:?}") };
            groups.iter().map(|group| group.bars.len()).collect::<Vec<_>>()
        };
        assert_eq!(bars("Figure 7a, in the lab"), [2], "by delay");
        assert_eq!(bars("Figure 7b, in the lab"), [1], "by slice");
        assert_eq!(bars("Figure 9, in the lab"), [2], "the kernel's scheduler and scx_gleaner");
    }

    #[test]
    fn what_was_not_measured_has_no_figure() {
        let mut figures = vec![figure("Figure 7a")];
        put_beside(&mut figures, &[Outcome { name: "sched-holders".to_owned(), checks: Vec::new() }]);
        assert_eq!(figures.len(), 1);
    }
}

//! Runs of the papers' scenario files: each is simulated once, however many rows and null models need it.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gleaner_engine::Journal;

use super::Off;
use crate::ids::Ns;
use crate::parallel;
use crate::scenario::{Scenario, ScenarioError};
use crate::sweep::{Sweep, Value};
use crate::world::{End, Report};

macro_rules! files {
    ($($name:literal),+ $(,)?) => {
        [$(($name, include_str!(concat!("../../scenarios/", $name, ".toml")))),+]
    };
}

/// The scenario files of the papers: name and text. They are part of the program, so that it can be installed alone.
pub const FILES: [(&str, &str); 21] = files![
    "asplos13-alone",
    "asplos13-figure7a",
    "asplos13-figure7b",
    "asplos13-figure7c",
    "asplos13-figure8",
    "asplos13-figure9",
    "asplos13-figure10",
    "asplos13-figure11",
    "asplos13-figure12",
    "asplos13-parallel",
    "atc14-alone",
    "atc14-beside",
    "atc14-figure8",
    "atc14-figure9",
    "atc14-table2",
    "atc14-table2-native",
    "hp3c20-native",
    "hp3c20-vms",
    "tpds21-native",
    "tpds21-native-twice",
    "tpds21-vms",
];

/// Why the papers cannot be reproduced.
#[derive(Debug, thiserror::Error)]
pub enum ReproduceError {
    /// The data file of the rows is not valid.
    #[error("lab/sim/papers/rows.csv: {0}")]
    Rows(csv::Error),
    /// A scenario file, or what a row asks of it, is not valid.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
}

/// A combination of a scenario file's sweep. Axes that are not named have their first value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Run {
    file: &'static str,
    chosen: Vec<(&'static str, String)>,
}

impl Run {
    pub(super) const fn of(file: &'static str) -> Self {
        Self { file, chosen: Vec::new() }
    }

    /// The same with this value of an axis.
    pub(super) fn with(mut self, axis: &'static str, value: impl Into<String>) -> Self {
        self.chosen.push((axis, value.into()));
        self
    }
}

/// A run, with a mechanism switched off and other grains.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Variant {
    pub(super) run: Run,
    pub(super) off: Option<Off>,
    pub(super) grains: Option<&'static [(&'static str, Ns)]>,
}

/// A run that a row asked for, and its machine.
struct Wanted {
    key: Key,
    scenario: Scenario,
}

/// What distinguishes machines: everything about them.
type Key = Rc<str>;

/// The runs so far.
pub(super) struct Runs {
    sweeps: BTreeMap<&'static str, Sweep>,
    /// Outcomes by machine; `None` if the run did not end by itself.
    reports: RefCell<HashMap<Key, Option<Rc<Report>>>>,
    machines: RefCell<HashMap<Variant, Key>>,
    wanted: RefCell<BTreeSet<Variant>>,
}

impl Runs {
    pub(super) fn new() -> Result<Self, ReproduceError> {
        let sweep = |(name, text): (&'static str, &str)| {
            let file = format!("lab/sim/scenarios/{name}.toml");
            Ok((name, Sweep::parse(&file, text.to_owned(), Vec::new())?))
        };
        let sweeps = FILES.into_iter().map(sweep).collect::<Result<_, ScenarioError>>()?;
        Ok(Self {
            sweeps,
            reports: RefCell::default(),
            machines: RefCell::default(),
            wanted: RefCell::default(),
        })
    }

    /// The outcome of a run; `None` if it did not end, or if it is not there yet and now wanted.
    pub(super) fn report(&self, variant: Variant) -> Option<Rc<Report>> {
        let machine = self.machines.borrow().get(&variant).cloned();
        let Some(key) = machine else {
            self.wanted.borrow_mut().insert(variant);
            return None;
        };
        self.reports.borrow().get(&key).cloned().flatten()
    }

    /// The machine of a run.
    fn scenario(&self, variant: &Variant) -> Result<Scenario, ReproduceError> {
        let Run { file, chosen } = &variant.run;
        let unknown =
            || ScenarioError::Sweep { file: (*file).to_owned(), message: "there is no such file".to_owned() };
        let sweep = self.sweeps.get(file).ok_or_else(unknown)?;
        let chosen: Vec<(&str, Value)> =
            chosen.iter().map(|(axis, value)| (*axis, Value::from(value.as_str()))).collect();
        let mut scenario = sweep.scenario_with(sweep.point(&chosen)?, variant.grains.unwrap_or_default())?;
        if let Some(off) = variant.off {
            off.apply(&mut scenario);
        }
        Ok(scenario)
    }

    /// Simulates what was wanted, on all cores; returns how many runs that were. `progress` gets how many are done and
    /// how many there are.
    pub(super) fn simulate_wanted(
        &self,
        progress: &(dyn Fn(usize, usize) + Sync),
    ) -> Result<usize, ReproduceError> {
        let wanted = self.wanted.take();
        let count = wanted.len();
        let mut new: Vec<Wanted> = Vec::new();
        for variant in wanted {
            let scenario = self.scenario(&variant)?;
            // The title does not matter to the outcome.
            let key: Key = format!("{:?}{:?}{:?}", scenario.spec, scenario.control, scenario.tuning).into();
            self.machines.borrow_mut().insert(variant, key.clone());
            let known = self.reports.borrow().contains_key(&key) || new.iter().any(|w| w.key == key);
            if !known {
                new.push(Wanted { key, scenario });
            }
        }
        let done = AtomicUsize::new(0);
        let scenarios: Vec<&Scenario> = new.iter().map(|w| &w.scenario).collect();
        let run = |scenario: &&Scenario| -> Result<Option<Report>, ScenarioError> {
            let outcome = scenario.run_with(None, &mut [] as &mut [Journal])?;
            let ended = matches!(outcome.end, End::Finished | End::TimeLimit);
            Ok(ended.then_some(outcome.report))
        };
        let count_done = || progress(done.fetch_add(1, Ordering::Relaxed) + 1, scenarios.len());
        let reports = parallel::map(&scenarios, parallel::cores(), run, count_done);
        drop(scenarios);
        for (Wanted { key, .. }, report) in new.into_iter().zip(reports) {
            self.reports.borrow_mut().insert(key, report?.map(Rc::new));
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variant(run: Run, off: Option<Off>) -> Variant {
        Variant { run, off, grains: None }
    }

    #[test]
    fn a_machine_is_simulated_once_however_it_is_asked_for() {
        let runs = Runs::new().unwrap();
        let table_2 = |setting: &str| Run::of("atc14-table2").with("setting", setting);
        // Without the other VM, D is C.
        let asked = [
            variant(table_2("C"), None),
            variant(table_2("C").with("system", "vm"), None),
            variant(table_2("D"), Some(Off::Neighbours)),
            variant(table_2("A"), None),
        ];
        assert!(asked.iter().all(|v| runs.report(v.clone()).is_none()), "nothing has run yet");
        let simulated = AtomicUsize::new(0);
        let count = |done: usize, all: usize| {
            assert!(done <= all);
            simulated.fetch_add(1, Ordering::Relaxed);
        };
        assert_eq!(runs.simulate_wanted(&count).unwrap(), 4);
        assert_eq!(simulated.into_inner(), 2);
        let digests: Vec<String> = asked.map(|v| runs.report(v).unwrap().digest.clone()).into();
        assert!(digests[0] == digests[1] && digests[0] == digests[2] && digests[0] != digests[3]);
        assert_eq!(runs.simulate_wanted(&|_, _| ()).unwrap(), 0);
    }

    #[test]
    fn what_a_file_does_not_have_is_an_error() {
        for (run, expected) in [
            (Run::of("atc14-table3"), "there is no such file"),
            (Run::of("atc14-table2").with("sytem", "vm"), "the sweep has no `sytem`"),
            (Run::of("atc14-table2").with("system", "xen"), "`system` has no \"xen\""),
        ] {
            let runs = Runs::new().unwrap();
            assert!(runs.report(variant(run, None)).is_none());
            let error = runs.simulate_wanted(&|_, _| ()).unwrap_err().to_string();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }
}

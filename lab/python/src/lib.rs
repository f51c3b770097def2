//! The simulator for Python: what `gleaner_sim/` makes frames, sweeps and searches of. Only plain values cross the
//! border; reports do as JSON.

mod convert;
mod error;
mod sweep;

use gleaner_policy::PolicyConfig;
use gleaner_sim::scenario::{Outcome, Scenario};
use gleaner_sim::sweep::{Axis, Sweep};
use gleaner_sim::{CATEGORY_NAMES, COST_TABLES, End, POLICY_PARAMETERS, Timeline, library};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use crate::convert::Scalar;
use crate::error::{ScenarioError, scenario_error, simulation_error};

/// Runs the scenario `text`, which is called `name` in errors, with other values of some keys. Records up to `spans`
/// spans of vCPU activity. The GIL is not held meanwhile.
///
/// Returns the report as JSON, and the recording.
#[pyfunction]
fn simulate<'py>(
    py: Python<'py>,
    name: &str,
    text: String,
    values: Vec<(String, Scalar)>,
    spans: usize,
) -> PyResult<(String, Option<Bound<'py, PyDict>>)> {
    let outcome = py
        .detach(|| {
            let scenario = if values.is_empty() {
                Scenario::parse(name, &text)?
            } else {
                Sweep::only(name, text, values.into_iter().map(axis).collect())?.scenario(0)?
            };
            scenario.run_with((spans > 0).then_some(spans), &mut [])
        })
        .map_err(|error| scenario_error(py, &error))?;
    let Outcome { end, report, world, .. } = &outcome;
    if let End::Deadlock(_) | End::NoProgress(_) | End::EventLimit = end {
        return Err(simulation_error(&format!("{name}: {end}")));
    }
    let report = serde_json::to_string(report).map_err(|e| simulation_error(&e.to_string()))?;
    let timeline = world
        .timeline()
        .map(|timeline| columns(py, timeline, world.trace().is_some_and(gleaner_sim::Trace::is_full)));
    Ok((report, timeline.transpose()?))
}

/// An axis with one value.
fn axis((key, value): (String, Scalar)) -> Axis {
    Axis { key, values: vec![value.0], cases: Vec::new() }
}

/// The recording: native integers of 32 and 64 bits as bytes. A thread of 2^32 - 1 is none.
fn columns(py: Python<'_>, timeline: Timeline, full: bool) -> PyResult<Bound<'_, PyDict>> {
    let narrow =
        |column: &[u32]| PyBytes::new(py, &column.iter().flat_map(|n| n.to_ne_bytes()).collect::<Vec<u8>>());
    let wide =
        |column: &[u64]| PyBytes::new(py, &column.iter().flat_map(|n| n.to_ne_bytes()).collect::<Vec<u8>>());
    let threads: Vec<u32> = timeline.thread.iter().map(|t| t.unwrap_or(u32::MAX)).collect();
    let dict = PyDict::new(py);
    dict.set_item("vm", narrow(&timeline.vm))?;
    dict.set_item("vcpu", narrow(&timeline.vcpu))?;
    dict.set_item("category", narrow(&timeline.category))?;
    dict.set_item("thread", narrow(&threads))?;
    dict.set_item("start_ns", wide(&timeline.start_ns))?;
    dict.set_item("end_ns", wide(&timeline.end_ns))?;
    dict.set_item("threads", timeline.threads)?;
    dict.set_item("full", full)?;
    Ok(dict)
}

/// The scenario in `json`, an object, as the text of a scenario file.
#[pyfunction]
fn scenario_text(json: &str) -> PyResult<String> {
    let wrong = |e: String| {
        ScenarioError::new_err(format!("the scenario has a value that a scenario cannot have: {e}"))
    };
    let table: toml::Table = serde_json::from_str(json).map_err(|e| wrong(e.to_string()))?;
    toml::to_string(&table).map_err(|e| wrong(e.to_string()))
}

/// The policy's parameters: key, lowest and highest sensible value, default, whether its scale is logarithmic.
#[pyfunction]
fn policy_parameters() -> Vec<(&'static str, f64, f64, f64, bool)> {
    let defaults = PolicyConfig::default();
    POLICY_PARAMETERS.iter().map(|p| (p.key, p.low, p.high, p.get(&defaults), p.logarithmic)).collect()
}

/// Names of the library's programs.
#[pyfunction]
fn programs() -> Vec<&'static str> {
    library::names().collect()
}

/// Names of the cost tables.
#[pyfunction]
fn cost_tables() -> Vec<&'static str> {
    COST_TABLES.to_vec()
}

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("CATEGORIES", CATEGORY_NAMES.to_vec())?;
    module.add_class::<sweep::Grid>()?;
    module.add_function(wrap_pyfunction!(simulate, module)?)?;
    module.add_function(wrap_pyfunction!(scenario_text, module)?)?;
    module.add_function(wrap_pyfunction!(policy_parameters, module)?)?;
    module.add_function(wrap_pyfunction!(programs, module)?)?;
    module.add_function(wrap_pyfunction!(cost_tables, module)?)?;
    Ok(())
}

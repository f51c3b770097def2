//! Errors as the exceptions of `gleaner_sim/_errors.py`.

use gleaner_sim::scenario::ScenarioError as Cause;
use pyo3::prelude::*;

pyo3::import_exception!(gleaner_sim._errors, ScenarioError);
pyo3::import_exception!(gleaner_sim._errors, SimulationError);

/// The exception for a scenario's error, with the place.
pub(crate) fn scenario_error(py: Python<'_>, cause: &Cause) -> PyErr {
    let error = ScenarioError::new_err(cause.to_string());
    let (file, line) = place(cause);
    let value = error.value(py);
    if let Err(failed) = value.setattr("file", file).and_then(|()| value.setattr("line", line)) {
        return failed;
    }
    error
}

pub(crate) fn simulation_error(message: &str) -> PyErr {
    SimulationError::new_err(message.to_owned())
}

fn place(cause: &Cause) -> (Option<String>, Option<usize>) {
    match cause {
        Cause::At { file, line, .. } | Cause::Trace { file, line, .. } => (Some(file.clone()), Some(*line)),
        Cause::Read { path, .. } => (Some(path.display().to_string()), None),
        Cause::Spec { file, .. } | Cause::Sweep { file, .. } => (Some(file.clone()), None),
        Cause::Policy { .. } => (None, None),
        Cause::Point { source, .. } => place(source),
    }
}

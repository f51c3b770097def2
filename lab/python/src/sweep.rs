//! The combinations of a sweep, to be run in any order and anywhere.

use gleaner_sim::sweep::{Axis, Row, Sweep, Value, table};
use gleaner_sim::table::{Cells, Format, Table};
use pyo3::exceptions::{PyIndexError, PyKeyError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::convert::{Scalar, to_python};
use crate::error::{scenario_error, simulation_error};

/// A scenario and every combination of some values in its text.
#[pyclass(frozen, module = "gleaner_sim._native")]
pub(crate) struct Grid {
    inner: Sweep,
}

#[pymethods]
impl Grid {
    /// The axes of the `[sweep]` in `text`, and these, which replace those of the same key.
    #[new]
    fn new(py: Python<'_>, name: &str, text: String, axes: Vec<(String, Vec<Scalar>)>) -> PyResult<Self> {
        let axes = axes.into_iter().map(|(key, values)| Axis {
            key,
            values: values.into_iter().map(|value| value.0).collect(),
            cases: Vec::new(),
        });
        let axes = axes.collect();
        Sweep::parse(name, text, axes).map(|inner| Self { inner }).map_err(|error| scenario_error(py, &error))
    }

    /// Checks every combination without running it.
    fn check(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| self.inner.check()).map_err(|error| scenario_error(py, &error))
    }

    /// Number of combinations.
    #[getter]
    fn points(&self) -> usize {
        self.inner.points()
    }

    /// The keys and their values; the last one varies fastest.
    #[getter]
    fn axes(&self, py: Python<'_>) -> PyResult<Vec<(String, Vec<Py<PyAny>>)>> {
        let values =
            |values: &[Value]| values.iter().map(|value| to_python(py, value)).collect::<PyResult<_>>();
        self.inner.axes().iter().map(|axis| Ok((axis.key.clone(), values(&axis.values)?))).collect()
    }

    /// Runs these combinations, one after another and without the GIL. Returns the columns of their rows by name.
    #[allow(clippy::needless_pass_by_value, reason = "what Python passes is converted to something owned")]
    fn run<'py>(&self, py: Python<'py>, points: Vec<usize>) -> PyResult<Bound<'py, PyDict>> {
        if let Some(point) = points.iter().find(|point| **point >= self.inner.points()) {
            let most = self.inner.points();
            return Err(PyIndexError::new_err(format!("there is no combination {point}; there are {most}")));
        }
        let run =
            || points.iter().map(|point| self.inner.run_point(*point)).collect::<Result<Vec<Vec<Row>>, _>>();
        let rows = py.detach(run).map_err(|error| scenario_error(py, &error))?.concat();
        let dict = PyDict::new(py);
        for (name, cells) in table(self.inner.axes(), &rows).columns() {
            match cells {
                Cells::Integers(cells) => dict.set_item(name, cells)?,
                Cells::Floats(cells) => dict.set_item(name, cells)?,
                Cells::Texts(cells) => dict.set_item(name, cells)?,
            }
        }
        Ok(dict)
    }

    /// Columns that `run` has returned, as a Parquet file.
    fn parquet(&self, columns: &Bound<'_, PyDict>) -> PyResult<Vec<u8>> {
        let mut filled = Table::default();
        for (name, kind) in table(self.inner.axes(), &[]).columns() {
            let column = columns.get_item(name)?.ok_or_else(|| PyKeyError::new_err(name.clone()))?;
            let cells = match kind {
                Cells::Integers(_) => Cells::Integers(column.extract()?),
                Cells::Floats(_) => Cells::Floats(column.extract()?),
                Cells::Texts(_) => Cells::Texts(column.extract()?),
            };
            filled.column(name, cells);
        }
        let mut bytes = Vec::new();
        filled.write(Format::Parquet, &mut bytes).map_err(|e| simulation_error(&e.to_string()))?;
        Ok(bytes)
    }
}

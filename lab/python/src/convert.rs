//! Values of a scenario's keys.

use gleaner_sim::sweep::Value;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyFloat, PyInt, PyString};

/// A value of a key: bool, int, float or str.
pub(crate) struct Scalar(pub(crate) Value);

impl<'py> FromPyObject<'_, 'py> for Scalar {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        // A bool is an int, too.
        Ok(Self(if object.is_instance_of::<PyBool>() {
            Value::Bool(object.extract()?)
        } else if object.is_instance_of::<PyInt>() {
            Value::Integer(object.extract()?)
        } else if object.is_instance_of::<PyFloat>() {
            Value::Float(object.extract()?)
        } else if object.is_instance_of::<PyString>() {
            Value::Text(object.extract()?)
        } else {
            let kind = object.get_type().name()?;
            return Err(PyTypeError::new_err(format!("a key takes a bool, int, float or str, not a {kind}")));
        }))
    }
}

/// The value for Python.
pub(crate) fn to_python(py: Python<'_>, value: &Value) -> PyResult<Py<PyAny>> {
    Ok(match value {
        Value::Integer(n) => n.into_pyobject(py)?.into_any().unbind(),
        Value::Float(x) => x.into_pyobject(py)?.into_any().unbind(),
        Value::Bool(b) => b.into_pyobject(py)?.to_owned().into_any().unbind(),
        Value::Text(text) => text.into_pyobject(py)?.into_any().unbind(),
    })
}

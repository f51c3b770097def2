//! Where values come from.

use std::collections::BTreeMap;
use std::ops::Deref;

use serde::Serialize;

use crate::problem::Location;

/// Which files and lines have set the keys that are a value alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Origins(BTreeMap<String, Location>);

impl Origins {
    /// Where a key such as `metrics.listen` has its value from; `None` is the default.
    pub fn of(&self, key: &str) -> Option<&Location> {
        self.0.get(key)
    }

    pub(crate) fn set(&mut self, key: &str, at: Location) {
        self.0.insert(key.to_owned(), at);
    }
}

/// An element of a list, with the place that it comes from.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Listed<T> {
    /// The element.
    pub value: T,
    /// Where it is written.
    #[serde(skip)]
    pub at: Location,
}

impl<T> Deref for Listed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

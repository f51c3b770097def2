//! Which workloads have a label of their own.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The label of all workloads that have none of their own.
pub(crate) const OTHER: &str = "other";
/// How long the series of a workload stay after it has left: a Prometheus that scrapes once a minute, and misses
/// some scrapes, still sees the last values.
const KEPT: Duration = Duration::from_secs(15 * 60);

/// The label of a workload: [`OTHER`], or its own name.
pub(crate) type Label = Arc<str>;

/// The workloads that have a label of their own, a limited number of them.
#[derive(Debug)]
pub(crate) struct Workloads {
    most: usize,
    /// When it left, if it has.
    own: HashMap<Label, Option<Duration>>,
    other: Label,
}

impl Workloads {
    /// Room for `most` workloads.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, own: HashMap::new(), other: OTHER.into() }
    }

    /// The label of the workload `name`, which is here, and whether it is its own.
    pub(crate) fn label(&mut self, name: &str) -> (Label, bool) {
        if let Some((label, _)) = self.own.get_key_value(name) {
            let label = label.clone();
            self.own.insert(label.clone(), None);
            return (label, true);
        }
        if name == OTHER || self.own.len() >= self.most {
            return (self.other.clone(), false);
        }
        let label = Label::from(name);
        self.own.insert(label.clone(), None);
        (label, true)
    }

    /// The workload `name` has left.
    pub(crate) fn left(&mut self, name: &str, now: Duration) {
        if let Some(left) = self.own.get_mut(name) {
            *left = Some(now);
        }
    }

    /// Takes their labels from the workloads that left long ago, and returns these.
    pub(crate) fn expire(&mut self, now: Duration) -> Vec<Label> {
        let gone = |left: &Option<Duration>| left.is_some_and(|left| now.saturating_sub(left) >= KEPT);
        let expired =
            self.own.iter().filter(|(_, left)| gone(left)).map(|(label, _)| label.clone()).collect();
        self.own.retain(|_, left| !gone(left));
        expired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(workloads: &mut Workloads, names: &[&str]) -> Vec<String> {
        names.iter().map(|name| workloads.label(name).0.to_string()).collect()
    }

    #[test]
    fn the_first_ones_have_their_own_label_and_the_rest_share_one() {
        let mut workloads = Workloads::new(2);
        assert_eq!(labels(&mut workloads, &["a", "b", "c", "a", "d"]), ["a", "b", OTHER, "a", OTHER]);
        assert_eq!(labels(&mut Workloads::new(2), &[OTHER, "a", "b"]), [OTHER, "a", "b"]);
    }

    #[test]
    fn a_workload_that_left_keeps_its_label_for_a_while() {
        let mut workloads = Workloads::new(1);
        labels(&mut workloads, &["a"]);
        workloads.left("a", Duration::from_secs(10));
        let (soon, late) = (KEPT + Duration::from_secs(9), KEPT + Duration::from_secs(10));
        assert!(workloads.expire(soon).is_empty());
        assert_eq!(labels(&mut workloads, &["b"]), [OTHER]);
        assert_eq!(workloads.expire(late), [Label::from("a")]);
        assert_eq!(labels(&mut workloads, &["b"]), ["b"]);
    }

    #[test]
    fn one_that_came_back_stays() {
        let mut workloads = Workloads::new(1);
        labels(&mut workloads, &["a"]);
        workloads.left("a", Duration::ZERO);
        labels(&mut workloads, &["a"]);
        workloads.left("unknown", Duration::ZERO);
        assert!(workloads.expire(KEPT * 2).is_empty());
    }
}

//! Assigns the nodes of a directed graph to layers so that most links point down (after Sugiyama, Tagawa and
//! Toda, *Methods for Visual Understanding of Hierarchical System Structures*, IEEE Trans. SMC 11(2), 1981).

/// A link between two different nodes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Arc {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) weight: f64,
}

/// A position in a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    Node(usize),
    /// A bend of the arc with this index, which passes through the layer.
    Bend(usize),
}

/// Layers from top to bottom, each with its nodes and the bends of long arcs from left to right.
#[derive(Debug, PartialEq)]
pub(super) struct Layers {
    pub(super) slots: Vec<Vec<Slot>>,
    pub(super) of: Vec<usize>,
}

/// How often the order within layers is improved, each time downwards and upwards.
const SWEEPS: usize = 4;

impl Layers {
    /// Assigns `nodes` nodes to layers of at most `most` each, with no arc inside a layer.
    pub(super) fn new(nodes: usize, arcs: &[Arc], most: usize) -> Self {
        let order = downwards(nodes, arcs);
        let of = layer(&order, arcs, most.max(1));
        let mut slots = vec![Vec::new(); of.iter().max().map_or(0, |deepest| deepest + 1)];
        for node in order {
            slots[of[node]].push(Slot::Node(node));
        }
        for (index, arc) in arcs.iter().enumerate() {
            let (a, b) = (of[arc.from].min(of[arc.to]), of[arc.from].max(of[arc.to]));
            for between in slots.iter_mut().take(b).skip(a + 1) {
                between.push(Slot::Bend(index));
            }
        }
        let mut layers = Self { slots, of };
        for _ in 0..SWEEPS {
            let depth = layers.slots.len();
            (1..depth).for_each(|at| layers.sort(at, at - 1, arcs));
            (1..depth).rev().for_each(|at| layers.sort(at - 1, at, arcs));
        }
        layers
    }

    /// Orders the layer `at` by the positions of its slots' neighbours in the layer `beside`.
    fn sort(&mut self, at: usize, beside: usize, arcs: &[Arc]) {
        let place = |wanted: Slot| self.slots[beside].iter().position(|slot| *slot == wanted);
        let touches = |slot: Slot, index: usize| match slot {
            Slot::Node(node) => arcs[index].from == node || arcs[index].to == node,
            Slot::Bend(bend) => bend == index,
        };
        let middle = |here: usize, slot: Slot| {
            let neighbours = (0..arcs.len()).filter(|index| touches(slot, *index)).filter_map(|index| {
                let ends = [arcs[index].from, arcs[index].to].map(Slot::Node);
                place(Slot::Bend(index)).or_else(|| ends.into_iter().filter(|e| *e != slot).find_map(place))
            });
            let (n, sum) = neighbours.fold((0_usize, 0_usize), |(n, sum), place| (n + 1, sum + place));
            // As shares of the width, since layers differ in length. Slots without neighbours stay.
            let share = |place: f64, layer: usize| (place + 0.5) / self.slots[layer].len().max(1) as f64;
            if n == 0 { share(here as f64, at) } else { share(sum as f64 / n as f64, beside) }
        };
        let mut sorted: Vec<(f64, Slot)> =
            self.slots[at].iter().enumerate().map(|(here, slot)| (middle(here, *slot), *slot)).collect();
        sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
        self.slots[at] = sorted.into_iter().map(|(_, slot)| slot).collect();
    }
}

/// An order of the nodes that keeps the weight of upward arcs low: sources first, sinks last, otherwise the
/// node with the greatest surplus (Eades, Lin and Smyth, *A fast and effective heuristic for the feedback arc
/// set problem*, 1993).
fn downwards(nodes: usize, arcs: &[Arc]) -> Vec<usize> {
    let mut left: Vec<usize> = (0..nodes).collect();
    let (mut first, mut last) = (Vec::new(), Vec::new());
    while !left.is_empty() {
        let sum = |node: usize, out: bool| -> f64 {
            let mine = |arc: &&Arc| {
                let (this, other) = if out { (arc.from, arc.to) } else { (arc.to, arc.from) };
                this == node && left.contains(&other)
            };
            arcs.iter().filter(mine).map(|arc| arc.weight).sum()
        };
        let source = left.iter().position(|node| sum(*node, false) == 0.0 && sum(*node, true) > 0.0);
        if let Some(sink) = left.iter().position(|node| sum(*node, true) == 0.0) {
            last.push(left.remove(sink));
        } else if let Some(source) = source {
            first.push(left.remove(source));
        } else {
            let surplus = |node: usize| sum(node, true) - sum(node, false);
            // The first among equals, so that the same graph is always drawn the same way.
            let best = (0..left.len())
                .reduce(|best, next| if surplus(left[next]) > surplus(left[best]) { next } else { best });
            first.push(left.remove(best.unwrap_or(0)));
        }
    }
    first.into_iter().chain(last.into_iter().rev()).collect()
}

/// The layer of each node: the highest with a free slot below all linked nodes that precede it in `order`.
fn layer(order: &[usize], arcs: &[Arc], most: usize) -> Vec<usize> {
    let mut of = vec![0; order.len()];
    let mut used: Vec<usize> = Vec::new();
    for (position, node) in order.iter().enumerate() {
        let linked = |other: usize| {
            arcs.iter()
                .any(|arc| (arc.from, arc.to) == (other, *node) || (arc.from, arc.to) == (*node, other))
        };
        let above = order[..position].iter().filter(|other| linked(**other)).map(|other| of[*other] + 1);
        let mut at = above.max().unwrap_or(0);
        while used.get(at).is_some_and(|n| *n >= most) {
            at += 1;
        }
        used.resize(used.len().max(at + 1), 0);
        used[at] += 1;
        of[*node] = at;
    }
    // Only full layers are skipped, so none is empty.
    of
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn arc(from: usize, to: usize, weight: f64) -> Arc {
        Arc { from, to, weight }
    }

    #[test]
    fn a_chain_goes_down_although_its_end_answers_its_beginning() {
        let arcs = [arc(0, 1, 10.0), arc(1, 2, 9.0), arc(2, 0, 1.0)];
        let layers = Layers::new(3, &arcs, 4);
        assert_eq!(layers.of, [0, 1, 2]);
        assert_eq!(layers.slots[1].len(), 2, "the answer bends past the middle: {layers:?}");
    }

    #[test]
    fn workers_stand_side_by_side_below_who_wakes_them() {
        let arcs: Vec<Arc> = (1..7).flat_map(|w| [arc(0, w, 5.0), arc(w, 0, 4.0)]).collect();
        assert_eq!(Layers::new(7, &arcs, 6).of, [0, 1, 1, 1, 1, 1, 1]);
        let narrow = Layers::new(7, &arcs, 3);
        assert_eq!(narrow.slots.iter().flatten().filter(|s| matches!(s, Slot::Node(_))).count(), 7);
        assert_eq!(narrow.of.iter().max(), Some(&2));
    }

    #[test]
    fn what_does_not_cross_is_not_drawn_across() {
        // Two pairs whose arcs cross in the initial order.
        let arcs = [arc(0, 3, 1.0), arc(1, 2, 1.0)];
        let layers = Layers::new(4, &arcs, 4);
        let place = |node| layers.slots.iter().flatten().position(|s| *s == Slot::Node(node)).unwrap();
        assert_eq!(place(0) < place(1), place(3) < place(2), "{layers:?}");
    }

    proptest! {
        #[test]
        fn every_node_has_one_place_and_no_arc_lies_in_a_layer(
            nodes in 1usize..24,
            ends in prop::collection::vec((0usize..24, 0usize..24, 0.0..9.0f64), 0..60),
            most in 1usize..8,
        ) {
            let arcs: Vec<Arc> = ends
                .into_iter()
                .filter(|(from, to, _)| from != to && *from < nodes && *to < nodes)
                .map(|(from, to, weight)| arc(from, to, weight))
                .collect();
            let layers = Layers::new(nodes, &arcs, most);
            for (at, slots) in layers.slots.iter().enumerate() {
                let here: Vec<usize> = (0..nodes).filter(|node| slots.contains(&Slot::Node(*node))).collect();
                prop_assert!(!here.is_empty() && here.len() <= most);
                prop_assert!(here.iter().all(|node| layers.of[*node] == at));
            }
            for arc in &arcs {
                prop_assert_ne!(layers.of[arc.from], layers.of[arc.to]);
            }
            let bends = layers.slots.iter().flatten().filter(|slot| matches!(slot, Slot::Bend(_))).count();
            let wanted: usize =
                arcs.iter().map(|a| layers.of[a.from].abs_diff(layers.of[a.to]) - 1).sum();
            prop_assert_eq!(bends, wanted);
        }
    }
}

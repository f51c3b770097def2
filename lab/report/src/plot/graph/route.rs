//! Turns layers into coordinates: the positions of boxes, and the paths of links.

use std::fmt::Write as _;

use super::layers::{Layers, Slot};
use crate::drawing::Px;

/// Height of a box, in px.
pub(super) const BOX_HEIGHT: f64 = 38.0;
/// Minimum gap between neighbouring boxes, in px; a box's link to itself uses it.
pub(super) const BOX_GAP: f64 = 34.0;
/// Gap between layers in px, in which links turn and are labelled.
const LAYER_GAP: f64 = 74.0;
/// Width in px for a link that only passes through a layer.
const PASS_WIDTH: f64 = 14.0;
/// Maximum extra gap between boxes, in px.
const MAX_EXTRA_GAP: f64 = 120.0;

/// Position of a box: its horizontal centre and its upper edge.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct BoxPosition {
    pub(super) x: f64,
    pub(super) top: f64,
}

/// How many boxes fit into a layer, leaving some space for links that pass through.
pub(super) fn most(wide: f64, total: f64) -> usize {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small positive number")]
    let most = (total * 0.94 / (wide + BOX_GAP)).max(1.0) as usize;
    most
}

/// The centre of each slot of a layer.
fn across(slots: &[Slot], wide: f64, total: f64) -> Vec<f64> {
    let nodes = slots.iter().filter(|slot| matches!(slot, Slot::Node(_))).count() as f64;
    let bends = slots.len() as f64 - nodes;
    let left = (total - nodes * (wide + BOX_GAP)).max(0.0);
    let pass = if bends > 0.0 { (left / bends).min(PASS_WIDTH) } else { 0.0 };
    // Leftover space spreads the boxes.
    let spread = ((left - bends * pass) / (nodes + 1.0)).clamp(0.0, MAX_EXTRA_GAP);
    let size = |slot: &Slot| match slot {
        Slot::Node(_) => wide + BOX_GAP + spread,
        Slot::Bend(_) => pass,
    };
    let mut x = (total - slots.iter().map(size).sum::<f64>()) / 2.0;
    let middle = |slot: &Slot| {
        let middle = x + size(slot) / 2.0;
        x += size(slot);
        middle
    };
    slots.iter().map(middle).collect()
}

fn upper(layer: usize, top: f64) -> f64 {
    top + (BOX_HEIGHT + LAYER_GAP) * layer as f64
}

/// The position of each node.
pub(super) fn places(layers: &Layers, wide: f64, total: f64, top: f64) -> Vec<BoxPosition> {
    let mut places = vec![BoxPosition { x: 0.0, top }; layers.of.len()];
    for (layer, slots) in layers.slots.iter().enumerate() {
        for (slot, x) in slots.iter().zip(across(slots, wide, total)) {
            if let Slot::Node(node) = slot {
                places[*node] = BoxPosition { x, top: upper(layer, top) };
            }
        }
    }
    places
}

/// The path of a link.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum LinkPath {
    /// Through these points, vertical at each one: straight inside a layer, curved between layers.
    Through(Vec<(f64, f64)>),
    /// From a box's right edge around this point and back.
    Around(f64, f64),
}

/// How far a link from a box to itself extends, in px.
const LOOP_EXTENT: f64 = 18.0;

/// The path of each link; `pairs` are its source and target nodes.
pub(super) fn link_paths(
    layers: &Layers,
    pairs: &[(usize, usize)],
    wide: f64,
    total: f64,
    top: f64,
) -> Vec<LinkPath> {
    let places = places(layers, wide, total, top);
    let lines: Vec<Vec<f64>> = layers.slots.iter().map(|slots| across(slots, wide, total)).collect();
    // Arcs are numbered without the links from nodes to themselves.
    let mut arc = 0;
    let mut link_paths: Vec<LinkPath> = Vec::new();
    for &(from, to) in pairs {
        if from == to {
            link_paths
                .push(LinkPath::Around(places[from].x + wide / 2.0, places[from].top + BOX_HEIGHT / 2.0));
            continue;
        }
        let (upper_node, lower_node) = if layers.of[from] < layers.of[to] { (from, to) } else { (to, from) };
        let mut points = vec![(places[upper_node].x, places[upper_node].top + BOX_HEIGHT)];
        let between = layers.of[upper_node] + 1..layers.of[lower_node];
        for (layer, middles) in lines.iter().enumerate().filter(|(layer, _)| between.contains(layer)) {
            let bend = layers.slots[layer].iter().position(|slot| *slot == Slot::Bend(arc));
            let x = bend.map_or(places[upper_node].x, |index| middles[index]);
            points.extend([(x, upper(layer, top)), (x, upper(layer, top) + BOX_HEIGHT)]);
        }
        points.push((places[lower_node].x, places[lower_node].top));
        if upper_node == to {
            points.reverse();
        }
        link_paths.push(LinkPath::Through(points));
        arc += 1;
    }
    spread(&mut link_paths, pairs, wide);
    link_paths
}

/// Spreads the ends of links along the edges of their boxes, by origin, so that none overlap.
fn spread(link_paths: &mut [LinkPath], pairs: &[(usize, usize)], wide: f64) {
    // Each end: node, whether it is on the lower edge, where its link comes from, the link, and which end.
    let mut ends: Vec<(usize, bool, f64, usize, bool)> = Vec::new();
    for (index, (path, (from, to))) in link_paths.iter().zip(pairs).enumerate() {
        let LinkPath::Through(points) = path else { continue };
        let [first, second, .., before, last] = points[..] else {
            let [first, last] = points[..] else { continue };
            ends.push((*from, first.1 < last.1, last.0, index, false));
            ends.push((*to, first.1 > last.1, first.0, index, true));
            continue;
        };
        ends.push((*from, first.1 < second.1, second.0, index, false));
        ends.push((*to, before.1 > last.1, before.0, index, true));
    }
    ends.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)).then(a.2.total_cmp(&b.2)).then(a.3.cmp(&b.3)));
    for edge in ends.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
        for (place, (.., index, is_last)) in edge.iter().enumerate() {
            let share = (place as f64 + 1.0) / (edge.len() as f64 + 1.0) - 0.5;
            let LinkPath::Through(points) = &mut link_paths[*index] else { continue };
            let point = if *is_last { points.last_mut() } else { points.first_mut() };
            if let Some(point) = point {
                point.0 += share * wide * 0.8;
            }
        }
    }
}

/// Length of an arrowhead, in px.
fn head_length(thick: f64) -> f64 {
    5.0 + thick
}

impl LinkPath {
    /// The SVG path of a link `thick` px wide, up to its arrowhead.
    pub(super) fn line(&self, thick: f64) -> String {
        let mut d = String::new();
        match self {
            Self::Around(x, y) => {
                let (low, high) = (y + 9.0, y - 9.0);
                let end = x + head_length(thick);
                // Writing to a string cannot fail.
                let _ = write!(
                    d,
                    "M{} {1}C{2} {1} {2} {3} {4} {3}",
                    Px(*x),
                    Px(high),
                    Px(x + LOOP_EXTENT * 1.4 + thick),
                    Px(low),
                    Px(end)
                );
            }
            Self::Through(points) => {
                let mut points = points.clone();
                let down = points.len() > 1 && points[points.len() - 2].1 < points[points.len() - 1].1;
                if let Some(last) = points.last_mut() {
                    last.1 += if down { -head_length(thick) } else { head_length(thick) };
                }
                for (index, (x, y)) in points.iter().enumerate() {
                    let _ = match index {
                        0 => write!(d, "M{} {}", Px(*x), Px(*y)),
                        _ if index % 2 == 0 => write!(d, "V{}", Px(*y)),
                        _ => {
                            let before = points[index - 1];
                            let middle = Px(f64::midpoint(before.1, *y));
                            write!(d, "C{} {middle} {x} {middle} {x} {}", Px(before.0), Px(*y), x = Px(*x))
                        }
                    };
                }
            }
        }
        d
    }

    /// The corners of the arrowhead.
    pub(super) fn head(&self, thick: f64) -> String {
        let (length, half) = (head_length(thick), 2.5 + thick * 0.8);
        let corners = match self {
            Self::Around(x, y) => {
                let y = y + 9.0;
                [(*x, y), (x + length, y - half), (x + length, y + half)]
            }
            Self::Through(points) => {
                let [.., before, (x, y)] = points[..] else { return String::new() };
                let back = if before.1 < y { -length } else { length };
                [(x, y), (x - half, y + back), (x + half, y + back)]
            }
        };
        corners.map(|(x, y)| format!("{},{}", Px(x), Px(y))).join(" ")
    }

    /// Position of the label.
    pub(super) fn middle(&self) -> (f64, f64) {
        match self {
            Self::Around(x, y) => (x + LOOP_EXTENT, *y),
            Self::Through(points) => {
                let [(a, b), (c, d), ..] = points[..] else { return (0.0, 0.0) };
                (f64::midpoint(a, c), f64::midpoint(b, d))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::layers::Arc;
    use super::*;

    #[test]
    fn links_go_from_edge_to_edge_and_answers_beside_them() {
        let arcs = [Arc { from: 0, to: 1, weight: 2.0 }, Arc { from: 1, to: 0, weight: 1.0 }];
        let layers = Layers::new(2, &arcs, 3);
        let pairs = [(0, 1), (1, 0), (1, 1)];
        let link_paths = link_paths(&layers, &pairs, 100.0, 400.0, 10.0);
        let LinkPath::Through(down) = &link_paths[0] else { panic!("{link_paths:?}") };
        assert_eq!((down[0].1, down[1].1), (10.0 + BOX_HEIGHT, 10.0 + BOX_HEIGHT + LAYER_GAP));
        let LinkPath::Through(up) = &link_paths[1] else { panic!("{link_paths:?}") };
        assert_eq!((up[0].1, up[1].1), (down[1].1, down[0].1));
        assert!((up[0].0 - down[1].0).abs() > 10.0, "{link_paths:?}");
        assert!(matches!(link_paths[2], LinkPath::Around(..)));
    }

    #[test]
    fn boxes_of_a_layer_stand_apart_inside_the_drawing() {
        let slots: Vec<Slot> = (0..3).map(Slot::Node).chain((0..9).map(Slot::Bend)).collect();
        for total in [360.0, 960.0] {
            let middles = across(&slots, 86.0, total);
            let boxes = &middles[..3];
            assert!(boxes.windows(2).all(|pair| pair[1] - pair[0] >= 86.0 + BOX_GAP - 1e-9), "{middles:?}");
            assert!(boxes[0] - 43.0 >= 0.0 && boxes[2] + 43.0 <= total, "{middles:?}");
        }
    }
}

//! Label placement without overlaps.

use crate::text::Rect;

/// Distances from a point at which its label is tried, in px.
const RINGS: [f64; 6] = [4.0, 10.0, 18.0, 28.0, 40.0, 54.0];

/// Directions in which a label is tried, best first: right, left, above, below, then the diagonals.
const DIRECTIONS: [(f64, f64); 8] =
    [(1.0, 0.0), (-1.0, 0.0), (0.0, -1.0), (0.0, 1.0), (1.0, -1.0), (-1.0, -1.0), (1.0, 1.0), (-1.0, 1.0)];

/// A point and the size of its label, in px.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LabelledPoint {
    /// Position of the point.
    pub at: (f64, f64),
    /// Radius of its mark.
    pub radius: f64,
    /// Width and height of the label.
    pub size: (f64, f64),
}

impl LabelledPoint {
    fn mark(&self) -> Rect {
        let (x, y) = self.at;
        Rect { x: x - self.radius, y: y - self.radius, w: 2.0 * self.radius, h: 2.0 * self.radius }
    }

    fn candidates(&self) -> impl Iterator<Item = (Rect, bool)> {
        RINGS.into_iter().flat_map(move |ring| {
            DIRECTIONS.into_iter().map(move |(dx, dy)| {
                let ((x, y), (w, h)) = (self.at, self.size);
                let reach = self.radius + ring;
                // Diagonally, the same distance would appear longer.
                let reach = if dx != 0.0 && dy != 0.0 { reach * 0.7 } else { reach };
                let middle = (x + dx * (reach + w / 2.0), y + dy * (reach + h / 2.0));
                (Rect { x: middle.0 - w / 2.0, y: middle.1 - h / 2.0, w, h }, ring > RINGS[1])
            })
        })
    }
}

/// Position of a label.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LabelPosition {
    /// The label's box.
    pub label: Rect,
    /// Whether it is so far away that it needs a leader line.
    pub far: bool,
}

/// Places each label inside `bounds` so that it covers no other label and no mark; `None` if there is no such place.
pub fn labels(points: &[LabelledPoint], bounds: Rect) -> Vec<Option<LabelPosition>> {
    let marks: Vec<Rect> = points.iter().map(LabelledPoint::mark).collect();
    let neighbours = |point: &LabelledPoint| {
        let near = |other: &&LabelledPoint| {
            (other.at.0 - point.at.0).abs() < point.size.0
                && (other.at.1 - point.at.1).abs() < 2.0 * point.size.1
        };
        points.iter().filter(near).count()
    };
    // Labels with the least free space choose first.
    let mut order: Vec<usize> = (0..points.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(neighbours(&points[*index])));
    let mut taken: Vec<Rect> = Vec::new();
    let mut placed = vec![None; points.len()];
    for index in order {
        let free = |(label, _): &(Rect, bool)| {
            bounds.contains(label) && !taken.iter().chain(&marks).any(|other| other.overlaps(label))
        };
        if let Some((label, far)) = points[index].candidates().find(free) {
            taken.push(label);
            placed[index] = Some(LabelPosition { label, far });
        }
    }
    placed
}

/// Which labels along an axis to keep so that neighbours are at least `gap` apart. `spans` are their start
/// and end positions. `first` (an index) is kept in any case, the others in order.
pub fn thin(spans: &[(f64, f64)], first: Option<usize>, gap: f64) -> Vec<bool> {
    let mut kept = vec![false; spans.len()];
    for index in first.into_iter().chain(0..spans.len()) {
        let Some((from, to)) = spans.get(index).copied() else { continue };
        let free = spans
            .iter()
            .zip(&kept)
            .all(|((other_from, other_to), kept)| !kept || to + gap <= *other_from || other_to + gap <= from);
        kept[index] |= free;
    }
    kept
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BOUNDS: Rect = Rect { x: 0.0, y: 0.0, w: 600.0, h: 400.0 };

    #[test]
    fn a_lonely_label_stands_beside_its_point() {
        let point = LabelledPoint { at: (100.0, 100.0), radius: 4.0, size: (50.0, 14.0) };
        let placed = labels(&[point], BOUNDS)[0].unwrap();
        assert!(!placed.far && placed.label.x > 104.0 && (placed.label.y - 93.0).abs() < 1e-9);
    }

    #[test]
    fn at_the_edge_it_goes_to_the_other_side() {
        let point = LabelledPoint { at: (590.0, 100.0), radius: 4.0, size: (50.0, 14.0) };
        assert!(labels(&[point], BOUNDS)[0].unwrap().label.x < 590.0);
    }

    #[test]
    fn the_first_label_stays_and_its_neighbours_give_way() {
        let spans = [(0.0, 10.0), (8.0, 18.0), (20.0, 30.0)];
        assert_eq!(thin(&spans, None, 1.0), [true, false, true]);
        assert_eq!(thin(&spans, Some(1), 1.0), [false, true, true]);
        assert_eq!(thin(&spans, Some(1), 3.0), [false, true, false]);
    }

    proptest! {
        #[test]
        fn labels_cover_neither_each_other_nor_a_mark(
            points in proptest::collection::vec((4.0..596.0f64, 4.0..396.0f64, 10.0..120.0f64), 1..40)
        ) {
            let points: Vec<LabelledPoint> = points
                .into_iter()
                .map(|(x, y, w)| LabelledPoint { at: (x, y), radius: 4.0, size: (w, 14.0) })
                .collect();
            let placed = labels(&points, BOUNDS);
            let boxes: Vec<Rect> = placed.iter().flatten().map(|placed| placed.label).collect();
            for (index, label) in boxes.iter().enumerate() {
                prop_assert!(BOUNDS.contains(label));
                prop_assert!(boxes[..index].iter().all(|other| !other.overlaps(label)));
                prop_assert!(points.iter().all(|point| !point.mark().overlaps(label)));
            }
            if points.len() == 1 {
                prop_assert_eq!(boxes.len(), 1);
            }
        }
    }
}

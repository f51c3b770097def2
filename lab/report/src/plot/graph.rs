//! A directed graph: boxes in layers, links as wide as their weight.

mod layers;
mod route;

use maud::{Markup, html};

use super::legend::{self, Entry, SWATCH_GAP, SWATCH_WIDTH};
use super::{MARGIN, Plot};
use crate::drawing::{Drawing, Px, line, text};
use crate::place::{LabelPosition, LabelledPoint, labels};
use crate::scale::Kind;
use crate::text::{Anchor, Rect, Style, clean, shorten, widest, width};
use crate::theme::series_class;
use layers::{Arc, Layers};
use route::{BoxPosition, LinkPath};

/// A box in the graph.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// First line of text.
    pub label: String,
    /// Second line of text.
    pub note: String,
}

/// A link from one node to another, or to itself.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    /// Index of the source node.
    pub from: usize,
    /// Index of the target node.
    pub to: usize,
    /// Width relative to the other links.
    pub weight: f64,
    /// Label beside the link, if there is space.
    pub label: String,
    /// Full description, shown as a tooltip.
    pub note: String,
    /// Series index: decides colour and dashes.
    pub series: usize,
}

/// A directed graph.
#[derive(Debug, Clone, PartialEq)]
pub struct Graph {
    /// Short title.
    pub title: String,
    /// Text alternative for screen readers.
    pub about: String,
    /// The boxes; links refer to them by index.
    pub nodes: Vec<Node>,
    /// The links. Those with an invalid node index are left out.
    pub links: Vec<Link>,
    /// Legend: series index and name.
    pub key: Vec<(usize, String)>,
}

/// Widths of the thinnest and the widest link, in px.
const MIN_LINK_WIDTH: f64 = 1.2;
const MAX_LINK_WIDTH: f64 = 7.0;
/// Padding beside the text of a box, in px.
const BOX_PADDING: f64 = 8.0;
/// Widths of the narrowest and the widest box, in px.
const BOX_WIDTHS: (f64, f64) = (64.0, 156.0);

impl Graph {
    fn shown(&self) -> Vec<&Link> {
        let there = |link: &&Link| link.from < self.nodes.len() && link.to < self.nodes.len();
        self.links.iter().filter(there).filter(|link| Kind::Linear.shows(link.weight)).collect()
    }

    /// Box width: that of the widest text, but narrow enough for three side by side.
    fn box_width(&self, total: f64) -> f64 {
        let labels = widest(self.nodes.iter().map(|node| node.label.as_str()), Style::Body);
        let notes = widest(self.nodes.iter().map(|node| node.note.as_str()), Style::Small);
        (labels.max(notes) + 2.0 * BOX_PADDING)
            .clamp(BOX_WIDTHS.0, BOX_WIDTHS.1)
            .min(total / 3.0 - route::BOX_GAP)
    }

    fn node(&self, index: usize, place: &BoxPosition, wide: f64) -> Markup {
        let node = &self.nodes[index];
        let room = wide - 2.0 * BOX_PADDING;
        let (x, y) = (place.x, place.top);
        html! {
            g {
                title { (clean(&format!("{}: {}", node.label, node.note))) }
                rect x=(Px(x - wide / 2.0)) y=(Px(y)) width=(Px(wide)) height=(Px(route::BOX_HEIGHT)) rx="5" class="node" {}
                (text(&shorten(&node.label, room, Style::Body), x, y + 16.0, Anchor::Middle, Style::Body))
                (text(&shorten(&node.note, room, Style::Small), x, y + 31.0, Anchor::Middle, Style::Small))
            }
        }
    }

    fn link(link: &Link, path: &LinkPath, thick: f64) -> Markup {
        html! {
            g class=(series_class(link.series)) {
                title { (clean(&link.note)) }
                path d=(path.line(thick)) class="link" stroke-width=(Px(thick)) {}
                polygon points=(path.head(thick)) class="head" {}
            }
        }
    }
}

impl Plot for Graph {
    fn draw(&self, total: f64) -> Drawing {
        let legend = legend::rows(&self.key, |(_, name)| name, total);
        let top = MARGIN + legend::height(&legend) + 12.0;
        let links = self.shown();
        let arcs: Vec<Arc> = links
            .iter()
            .filter(|link| link.from != link.to)
            .map(|link| Arc { from: link.from, to: link.to, weight: link.weight.abs() })
            .collect();
        let wide = self.box_width(total);
        let layers = Layers::new(self.nodes.len(), &arcs, route::most(wide, total));
        let places = route::places(&layers, wide, total, top);
        let pairs: Vec<(usize, usize)> = links.iter().map(|link| (link.from, link.to)).collect();
        let link_paths = route::link_paths(&layers, &pairs, wide, total, top);
        let bottom = places.iter().map(|place| place.top + route::BOX_HEIGHT).fold(top, f64::max) + 4.0;

        let heaviest = links.iter().map(|link| link.weight.abs()).fold(0.0, f64::max);
        let thick = |link: &Link| {
            let share = if heaviest > 0.0 { (link.weight.abs() / heaviest).sqrt() } else { 0.0 };
            MIN_LINK_WIDTH + (MAX_LINK_WIDTH - MIN_LINK_WIDTH) * share
        };
        let boxes: Vec<Rect> = places
            .iter()
            .map(|place| Rect { x: place.x - wide / 2.0, y: place.top, w: wide, h: route::BOX_HEIGHT })
            .collect();
        let names: Vec<String> =
            links.iter().map(|link| shorten(&link.label, total / 3.0, Style::Small)).collect();
        let labelled: Vec<LabelledPoint> = link_paths
            .iter()
            .zip(&names)
            .zip(&links)
            .map(|((path, name), link)| LabelledPoint {
                at: path.middle(),
                radius: thick(link) / 2.0,
                size: (width(name, Style::Small) + 2.0, Style::Small.size() * 1.2),
            })
            .collect();
        let bounds = Rect { x: MARGIN, y: top, w: total - 2.0 * MARGIN, h: bottom - top };
        let spots = labels(&labelled, &boxes, bounds);
        let body = html! {
            (key(&legend))
            @for (link, path) in links.iter().zip(&link_paths) { (Self::link(link, path, thick(link))) }
            @for (index, place) in places.iter().enumerate() { (self.node(index, place, wide)) }
            g class="over" {
                @for ((path, name), spot) in link_paths.iter().zip(&names).zip(&spots) {
                    @if let Some(spot) = spot { (name_of_link(name, path, spot)) }
                }
            }
        };
        Drawing::new(&self.title, &self.about, (total, bottom), body)
    }
}

/// The legend: a short link before each name.
fn key(legend: &[Vec<Entry<'_, (usize, String)>>]) -> Markup {
    html! {
        @for (entry, middle) in legend::entries(legend) {
            g class=(series_class(entry.item.0)) {
                line x1=(Px(entry.x)) x2=(Px(entry.x + SWATCH_WIDTH)) y1=(Px(middle)) y2=(Px(middle)) class="link"
                    stroke-width="3" {}
            }
            (text(&entry.label, entry.x + SWATCH_WIDTH + SWATCH_GAP, middle + 4.0, Anchor::Start, Style::Body))
        }
    }
}

/// The name of a link at its spot, with a line to the link where that is far.
fn name_of_link(name: &str, path: &LinkPath, spot: &LabelPosition) -> Markup {
    let label = spot.label;
    html! {
        @if spot.far {
            @let (x, y) = path.middle();
            @let end = (x.clamp(label.x, label.x + label.w), y.clamp(label.y, label.y + label.h));
            (line((x, y), end, "leader"))
        }
        // The baseline is a quarter of the font size above the lower edge of the box.
        (text(name, label.x, label.y + label.h - 2.8, Anchor::Start, Style::Small))
    }
}

//! A finished drawing, and the few elements that all plots share.

use std::fmt::{self, Write as _};

use maud::{Markup, html};

use crate::text::{Anchor, Style, clean};
use crate::theme;

/// Padding around a drawing in its own file, in px.
const PADDING: f64 = 12.0;

/// SVG whose colours and fonts come from [`crate::theme`].
#[derive(Debug, Clone)]
pub struct Drawing {
    /// Short title.
    pub title: String,
    /// Text alternative for screen readers.
    pub about: String,
    /// Width in px.
    pub width: f64,
    /// Height in px.
    pub height: f64,
    /// The SVG elements inside `<svg>`.
    pub body: Markup,
}

impl Drawing {
    /// A drawing of the given width and height in px.
    pub fn new(title: &str, about: &str, (width, height): (f64, f64), body: Markup) -> Self {
        Self { title: title.to_owned(), about: about.to_owned(), width, height, body }
    }

    /// Renders it as part of a page, which must include the style sheet. `id` must be unique in the page.
    pub fn inline(&self, id: &str, class: &str) -> Markup {
        let (title_id, about_id) = (format!("{id}-title"), format!("{id}-about"));
        html! {
            svg class=(class) viewBox=(format!("0 0 {} {}", Px(self.width), Px(self.height)))
                width=(Px(self.width)) height=(Px(self.height)) role="img"
                aria-labelledby=(format!("{title_id} {about_id}")) {
                title id=(title_id) { (clean(&self.title)) }
                desc id=(about_id) { (clean(&self.about)) }
                (self.body)
            }
        }
    }

    /// Renders it as a standalone SVG file.
    pub fn file(&self) -> String {
        let view_box = format!(
            "{0} {0} {1} {2}",
            Px(-PADDING),
            Px(self.width + 2.0 * PADDING),
            Px(self.height + 2.0 * PADDING)
        );
        let style = [theme::COLOURS, theme::DRAWING, theme::BACKGROUND].concat();
        let svg = html! {
            svg xmlns="http://www.w3.org/2000/svg" viewBox=(view_box) width=(Px(self.width + 2.0 * PADDING))
                height=(Px(self.height + 2.0 * PADDING)) role="img" aria-labelledby="title about" {
                title id="title" { (clean(&self.title)) }
                desc id="about" { (clean(&self.about)) }
                style { (style) }
                (self.body)
            }
        };
        format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}\n", svg.into_string())
    }
}

/// A position or length in px, written with one decimal; finer differences are invisible.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Px(pub f64);

impl fmt::Display for Px {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug_assert!(self.0.is_finite(), "a position must be a number");
        let tenths = (self.0 * 10.0).round() / 10.0;
        // Avoid printing -0.
        write!(f, "{}", if tenths == 0.0 { 0.0 } else { tenths })
    }
}

impl maud::Render for Px {
    fn render_to(&self, buffer: &mut String) {
        buffer.push_str(&self.to_string());
    }
}

/// The part of a drawing where values are plotted, in px.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Area {
    /// Left edge.
    pub left: f64,
    /// Upper edge.
    pub top: f64,
    /// Right edge.
    pub right: f64,
    /// Lower edge.
    pub bottom: f64,
}

/// A text with its baseline at `y`.
pub fn text(text: &str, x: f64, y: f64, anchor: Anchor, style: Style) -> Markup {
    html! { text x=(Px(x)) y=(Px(y)) text-anchor=(anchor.svg()) class=(style.class()) { (clean(text)) } }
}

/// A straight line.
pub fn line(from: (f64, f64), to: (f64, f64), class: &str) -> Markup {
    html! { line x1=(Px(from.0)) y1=(Px(from.1)) x2=(Px(to.0)) y2=(Px(to.1)) class=(class) {} }
}

/// A series' mark. Shapes differ, so that series are distinguishable without colour.
pub fn mark(series: usize, x: f64, y: f64, radius: f64) -> Markup {
    let r = radius;
    let path = |points: &[(f64, f64)]| {
        let points: Vec<String> =
            points.iter().map(|(dx, dy)| format!("{},{}", Px(x + dx * r), Px(y + dy * r))).collect();
        html! { polygon points=(points.join(" ")) class="dot" {} }
    };
    match series % 5 {
        0 => html! { circle cx=(Px(x)) cy=(Px(y)) r=(Px(r)) class="dot" {} },
        1 => path(&[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)]),
        2 => path(&[(0.0, -1.1), (1.1, 0.9), (-1.1, 0.9)]),
        3 => path(&[(0.0, -1.3), (1.3, 0.0), (0.0, 1.3), (-1.3, 0.0)]),
        _ => path(&[(0.0, 1.1), (1.1, -0.9), (-1.1, -0.9)]),
    }
}

/// A path through the points; with `steps`, horizontal first, then vertical.
pub fn path(points: &[(f64, f64)], steps: bool) -> String {
    let mut d = String::new();
    for (index, (x, y)) in points.iter().enumerate() {
        let (x, y) = (Px(*x), Px(*y));
        // Writing to a string cannot fail.
        let _ = match index {
            0 => write!(d, "M{x} {y}"),
            _ if steps => write!(d, "H{x}V{y}"),
            _ => write!(d, "L{x} {y}"),
        };
    }
    d
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_are_short() {
        assert_eq!(Px(1.0).to_string(), "1");
        assert_eq!(Px(-0.01).to_string(), "0");
        assert_eq!(Px(12.345).to_string(), "12.3");
    }

    #[test]
    fn paths_go_where_they_should() {
        assert_eq!(path(&[(0.0, 1.0), (2.0, 3.0)], false), "M0 1L2 3");
        assert_eq!(path(&[(0.0, 1.0), (2.0, 3.0)], true), "M0 1H2V3");
        assert_eq!(path(&[], true), "");
    }
}

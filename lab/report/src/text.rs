//! Text in a drawing: sanitising, and estimating its width.
//!
//! The reader's font is unknown, so widths are those of `DejaVu` Sans, the widest font of the stack in
//! [`crate::theme`]: what fits with it fits with the others.

/// How a text is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Labels.
    Body,
    /// Ticks and notes: smaller, muted.
    Small,
    /// Headings: bold.
    Strong,
}

impl Style {
    /// CSS class in the style sheet.
    pub const fn class(self) -> &'static str {
        match self {
            Self::Body => "body",
            Self::Small => "small",
            Self::Strong => "strong",
        }
    }

    /// Font size in px; must match the style sheet.
    pub const fn size(self) -> f64 {
        match self {
            Self::Body | Self::Strong => 12.0,
            Self::Small => 11.0,
        }
    }

    /// By how much bold letters are wider.
    const fn stretch(self) -> f64 {
        match self {
            Self::Body | Self::Small => 1.0,
            Self::Strong => 1.13,
        }
    }
}

/// Line height relative to the font size.
const LINE_HEIGHT: f64 = 1.2;

/// How far letters extend below the baseline, relative to the font size.
const DESCENT: f64 = 0.25;

/// Replaces what XML forbids or what would reorder the surrounding text (control characters, bidirectional
/// marks) with U+FFFD.
pub fn clean(text: &str) -> String {
    text.chars().map(|c| if is_hidden(c) { '\u{fffd}' } else { c }).collect()
}

/// Whether [`clean`] replaces the character.
pub(crate) fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        || matches!(c, '\u{fffe}' | '\u{ffff}')
}

/// Estimated width of `text` in px.
pub fn width(text: &str, style: Style) -> f64 {
    text.chars().map(em).sum::<f64>() * style.size() * style.stretch()
}

/// Estimated width of the widest text in px, 0 if there are none.
pub fn widest<'a>(texts: impl IntoIterator<Item = &'a str>, style: Style) -> f64 {
    texts.into_iter().map(|text| width(text, style)).fold(0.0, f64::max)
}

/// The text, shortened with `…` to at most `max` px.
pub fn shorten(text: &str, max: f64, style: Style) -> String {
    if width(text, style) <= max {
        return text.to_owned();
    }
    let mut room = max - width("…", style);
    let fits = |c: &char| {
        room -= em(*c) * style.size() * style.stretch();
        room >= 0.0
    };
    let start: String = text.chars().take_while(fits).collect();
    format!("{}…", start.trim_end())
}

/// Width of a character relative to the font size.
fn em(c: char) -> f64 {
    match c {
        'i' | 'j' | 'l' | '\'' => 0.28,
        ' ' | '.' | ',' | ':' | ';' | '/' | '\\' | '|' | 'I' | 'J' => 0.34,
        'f' | 't' | 'r' | '-' | '(' | ')' | '[' | ']' | '!' => 0.41,
        's' | 'z' | 'c' | '"' | '*' | '_' | '?' | '`' => 0.55,
        '0'..='9'
        | 'a'..='e'
        | 'g'
        | 'h'
        | 'k'
        | 'n'..='q'
        | 'u'
        | 'v'
        | 'x'
        | 'y'
        | '$'
        | 'µ'
        | '{'
        | '}' => 0.64,
        'A'..='L' | 'P' | 'R'..='V' | 'X'..='Z' => 0.77,
        'w' | 'N' | 'O' | 'Q' | '+' | '<' | '=' | '>' | '~' | '#' | '^' | '&' | '×' | '±' => 0.84,
        'm' | 'M' | 'W' | '%' | '@' | '—' | '…' => 1.0,
        // Combining marks take no space; unknown characters are assumed to be wide.
        '\u{300}'..='\u{36f}' | '\u{200b}'..='\u{200d}' => 0.0,
        '\u{a0}'..='\u{10ff}' => 0.9,
        _ => 1.1,
    }
}

/// Where a text lies relative to its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// It starts there.
    Start,
    /// It is centred there.
    Middle,
    /// It ends there.
    End,
}

impl Anchor {
    /// Value of SVG's `text-anchor`.
    pub const fn svg(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Middle => "middle",
            Self::End => "end",
        }
    }
}

/// A rectangle in px; `y` grows downwards.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rect {
    /// Left edge.
    pub x: f64,
    /// Upper edge.
    pub y: f64,
    /// Width.
    pub w: f64,
    /// Height.
    pub h: f64,
}

impl Rect {
    /// The bounding box of a text whose baseline is at `y`.
    pub fn of_text(text: &str, x: f64, y: f64, anchor: Anchor, style: Style) -> Self {
        let (w, size) = (width(text, style), style.size());
        let x = match anchor {
            Anchor::Start => x,
            Anchor::Middle => x - w / 2.0,
            Anchor::End => x - w,
        };
        Self { x, y: y - size * (LINE_HEIGHT - DESCENT), w, h: size * LINE_HEIGHT }
    }

    /// Whether the interiors overlap.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.x < other.x + other.w
            && other.x < self.x + self.w
            && self.y < other.y + other.h
            && other.y < self.y + self.h
    }

    /// Whether `other` lies inside, edges included.
    pub fn contains(&self, other: &Self) -> bool {
        self.x <= other.x
            && self.y <= other.y
            && other.x + other.w <= self.x + self.w
            && other.y + other.h <= self.y + self.h
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn forbidden_characters_are_shown_as_such() {
        assert_eq!(clean("a\u{0}b\u{1b}[31m\u{202e}c"), "a\u{fffd}b\u{fffd}[31m\u{fffd}c");
        assert_eq!(clean("Größe <µs> & \"x\""), "Größe <µs> & \"x\"");
    }

    #[test]
    fn boxes_follow_the_anchor() {
        let at = |anchor| Rect::of_text("0000", 100.0, 50.0, anchor, Style::Body);
        assert!((at(Anchor::Start).x - 100.0).abs() < 1e-9);
        assert!((at(Anchor::End).x + at(Anchor::End).w - 100.0).abs() < 1e-9);
        assert!((at(Anchor::Middle).x + at(Anchor::Middle).w / 2.0 - 100.0).abs() < 1e-9);
        assert!(at(Anchor::Start).overlaps(&at(Anchor::Middle)));
        assert!(!at(Anchor::Start).overlaps(&at(Anchor::End)));
    }

    proptest! {
        #[test]
        fn a_shortened_text_fits(text in "\\PC{0,60}", max in 20.0..300.0) {
            for style in [Style::Body, Style::Small, Style::Strong] {
                let short = shorten(&text, max, style);
                prop_assert!(width(&short, style) <= max + 1e-9);
                if width(&text, style) <= max {
                    prop_assert_eq!(short, text.as_str());
                }
            }
        }
    }
}

//! The appearance of reports: one style sheet for pages and for standalone drawings.
//!
//! The colours are those of Okabe and Ito (*Color Universal Design*, 2008), which stay distinct for people
//! with colour vision deficiencies, each adjusted to a contrast of at least 3:1 with the background. Nothing
//! is encoded by colour alone: a label, dash pattern or shape repeats it.

/// Number of distinct styles; series beyond it reuse the coloured ones.
const STYLES: usize = 6;

/// CSS class for the colour and dashes of series `index`. Series 0, the baseline, is grey.
pub const fn series_class(index: usize) -> &'static str {
    const CLASSES: [&str; STYLES + 1] = ["s0", "s1", "s2", "s3", "s4", "s5", "s6"];
    if index == 0 { CLASSES[0] } else { CLASSES[1 + (index - 1) % STYLES] }
}

/// Colours for light and dark schemes. On paper it is always light.
pub const COLOURS: &str = "\
:root{color-scheme:light dark;--bg:#fff;--fg:#1c2024;--muted:#5b6570;--grid:#e3e6ea;--rule:#aab2bb;--soft:#f5f6f8;\
--s0:#6b7680;--s1:#0072b2;--s2:#c2500a;--s3:#008a63;--s4:#a8508a;--s5:#9a6b00;--s6:#2b8bb8;--warn:#8f5f00;\
--bad:#b3261e}\
@media (prefers-color-scheme:dark){:root{--bg:#14171a;--fg:#e6e9ec;--muted:#a2abb5;--grid:#2a2f35;--rule:#59636d;\
--soft:#1d2125;--s0:#98a3ad;--s1:#5ab3e8;--s2:#f0894a;--s3:#33b98f;--s4:#dd9cc6;--s5:#e0aa2a;--s6:#8fd0f0;\
--warn:#e8b64c;--bad:#ff8a80}}\
@media print{:root{color-scheme:light;--bg:#fff;--fg:#000;--muted:#444;--grid:#ddd;--rule:#888;--soft:#fff;\
--s0:#6b7680;--s1:#0072b2;--s2:#c2500a;--s3:#008a63;--s4:#a8508a;--s5:#9a6b00;--s6:#2b8bb8;--warn:#6b4700;\
--bad:#8c1d18}}";

/// Style of the elements of a drawing. Font sizes match [`crate::text::Style`].
pub const DRAWING: &str = "\
svg{font-family:system-ui,-apple-system,\"Segoe UI\",Roboto,\"Helvetica Neue\",\"Noto Sans\",\"Liberation Sans\",\
Arial,sans-serif;font-variant-numeric:tabular-nums}\
svg text{fill:var(--fg)}.body{font-size:12px}.small{font-size:11px}svg .small{fill:var(--muted)}\
.strong{font-size:12px;font-weight:600}\
.grid{stroke:var(--grid)}.rule{stroke:var(--rule)}.reference{stroke:var(--fg);stroke-width:1.2}\
.bar{fill:var(--c);fill-opacity:.75}.unsure .bar{fill-opacity:.3}.whisker{stroke:var(--fg);stroke-width:1.3;fill:none}\
.dot{fill:var(--c);fill-opacity:.7;stroke:var(--c)}.median{stroke:var(--fg);stroke-width:2}\
.range{fill:var(--c);fill-opacity:.2}.line{stroke:var(--c);stroke-width:2;fill:none;stroke-linejoin:round}\
.fit{stroke:var(--muted);stroke-width:1.3;stroke-dasharray:5 4;fill:none}.leader{stroke:var(--rule)}\
.over text{paint-order:stroke;stroke:var(--bg);stroke-width:3px;stroke-linejoin:round}\
.area{fill:var(--c);fill-opacity:.25;stroke:none}.edge{stroke:var(--c);stroke-width:1.5;fill:none}\
.s0{--c:var(--s0)}.s1{--c:var(--s1)}.s2{--c:var(--s2)}.s3{--c:var(--s3)}.s4{--c:var(--s4)}.s5{--c:var(--s5)}\
.s6{--c:var(--s6)}.s2 .line{stroke-dasharray:7 3}.s3 .line{stroke-dasharray:2 3}.s4 .line{stroke-dasharray:9 3 2 3}\
.s5 .line{stroke-dasharray:4 2}.s6 .line{stroke-dasharray:12 4}";

/// Background for standalone drawings; on a page, the page provides it.
pub const BACKGROUND: &str = "svg{background:var(--bg)}";

#[cfg(test)]
mod tests {
    use super::*;

    /// Relative luminance of `#rgb` or `#rrggbb` (WCAG 2.2).
    fn luminance(hex: &str) -> f64 {
        let long: String =
            if hex.len() == 3 { hex.chars().flat_map(|c| [c, c]).collect() } else { hex.to_owned() };
        let channel = |at: usize| {
            let value = f64::from(u8::from_str_radix(&long[at..at + 2], 16).unwrap()) / 255.0;
            if value <= 0.040_45 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * channel(0) + 0.7152 * channel(2) + 0.0722 * channel(4)
    }

    fn contrast(a: &str, b: &str) -> f64 {
        let (a, b) = (luminance(a), luminance(b));
        (a.max(b) + 0.05) / (a.min(b) + 0.05)
    }

    #[test]
    fn everything_stands_out_from_its_background() {
        let schemes: Vec<&str> = COLOURS.split(":root{").skip(1).collect();
        assert_eq!(schemes.len(), 3, "light, dark, print");
        for scheme in schemes {
            let colour = |name: &str| {
                let from = scheme.find(&format!("--{name}:#")).unwrap() + name.len() + 4;
                scheme[from..].split([';', '}']).next().unwrap()
            };
            for text in ["fg", "muted", "warn", "bad"] {
                for back in ["bg", "soft"] {
                    assert!(contrast(colour(text), colour(back)) >= 4.5, "{text} on {back}: {scheme}");
                }
            }
            for series in 0..=STYLES {
                let name = series_class(series);
                assert!(contrast(colour(name), colour("bg")) >= 3.0, "{name}: {scheme}");
            }
        }
    }

    #[test]
    fn only_the_baseline_is_grey() {
        assert_eq!(series_class(0), "s0");
        assert!((1..50).all(|index| series_class(index) != "s0"));
        assert_ne!(series_class(1), series_class(2));
    }
}

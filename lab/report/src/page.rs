//! One self-contained page: no network, no external fonts or scripts.

use std::fmt::Write as _;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::plot::Plot;
use crate::text::is_hidden;
use crate::theme;

/// Width of a full-width figure, in px.
const FULL_WIDTH: f64 = 960.0;
/// Width of one of two figures side by side.
const HALF_WIDTH: f64 = 460.0;
/// Width of any figure on a narrow screen.
const NARROW_WIDTH: f64 = 360.0;

/// A plot with heading and caption; can also be saved as a file.
pub struct Figure {
    /// Name in file names and links: letters, digits and dashes.
    pub name: String,
    /// Heading above the plot.
    pub title: String,
    /// How to read the plot; shown below it.
    pub caption: String,
    /// Whether it is narrow enough for two side by side.
    pub half: bool,
    /// The plot itself.
    pub plot: Box<dyn Plot>,
}

impl Figure {
    const fn width(&self) -> f64 {
        if self.half { HALF_WIDTH } else { FULL_WIDTH }
    }

    /// The figure as a standalone SVG file.
    pub fn file(&self) -> String {
        self.plot.draw(self.width()).file()
    }

    /// The figure on a page. It is drawn twice: scaled-down text would be unreadable on a narrow screen.
    fn markup(&self) -> Markup {
        let drawn =
            |width, class: &str| self.plot.draw(width).inline(&format!("{}-{class}", self.name), class);
        html! {
            figure id=(self.name) {
                h3 { (self.title) }
                (drawn(self.width(), "wide"))
                (drawn(NARROW_WIDTH, "narrow"))
                @if !self.caption.is_empty() { figcaption { (self.caption) } }
            }
        }
    }
}

/// Figures below each other, half-width ones in two columns.
pub(crate) fn figures<'a>(figures: impl IntoIterator<Item = &'a Figure>) -> Markup {
    let (half, whole): (Vec<&Figure>, Vec<&Figure>) = figures.into_iter().partition(|figure| figure.half);
    html! {
        @for figure in whole { (figure.markup()) }
        @if !half.is_empty() { div class="columns" { @for figure in half { (figure.markup()) } } }
    }
}

/// A table that scrolls by itself if it is wider than the screen.
pub(crate) fn scrolling(label: &str, table: &Markup) -> Markup {
    html! { div class="scroll" role="region" aria-label=(label) tabindex="0" { (table) } }
}

/// JSON embedded in a page for download.
pub(crate) struct Data<'a> {
    pub(crate) json: &'a str,
    /// Suggested name of the saved file.
    pub(crate) file_name: &'a str,
    /// What it contains, in a sentence.
    pub(crate) about: &'a str,
}

pub(crate) fn page(title: &str, content: &Markup, data: &Data<'_>) -> String {
    let style = [theme::COLOURS, theme::DRAWING, STYLE].concat();
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width,initial-scale=1";
                // Even if a hostile name slipped through the escaping, it could not fetch or send anything.
                meta http-equiv="Content-Security-Policy"
                    content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";
                meta name="generator" content="gleaner report";
                title { (title) }
                style { (PreEscaped(style)) }
            }
            body {
                main {
                    (content)
                    section {
                        h2 { "Raw data" }
                        p {
                            (data.about) " "
                            button type="button" id="download" data-name=(data.file_name) { "Save " (data.file_name) }
                        }
                        noscript { p { "It stands in the page's source, in the element with the id “data”." } }
                    }
                }
                script type="application/json" id="data" { (PreEscaped(inert(data.json))) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    page.into_string()
        .chars()
        .map(|c| if is_hidden(c) && !matches!(c, '\n' | '\t') { '\u{fffd}' } else { c })
        .collect()
}

/// The same JSON in ASCII and without `<`, so that nothing in it can close the element around it.
fn inert(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let mut units = [0; 2];
    for c in json.chars() {
        if c.is_ascii() && c != '<' {
            out.push(c);
        } else {
            for unit in c.encode_utf16(&mut units) {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
    }
    out
}

const SCRIPT: &str = "\
const button=document.getElementById('download');\
button.addEventListener('click',()=>{\
const text=document.getElementById('data').textContent;\
const link=document.createElement('a');\
link.href=URL.createObjectURL(new Blob([text],{type:'application/json'}));\
link.download=button.dataset.name;link.click();URL.revokeObjectURL(link.href)})";

/// Page style, in addition to that of the drawings.
const STYLE: &str = "\
*{box-sizing:border-box}\
html{-webkit-text-size-adjust:100%}\
body{margin:0;background:var(--bg);color:var(--fg);font:16px/1.55 system-ui,-apple-system,\"Segoe UI\",Roboto,\
\"Helvetica Neue\",\"Noto Sans\",\"Liberation Sans\",Arial,sans-serif}\
main{max-width:60rem;margin:0 auto;padding:2.5rem 1.25rem 4rem}\
@media (min-width:62.5rem){main{padding-left:0;padding-right:0}}\
h1{font-size:1.75rem;line-height:1.2;margin:0 0 .4rem;letter-spacing:-.01em;overflow-wrap:anywhere}\
h2{font-size:1.2rem;line-height:1.3;margin:3rem 0 .75rem;padding-top:.9rem;border-top:1px solid var(--grid)}\
h3{font-size:1rem;line-height:1.35;margin:0 0 .5rem;overflow-wrap:anywhere}\
p{margin:.6rem 0;max-width:44rem}\
.by{color:var(--muted);font-size:.9rem;margin:.2rem 0;overflow-wrap:anywhere}\
.lead{font-size:1.12rem;line-height:1.5;margin:1.4rem 0 .8rem}\
.ending{border-left:4px solid var(--bad);background:var(--soft);padding:.6rem 1rem;overflow-wrap:anywhere}\
.ending b{color:var(--bad)}\
ul.directions{list-style:none;padding:0;margin:.6rem 0;columns:26rem auto;column-gap:2rem;font-size:.88rem}\
ul.directions li{padding:.15rem 0 .15rem 2.4rem;text-indent:-2.4rem;break-inside:avoid;overflow-wrap:anywhere}\
ul.directions b{display:inline-block;width:2.4rem;text-indent:0;font-weight:500;color:var(--muted)}\
ul.directions .no b{color:var(--bad);font-weight:700}\
ul.warnings{list-style:none;padding:0;margin:.6rem 0}\
ul.warnings li{border-left:4px solid var(--warn);background:var(--soft);padding:.45rem .9rem;margin:.45rem 0;\
max-width:52rem;font-size:.92rem;overflow-wrap:anywhere}\
figure{margin:0 0 2.2rem}\
figure svg{display:block;max-width:100%;height:auto}\
figure svg.narrow{width:100%;max-width:30rem}\
figcaption{color:var(--muted);font-size:.88rem;line-height:1.45;margin-top:.5rem;max-width:44rem}\
.columns{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:0 2.5rem}\
@media (min-width:45rem){svg.narrow{display:none!important}}\
@media (max-width:44.99rem){svg.wide{display:none!important}.columns{grid-template-columns:minmax(0,1fr)}\
main{padding-top:1.5rem}h1{font-size:1.4rem}.lead{font-size:1.05rem}}\
.scroll{overflow-x:auto;margin:.8rem 0 1.4rem}\
table{border-collapse:collapse;font-size:.88rem;line-height:1.35;font-variant-numeric:tabular-nums}\
th,td{padding:.32rem .6rem;text-align:left;vertical-align:baseline;white-space:nowrap}\
th:first-child,td:first-child{padding-left:0}\
td.n,th.n{text-align:right}td.share{background:linear-gradient(to left,var(--grid) var(--share),transparent 0)}\
td.i{color:var(--muted);padding-left:0}td.wrap,th.wrap{white-space:normal;min-width:14rem}\
thead th{color:var(--muted);font-weight:500;border-bottom:1px solid var(--rule);vertical-align:bottom}\
tbody th{font-weight:400}tbody tr+tr>*{border-top:1px solid var(--grid)}\
tbody th[colspan]{font-weight:600;padding-top:1.1rem}\
tr.best>*{font-weight:600}\
dl{display:grid;grid-template-columns:max-content minmax(0,1fr);gap:.3rem 1.4rem;margin:.6rem 0;font-size:.92rem}\
dt{color:var(--muted)}dd{margin:0;overflow-wrap:anywhere}\
@media (max-width:30rem){dl{grid-template-columns:minmax(0,1fr);gap:0}dd{margin-bottom:.5rem}}\
a{color:inherit}\
code,pre{font-family:ui-monospace,\"SF Mono\",Menlo,Consolas,\"Liberation Mono\",monospace;font-size:.85em}\
pre{background:var(--soft);padding:.7rem .9rem;margin:.5rem 0 1rem;white-space:pre-wrap;overflow-wrap:anywhere;\
font-size:.82rem;line-height:1.45}\
details{margin:.6rem 0}summary{cursor:pointer;font-size:.95rem}\
button{font:inherit;font-size:.9rem;color:var(--fg);background:var(--soft);border:1px solid var(--rule);\
border-radius:4px;padding:.25rem .8rem;cursor:pointer}\
:focus-visible{outline:2px solid var(--s1);outline-offset:2px}\
@media print{body{font-size:11pt}main{max-width:none;padding:0}svg.narrow{display:none!important}\
svg.wide{display:block!important}figure,tr,li{break-inside:avoid}h2,h3{break-after:avoid}button{display:none}\
.scroll{overflow:visible}}";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embedded_json_is_inert_and_unchanged() {
        let value = serde_json::json!({"name": "</script><!-- \u{202e}é😀"});
        let text = inert(&value.to_string());
        assert!(text.is_ascii() && !text.contains('<'), "{text}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), value);
    }
}

//! Parses and checks drawings.

use gleaner_report::text::{Anchor, Rect, Style};

/// A text in a drawing, with its bounding box.
#[derive(Debug)]
pub(crate) struct Text {
    pub(crate) text: String,
    pub(crate) place: Rect,
}

/// Fails on invalid XML, positions that are not numbers, texts that overlap or leave the drawing, and
/// external references. Returns the drawing's texts.
pub(crate) fn check(svg: &str) -> Result<Vec<Text>, String> {
    let document = roxmltree::Document::parse(svg).map_err(|error| format!("no XML: {error}"))?;
    let root = document.root_element();
    let title = root.children().find(|node| node.has_tag_name(("http://www.w3.org/2000/svg", "title")));
    if title.and_then(|title| title.text()).is_none_or(str::is_empty) {
        return Err("the drawing has no title".to_owned());
    }
    let view = root.attribute("viewBox").unwrap_or_default();
    let view: Vec<f64> = view.split(' ').filter_map(|number| number.parse().ok()).collect();
    let [x, y, w, h] = view[..] else { return Err(format!("bad viewBox {view:?}")) };
    // A page does not have the padding of a standalone file.
    let view = Rect { x: 0.0, y: 0.0, w: w + 2.0 * x, h: h + 2.0 * y };
    let mut texts: Vec<Text> = Vec::new();
    for node in document.descendants().filter(roxmltree::Node::is_element) {
        for attribute in node.attributes() {
            let (name, value) = (attribute.name(), attribute.value());
            if value.contains("NaN") || value.contains("inf") {
                return Err(format!("{name}={value}"));
            }
            if ["href", "src", "style", "onload", "onclick"].contains(&name) {
                return Err(format!("{name}={value} in a drawing"));
            }
        }
        match node.tag_name().name() {
            "script" | "image" | "foreignObject" | "a" | "use" => {
                return Err(format!("<{}> in a drawing", node.tag_name().name()));
            }
            "text" => {
                let text = text_of(node)?;
                if !view.contains(&text.place) {
                    return Err(format!("{text:?} leaves {view:?}"));
                }
                if let Some(other) = texts.iter().find(|other| other.place.overlaps(&text.place)) {
                    return Err(format!("{text:?} overlaps {other:?}"));
                }
                texts.push(text);
            }
            _ => {}
        }
    }
    Ok(texts)
}

fn text_of(node: roxmltree::Node<'_, '_>) -> Result<Text, String> {
    let number = |name| node.attribute(name).and_then(|n: &str| n.parse().ok()).ok_or(format!("no {name}"));
    let anchor = match node.attribute("text-anchor") {
        Some("start") => Anchor::Start,
        Some("middle") => Anchor::Middle,
        Some("end") => Anchor::End,
        other => return Err(format!("text-anchor {other:?}")),
    };
    let style = [Style::Body, Style::Small, Style::Strong]
        .into_iter()
        .find(|style| node.attribute("class") == Some(style.class()))
        .ok_or("a text without a known class")?;
    let text = node.text().unwrap_or_default().to_owned();
    let place = Rect::of_text(&text, number("x")?, number("y")?, anchor, style);
    // Positions are rounded to a tenth.
    let place = Rect { x: place.x + 0.1, w: (place.w - 0.2).max(0.0), y: place.y + 0.1, h: place.h - 0.2 };
    Ok(Text { text, place })
}

//! `--once` as text: the same drawing on a page that is long enough for it.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

use super::draw::{Palette, draw};
use super::view::View;

/// The usual width of a terminal, which text in a file or a pipe should fit.
const WIDTH: u16 = 80;
/// Lines besides those of the vCPUs, so that only the newest decisions are printed.
const LINES: usize = 40;

/// `view` as lines of text, without colours.
pub(super) fn text(view: &View) -> String {
    let height = u16::try_from(LINES + view.vcpus.len()).unwrap_or(u16::MAX);
    let area = Rect::new(0, 0, WIDTH, height);
    let mut buffer = Buffer::empty(area);
    draw(view, None, Palette { colours: false }, area, &mut buffer);
    let mut text = lines(&buffer).join("\n");
    text.truncate(text.trim_end().len());
    text
}

/// The buffer's lines without trailing blanks.
pub(super) fn lines(buffer: &Buffer) -> Vec<String> {
    let line = |row: Rect| {
        let cells: String = row.columns().map(|cell| buffer[(cell.x, cell.y)].symbol()).collect();
        cells.trim_end().to_owned()
    };
    buffer.area.rows().map(line).collect()
}

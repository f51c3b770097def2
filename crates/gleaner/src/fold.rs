//! Lines of text, folded between words.

/// Where texts are folded: the usual width of a terminal.
pub(crate) const WIDTH: usize = 80;

/// Adds `text` after `head`, folded between words to at most [`WIDTH`] columns where its words allow it, and indented by
/// the width of `head`.
pub(crate) fn fold(out: &mut String, head: &str, text: &str) {
    let indent = head.chars().count();
    out.push_str(head);
    let mut column = indent;
    for (i, word) in text.split_whitespace().enumerate() {
        let width = word.chars().count();
        if i > 0 && column + 1 + width > WIDTH {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            column = indent;
        } else if i > 0 {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += width;
    }
    out.push('\n');
}

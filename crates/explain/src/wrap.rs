//! Wraps text between words.

/// The usual width of a terminal.
pub const WIDTH: usize = 80;

/// Appends `text` after `head`, wrapped between words to [`WIDTH`] columns unless a word is longer, and indented by the
/// width of `head`.
pub fn wrap(out: &mut String, head: &str, text: &str) {
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

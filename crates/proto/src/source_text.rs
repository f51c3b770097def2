//! Files that people write: the line of an error, and the name that was probably meant. Each format's reader
//! has its own errors.

/// How similar a name must be to be suggested, 0..=1 (Damerau-Levenshtein distance over length).
const MIN_SIMILARITY: f64 = 0.5;

/// A file's name and text.
#[derive(Debug, Clone, Copy)]
pub struct SourceText<'a> {
    /// Name of the file in errors.
    pub name: &'a str,
    /// Content of the file.
    pub text: &'a str,
}

impl SourceText<'_> {
    /// The line of the byte at `offset`, from 1.
    pub fn line(&self, offset: usize) -> usize {
        1 + self.text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
    }
}

/// The name among `known` that is most similar to `name`, if any is similar.
pub fn nearest<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let alike = known.map(|known| (strsim::normalized_damerau_levenshtein(name, known), known));
    let best = alike.max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(alike, _)| *alike >= MIN_SIMILARITY).map(|(_, known)| known)
}

/// The clause that suggests a name, or nothing.
pub fn proposal(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |nearest| format!("; did you mean `{nearest}`?"))
}

/// The sentence for a name that does not exist, with the most similar one of those that do.
pub fn unknown<'k>(what: &str, name: &str, known: impl Iterator<Item = &'k str> + Clone) -> String {
    let proposal = proposal(nearest(name, known.clone()));
    let known: Vec<&str> = known.collect();
    format!("unknown {what} `{name}`{proposal} (there are: {})", known.join(", "))
}

/// A message of `serde` about an unknown name, ``unknown field `a`, expected one of `b`, `c` ``, with the most
/// similar name suggested. Returns other messages as they are.
pub fn with_nearest(message: &str) -> String {
    let unknown = ["unknown field", "unknown variant"].iter().any(|start| message.starts_with(start));
    let mut quoted = message.split('`').skip(1).step_by(2);
    let (true, Some(name)) = (unknown, quoted.next()) else { return message.to_owned() };
    match nearest(name, quoted) {
        Some(nearest) => message.replacen(", expected", &format!("; did you mean `{nearest}`? Expected"), 1),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_counted_from_one() {
        let written = SourceText { name: "x", text: "a\nb\n\nc" };
        assert_eq!([0, 1, 2, 4, 5, 99].map(|at| written.line(at)), [1, 1, 2, 3, 4, 4]);
    }

    #[test]
    fn the_nearest_name_is_proposed_and_a_far_one_is_not() {
        let known = || ["cores", "sockets", "this-vm"].into_iter();
        for (name, meant) in
            [("coers", Some("cores")), ("socket", Some("sockets")), ("this_vm", Some("this-vm")), ("x", None)]
        {
            assert_eq!(nearest(name, known()), meant);
        }
        assert_eq!(proposal(None), "");
    }

    #[test]
    fn sentences_of_serde_get_the_nearest_name() {
        let message = with_nearest("unknown field `coers`, expected one of `cores`, `smt`");
        assert_eq!(message, "unknown field `coers`; did you mean `cores`? Expected one of `cores`, `smt`");
        let message = with_nearest("unknown variant `lokc`, expected `lock` or `unlock`");
        assert_eq!(message, "unknown variant `lokc`; did you mean `lock`? Expected `lock` or `unlock`");
        for same in ["unknown field `zzz`, expected `a`", "invalid type: string \"four\", expected u64"] {
            assert_eq!(with_nearest(same), same);
        }
    }
}

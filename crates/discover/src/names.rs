//! Names of candidates: clean, unique, and kept for life.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The names in use.
#[derive(Debug, Default)]
pub(crate) struct Names {
    used: BTreeSet<String>,
    bases: BTreeMap<String, Base>,
}

/// The names that differ by their number alone.
#[derive(Debug)]
struct Base {
    /// Every lower number is in use. So that thousands of processes of one name do not try all numbers each.
    lowest: u32,
    in_use: u32,
}

/// A name in use, to be given back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Name {
    text: String,
    base: String,
    number: u32,
}

impl Names {
    /// The longest name, without its number.
    const LONGEST: usize = 64;

    /// A name like `wanted` that nobody else has: with the lowest free number, if it is ambiguous.
    pub(crate) fn take(&mut self, wanted: &str) -> Name {
        let base = clean(wanted);
        let entry = self.bases.entry(base.clone()).or_insert(Base { lowest: 1, in_use: 0 });
        let mut number = entry.lowest;
        let text = loop {
            let text = if number == 1 { base.clone() } else { format!("{base}-{number}") };
            // Another one can call itself `sh-2`.
            if self.used.insert(text.clone()) {
                break text;
            }
            number += 1;
        };
        entry.lowest = number + 1;
        entry.in_use += 1;
        Name { text, base, number }
    }

    /// The name is free again.
    pub(crate) fn free(&mut self, name: &Name) {
        self.used.remove(&name.text);
        if let Some(base) = self.bases.get_mut(&name.base) {
            base.lowest = base.lowest.min(name.number);
            base.in_use -= 1;
            if base.in_use == 0 {
                self.bases.remove(&name.base);
            }
        }
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Programs choose their names, and anybody can name a control group: what could move a cursor, end a line or lead
/// into another directory is replaced.
fn clean(wanted: &str) -> String {
    let mut name: String = wanted
        .chars()
        .take(Names::LONGEST)
        .map(|c| if c.is_ascii_alphanumeric() || "._@:+-".contains(c) { c } else { '_' })
        .collect();
    if name.is_empty() || name.starts_with('.') {
        name.insert(0, '_');
    }
    name
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ambiguous_names_have_numbers_that_are_used_again() {
        let mut names = Names::default();
        let taken: Vec<Name> = (0..4).map(|_| names.take("redis-server")).collect();
        let text: Vec<String> = taken.iter().map(Name::to_string).collect();
        assert_eq!(text, ["redis-server", "redis-server-2", "redis-server-3", "redis-server-4"]);
        names.free(&taken[0]);
        names.free(&taken[2]);
        assert_eq!(names.take("redis-server").to_string(), "redis-server");
        assert_eq!(names.take("redis-server").to_string(), "redis-server-3");
        assert_eq!(names.take("redis-server").to_string(), "redis-server-5");
    }

    #[test]
    fn what_is_free_takes_no_memory() {
        let mut names = Names::default();
        let name = names.take("sh");
        names.free(&name);
        assert!(names.used.is_empty() && names.bases.is_empty());
    }

    #[test]
    fn hostile_names_are_harmless() {
        for (wanted, expected) in [
            ("../../etc/passwd", "_.._.._etc_passwd"),
            ("a\x1b[2Jb\n", "a__2Jb_"),
            ("", "_"),
            (".hidden", "_.hidden"),
            ("postgresql@15-main", "postgresql@15-main"),
            ("naïve name", "na_ve_name"),
        ] {
            assert_eq!(Names::default().take(wanted).to_string(), expected);
        }
    }

    proptest! {
        #[test]
        fn names_are_unique_and_clean(
            wanted in proptest::collection::vec(".{0,80}|[ab]|[ab]-2", 1..60),
            freed in proptest::collection::vec(any::<prop::sample::Index>(), 0..20),
        ) {
            let mut names = Names::default();
            let mut taken: Vec<Name> = Vec::new();
            for (i, wanted) in wanted.iter().enumerate() {
                if let Some(index) = freed.get(i).filter(|_| !taken.is_empty()) {
                    let name = taken.swap_remove(index.index(taken.len()));
                    names.free(&name);
                }
                taken.push(names.take(wanted));
                let texts: BTreeSet<String> = taken.iter().map(Name::to_string).collect();
                prop_assert_eq!(texts.len(), taken.len());
                prop_assert!(texts.iter().all(|name| !name.contains(['/', '\n', '\x1b']) && !name.starts_with('.')));
            }
            for name in &taken {
                names.free(name);
            }
            prop_assert!(names.used.is_empty() && names.bases.is_empty());
        }
    }
}

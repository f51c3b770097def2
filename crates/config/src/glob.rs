//! Patterns for names and paths, as systemctl and shells have them: `*` and `?` stand for any characters but `/`,
//! `[a-z]` and `[!a-z]` for one character, and `**` as a whole part of a path for any number of parts.

use std::fmt;
use std::str::Chars;

use serde::{Serialize, Serializer};

/// The longest pattern, in characters: matching takes this times the length of the text at most.
const MAX_LENGTH: usize = 1024;

/// A pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Glob {
    text: String,
    tokens: Vec<Token>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    /// This character.
    Is(char),
    /// One character but `/`, if `among` is whether it is in one of the ranges.
    One { among: bool, ranges: Vec<(char, char)> },
    /// Characters but `/`, or none.
    Within,
    /// Any characters, or none.
    Rest,
    /// Whole parts of a path with the `/` behind each, or none.
    Parts,
}

impl Glob {
    /// Parses a pattern.
    ///
    /// # Errors
    /// What is wrong with it, and what to write.
    pub fn new(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("is empty and would match nothing: remove it".to_owned());
        }
        let chars: Vec<char> = text.chars().collect();
        if chars.len() > MAX_LENGTH {
            return Err(format!("has more than {MAX_LENGTH} characters: use `*` for a part of it"));
        }
        let mut tokens = Vec::new();
        let mut rest = &chars[..];
        while let [first, after @ ..] = rest {
            let starts_part = matches!(tokens.last(), None | Some(Token::Is('/') | Token::Parts));
            let (token, after) = match (first, after) {
                ('*', ['*', '/', after @ ..]) if starts_part => (Token::Parts, after),
                ('*', ['*']) if starts_part => (Token::Rest, &after[1..]),
                ('*', ['*', ..]) => {
                    return Err(
                        "has `**` beside other characters: it stands for whole parts of a path, as in \
                                /a/**/b"
                            .to_owned(),
                    );
                }
                ('*', after) => (Token::Within, after),
                ('?', after) => (Token::One { among: false, ranges: Vec::new() }, after),
                ('[', after) => class(after)?,
                ('{' | '}', _) => {
                    return Err(
                        "has braces, which are no pattern here: write one rule for each name".to_owned()
                    );
                }
                (char, after) => (Token::Is(*char), after),
            };
            tokens.push(token);
            rest = after;
        }
        Ok(Self { text: text.to_owned(), tokens })
    }

    /// Whether it matches all of `text`.
    pub fn matches(&self, text: &str) -> bool {
        let literal = self.tokens.iter().take_while(|token| matches!(token, Token::Is(_))).count();
        let (start, tokens) = self.tokens.split_at(literal);
        let mut chars = text.chars();
        // Most texts are others from the start.
        start.iter().all(|token| chars.next().is_some_and(|char| *token == Token::Is(char)))
            && ends_match(tokens, chars)
    }
}

/// Whether all of the text matches all tokens.
fn ends_match(tokens: &[Token], text: Chars<'_>) -> bool {
    let end = tokens.len();
    // The tokens that can come next, after what was read so far.
    let (mut next, mut after) = (vec![false; end + 1], vec![false; end + 1]);
    reach(tokens, 0, &mut next);
    for char in text {
        for (i, token) in tokens.iter().enumerate().filter(|(i, _)| next[*i]) {
            match token {
                Token::Is(expected) if *expected == char => reach(tokens, i + 1, &mut after),
                Token::One { among, ranges } if char != '/' => {
                    if *among == ranges.iter().any(|(low, high)| (low..=high).contains(&&char)) {
                        reach(tokens, i + 1, &mut after);
                    }
                }
                Token::Within if char != '/' => reach(tokens, i, &mut after),
                Token::Rest => reach(tokens, i, &mut after),
                Token::Parts if char == '/' => reach(tokens, i, &mut after),
                // In the middle of a part.
                Token::Parts => after[i] = true,
                Token::Is(_) | Token::One { .. } | Token::Within => {}
            }
        }
        std::mem::swap(&mut next, &mut after);
        after.fill(false);
    }
    next[end]
}

/// Marks a token, and those behind it if it can stand for nothing.
fn reach(tokens: &[Token], token: usize, marked: &mut [bool]) {
    marked[token] = true;
    if matches!(tokens.get(token), Some(Token::Within | Token::Rest | Token::Parts)) {
        reach(tokens, token + 1, marked);
    }
}

/// The class whose `[` is read already, and what comes after it.
fn class(chars: &[char]) -> Result<(Token, &[char]), String> {
    let (among, mut rest) = match chars {
        ['!' | '^', rest @ ..] => (false, rest),
        rest => (true, rest),
    };
    let mut ranges = Vec::new();
    loop {
        match rest {
            // The first one is a character like others, so that a class can have it.
            [']', after @ ..] if !ranges.is_empty() => return Ok((Token::One { among, ranges }, after)),
            [low, '-', high, after @ ..] if *high != ']' => {
                if low > high {
                    return Err(format!("has the range {low}-{high}, which is empty: write {high}-{low}"));
                }
                ranges.push((*low, *high));
                rest = after;
            }
            [char, after @ ..] => {
                ranges.push((*char, *char));
                rest = after;
            }
            [] => return Err("has a `[` without its `]`: write `[[]` for the character itself".to_owned()),
        }
    }
}

impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for Glob {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.text.serialize(serializer)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        Glob::new(pattern).unwrap().matches(text)
    }

    #[test]
    fn patterns_match_as_those_of_a_shell() {
        for (pattern, yes, no) in [
            (
                "redis.service",
                &["redis.service"][..],
                &["redis.servic", "redis.services", "xredis.service", ""][..],
            ),
            (
                "redis*.service",
                &["redis.service", "redis-server.service"],
                &["redis/x.service", "redis.scope"],
            ),
            ("a?c", &["abc", "aäc"], &["ac", "a/c", "abbc"]),
            ("[a-c]x[!0-9]", &["axa", "cx-"], &["dxa", "ax0", "ax/", "ax"]),
            ("[]-]", &["]", "-"], &["[", "x"]),
            ("[*]", &["*"], &["x"]),
            ("*", &["", "abc"], &["a/c"]),
            (
                "/kubepods/**",
                &["/kubepods/a", "/kubepods/a/b"],
                &["/kubepods", "/kubepodsx/a", "/x/kubepods/a"],
            ),
            ("/**/mysqld", &["/mysqld", "/usr/mysqld", "/usr/sbin/mysqld"], &["/usr/xmysqld", "mysqld"]),
            ("**/mysqld", &["mysqld", "/mysqld", "/usr/sbin/mysqld"], &["/usr/mysqld/x", "/usr/xmysqld"]),
            ("/a/**/b/*", &["/a/b/c", "/a/x/y/b/c", "/a/b/b/c"], &["/a/b", "/a/b/c/d", "/a/xb/c"]),
            ("/**", &["/", "/a", "/a/b"], &["", "a"]),
            ("**", &["", "/a/b"], &[]),
            (r"a\x2db.service", &[r"a\x2db.service"], &["a-b.service"]),
        ] {
            for text in yes {
                assert!(matches(pattern, text), "{pattern} {text}");
            }
            for text in no {
                assert!(!matches(pattern, text), "{pattern} {text}");
            }
        }
    }

    #[test]
    fn what_is_no_pattern_says_what_to_write() {
        let errors = ["", "a**", "a/**b", "**a", "***", "x[a", "x[]", "[z-a]", "{a,b}"].map(|text| {
            let error = Glob::new(text).unwrap_err();
            format!("`{text}` {error}")
        });
        insta::assert_snapshot!(errors.join("\n"));
        assert!(Glob::new(&"x".repeat(1025)).is_err() && Glob::new(&"x".repeat(1024)).is_ok());
    }

    #[test]
    fn many_stars_do_not_take_for_ever() {
        let pattern = "*a".repeat(500);
        assert!(!matches(&pattern, &("a".repeat(4000) + "b")));
    }

    /// The obvious way, which takes exponential time.
    fn obvious(pattern: &[char], text: &[char]) -> bool {
        match (pattern, text) {
            ([], text) => text.is_empty(),
            (['*', rest @ ..], text) => {
                obvious(rest, text) || matches!(text, [c, after @ ..] if *c != '/' && obvious(pattern, after))
            }
            (['?', rest @ ..], [c, after @ ..]) => *c != '/' && obvious(rest, after),
            ([p, rest @ ..], [c, after @ ..]) => p == c && obvious(rest, after),
            (_, []) => false,
        }
    }

    proptest! {
        #[test]
        fn matching_agrees_with_the_obvious_way(pattern in "[ab/?]{0,3}[*]?[ab?]{1,2}[*]?[ab]{0,2}", text in "[ab/]{0,8}") {
            let chars = |text: &str| text.chars().collect::<Vec<_>>();
            prop_assert_eq!(matches(&pattern, &text), obvious(&chars(&pattern), &chars(&text)));
        }

        #[test]
        fn any_text_is_a_pattern_or_an_error(pattern in ".{0,20}", text in ".{0,20}") {
            if let Ok(glob) = Glob::new(&pattern) {
                glob.matches(&text);
                prop_assert_eq!(glob.to_string(), pattern);
            }
        }

        #[test]
        fn a_name_without_special_characters_matches_itself_alone(a in "[-a-z0-9./@:_]{1,8}", b in "[-a-z0-9./@:_]{1,8}") {
            prop_assert!(matches(&a, &a));
            prop_assert_eq!(matches(&a, &b), a == b);
        }
    }
}

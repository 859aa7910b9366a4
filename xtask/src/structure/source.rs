//! References of a source file to other modules: the modules that it declares, the names that it
//! imports, and the paths that it uses. Code for tests (`#[cfg(test)]`, `#[cfg(all(test, ..))]`)
//! does not count.

use std::mem;

/// A name that a file imports.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Import {
    pub(super) name: String,
    pub(super) path: Vec<String>,
}

/// The relations of a file to modules.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Source {
    /// Modules in files of their own.
    pub(super) modules: Vec<String>,
    pub(super) imports: Vec<Import>,
    /// Paths from `crate`, `super` or `self`, those of imports included.
    pub(super) paths: Vec<Vec<String>>,
}

impl Source {
    pub(super) fn parse(text: &str) -> Self {
        let tokens = without_tests(&tokens(text));
        let mut source = Self::default();
        let mut at = 0;
        while let Some(&token) = tokens.get(at) {
            let next = tokens.get(at + 1).copied().unwrap_or_default();
            match token {
                "mod" if tokens.get(at + 2) == Some(&";") => source.modules.push(next.to_owned()),
                // `use<..>` is a bound.
                "use" if next != "<" => {
                    at = source.import(&tokens, at + 1, &[]);
                    continue;
                }
                "crate" | "super" | "self" if next == "::" && !is_visibility(&tokens, at) => {
                    at = source.path(&tokens, at);
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
        source
    }

    /// Takes a tree of imports from `at` on; returns where it ends.
    fn import(&mut self, tokens: &[&str], mut at: usize, before: &[String]) -> usize {
        let mut path = before.to_vec();
        let mut name = None;
        while let Some(&token) = tokens.get(at) {
            match token {
                "{" => {
                    at += 1;
                    while tokens.get(at).is_some_and(|token| *token != "}") {
                        at = self.import(tokens, at, &path);
                        at += usize::from(tokens.get(at) == Some(&","));
                    }
                    return at + 1;
                }
                "as" => {
                    at += 1;
                    name = tokens.get(at).map(|name| (*name).to_owned());
                }
                "self" if !path.is_empty() => {}
                "::" | "*" => {}
                "," | "}" | ";" => break,
                segment => path.push(segment.to_owned()),
            }
            at += 1;
        }
        if matches!(path.first().map(String::as_str), Some("crate" | "super" | "self")) {
            self.paths.push(path.clone());
        }
        if let Some(name) = name.or_else(|| path.last().cloned()) {
            self.imports.push(Import { name, path });
        }
        at
    }

    /// Takes the path at `at`; returns where it ends.
    fn path(&mut self, tokens: &[&str], mut at: usize) -> usize {
        let mut path = vec![tokens[at].to_owned()];
        at += 1;
        while let (Some(&"::"), Some(segment)) = (tokens.get(at), tokens.get(at + 1)) {
            at += 2;
            if !segment.starts_with(is_of_word) {
                break;
            }
            path.push((*segment).to_owned());
        }
        self.paths.push(path);
        at
    }
}

/// Whether the path at `at` is that of `pub(in PATH)`.
fn is_visibility(tokens: &[&str], at: usize) -> bool {
    at > 1 && tokens[at - 1] == "in" && tokens[at - 2] == "("
}

/// The tokens without the items that are marked `#[cfg(test)]` or `#[cfg(all(test, ..))]`.
fn without_tests<'a>(tokens: &[&'a str]) -> Vec<&'a str> {
    const MARKS: [&[&str]; 2] =
        [&["#", "[", "cfg", "(", "test", ")"], &["#", "[", "cfg", "(", "all", "(", "test", ","]];
    let mut kept = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        if !MARKS.iter().any(|mark| tokens[at..].starts_with(mark)) {
            kept.push(tokens[at]);
            at += 1;
            continue;
        }
        at += tokens[at..].iter().position(|token| *token == "]").map_or(0, |end| end + 1);
        let mut depth = 0;
        while let Some(token) = tokens.get(at) {
            at += 1;
            match *token {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth -= 1,
                _ => {}
            }
            if depth == 0 && matches!(*token, "}" | ";") {
                break;
            }
        }
    }
    kept
}

/// Words, `::` and single characters; no comments, no literals of text, no lifetimes.
fn tokens(text: &str) -> Vec<&str> {
    let mut rest = text;
    let mut tokens = Vec::new();
    while let Some(first) = rest.chars().next() {
        let word = rest.find(|c| !is_of_word(c)).unwrap_or(rest.len());
        let raw = rest.trim_start_matches(['b', 'c']);
        let len = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => comment(rest),
            '"' => quoted(rest, '"'),
            '\'' => character(rest),
            'b' | 'c' | 'r' if is_raw_text(raw) => rest.len() - raw.len() + raw_text(raw),
            // The prefix of a literal.
            'b' | 'c' if rest[1..].starts_with(['"', '\'']) => 1,
            _ if is_of_word(first) => {
                tokens.push(&rest[..word]);
                word
            }
            _ if rest.starts_with("::") => {
                tokens.push("::");
                2
            }
            _ if first.is_whitespace() => first.len_utf8(),
            _ => {
                tokens.push(&rest[..first.len_utf8()]);
                first.len_utf8()
            }
        };
        rest = &rest[len..];
    }
    tokens
}

fn is_of_word(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// The length of a comment in stars, which may contain others.
fn comment(text: &str) -> usize {
    let mut depth = 0;
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        match (mem::replace(&mut before, c), c) {
            ('/', '*') => depth += 1,
            ('*', '/') => depth -= 1,
            _ => continue,
        }
        // A character belongs to one mark only.
        before = ' ';
        if depth == 0 {
            return at + 1;
        }
    }
    text.len()
}

/// The length of a literal with its quotes.
fn quoted(text: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if mem::take(&mut is_escaped) => {}
            '\\' => is_escaped = true,
            _ if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of a character or lifetime.
fn character(text: &str) -> usize {
    let mut chars = text.chars().skip(1);
    match (chars.next(), chars.next()) {
        (Some('\\'), _) | (_, Some('\'')) => quoted(text, '\''),
        _ => 1 + text[1..].find(|c| !is_of_word(c)).unwrap_or(text.len() - 1),
    }
}

fn is_raw_text(text: &str) -> bool {
    text.strip_prefix('r').is_some_and(|text| text.trim_start_matches('#').starts_with('"'))
}

/// The length of a raw literal.
fn raw_text(text: &str) -> usize {
    let hashes = text[1..].len() - text[1..].trim_start_matches('#').len();
    let begin = 1 + hashes + 1;
    let end = format!("\"{}", "#".repeat(hashes));
    text[begin..].find(&end).map_or(text.len(), |at| begin + at + end.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &str) -> Vec<String> {
        Source::parse(text).paths.iter().map(|path| path.join("::")).collect()
    }

    #[test]
    fn imports_are_taken_apart() {
        let source = Source::parse(
            "mod a;\nmod b { x }\npub use a::{B, c::{self, D as E}};\nuse super::f::*;\n\
             use std::io;",
        );
        assert_eq!(source.modules, ["a"]);
        let imports: Vec<_> =
            source.imports.iter().map(|i| (&*i.name, i.path.join("::"))).collect();
        let expected =
            [("B", "a::B"), ("c", "a::c"), ("E", "a::c::D"), ("f", "super::f"), ("io", "std::io")];
        assert_eq!(imports, expected.map(|(name, path)| (name, path.to_owned())));
        assert_eq!(paths("use crate::{a, b::{C, d}};"), ["crate::a", "crate::b::C", "crate::b::d"]);
    }

    #[test]
    fn paths_are_found_in_code_only() {
        let text = r####"
            //! [`crate::comment`]
            /* /* crate::inner */ crate::outer */
            fn f<'a>(x: &'a super::T) -> impl Fn() + use<'a> {
                let (quote, c) = ('"', 'x');
                say("crate::text \" crate::more", r#"crate::raw "x" crate::raw"#);
                say(b'"', b"crate::b");
                for x in crate::list() { crate::call::<u8>(x, r"\"); }
                self.x; self::y()
            }
            pub(in crate::hidden) struct S;
            #[cfg(test)]
            mod tests { use crate::test; fn f() { crate::test::g() } }
            #[cfg(test)]
            use crate::also_test;
            #[cfg(all(test, x))]
            mod models { use crate::model; }
            fn last() { crate::last() }
        "####;
        let expected = ["super::T", "crate::list", "crate::call", "self::y", "crate::last"];
        assert_eq!(paths(text), expected);
    }
}

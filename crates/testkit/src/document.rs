//! Tables and links of documents in Markdown, which tests compare with the code.

use std::fmt::{Debug, LowerHex};

/// The rows of the tables behind the heading, up to the next one, cell by cell.
pub fn table<'a>(document: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let (_, section) = document
        .split_once(&format!("\n{heading}\n"))
        .unwrap_or_else(|| panic!("no heading {heading:?}"));
    section
        .lines()
        .take_while(|line| !line.starts_with('#'))
        .filter(|line| line.starts_with("| "))
        .map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim_matches([' ', '`'])))
        .map(Iterator::collect)
        .collect()
}

/// The first two cells of all rows that begin with a number.
pub fn codes(document: &str, heading: &str) -> Vec<(String, String)> {
    let rows = table(document, heading);
    let rows = rows.iter().filter(|row| row[0].starts_with(|first: char| first.is_numeric()));
    rows.map(|row| (row[0].to_string(), row[1].to_string())).collect()
}

/// The rows of a table of an enum's codes, in decimal.
pub fn decimal<T: Copy + Debug>(all: &[T], code: impl Fn(T) -> u32) -> Vec<(String, String)> {
    all.iter().map(|&one| (code(one).to_string(), format!("{one:?}"))).collect()
}

/// The same in hexadecimal, with this number of digits.
pub fn rows<T: Copy + Debug, N: LowerHex>(
    digits: usize,
    all: &[T],
    code: impl Fn(T) -> N,
) -> Vec<(String, String)> {
    let names: Vec<String> = all.iter().map(|one| format!("{one:?}")).collect();
    let all = all.iter().zip(&names).map(|(one, name)| (code(*one), name.as_str()));
    hexadecimal(digits, &all.collect::<Vec<_>>())
}

/// The rows of a table of names and codes in hexadecimal, with this number of digits.
pub fn hexadecimal<N: LowerHex>(digits: usize, all: &[(N, &str)]) -> Vec<(String, String)> {
    let width = 2 + digits;
    all.iter().map(|(code, name)| (format!("{code:#0width$x}"), name.to_string())).collect()
}

/// The relative links of the document: path and heading, either of which may be empty.
pub fn links(document: &str) -> impl Iterator<Item = (&str, &str)> {
    let targets = text(document).flat_map(|line| line.split("](").skip(1));
    let targets = targets.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target);
    let targets = targets.filter(|target| !target.contains("://"));
    targets.map(|target| target.split_once('#').unwrap_or((target, "")))
}

/// Whether a link to that heading leads somewhere.
pub fn has_anchor(document: &str, anchor: &str) -> bool {
    let mut anchors: Vec<String> = Vec::new();
    for heading in text(document).filter(|line| line.starts_with('#')) {
        let text = heading.trim_start_matches('#').trim().to_lowercase();
        let keep = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
        let anchor = text.chars().filter(keep).collect::<String>().replace(' ', "-");
        let repeats = anchors.iter().filter(|other| **other == anchor).count();
        anchors.push(anchor.clone());
        if repeats > 0 {
            anchors.push(format!("{anchor}-{repeats}"));
        }
    }
    anchors.iter().any(|it| it == anchor)
}

/// Checks that links within the document lead to a heading.
pub fn check_links(document: &str) {
    for (_, anchor) in links(document).filter(|(path, _)| path.is_empty()) {
        assert!(has_anchor(document, anchor), "no heading for #{anchor}");
    }
}

/// The lines that are not in a block of code.
fn text(document: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    document.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "# Top\n\n[codes](#some-codes)\n\n## Some codes\n\n| code | name |\n\
        |---|---|\n| 0x01 | `One` |\n| 0x02 | Two |\n\n## More\n\n| 3 | Three |\n";

    #[test]
    fn tables_are_read_up_to_the_next_heading() {
        let codes = codes(DOCUMENT, "## Some codes");
        assert_eq!(codes, hexadecimal(2, &[(1u8, "One"), (2, "Two")]));
        assert_eq!(table(DOCUMENT, "## More"), [["3", "Three"]]);
        check_links(DOCUMENT);
    }

    #[test]
    fn links_are_found_outside_of_code() {
        let document = "[a](b.md#c), [d](#e) and [f](https://g/h)\n```\n[i](j)\n# k\n```\n# E\n";
        assert_eq!(links(document).collect::<Vec<_>>(), [("b.md", "c"), ("", "e")]);
        assert!(has_anchor(document, "e") && !has_anchor(document, "k"));
    }

    #[test]
    #[should_panic(expected = "no heading for #none")]
    fn links_to_nowhere_are_found() {
        check_links("# Top\n[x](#none)");
    }
}

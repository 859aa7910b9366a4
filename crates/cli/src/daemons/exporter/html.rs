//! HTML: text that is escaped, and tables whose rows become cards on a narrow screen.

use std::fmt::Write;

/// A piece of HTML.
#[derive(Clone, Debug, Default)]
pub(super) struct Html(String);

impl Html {
    /// The HTML itself.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Adds an element with a class that contains this text.
    pub(super) fn text(&mut self, element: &str, class: &str, text: &str) {
        let _ = write!(self.0, "<{element} class=\"{class}\">{}</{element}>", escaped(text));
    }

    /// Adds other HTML.
    pub(super) fn html(&mut self, html: &Html) {
        self.0 += &html.0;
    }

    /// Adds an element around other HTML.
    pub(super) fn around(&mut self, element: &str, class: &str, inner: &Html) {
        let _ = writeln!(self.0, "<{element} class=\"{class}\">{}</{element}>", inner.0);
    }
}

/// A cell of a table: its class and its text, which may have several lines.
#[derive(Clone, Debug)]
pub(super) struct Cell(pub(super) &'static str, pub(super) String);

impl Cell {
    /// Text.
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self("", text.into())
    }

    /// A number: at the right.
    pub(super) fn number(text: impl Into<String>) -> Self {
        Self("n", text.into())
    }

    /// Text that says how something is.
    pub(super) fn state(is_good: bool, text: impl Into<String>) -> Self {
        Self(if is_good { "good" } else { "bad" }, text.into())
    }
}

/// A table.
#[derive(Clone, Debug)]
pub(super) struct Table<const N: usize> {
    head: [&'static str; N],
    rows: Vec<[Cell; N]>,
}

impl<const N: usize> Table<N> {
    pub(super) fn new(head: [&'static str; N]) -> Self {
        Self { head, rows: Vec::new() }
    }

    pub(super) fn row(&mut self, row: [Cell; N]) {
        self.rows.push(row);
    }

    /// The table; nothing without rows.
    pub(super) fn html(&self) -> Html {
        let mut html = Html::default();
        if self.rows.is_empty() {
            return html;
        }
        let mut rows = Html::default();
        let mut head = Html::default();
        for (title, cell) in self.head.iter().zip(&self.rows[0]) {
            head.text("th", cell.0, title);
        }
        rows.around("tr", "head", &head);
        for row in &self.rows {
            let mut cells = Html::default();
            for (title, Cell(class, text)) in self.head.iter().zip(row) {
                let (title, text) = (escaped(title), escaped(text).replace('\n', "<br>"));
                let _ = write!(
                    cells.0,
                    "<td class=\"{class}\" data-title=\"{title}\"><span>{text}</span></td>"
                );
            }
            rows.around("tr", "", &cells);
        }
        html.around("table", "", &rows);
        html
    }
}

/// Text without characters that mean something in HTML, in elements and in quoted attributes.
pub(super) fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            '\'' => escaped += "&#39;",
            '\n' | '\t' => escaped.push(character),
            // Such as those that turn the direction of writing.
            character if character.is_control() => escaped.push('\u{fffd}'),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => escaped.push('\u{fffd}'),
            character => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_text_is_markup() {
        let mut table = Table::new(["<b>"]);
        table.row([Cell::text("\"><script>'&\n\u{202e}\0")]);
        let html = table.html();
        let html = html.as_str();
        assert!(html.contains("&quot;&gt;&lt;script&gt;&#39;&amp;<br>\u{fffd}\u{fffd}<"), "{html}");
        assert!(html.contains("data-title=\"&lt;b&gt;\"") && !html.contains("<b>"), "{html}");
        assert_eq!(Table::<1>::new(["a"]).html().as_str(), "");
    }
}

//! Output of results: text for people, JSON for programs.

use std::fmt;
use std::io::Write;

use clap::ValueEnum;
use serde::Serialize;

/// Format of a command's output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object with a `schema` field, also for an empty result and for an error.
    Json,
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Json => "json",
        })
    }
}

/// Prints a result in the wanted format.
///
/// # Panics
/// If JSON cannot express the result.
pub fn show<T: Serialize>(format: Format, json: impl FnOnce() -> T, text: impl FnOnce() -> String) {
    let text = match format {
        Format::Json => line(&json()),
        Format::Text => text(),
    };
    // It fails if the reader has closed the pipe, which is no error.
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}

/// A result as one line of JSON.
///
/// # Panics
/// If JSON cannot express the result.
pub fn line(result: &impl Serialize) -> String {
    serde_json::to_string(result).expect("keys are strings, and paths UTF-8") + "\n"
}

/// A size in binary units, for people.
pub fn bytes(bytes: u64) -> String {
    bytesize::ByteSize(bytes).display().iec().to_string()
}

/// A table with columns as wide as their content.
pub struct Table<const N: usize> {
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    /// A table of these columns, without rows.
    pub fn new(head: [&str; N]) -> Self {
        Self { rows: vec![head.map(str::to_owned)] }
    }

    /// Appends a row.
    pub fn row(&mut self, row: [String; N]) {
        self.rows.push(row);
    }
}

impl<const N: usize> fmt::Display for Table<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| {
            self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)
        };
        let widths: [usize; N] = std::array::from_fn(width);
        for row in &self.rows {
            let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
            let line = cells.collect::<Vec<_>>().join("  ");
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

//! Output of results: text for people, JSON for programs. The only place that writes to the
//! standard streams: `cargo xtask lint` refuses others.
//!
//! A write to a stream may fail or block, as the stream's other end likes: a full disk, a closed
//! pipe, a terminal that was stopped by Ctrl-S. [`print()`] waits, and returns the error: it is for
//! commands that do nothing else. [`announce`] and `conclude` are for processes that serve a disk
//! as well: they wait for a bounded time. Threads that do I/O use neither: they log.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;

use crate::error::{Code, Error, Result};

/// Time limit for the output of a process that serves a disk.
const WAIT: Duration = Duration::from_secs(1);

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
/// # Errors
/// As [`print()`].
///
/// # Panics
/// If JSON cannot express the result.
pub fn show<T: Serialize>(
    format: Format,
    json: impl FnOnce() -> T,
    text: impl FnOnce() -> String,
) -> Result<()> {
    print(&in_format(format, json, text))
}

/// A result in the wanted format.
///
/// # Panics
/// If JSON cannot express the result.
pub fn in_format<T: Serialize>(
    format: Format,
    json: impl FnOnce() -> T,
    text: impl FnOnce() -> String,
) -> String {
    match format {
        Format::Json => line(&json()),
        Format::Text => text(),
    }
}

/// Writes text to standard output.
///
/// # Errors
/// It can't be written; [`Code::Unread`] if its reader has closed the pipe, which is no failure of
/// the command.
pub fn print(text: &str) -> Result<()> {
    Stream::Output.write(text.as_bytes()).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Error::new(Code::Unread, ""),
        _ => Error::new(Code::Other, format!("the result can't be printed: {error}")),
    })
}

/// Writes a line to standard error: a remark beside the result. There is no place to report that it
/// can't be written.
pub fn remark(line: impl fmt::Display) {
    let _ = write_error(format!("{line}\n").as_bytes());
}

/// Writes bytes to standard error, for logs and for progress on a terminal.
///
/// # Errors
/// They can't be written.
pub fn write_error(bytes: &[u8]) -> io::Result<()> {
    Stream::Error.write(bytes)
}

/// Whether standard error is a terminal.
pub fn has_terminal() -> bool {
    io::stderr().is_terminal()
}

/// Whether standard output is a terminal.
pub fn shows_on_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Writes text to standard output, in a process that has more to do than to wait for that.
///
/// # Errors
/// It can't be written, or not within a second: then a thread still waits for that.
pub fn announce(text: &str) -> io::Result<()> {
    Stream::Output.write_within(text)
}

/// Writes the last line of a process to standard error, or gives up after a second.
pub(crate) fn conclude(line: impl fmt::Display) {
    let _ = Stream::Error.write_within(&format!("{line}\n"));
}

/// A standard stream.
#[derive(Clone, Copy)]
enum Stream {
    Output,
    Error,
}

impl Stream {
    fn write(self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Output => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(bytes)?;
                stdout.flush()
            }
            Self::Error => io::stderr().lock().write_all(bytes),
        }
    }

    /// Writes in a thread of its own, and waits for that up to the time limit.
    fn write_within(self, text: &str) -> io::Result<()> {
        let (done, written) = sync_channel(1);
        let copy = text.to_owned();
        let write = move || {
            // The caller may wait no longer.
            let _ = done.send(self.write(copy.as_bytes()));
        };
        if thread::Builder::new().name("output".into()).spawn(write).is_err() {
            // No thread to spare: better late than never.
            return self.write(text.as_bytes());
        }
        written.recv_timeout(WAIT).unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
    }
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
/// Prints a program's error, if it ends with one; returns its exit code.
pub fn finish(program: &str, result: &Result<()>, format: Format) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    // An empty message means that the error has been reported already.
    if !error.message.is_empty() {
        // The exit code tells of it in any case.
        let _ = announce(&in_format(format, || error.report(), String::new));
        conclude(format_args!("{program}: {error}"));
    }
    ExitCode::from(error.code as u8)
}

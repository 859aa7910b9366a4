//! The demo's output while it works: bars on a terminal, plain lines elsewhere.
//!
//! All of it goes to standard error; standard output is for the result. Nothing here fails: a
//! closed terminal must not stop the clean-up.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use tyche_console::output::{has_terminal, remark};

/// Interval between two turns of a spinner.
const TICK: Duration = Duration::from_millis(100);
/// Without a terminal, a long step prints its progress after each such part, in percent.
const PLAIN_PART: u64 = 25;

/// Prints a line whatever state the terminal is in.
pub(super) fn line(text: &str) {
    remark(text);
}

/// The running step's bar or spinner.
pub(super) struct Progress {
    terminal: bool,
    current: Mutex<Option<ProgressBar>>,
}

impl Progress {
    pub(super) fn new() -> Self {
        Self { terminal: has_terminal(), current: Mutex::new(None) }
    }

    /// Prints a line above the bar or spinner.
    pub(super) fn say(&self, text: &str) {
        match &*self.current() {
            Some(bar) => bar.suspend(|| line(text)),
            None => line(text),
        }
    }

    /// Shows that a step has begun.
    pub(super) fn begin(&self, name: &str) -> Step {
        if self.terminal {
            let spinner = ProgressBar::new_spinner().with_message(name.to_owned());
            spinner.enable_steady_tick(TICK);
            *self.current() = Some(spinner);
        }
        Step { began: Instant::now() }
    }

    /// Shows that the step is done, and how long it took.
    pub(super) fn end(&self, step: &Step, outcome: &str) {
        self.clear();
        line(&format!("  {:>7.2} s  {outcome}", step.began.elapsed().as_secs_f64()));
    }

    /// Removes the bar.
    pub(super) fn clear(&self) {
        if let Some(bar) = self.current().take() {
            bar.finish_and_clear();
        }
    }

    /// Turns the step's spinner into a bar over `bytes`.
    pub(super) fn measure(&self, name: &str, bytes: u64) -> Measure<'_> {
        if self.terminal {
            let bar = ProgressBar::new(bytes).with_message(name.to_owned());
            let template = "  {msg:<24} {bar:30} {percent:>3} %  {bytes_per_sec:>12}  {eta}";
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            if let Some(spinner) = self.current().replace(bar) {
                spinner.finish_and_clear();
            }
        }
        Measure { progress: self, name: name.to_owned(), done: 0, total: bytes, said: 0 }
    }

    fn current(&self) -> std::sync::MutexGuard<'_, Option<ProgressBar>> {
        // A bar is intact whatever happened to the thread that drew it.
        self.current.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A running step.
pub(super) struct Step {
    began: Instant,
}

/// The progress of a long step.
pub(super) struct Measure<'a> {
    progress: &'a Progress,
    name: String,
    done: u64,
    total: u64,
    /// Percent last printed without a terminal.
    said: u64,
}

impl Measure<'_> {
    /// Counts bytes done.
    pub(super) fn add(&mut self, bytes: u64) {
        self.done += bytes;
        match &*self.progress.current() {
            Some(bar) => bar.set_position(self.done),
            None => self.say_plainly(),
        }
    }

    /// Bytes done so far.
    pub(super) fn done(&self) -> u64 {
        self.done
    }

    fn say_plainly(&mut self) {
        let percent = self.done.saturating_mul(100) / self.total.max(1);
        if percent >= self.said + PLAIN_PART && percent < 100 {
            self.said = percent - percent % PLAIN_PART;
            line(&format!("             {} {} %", self.name, self.said));
        }
    }
}

//! The receiving half of a player: one frame after the other, until a step has what it waits for.

use std::time::Duration;

use crate::Result;

/// Time limit for anything that must arrive.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);
/// Polling interval while nothing arrives.
const LOOK: Duration = Duration::from_millis(10);

/// The receiving part of a player, which keeps the frames that no step has examined.
pub(crate) trait Receiver {
    /// Monotonic time since an arbitrary start.
    fn now(&self) -> Duration;

    /// Receives the next frame within that time; false if none comes.
    ///
    /// # Errors
    /// The frame makes no sense, or the wire has failed.
    fn pump(&mut self, patience: Duration) -> Result<bool>;

    /// Descriptions of all that has come and no step has examined.
    fn left(&self) -> Vec<String>;

    /// The same as one text.
    fn describe(&self) -> String {
        let came = self.left();
        if came.is_empty() { "nothing".to_owned() } else { came.join(", ") }
    }

    /// Receives what has come.
    ///
    /// # Errors
    /// As [`pump`](Self::pump).
    fn drain(&mut self) -> Result<()> {
        while self.pump(Duration::ZERO)? {}
        Ok(())
    }

    /// Waits for `time`, and receives frames meanwhile.
    ///
    /// # Errors
    /// As [`pump`](Self::pump).
    fn wait(&mut self, time: Duration) -> Result<()> {
        let deadline = self.now() + time;
        loop {
            let left = deadline.saturating_sub(self.now());
            if left.is_zero() {
                return Ok(());
            }
            self.pump(left)?;
        }
    }

    /// Receives frames until `done` returns a value.
    ///
    /// # Errors
    /// If that takes longer than `patience`, with the frames that came instead.
    fn until_within<T>(
        &mut self,
        (what, patience): (&str, Duration),
        mut done: impl FnMut(&mut Self) -> Result<Option<T>>,
    ) -> Result<T> {
        let deadline = self.now() + patience;
        loop {
            if let Some(found) = done(self)? {
                return Ok(found);
            }
            let left = deadline.saturating_sub(self.now());
            if left.is_zero() {
                return Err(format!("{what} did not come; there came {}", self.describe()));
            }
            self.pump(left.min(LOOK))?;
        }
    }

    /// As [`until_within`](Self::until_within), within [`PATIENCE`].
    ///
    /// # Errors
    /// As that.
    fn until<T>(
        &mut self,
        what: &str,
        done: impl FnMut(&mut Self) -> Result<Option<T>>,
    ) -> Result<T> {
        self.until_within((what, PATIENCE), done)
    }
}

/// The result of a wait for a frame as described. `differs`: the difference of the last one that
/// came.
///
/// # Errors
/// The error of the wait, with the difference.
pub(crate) fn with_difference<T>(came: Result<T>, differs: Option<String>) -> Result<T> {
    came.map_err(|why| match differs {
        Some(differs) => format!("{why}; of those that came, the last: {differs}"),
        None => why,
    })
}

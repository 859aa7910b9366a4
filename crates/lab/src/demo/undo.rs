//! The undo stack: runs its actions last first, whatever happens.
//!
//! An action is registered *before* the step that it undoes, so that nothing ever exists without
//! its action; therefore every action first checks whether there is anything to undo. Each action
//! limits its own time. Running the stack closes it: a thread that is still building learns of that
//! at its next step, and what it wanted to register is undone immediately.

use std::sync::Mutex;

use super::command::Failure;

/// One action, with a description of `what` it undoes.
struct Action {
    what: String,
    undo: Box<dyn FnOnce() -> Result<(), String> + Send>,
}

struct State {
    actions: Vec<Action>,
    closed: bool,
}

/// The stack. One owner runs it; other threads may register.
pub(super) struct Undo {
    state: Mutex<State>,
}

impl Undo {
    pub(super) fn new() -> Self {
        Self { state: Mutex::new(State { actions: Vec::new(), closed: false }) }
    }

    /// Registers the action that undoes the next step.
    ///
    /// # Errors
    /// `Interrupted` if the stack has run already: the step must not be taken.
    pub(super) fn push(
        &self,
        what: impl Into<String>,
        undo: impl FnOnce() -> Result<(), String> + Send + 'static,
    ) -> Result<(), Failure> {
        let mut state = self.lock();
        if state.closed {
            return Err(Failure::Interrupted);
        }
        state.actions.push(Action { what: what.into(), undo: Box::new(undo) });
        Ok(())
    }

    /// Undoes everything, last first, once; returns in words what could not be undone.
    pub(super) fn run(&self) -> Vec<String> {
        let mut left = Vec::new();
        loop {
            // The lock is not held while an action runs: a registration must not wait for it.
            let action = {
                let mut state = self.lock();
                state.closed = true;
                state.actions.pop()
            };
            let Some(Action { what, undo }) = action else { return left };
            if let Err(error) = undo() {
                left.push(format!("{what}: {error}"));
            }
        }
    }

    /// Discards all actions without running them; returns what they would undo, last first.
    pub(super) fn keep(&self) -> Vec<String> {
        let mut state = self.lock();
        state.closed = true;
        state.actions.drain(..).rev().map(|action| action.what).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // The stack is intact even if a thread panicked while it held the lock.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        for left in self.run() {
            super::progress::line(&format!("left behind: {left}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn everything_is_undone_once_and_last_first() {
        let (sender, undone) = mpsc::channel();
        let undo = Undo::new();
        for number in 0..3 {
            let sender = sender.clone();
            undo.push(number.to_string(), move || {
                sender.send(number).unwrap();
                if number == 1 { Err("stuck".to_owned()) } else { Ok(()) }
            })
            .unwrap();
        }
        assert_eq!(undo.run(), ["1: stuck"]);
        assert!(undo.run().is_empty());
        drop(undo);
        drop(sender);
        assert_eq!(undone.iter().collect::<Vec<_>>(), [2, 1, 0]);
    }

    #[test]
    fn nothing_is_begun_after_the_end() {
        let undo = Undo::new();
        undo.run();
        assert!(matches!(undo.push("late", || Ok(())), Err(Failure::Interrupted)));
    }

    #[test]
    fn a_panic_undoes() {
        let undo = Arc::new(Undo::new());
        let (sender, undone) = mpsc::channel();
        undo.push("it", move || sender.send(()).map_err(|error| error.to_string())).unwrap();
        let result = std::thread::spawn(move || {
            let _owned = undo;
            panic!("on purpose");
        })
        .join();
        assert!(result.is_err());
        assert!(undone.recv().is_ok());
    }
}

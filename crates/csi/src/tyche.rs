//! The program `tyche`: the only way to targets and sessions. Its output with `-o json` and its
//! exit codes are documented, and stay.

use std::ffi::OsString;
use std::fs::File;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use tonic::{Code, Status};

use crate::program::{Broken, Program};

/// Programs that run at a time: a target takes 16 connections of one admin.
const PROGRAMS_MAX: usize = 8;

/// The exit codes, and what they are for an orchestrator.
const CODES: [(i32, Code); 10] = [
    (1, Code::Internal),
    (2, Code::InvalidArgument),
    (3, Code::NotFound),
    (4, Code::PermissionDenied),
    (5, Code::Unavailable),
    (6, Code::Unavailable),
    (7, Code::FailedPrecondition),
    (8, Code::FailedPrecondition),
    (9, Code::Internal),
    (10, Code::AlreadyExists),
];

/// How `tyche` is run on this machine.
#[derive(Debug)]
pub(crate) struct Tyche {
    /// Words of the command: the program, and before it what runs it elsewhere.
    command: Vec<OsString>,
    running: Mutex<usize>,
    ended: Condvar,
}

/// The failure of a command.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// The exit code; `None` if it was killed or could not be run.
    code: Option<i32>,
    status: Status,
}

impl Failure {
    /// Whether it has failed with that exit code.
    pub(crate) fn is(&self, code: i32) -> bool {
        self.code == Some(code)
    }

    /// The error for an orchestrator; with that exit code it is one that somebody has to mend.
    pub(crate) fn or_unmet(self, code: i32) -> Status {
        match self.is(code) {
            true => Status::failed_precondition(self.status.message()),
            false => self.status,
        }
    }
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        failure.status
    }
}

/// The error as an object.
#[derive(Deserialize)]
struct ErrorReport {
    error: String,
}

/// A place among the programs that run.
struct Place<'a>(&'a Tyche);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        *self.0.running.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.ended.notify_one();
    }
}

impl Tyche {
    /// The program by these words.
    pub(crate) fn new(command: Vec<OsString>) -> Self {
        Self { command, running: Mutex::new(0), ended: Condvar::new() }
    }

    /// The program itself, the last of the words.
    pub(crate) fn path(&self) -> OsString {
        self.command.last().cloned().unwrap_or_default()
    }

    /// The words before it.
    pub(crate) fn runner(&self) -> &[OsString] {
        self.command.split_last().map_or(&[], |(_, before)| before)
    }

    /// Runs a command that prints JSON; returns that. `lock` is held as long as it runs.
    ///
    /// # Errors
    /// The command's own; it took longer than `limit`; or it printed something else.
    pub(crate) fn ask<T: DeserializeOwned>(
        &self,
        args: &[String],
        lock: Option<&File>,
        limit: Duration,
    ) -> Result<T, Failure> {
        let text =
            self.run(&[args, &["-o".to_owned(), "json".to_owned()]].concat(), lock, limit)?;
        serde_json::from_str(&text).map_err(|error| {
            let what = args.first().map_or("", String::as_str);
            let message = format!("tyche {what}: the output is not the documented one: {error}");
            Failure { code: None, status: Status::internal(message) }
        })
    }

    /// Runs a command; returns what it prints.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub(crate) fn run(
        &self,
        args: &[String],
        lock: Option<&File>,
        limit: Duration,
    ) -> Result<String, Failure> {
        let (first, more) = self.command.split_first().expect("the program is one of the words");
        let place = self.take_place();
        let mut program = Program::new(first).args(more).args(args);
        if let Some(lock) = lock {
            program = program.holds(lock);
        }
        let finished = program.run(limit);
        drop(place);
        let named = format!("tyche {}", args[..args.len().min(2)].join(" "));
        let finished = finished
            .map_err(|error: Broken| Failure { code: None, status: error.status(&named) })?;
        if finished.code == Some(0) {
            return Ok(finished.stdout);
        }
        let code = CODES.iter().find(|it| Some(it.0) == finished.code);
        let message = serde_json::from_str(&finished.stdout)
            .map_or_else(|_| finished.complaint(), |report: ErrorReport| report.error);
        let status = code.map_or_else(
            || finished.failed(&named),
            |(_, code)| Status::new(*code, format!("{named}: {message}")),
        );
        Err(Failure { code: finished.code, status })
    }

    /// Waits for a place, which each of the others leaves within its time limit.
    fn take_place(&self) -> Place<'_> {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        let is_full = |running: &mut usize| *running >= PROGRAMS_MAX;
        let running = self.ended.wait_while(running, is_full);
        *running.unwrap_or_else(PoisonError::into_inner) += 1;
        Place(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that does this instead.
    fn pretended(line: &str) -> Tyche {
        Tyche::new(["sh", "-c", line].map(OsString::from).to_vec())
    }

    fn ask(line: &str) -> Result<serde_json::Value, Failure> {
        pretended(line).ask(&["list".to_owned()], None, Duration::from_secs(20))
    }

    #[test]
    fn answers_are_json() {
        assert_eq!(ask(r#"echo '{"a":1}'"#).unwrap()["a"], 1);
        let status = Status::from(ask("echo hello").unwrap_err());
        assert_eq!(status.code(), Code::Internal);
        assert!(status.message().contains("documented"), "{status}");
    }

    #[test]
    fn exit_codes_are_errors_for_orchestrators() {
        for (code, wanted) in CODES {
            let line = format!(r#"echo '{{"error":"because","code":"x"}}'; exit {code}"#);
            let failure = ask(&line).unwrap_err();
            assert!(failure.is(code));
            let unmet = failure.clone().or_unmet(code);
            assert_eq!(
                (unmet.code(), failure.clone().or_unmet(0).code()),
                (Code::FailedPrecondition, wanted)
            );
            let status = Status::from(failure);
            assert_eq!(status.code(), wanted, "{code}");
            assert!(status.message().ends_with(": because"), "{status}");
        }
        let status = Status::from(ask("echo no >&2; exit 77").unwrap_err());
        assert_eq!(status.code(), Code::Internal);
        assert!(status.message().contains("exit code 77: no"), "{status}");
    }

    #[test]
    fn no_more_programs_run_than_a_target_takes() {
        let dir = tempfile::tempdir().unwrap();
        let count = dir.path().display();
        // Each says how many there are beside it.
        let tyche =
            pretended(&format!("touch {count}/$$; ls {count} | wc -l; sleep 0.05; rm {count}/$$"));
        std::thread::scope(|scope| {
            let run = || tyche.run(&["x".to_owned()], None, Duration::from_secs(60)).unwrap();
            let all: Vec<_> = (0..3 * PROGRAMS_MAX).map(|_| scope.spawn(run)).collect();
            for it in all {
                let seen: usize = it.join().unwrap().trim().parse().unwrap();
                assert!(seen <= PROGRAMS_MAX, "{seen}");
            }
        });
    }

    #[test]
    fn the_exit_codes_are_those_of_the_reference() {
        let reference = include_str!("../../../docs/reference.md");
        let section = reference.split_once("## Exit codes").unwrap().1;
        let section = section.split_once("\n## ").unwrap().0;
        let rows = section.lines().filter_map(|line| line.strip_prefix("| ")?.split(' ').next());
        let codes: Vec<i32> = rows.filter_map(|it| it.parse().ok()).collect();
        let ours: Vec<_> = std::iter::once(0).chain(CODES.map(|it| it.0)).collect();
        assert_eq!(codes, ours);
    }
}

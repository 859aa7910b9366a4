//! The files of the suite and their vectors.

use std::fs;
use std::path::Path;

use serde_json::{Map, Value};

use crate::run::Run;
use crate::table::{Table, hex};
use crate::{Result, Role, Subject};

/// The result of a vector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The implementation meets the vector.
    Passed,
    /// It does not, and is known not to, for the reason that the vector gives.
    Known(String),
    /// It does not, for this reason.
    Failed(String),
}

/// The conformance suite for one role, as it was read from its files. It runs one vector at a time
/// against a [`Subject`].
pub struct Suite {
    table: Table,
    role: Role,
    preludes: Map<String, Value>,
    vectors: Vec<Value>,
    frames: Vec<Value>,
}

impl Suite {
    /// Reads the vectors for a role from the folder `conformance`.
    ///
    /// # Errors
    /// If a file is missing or invalid.
    pub fn read(folder: &Path, role: Role) -> Result<Self> {
        let table = Table::new(&read_json(folder, "frames.json")?)?;
        let mut file = read_json(folder, &format!("{}.json", role.name()))?;
        let vectors = list(file["vectors"].take())?;
        let Value::Object(preludes) = file["preludes"].take() else {
            return Err("no preludes".to_owned());
        };
        // They are in the clear.
        let frames =
            if role.has_keys() { Vec::new() } else { list(read_json(folder, "single.json")?)? };
        Ok(Self { table, role, preludes, vectors, frames })
    }

    /// The names of all vectors.
    pub fn names(&self) -> impl Iterator<Item = String> {
        let vectors = self.vectors.iter().map(|it| it["name"].as_str().unwrap_or("?").to_owned());
        let frames =
            self.frames.iter().map(|it| format!("{}: {}", text(it, "reason"), text(it, "what")));
        vectors.chain(frames)
    }

    /// Runs the vector of that name. `random` returns numbers that were never used before.
    pub fn run(
        &self,
        name: &str,
        subject: &mut dyn Subject,
        random: &mut dyn FnMut() -> u64,
    ) -> Outcome {
        let vector = self.names().position(|it| it == name);
        let Some(index) = vector else { return Outcome::Failed("no such vector".to_owned()) };
        let scripted = self.vectors.get(index);
        if scripted.is_some_and(|it| it["needs"] == "restore") && !subject.can_restore() {
            return Outcome::Known("nothing can tell it that its memory was put back".to_owned());
        }
        let mut run = Run::new(&self.table, subject, self.role, &self.preludes, random);
        let done = match scripted {
            Some(vector) => run.steps(&vector["steps"]),
            None => {
                let frame = &self.frames[index - self.vectors.len()];
                let connected = serde_json::json!([{"use": "connected"}]);
                let bytes = hex(text(frame, "hex"));
                run.steps(&connected)
                    .and(bytes)
                    .and_then(|bytes| run.rejects_literal(text(frame, "reason"), &bytes))
            }
        };
        let ended = run.end();
        match (done.and(ended), scripted.and_then(|it| it["known"].as_str())) {
            (Ok(()), _) => Outcome::Passed,
            (Err(_), Some(known)) => Outcome::Known(known.to_owned()),
            (Err(why), None) => Outcome::Failed(why),
        }
    }
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or("?")
}

/// Reads a file of the suite.
///
/// # Errors
/// If it is missing or invalid.
pub(crate) fn read_json(folder: &Path, name: &str) -> Result<Value> {
    let path = folder.join(name);
    let text = fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{name}: {error}"))
}

/// The items of a list of vectors.
///
/// # Errors
/// If it is none.
pub(crate) fn list(value: Value) -> Result<Vec<Value>> {
    match value {
        Value::Array(list) => Ok(list),
        _ => Err("no list of vectors".to_owned()),
    }
}

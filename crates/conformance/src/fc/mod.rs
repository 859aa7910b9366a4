//! Fibre Channel over Ethernet: vectors about exchanges. FC.md, "Exchanges", "The target".
//!
//! ```text
//! run       one vector: its steps, one after the other
//! frame     encapsulated frames as bytes
//! live      a target on a network interface: address, login
//! ```
//!
//! The addresses and the login are made by the state machines of `tyche-fc`; all frames of
//! exchanges are composed and decoded with the table of fields in `conformance/fc-frames.json`.

mod frame;
pub mod live;
mod run;

use std::path::Path;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::suite::{list, read_json};
use crate::table::Table;
use crate::{Outcome, Result};
use run::Run;

/// An N_Port_ID.
pub type PortId = [u8; 3];

/// The end under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FcRole {
    /// The target: the suite plays an initiator that is logged in.
    Target,
    /// The initiator: the suite plays its target.
    Initiator,
}

impl FcRole {
    /// Its name, which is also that of its file of vectors.
    pub fn name(self) -> &'static str {
        match self {
            Self::Target => "fc-target",
            Self::Initiator => "fc-initiator",
        }
    }
}

/// The implementation under test: a port that we are logged in with.
pub trait FcSubject {
    /// Our N_Port_ID, and that of the port under test.
    fn ports(&self) -> [PortId; 2];

    /// The logical unit that is written to and read.
    fn lun(&self) -> [u8; 8];

    /// Monotonic time since an arbitrary start.
    fn now(&self) -> Duration;

    /// Sends an encapsulated frame to it.
    ///
    /// # Errors
    /// If the link does not take it.
    fn send(&mut self, frame: &[u8]) -> Result<()>;

    /// Returns the next encapsulated frame that it sends within that time.
    ///
    /// # Errors
    /// If the link fails, or the login has ended.
    fn receive(&mut self, patience: Duration) -> Result<Option<Vec<u8>>>;

    /// Sends an order to an initiator's agent, as a line.
    ///
    /// # Errors
    /// If there is no agent.
    fn order(&mut self, line: &str) -> Result<()>;

    /// Returns the next line of the agent, if there is one.
    ///
    /// # Errors
    /// If there is no agent.
    fn said(&mut self) -> Result<Option<String>>;
}

/// The vectors for one role, as they were read from their file. It runs one at a time.
pub struct FcSuite {
    table: Table,
    role: FcRole,
    preludes: Map<String, Value>,
    vectors: Vec<Value>,
}

impl FcSuite {
    /// Reads the vectors for a role from the folder `conformance`.
    ///
    /// # Errors
    /// If a file is missing or invalid.
    pub fn read(folder: &Path, role: FcRole) -> Result<Self> {
        let table = Table::new(&read_json(folder, "fc-frames.json")?)?;
        let mut file = read_json(folder, &format!("{}.json", role.name()))?;
        let vectors = list(file["vectors"].take())?;
        let Value::Object(preludes) = file["preludes"].take() else {
            return Err("no preludes".to_owned());
        };
        Ok(Self { table, role, preludes, vectors })
    }

    /// The names of all vectors.
    pub fn names(&self) -> impl Iterator<Item = String> {
        self.vectors.iter().map(|it| it["name"].as_str().unwrap_or("?").to_owned())
    }

    /// Runs the vector of that name.
    pub fn run(&self, name: &str, subject: &mut dyn FcSubject) -> Outcome {
        let Some(index) = self.names().position(|it| it == name) else {
            return Outcome::Failed("no such vector".to_owned());
        };
        let mut run = Run::new(&self.table, subject, self.role, &self.preludes, index as u16);
        let done = run.steps(&self.vectors[index]["steps"]).and_then(|()| run.end());
        match (done, self.vectors[index]["known"].as_str()) {
            (Ok(()), _) => Outcome::Passed,
            (Err(_), Some(known)) => Outcome::Known(known.to_owned()),
            (Err(why), None) => Outcome::Failed(why),
        }
    }
}

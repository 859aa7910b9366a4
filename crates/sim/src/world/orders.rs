//! What a directed scenario orders, where a run of a seed would leave it to chance.

use tyche_proto::{Operation, Rules};

use super::World;
use crate::plan::HostPlan;
use crate::report::Violation;

impl<R: Rules> World<R> {
    fn checked<T>(&self, result: Result<T, String>) -> Result<T, Box<Violation>> {
        result.map_err(|what| self.violation(what).into())
    }

    /// Has a host submit an operation.
    ///
    /// # Errors
    /// If the host cannot, or what the checker found.
    pub fn request(&mut self, host: usize, operation: Operation) -> Result<(), Box<Violation>> {
        let result = self.submit_now(host, operation);
        self.checked(result)
    }

    /// Adds a host that begins a session at once; returns its index. There is room for one.
    ///
    /// # Errors
    /// What the checker found.
    pub fn join(&mut self, plan: HostPlan) -> Result<usize, Box<Violation>> {
        let result = self.add_host(plan);
        self.checked(result)
    }

    /// A host dies.
    pub fn kill_host(&mut self, host: usize) {
        self.crash_host(host);
    }

    /// A host begins a session if it has none.
    ///
    /// # Errors
    /// What the checker found.
    pub fn begin_session(&mut self, host: usize) -> Result<(), Box<Violation>> {
        let result = self.start(host);
        self.checked(result)
    }

    /// A host ends its session.
    ///
    /// # Errors
    /// What the checker found.
    pub fn disconnect(&mut self, host: usize) -> Result<(), Box<Violation>> {
        let result = self.disconnect_host(host);
        self.checked(result)
    }

    /// The target dies, with the cache of its disk if it has one and `lossy` says so.
    pub fn kill_target(&mut self, lossy: bool) {
        self.crash_target(lossy);
    }

    /// The target begins to serve if it does not.
    ///
    /// # Errors
    /// What the checker found.
    pub fn start_target(&mut self) -> Result<(), Box<Violation>> {
        let result = self.restart_target();
        self.checked(result)
    }

    /// The disk gets another size, at most the planned one.
    ///
    /// # Errors
    /// What the checker found.
    pub fn resize(&mut self, size: u64) -> Result<(), Box<Violation>> {
        let result = self.resize_disk(size);
        self.checked(result)
    }

    /// Reads all of the disk back, and compares it with what hosts were told.
    ///
    /// # Errors
    /// What the checker found.
    pub fn audit(&mut self) -> Result<(), Box<Violation>> {
        let result = self.calm_down();
        self.checked(result)?;
        self.read_back()
    }
}

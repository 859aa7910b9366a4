//! Wrappers around links, stores and disks, for measurements and tests. `tyche` has none; a
//! laboratory gives its own to the commands that use links.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tyche_block::Disk;
use tyche_link::Link;
use tyche_store::Store;

use crate::shared::error::Result;

/// Wraps links and stores before the engine gets them, and disks before a device does. Threads of a
/// wrapper may spin for up to `spin` before they sleep.
pub trait Wrapper: fmt::Debug + Send + Sync {
    /// Wraps links, each with the name that it was opened by.
    ///
    /// # Errors
    /// The options of the wrapper do not fit these links, or the system refuses something.
    fn links(
        &self,
        links: Vec<(String, Box<dyn Link>)>,
        spin: Duration,
    ) -> Result<Vec<Box<dyn Link>>>;

    /// Wraps the store of an export.
    fn store(&self, store: Arc<dyn Store>, spin: Duration) -> Arc<dyn Store>;

    /// Wraps the disk of a session.
    ///
    /// # Errors
    /// The system refuses something.
    fn disk(&self, disk: Arc<dyn Disk>, spin: Duration) -> Result<Arc<dyn Disk>>;
}

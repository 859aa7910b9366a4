//! Wrappers around links and stores, for measurements and tests. `tyche` has none; a laboratory
//! gives its own to the commands that use links, and runs them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tyche_link::Link;
use tyche_store::Store;

use crate::bench::{self, BenchArgs};
use crate::connect::{self, ConnectArgs};
use crate::discover::{self, DiscoverArgs};
use crate::error::Result;
use crate::output::Format;
use crate::serve::{self, ServeArgs};

/// Wraps links and stores before the engine gets them. Threads of a wrapper may spin for up to
/// `spin` before they sleep.
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

    /// Whether a thread of its own answers a host's requests.
    fn hands_over(&self) -> bool;
}

/// A command that uses links.
pub trait LinkCommand: Args {
    /// Puts a wrapper around the links, and around the stores of a target.
    fn wrap(&mut self, wrapper: Arc<dyn Wrapper>);

    /// Runs the command to its end.
    ///
    /// # Errors
    /// As documented in `tyche --help`.
    fn run(&self) -> Result<()>;

    /// The format of the command's output.
    fn output(&self) -> Format;
}

impl LinkCommand for ServeArgs {
    fn wrap(&mut self, wrapper: Arc<dyn Wrapper>) {
        self.link.wrapper = Some(wrapper);
    }

    fn run(&self) -> Result<()> {
        serve::run(self)
    }

    fn output(&self) -> Format {
        Format::Text
    }
}

impl LinkCommand for ConnectArgs {
    fn wrap(&mut self, wrapper: Arc<dyn Wrapper>) {
        self.session.link.wrapper = Some(wrapper);
    }

    fn run(&self) -> Result<()> {
        connect::run(self)
    }

    fn output(&self) -> Format {
        self.output
    }
}

impl LinkCommand for DiscoverArgs {
    fn wrap(&mut self, wrapper: Arc<dyn Wrapper>) {
        self.link.wrapper = Some(wrapper);
    }

    fn run(&self) -> Result<()> {
        discover::run(self)
    }

    fn output(&self) -> Format {
        self.output
    }
}

impl LinkCommand for BenchArgs {
    fn wrap(&mut self, wrapper: Arc<dyn Wrapper>) {
        self.session.link.wrapper = Some(wrapper);
    }

    fn run(&self) -> Result<()> {
        bench::run(self)
    }

    fn output(&self) -> Format {
        self.output
    }
}

//! The commands that use links, for a laboratory that runs them with a wrapper.

use std::sync::Arc;

use clap::Args;

use crate::commands::bench::{self, BenchArgs};
use crate::commands::discover::{self, DiscoverArgs};
use crate::daemons::connect::{self, ConnectArgs};
use crate::daemons::serve::{self, ServeArgs};
use crate::output::Format;
use crate::shared::error::Result;
use crate::shared::wrap::Wrapper;

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
        self.output
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

//! The commands of `tyche` that use links, with wrappers around links and stores.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use tyche_block::Disk;
use tyche_cli::{LinkCommand, Wrapper};
use tyche_console::error::Result;
use tyche_console::output::Format;
use tyche_link::Link;
use tyche_store::Store;

use crate::disks::DiskArgs;
use crate::fault::{self, Fault};
use crate::handover::HandOverArgs;
use crate::rdma::RdmaArgs;

// A command with the options of its wrappers. Not a doc comment: clap would show it in place of the
// command's own description.
#[derive(Args, Debug)]
pub(crate) struct Wrapped<C: LinkCommand> {
    #[command(flatten)]
    command: C,

    #[command(flatten)]
    wrappers: WrapperArgs,
}

impl<C: LinkCommand> Wrapped<C> {
    pub(crate) fn run(&mut self) -> Result<()> {
        self.command.wrap(Arc::new(self.wrappers.clone()));
        self.wrappers.rdma.enable();
        self.command.run()
    }

    pub(crate) fn output(&self) -> Format {
        self.command.output()
    }
}

#[derive(Args, Clone, Debug)]
struct WrapperArgs {
    /// Faults to inject, such as eth1:delay=5ms,drop=0.5%; without an interface, on all links.
    /// There are drop, duplicate, reorder and corrupt (percent of the frames), delay (us, ms or s),
    /// side (send, receive or both; default: both), and the seed of the random numbers. May be
    /// repeated: the last setting for a link holds.
    #[arg(long = "fault", value_name = "[INTERFACE:]FAULT=..,..", value_parser = Fault::parse)]
    faults: Vec<Fault>,

    #[command(flatten)]
    hand_over: HandOverArgs,

    #[command(flatten)]
    rdma: RdmaArgs,

    #[command(flatten)]
    disks: DiskArgs,
}

impl Wrapper for WrapperArgs {
    fn links(
        &self,
        links: Vec<(String, Box<dyn Link>)>,
        spin: Duration,
    ) -> Result<Vec<Box<dyn Link>>> {
        self.hand_over.links(fault::wrap(links, &self.faults)?, spin)
    }

    fn store(&self, store: Arc<dyn Store>, spin: Duration) -> Arc<dyn Store> {
        self.hand_over.store(self.disks.store(store), spin)
    }

    fn disk(&self, disk: Arc<dyn Disk>, spin: Duration) -> Result<Arc<dyn Disk>> {
        self.hand_over.disk(disk, spin)
    }
}

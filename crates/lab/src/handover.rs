//! `--hand-over`: threads that hand work over to each other, to measure what they cost.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tyche_baseline::{HandOverDisk, HandOverStore, hand_over};
use tyche_block::Disk;
use tyche_console::error::{Code, Error, Result};
use tyche_link::Link;
use tyche_store::Store;

#[derive(Args, Clone, Debug)]
pub(crate) struct HandOverArgs {
    /// Parts of the work that get a thread of their own, separated by commas; without a value,
    /// receive, store and complete. The first Tyche handed work from thread to thread like this. It
    /// is slower than one thread for all; this option measures by how much. Ethernet only.
    #[arg(long = "hand-over", value_name = "PARTS", num_args = 0..=1, require_equals = true,
        value_delimiter = ',', default_missing_value = "receive,store,complete")]
    parts: Vec<HandOver>,
}

/// A part of the work that has a thread of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum HandOver {
    /// Receiving, a thread for each link.
    Receive,
    /// Receiving, one thread for all links.
    ReceiveAll,
    /// The disk, at a target.
    Store,
    /// Answering requests, at a host with a device.
    Complete,
}

impl HandOverArgs {
    fn has(&self, part: HandOver) -> bool {
        self.parts.contains(&part)
    }

    /// The disk of a session, with a thread of its own that answers requests if configured.
    pub(crate) fn disk(&self, disk: Arc<dyn Disk>, spin: Duration) -> Result<Arc<dyn Disk>> {
        let completes = self.has(HandOver::Complete);
        Ok(if completes { Arc::new(HandOverDisk::start(disk, spin)?) } else { disk })
    }

    /// The links, with receiver threads as configured. Threads spin for up to `spin` before they
    /// sleep.
    pub(crate) fn links(
        &self,
        links: Vec<Box<dyn Link>>,
        spin: Duration,
    ) -> Result<Vec<Box<dyn Link>>> {
        let groups: Vec<_> = if self.has(HandOver::ReceiveAll) {
            vec![links]
        } else if self.has(HandOver::Receive) {
            links.into_iter().map(|link| vec![link]).collect()
        } else {
            return Ok(links);
        };
        let mut wrapped = Vec::<Box<dyn Link>>::new();
        for group in groups {
            for link in hand_over(group, spin).map_err(explain)? {
                wrapped.push(Box::new(link));
            }
        }
        Ok(wrapped)
    }

    /// The store, served by a thread of its own if configured.
    pub(crate) fn store(&self, store: Arc<dyn Store>, spin: Duration) -> Arc<dyn Store> {
        if self.has(HandOver::Store) { Arc::new(HandOverStore::new(store, spin)) } else { store }
    }
}

fn explain(error: io::Error) -> Error {
    if error.kind() == io::ErrorKind::Unsupported {
        let message = format!("{error}: use an Ethernet interface, or leave out --hand-over");
        return Error::new(Code::Usage, message);
    }
    error.into()
}

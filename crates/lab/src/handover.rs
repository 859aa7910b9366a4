//! `--hand-over`: threads that hand work over to each other, to measure what they cost.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, ValueEnum};
use tyche_console::error::{Code, Error, Result};
use tyche_link::{Link, handover};
use tyche_store::Store;
use tyche_store::handover::HandOverStore;

#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct HandOverArgs {
    /// Hand work from thread to thread, as the first Tyche did: one receives, one runs the
    /// protocol, and one serves the disk (at the target) or answers requests (at the host). Slower
    /// than one thread for all, and there to measure by how much. Ethernet only.
    #[arg(long = "hand-over", value_name = "RECEIVERS", num_args = 0..=1, require_equals = true,
        default_missing_value = "each")]
    receivers: Option<Receivers>,
}

/// Which threads receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Receivers {
    /// A thread for each link.
    Each,
    /// One thread for all links.
    One,
}

impl HandOverArgs {
    /// Whether work is handed over at all.
    pub(crate) fn is_on(self) -> bool {
        self.receivers.is_some()
    }

    /// The links, with receiver threads as configured. Threads spin for up to `spin` before they
    /// sleep.
    pub(crate) fn links(
        self,
        links: Vec<Box<dyn Link>>,
        spin: Duration,
    ) -> Result<Vec<Box<dyn Link>>> {
        let groups: Vec<_> = match self.receivers {
            None => return Ok(links),
            Some(Receivers::Each) => links.into_iter().map(|link| vec![link]).collect(),
            Some(Receivers::One) => vec![links],
        };
        let mut wrapped = Vec::<Box<dyn Link>>::new();
        for group in groups {
            for link in handover::hand_over(group, spin).map_err(explain)? {
                wrapped.push(Box::new(link));
            }
        }
        Ok(wrapped)
    }

    /// The store, served by a thread of its own if configured.
    pub(crate) fn store(self, store: Arc<dyn Store>, spin: Duration) -> Arc<dyn Store> {
        if self.is_on() { Arc::new(HandOverStore::new(store, spin)) } else { store }
    }
}

fn explain(error: io::Error) -> Error {
    if error.kind() == io::ErrorKind::Unsupported {
        let message = format!("{error}: use an Ethernet interface, or leave out --hand-over");
        return Error::new(Code::Usage, message);
    }
    error.into()
}

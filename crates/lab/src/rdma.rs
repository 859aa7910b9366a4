//! Options of the double of RDMA: without network cards, between processes of this machine.

use clap::{Args, ValueEnum};
use tyche_link::rdma::double::{DoubleOptions, Interrupts, Model, enable};
use tyche_link::rdma::{QueueKind, RdmaOptions};

// Not a doc comment: clap would show it in place of the description of the command.
#[derive(Args, Clone, Debug)]
pub(crate) struct RdmaArgs {
    /// Has rdma: links go between processes of this machine, in place of network cards. At both
    /// ends.
    #[arg(long)]
    rdma_double: bool,

    /// How this end tells the other how far rings are filled and emptied: along with frames, or by
    /// writes of their own.
    #[arg(long, value_name = "KIND", value_enum, default_value_t, requires = "rdma_double")]
    rdma_queue: Queue,

    /// Which announcements interrupt this end, or are sent to do so: the first that comes while it
    /// sleeps, or each.
    #[arg(long, value_name = "WHICH", value_enum, default_value_t, requires = "rdma_double")]
    interrupts: Silencing,

    /// How data come to this end: written where they belong, or in frames.
    #[arg(long, value_name = "WAY", value_enum, default_value_t, requires = "rdma_double")]
    rdma_data: Data,

    /// The time that cards, the network and interrupts take: none, or as in the paper.
    #[arg(long, value_name = "MODEL", value_enum, default_value_t, requires = "rdma_double")]
    rdma_model: Times,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Queue {
    #[default]
    Eliminate,
    Base,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Data {
    #[default]
    Placed,
    Framed,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Silencing {
    #[default]
    Silenced,
    Each,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Times {
    #[default]
    None,
    Ics2006,
}

impl RdmaArgs {
    /// Has rdma: links be those of the double, if it is asked for.
    pub(crate) fn enable(&self) {
        if self.rdma_double {
            enable(self.options());
        }
    }

    /// The options of the double.
    pub(crate) fn options(&self) -> DoubleOptions {
        let kind = match self.rdma_queue {
            Queue::Eliminate => QueueKind::Eliminate,
            Queue::Base => QueueKind::Base,
        };
        let interrupts = match self.interrupts {
            Silencing::Silenced => Interrupts::Silenced,
            Silencing::Each => Interrupts::Each,
        };
        let model = match self.rdma_model {
            Times::None => Model::default(),
            Times::Ics2006 => Model::ICS_2006,
        };
        let places = self.rdma_data == Data::Placed;
        let rdma = RdmaOptions { kind, places, ..RdmaOptions::default() };
        DoubleOptions { rdma, interrupts, model }
    }
}

//! `--affinity`: placement on a machine with several NUMA nodes.

use std::path::Path;

use clap::{Args, ValueEnum};
use tyche_numa::{Affinity, Placement, Topology};

use crate::shared::error::{CodedResult, Result};

#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct PlacementArgs {
    /// Parts to keep on the NUMA node of their network interface. Does nothing on a machine with
    /// one node.
    #[arg(long, value_enum, value_name = "WHAT", default_value_t)]
    affinity: Near,
}

/// The parts that are placed by NUMA node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Near {
    /// Nothing: the kernel decides.
    #[default]
    None,
    /// The thread that serves a link, the ring of its socket, and the memory of its channels.
    KmemNic,
    /// Request buffers as well: a host's are spread over the nodes, and each request travels over
    /// an interface of its buffer's node.
    FullMem,
}

impl PlacementArgs {
    /// The placement on this machine's nodes. Warns if it differs from the one asked for.
    pub(crate) fn placement(self) -> Result<Placement> {
        let affinity = match self.affinity {
            Near::None => Affinity::None,
            Near::KmemNic => Affinity::KmemNic,
            Near::FullMem => Affinity::FullMem,
        };
        let topology = Topology::read(Path::new("/sys")).coded()?;
        if affinity != Affinity::None && topology.is_uniform() {
            tracing::warn!("--affinity does nothing here: this machine has one NUMA node");
        }
        Placement::new(affinity, topology).coded()
    }
}

//! `--affinity`: placement on a machine with several NUMA nodes, or several last-level caches.

use clap::{Args, ValueEnum};
use tyche_numa::{Affinity, Cpus, Error, Placement, Topology};

use crate::shared::error::{CodedResult, Result};
use crate::shared::state::State;

/// The kernel's description of this machine.
pub(crate) const SYS: &str = "/sys";

#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct PlacementArgs {
    /// Parts to keep close to each other, and on the NUMA node of their network interface.
    #[arg(long, value_enum, value_name = "WHAT", default_value_t)]
    affinity: Near,
}

/// The parts that are placed by cache or by NUMA node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Near {
    /// Nothing: the kernel decides.
    None,
    /// The threads of a session, on the CPUs of one last-level cache. A target is not placed.
    #[default]
    Cache,
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
            Near::None | Near::Cache => Affinity::None,
            Near::KmemNic => Affinity::KmemNic,
            Near::FullMem => Affinity::FullMem,
        };
        let topology = Topology::read(SYS.as_ref()).coded()?;
        if affinity != Affinity::None && topology.is_uniform() {
            tracing::warn!("--affinity does nothing here: this machine has one NUMA node");
        }
        Placement::new(affinity, topology).coded()
    }

    /// Binds the calling thread, and those that it starts from now on, to the CPUs of one
    /// last-level cache, if so many busy threads fit there. `interfaces` are those of the links.
    pub(crate) fn bind(self, threads: usize, interfaces: &[&str]) {
        if self.affinity != Near::Cache {
            return;
        }
        let bound = cache(threads, interfaces).and_then(|cpus| match cpus {
            Some(cpus) => tyche_numa::pin(&cpus).map(|()| Some(cpus)),
            None => Ok(None),
        });
        match bound {
            Ok(Some(cpus)) => tracing::info!(%cpus, "the threads share a cache"),
            Ok(None) => {}
            Err(error) => tracing::warn!("the threads are not placed by cache: {error}"),
        }
    }
}

/// The CPUs of the cache for a new session of this machine; `None` if there is no choice.
fn cache(threads: usize, interfaces: &[&str]) -> std::result::Result<Option<Cpus>, Error> {
    let topology = Topology::read(SYS.as_ref())?;
    let allowed = tyche_numa::allowed_cpus()?;
    let own = std::process::id();
    let daemons = State::all().unwrap_or_default().into_iter().map(|(_, state)| state.pid);
    let others: Vec<_> =
        daemons.filter(|pid| *pid != own).filter_map(tyche_numa::cpus_of).collect();
    Ok(topology.cache_for((threads, interfaces), &allowed, &others, own as usize))
}

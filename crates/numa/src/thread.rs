//! Where threads run.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::{Cpus, Error, Node};

/// The CPUs that the calling thread may run on: those of its cpuset that it has not been kept from.
///
/// # Errors
/// [`Error::Refused`].
pub fn allowed_cpus() -> Result<Cpus, Error> {
    let allowed = sched_getaffinity(None);
    let allowed = allowed
        .map_err(|errno| Error::Refused { call: "sched_getaffinity", source: errno.into() })?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect())
}

/// Those of a node's CPUs that the calling thread may run on.
///
/// # Errors
/// [`Error::NoCpus`] if there are none; [`Error::Refused`].
pub(crate) fn usable(node: Node, cpus: &Cpus) -> Result<Cpus, Error> {
    let allowed = allowed_cpus()?;
    let usable = cpus.intersection(&allowed);
    if usable.is_empty() {
        return Err(Error::NoCpus { node, cpus: cpus.clone(), allowed });
    }
    Ok(usable)
}

/// Has the calling thread run on these CPUs only.
///
/// # Errors
/// [`Error::Refused`].
pub(crate) fn pin(cpus: &Cpus) -> Result<(), Error> {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(cpu));
    sched_setaffinity(None, &set)
        .map_err(|errno| Error::Refused { call: "sched_setaffinity", source: errno.into() })
}

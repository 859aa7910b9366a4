//! The CPUs of threads.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::{Cpus, Error};

/// The CPUs that the calling thread may run on: those of its cpuset, within its affinity.
///
/// # Errors
/// [`Error::Refused`].
pub fn allowed_cpus() -> Result<Cpus, Error> {
    let allowed = sched_getaffinity(None);
    let allowed = allowed
        .map_err(|errno| Error::Refused { call: "sched_getaffinity", source: errno.into() })?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect())
}

/// Pins the calling thread to these CPUs.
///
/// # Errors
/// [`Error::Refused`], also if its cpuset has none of them.
pub fn pin(cpus: &Cpus) -> Result<(), Error> {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(cpu));
    sched_setaffinity(None, &set)
        .map_err(|errno| Error::Refused { call: "sched_setaffinity", source: errno.into() })
}

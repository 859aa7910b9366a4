//! The CPUs of threads.

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

use crate::{Cpus, Error};

/// The CPUs that the calling thread may run on: those of its cpuset, within its affinity.
///
/// # Errors
/// [`Error::Refused`].
pub fn allowed_cpus() -> Result<Cpus, Error> {
    cpus(None)
}

/// The CPUs that the first thread of another process may run on; `None` if there is no such
/// process.
pub fn cpus_of(process: u32) -> Option<Cpus> {
    let process = Pid::from_raw(process.try_into().ok()?)?;
    cpus(Some(process)).ok()
}

fn cpus(process: Option<Pid>) -> Result<Cpus, Error> {
    let allowed = sched_getaffinity(process)
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

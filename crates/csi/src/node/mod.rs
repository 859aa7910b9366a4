//! The node: sessions, file systems and mounts of one machine.
//!
//! Nothing is kept but the locks of volumes: what is connected and mounted is asked of `tyche` and
//! of the kernel, so each request can be repeated after a kill at any moment.

mod expand;
mod filesystem;
mod mounts;
mod publish;
mod session;
mod stage;
mod stats;

use std::path::{Path, PathBuf};
use std::time::Duration;

use tonic::Status;

use crate::ids::NodeId;
use crate::locks::Locks;
use crate::program::Program;
use crate::proto::NodeGetInfoResponse;
use mounts::Mounts;
pub(crate) use session::{Keeper, Sessions};

/// Time limit to mount and unmount. Unmounting writes what is cached to the target.
const MOUNT: Duration = Duration::from_secs(100);
/// Mounts on top of each other at one place, at most.
const STACK_MAX: usize = 16;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Node {
    name: String,
    sessions: Sessions,
    locks: Locks,
}

impl Node {
    pub(crate) fn new(name: String, sessions: Sessions, locks: Locks) -> Self {
        Self { name, sessions, locks }
    }

    pub(crate) fn info(&self) -> Result<NodeGetInfoResponse, Status> {
        let key = self.sessions.public_key()?;
        let wrong = || {
            let message = format!("`{}` with the key `{key}` can't be a host", self.name);
            Status::failed_precondition(message)
        };
        let id = NodeId::new(&self.name, &key).ok_or_else(wrong)?;
        Ok(NodeGetInfoResponse { node_id: id.to_string(), ..NodeGetInfoResponse::default() })
    }
}

/// A path of a request.
///
/// # Errors
/// `InvalidArgument` if it is missing, or not absolute.
fn required_path<'a>(path: &'a str, what: &str) -> Result<&'a Path, Status> {
    let path = Path::new(path);
    let message = || format!("the request has no {what}, as an absolute path");
    path.is_absolute().then_some(path).ok_or_else(|| Status::invalid_argument(message()))
}

/// Unmounts all that is mounted at a path.
///
/// # Errors
/// It is in use, or what is cached can't be written in time.
fn unmount(point: &Path, lock: &std::fs::File) -> Result<(), Status> {
    for _ in 0..STACK_MAX {
        if Mounts::read()?.at(point).is_none() {
            return Ok(());
        }
        Program::new("umount").args([point]).holds(lock).succeed(MOUNT)?;
    }
    Err(Status::internal(format!("{}: too much is mounted there", point.display())))
}

/// Mounts with these arguments.
fn mount<'a>(
    options: &[&str],
    paths: impl IntoIterator<Item = &'a PathBuf>,
    lock: &std::fs::File,
) -> Result<(), Status> {
    Program::new("mount").args(options).args(paths).holds(lock).succeed(MOUNT).map(drop)
}

//! Making a disk appear in the way that was asked for.

use std::path::Path;
use std::sync::Arc;

use clap::ValueEnum;
use tyche_attach::fuse::FuseMount;
use tyche_attach::nbd::NbdServer;
use tyche_attach::{Attachment, LoopAttachment};
use tyche_block::Disk;

use crate::error::Result;

/// What the export becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// A loop device: a block device on any kernel.
    Loop,
    /// A file in a FUSE file system.
    Fuse,
    /// An NBD server on a Unix socket, for QEMU, nbdcopy, fio and others.
    NbdSocket,
}

/// Attaches `disk`; what the attachment needs in the file system goes below `dir`.
pub(crate) fn attach(
    kind: Kind,
    disk: Arc<dyn Disk>,
    export: &str,
    dir: &Path,
) -> Result<Box<dyn Attachment>> {
    Ok(match kind {
        Kind::Loop => Box::new(LoopAttachment::start(disk, &dir.join("loop"))?),
        Kind::Fuse => Box::new(FuseMount::start(&dir.join("fuse"), disk)?),
        Kind::NbdSocket => Box::new(NbdServer::start(&dir.join("nbd.sock"), export, disk)?),
    })
}

/// Takes away what the attachment of a daemon that was killed has left below `dir`.
pub(crate) fn clean_stale(dir: &Path) {
    let cleaned = LoopAttachment::clean_stale(&dir.join("loop"))
        .and_then(|_| FuseMount::clean_stale(&dir.join("fuse")));
    if let Err(error) = cleaned {
        tracing::warn!(dir = %dir.display(), %error, "left behind by a daemon that died");
    }
}

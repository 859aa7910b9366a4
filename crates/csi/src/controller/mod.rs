//! The controller: volumes and snapshots are exports of targets, and it keeps nothing of them. Each
//! request asks the target, compares what is there with what is wanted, and does the rest, so that
//! it can be repeated after a kill at any moment.

mod capacity;
mod listing;
mod publish;
mod snapshots;
mod volumes;

use std::path::PathBuf;

use tonic::Status;

use crate::ids::{TargetId, VolumeId};
use crate::locks::Locks;
use crate::proto::VolumeHealthErrorType;
use crate::proto::volume_health::VolumeHealthEntry;
use crate::target::{Export, Target};
use crate::tyche::Tyche;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Controller {
    tyche: Tyche,
    /// File of the admin's key.
    key: PathBuf,
    /// The targets whose volumes are listed, and whose pools are counted.
    targets: Vec<TargetId>,
    locks: Locks,
}

impl Controller {
    pub(crate) fn new(tyche: Tyche, key: PathBuf, targets: Vec<TargetId>, locks: Locks) -> Self {
        Self { tyche, key, targets, locks }
    }

    /// Whether it knows targets that can be listed.
    pub(crate) fn lists(&self) -> bool {
        !self.targets.is_empty()
    }

    fn target<'a>(&'a self, id: &'a TargetId) -> Target<'a> {
        Target::new(&self.tyche, &self.key, id)
    }
}

/// The export of a volume, as it is.
///
/// # Errors
/// `NotFound` if there is none, or it is a snapshot.
fn volume(target: &Target<'_>, id: &VolumeId) -> Result<Export, Status> {
    let inventory = target.inventory()?;
    let found = inventory.export(&id.export).filter(|it| !it.is_snapshot());
    found.cloned().ok_or_else(|| no_volume(id))
}

fn no_volume(id: &VolumeId) -> Status {
    Status::not_found(format!("{} has no volume {}", id.target.place, id.export))
}

/// Bytes as CSI counts them.
fn signed(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// The health of a volume, as its target sees it; none if all is well.
fn health(export: &Export) -> Vec<VolumeHealthEntry> {
    let entry = |problem: &String| VolumeHealthEntry {
        status: VolumeHealthErrorType::Inaccessible.into(),
        reason: "DiskFault".to_owned(),
        message: problem.clone(),
    };
    export.problem.iter().map(entry).collect()
}

//! Snapshots: exports that nobody can write, each a copy of a volume at one moment.

use prost_types::Timestamp;
use tonic::Status;

use super::{Controller, no_volume, signed};
use crate::ids::{TargetId, VolumeId, export_name, shown, unfinished};
use crate::proto::{
    CreateSnapshotRequest, CreateSnapshotResponse, DeleteSnapshotRequest, DeleteSnapshotResponse,
    GetSnapshotRequest, GetSnapshotResponse, Snapshot,
};
use crate::target::Export;

/// An export as a snapshot; `None` if it is none.
pub(super) fn snapshot(target: &TargetId, export: &Export) -> Option<Snapshot> {
    let origin = export.origin.as_ref().filter(|_| export.is_snapshot())?;
    let seconds = signed(origin.time);
    Some(Snapshot {
        size_bytes: signed(export.size),
        snapshot_id: target.export(&export.name).to_string(),
        source_volume_id: target.export(&origin.export).to_string(),
        creation_time: Some(Timestamp { seconds, nanos: 0 }),
        ready_to_use: true,
        ..Snapshot::default()
    })
}

impl Controller {
    pub(crate) fn create_snapshot(
        &self,
        request: &CreateSnapshotRequest,
    ) -> Result<CreateSnapshotResponse, Status> {
        if request.name.is_empty() {
            return Err(Status::invalid_argument("the snapshot has no name"));
        }
        if let Some(name) = request.parameters.keys().find(|it| !it.contains('/')) {
            let message = format!("snapshots have no parameters, such as `{}`", shown(name));
            return Err(Status::invalid_argument(message));
        }
        let of = VolumeId::required(&request.source_volume_id)?;
        let id = of.target.export(&export_name(&request.name));
        let lock = self.locks.take(&id)?;
        let target = self.target(&id.target).holding(&lock);
        let mut inventory = target.inventory()?;
        if inventory.export(&id.export).is_none() {
            inventory
                .export(&of.export)
                .filter(|it| it.is_volume())
                .ok_or_else(|| no_volume(&of))?;
            // As a copy of a volume: hosts of the volume may not have it, from the first moment on
            // at which it has its name.
            let name = unfinished(&id.export);
            if inventory.export(&name).is_some() {
                target.delete(&name)?;
            }
            target.copy(&of.export, &name, true)?;
            target.revert(&name)?;
            target.rename(&name, &id.export)?;
            inventory = target.inventory()?;
        }
        let made = inventory.export(&id.export).and_then(|it| snapshot(&id.target, it));
        let is_it = |it: &Snapshot| it.source_volume_id == of.to_string();
        let other = || format!("{} is there, and is no snapshot of {}", id.export, of.export);
        let made = made.filter(is_it).ok_or_else(|| Status::already_exists(other()))?;
        Ok(CreateSnapshotResponse { snapshot: Some(made) })
    }

    pub(crate) fn delete_snapshot(
        &self,
        request: &DeleteSnapshotRequest,
    ) -> Result<DeleteSnapshotResponse, Status> {
        if request.snapshot_id.is_empty() {
            return Err(Status::invalid_argument("the request names no snapshot"));
        }
        if let Some(id) = VolumeId::parse(&request.snapshot_id) {
            self.delete(&id, Export::is_snapshot)?;
        }
        Ok(DeleteSnapshotResponse {})
    }

    pub(crate) fn snapshot(
        &self,
        request: &GetSnapshotRequest,
    ) -> Result<GetSnapshotResponse, Status> {
        let id = VolumeId::required(&request.snapshot_id)?;
        let inventory = self.target(&id.target).inventory()?;
        let found = inventory.export(&id.export).and_then(|it| snapshot(&id.target, it));
        let missing = || Status::not_found(format!("there is no snapshot {}", id.export));
        Ok(GetSnapshotResponse { snapshot: Some(found.ok_or_else(missing)?) })
    }
}

//! Staging: a volume becomes a device of this node, with its file system mounted at one place; and
//! back, until the device is gone.

use std::collections::HashMap;
use std::fs::{self, File};
use std::path::Path;

use tonic::Status;

use super::filesystem::{self, Content};
use super::mounts::{Device, Mounts};
use super::session::Session;
use super::{Node, mount, required_path, unmount};
use crate::capability::{Access, Capability};
use crate::ids::VolumeId;
use crate::parameters::connect_options;
use crate::proto::{
    NodeStageVolumeRequest, NodeStageVolumeResponse, NodeUnstageVolumeRequest,
    NodeUnstageVolumeResponse,
};

impl Node {
    pub(crate) fn stage_volume(
        &self,
        request: &NodeStageVolumeRequest,
    ) -> Result<NodeStageVolumeResponse, Status> {
        if request.volume_id.is_empty() {
            return Err(Status::invalid_argument("the request names no volume"));
        }
        let point = required_path(&request.staging_target_path, "staging path")?;
        let asked = Capability::required(request.volume_capability.as_ref())?;
        let id = VolumeId::required(&request.volume_id)?;
        let lock = self.locks.take(&id)?;
        let context = &request.volume_context;
        let device = self.device((&id, context), (point, asked.is_read_only), &lock)?;
        if let Access::Mount(kind, options) = &asked.access {
            mount_device(&device, (kind, options), point, &lock)?;
        }
        Ok(NodeStageVolumeResponse {})
    }

    /// The device of a volume, which is connected if it is not yet. A session that is of no use any
    /// more, because its target has ended it or its daemon is dead, goes first.
    fn device(
        &self,
        (id, context): (&VolumeId, &HashMap<String, String>),
        (point, read_only): (&Path, bool),
        lock: &File,
    ) -> Result<Device, Status> {
        let mut options = connect_options(context)?;
        options.extend(read_only.then(|| "--read-only".to_owned()));
        if let Some(found) = self.sessions.find(id)? {
            let device = found.device();
            let fault = found.problem.as_ref().unwrap_or(&found.state);
            if let Some(device) = device {
                // A disk that is read-only at its target is so here in any case.
                if found.is_usable() && device.is_read_only() >= read_only {
                    let lost = || Status::unavailable(format!("{}: {fault}", id.export));
                    return found.is_live().then_some(device).ok_or_else(lost);
                }
                unmount_from(&device, point, lock)?;
            }
            tracing::warn!("{}: {fault}: connected anew", id.export);
            self.sessions.disconnect(id, true, lock)?;
        }
        Device::open(&self.sessions.connect(id, &options, lock)?)
    }

    pub(crate) fn unstage_volume(
        &self,
        request: &NodeUnstageVolumeRequest,
    ) -> Result<NodeUnstageVolumeResponse, Status> {
        if request.volume_id.is_empty() {
            return Err(Status::invalid_argument("the request names no volume"));
        }
        let point = required_path(&request.staging_target_path, "staging path")?;
        // What the driver has not made can't be staged here.
        let Some(id) = VolumeId::parse(&request.volume_id) else {
            return Ok(NodeUnstageVolumeResponse {});
        };
        let lock = self.locks.take(&id)?;
        unmount(point, &lock)?;
        if let Some(found) = self.sessions.find(&id)? {
            self.disconnect(&id, &found, &lock)?;
        }
        self.locks.forget(&id);
        Ok(NodeUnstageVolumeResponse {})
    }

    /// Ends the session of a volume, and makes sure that its device is gone.
    ///
    /// # Errors
    /// `FailedPrecondition` if it is still mounted somewhere.
    fn disconnect(&self, id: &VolumeId, found: &Session, lock: &File) -> Result<(), Status> {
        if let Some(device) = found.device()
            && let Some(place) = Mounts::read()?.of(&device).first()
        {
            let message = format!("{} is still used at {}", id.export, place.display());
            return Err(Status::failed_precondition(message));
        }
        self.sessions.disconnect(id, !found.is_usable(), lock)?;
        if self.sessions.find(id)?.is_some() || found.device().is_some() {
            return Err(Status::internal(format!("{} is still connected", id.export)));
        }
        Ok(())
    }
}

/// Unmounts a device that is of no use any more from its staging path.
///
/// # Errors
/// `FailedPrecondition` if it is mounted elsewhere as well: something still uses it.
fn unmount_from(device: &Device, point: &Path, lock: &File) -> Result<(), Status> {
    if let Some(place) = Mounts::read()?.of(device).iter().find(|it| **it != point) {
        let message = format!("the disk has failed, and is still used at {}", place.display());
        return Err(Status::failed_precondition(message));
    }
    unmount(point, lock)
}

/// Mounts a device, with the file system that it has, or with a new one if it has nothing at all.
fn mount_device(
    device: &Device,
    (kind, options): (&str, &[String]),
    point: &Path,
    lock: &File,
) -> Result<(), Status> {
    let failed = |error| Status::internal(format!("{}: {error}", point.display()));
    fs::create_dir_all(point).map_err(failed)?;
    match Mounts::read()?.at(point) {
        Some(found) if found.device == device.number => return Ok(()),
        // Of an earlier device of this volume.
        Some(_) => unmount(point, lock)?,
        None => {}
    }
    let writes = !device.is_read_only();
    match filesystem::look(device, lock)? {
        Content::Nothing if writes => filesystem::make(device, kind, lock)?,
        Content::FileSystem(found) if found == kind => {
            if writes {
                filesystem::check(device, kind, lock)?;
                // A copy may be larger than its original, and a disk may have grown meanwhile.
                filesystem::grow_unmounted(device, kind, lock)?;
            }
        }
        Content::Nothing => {
            return Err(Status::failed_precondition("the disk is empty, and can't be written"));
        }
        Content::FileSystem(other) | Content::Other(other) => {
            let message = format!("the disk has {other}, not {kind}, and is left as it is");
            return Err(Status::failed_precondition(message));
        }
    }
    let mut all: Vec<_> = options.iter().map(String::as_str).collect();
    match (kind, writes) {
        // Of a volume and its copy, which have one UUID, both may be mounted.
        ("xfs", true) => all.push("nouuid"),
        // Nothing can be replayed.
        ("xfs", false) => all.extend(["nouuid", "ro", "norecovery"]),
        (_, true) => {}
        (_, false) => all.extend(["ro", "noload"]),
    }
    let all = if all.is_empty() { "defaults".to_owned() } else { all.join(",") };
    mount(&["-t", kind, "-o", &all], [&device.path, &point.to_owned()], lock)?;
    if kind == "xfs" && writes && !options.iter().any(|it| it == "ro") {
        filesystem::grow(device, kind, point, lock)?;
    }
    Ok(())
}

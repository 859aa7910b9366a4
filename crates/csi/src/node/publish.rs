//! Publishing: what is staged is seen at the path of a workload.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tonic::Status;

use super::mounts::{Device, Mounts};
use super::{Node, mount, required_path, unmount};
use crate::capability::{Access, Capability};
use crate::ids::VolumeId;
use crate::proto::{
    NodePublishVolumeRequest, NodePublishVolumeResponse, NodeUnpublishVolumeRequest,
    NodeUnpublishVolumeResponse,
};

impl Node {
    pub(crate) fn publish_volume(
        &self,
        request: &NodePublishVolumeRequest,
    ) -> Result<NodePublishVolumeResponse, Status> {
        if request.volume_id.is_empty() {
            return Err(Status::invalid_argument("the request names no volume"));
        }
        let point = required_path(&request.target_path, "target path")?;
        let asked = Capability::required(request.volume_capability.as_ref())?;
        let id = VolumeId::required(&request.volume_id)?;
        let staged = required_path(&request.staging_target_path, "staging path")?;
        let lock = self.locks.take(&id)?;
        let not_staged = || Status::failed_precondition(format!("{} is not staged", id.export));
        let found = self.sessions.find(&id)?.ok_or_else(not_staged)?;
        let device = found.device().ok_or_else(not_staged)?;
        let mounts = Mounts::read()?;
        let is_other = |place: &&&Path| **place != point && **place != staged;
        if asked.has_one_path
            && let Some(other) = mounts.of(&device).iter().find(is_other)
        {
            let message = format!("{} is published at {}", id.export, other.display());
            return Err(Status::failed_precondition(message));
        }
        let read_only = request.readonly || asked.is_read_only;
        match asked.access {
            Access::Block => publish_device(&device, (point, read_only), &lock)?,
            Access::Mount(..) => {
                let is_staged = mounts.at(staged).is_some_and(|it| it.device == device.number);
                is_staged.then_some(()).ok_or_else(not_staged)?;
                publish_directory((staged, &device), (point, read_only), &lock)?;
            }
        }
        Ok(NodePublishVolumeResponse {})
    }

    pub(crate) fn unpublish_volume(
        &self,
        request: &NodeUnpublishVolumeRequest,
    ) -> Result<NodeUnpublishVolumeResponse, Status> {
        if request.volume_id.is_empty() {
            return Err(Status::invalid_argument("the request names no volume"));
        }
        let point = required_path(&request.target_path, "target path")?;
        let Some(id) = VolumeId::parse(&request.volume_id) else {
            return Ok(NodeUnpublishVolumeResponse {});
        };
        let lock = self.locks.take(&id)?;
        unmount(point, &lock)?;
        remove(point)?;
        Ok(NodeUnpublishVolumeResponse {})
    }
}

/// Makes a staged file system be seen at a path.
fn publish_directory(
    (staged, device): (&Path, &Device),
    (point, read_only): (&Path, bool),
    lock: &File,
) -> Result<(), Status> {
    let failed = |error| Status::internal(format!("{}: {error}", point.display()));
    fs::create_dir_all(point).map_err(failed)?;
    let paths = [staged.to_owned(), point.to_owned()];
    let mounted = Mounts::read()?.at(point).cloned();
    match &mounted {
        Some(found) if found.device == device.number => {}
        Some(_) => {
            let message = format!("something else is mounted at {}", point.display());
            return Err(Status::failed_precondition(message));
        }
        None => mount(&["--bind"], &paths, lock)?,
    }
    // An earlier request may have got no further.
    if read_only && !mounted.is_some_and(|it| it.is_read_only) {
        mount(&["-o", "remount,bind,ro"], &paths[1..], lock)?;
    }
    Ok(())
}

/// Makes the node of a device be seen at a path.
///
/// # Errors
/// `InvalidArgument` if nobody is to write to it, and it can be written: a mount does not prevent
/// that.
fn publish_device(
    device: &Device,
    (point, read_only): (&Path, bool),
    lock: &File,
) -> Result<(), Status> {
    if read_only && !device.is_read_only() {
        let message = "a block device is read-only with an access mode that reads only";
        return Err(Status::invalid_argument(message));
    }
    let failed = |error| Status::internal(format!("{}: {error}", point.display()));
    if let Some(parent) = point.parent() {
        fs::create_dir_all(parent).map_err(failed)?;
    }
    match File::create_new(point) {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed(error)),
    }
    let shown = fs::metadata(point).map_err(failed)?;
    let number = (rustix::fs::major(shown.rdev()), rustix::fs::minor(shown.rdev()));
    if number == device.number {
        return Ok(());
    }
    // Of an earlier device of this volume.
    unmount(point, lock)?;
    let paths: [PathBuf; 2] = [device.path.clone(), point.to_owned()];
    mount(&["--bind"], &paths, lock)
}

/// Removes the directory or the file that a mount was at, which has no content.
fn remove(point: &Path) -> Result<(), Status> {
    let failed = |error| Status::internal(format!("{}: {error}", point.display()));
    let found = match fs::symlink_metadata(point) {
        Ok(found) => found,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
    };
    if found.is_dir() {
        return fs::remove_dir(point).map_err(failed);
    }
    if !found.is_file() || found.len() > 0 {
        return Err(failed(std::io::Error::other("it is not what a device was shown at")));
    }
    fs::remove_file(point).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_empty_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        fs::create_dir(path("dir")).unwrap();
        fs::create_dir_all(path("full/data")).unwrap();
        fs::write(path("file"), "").unwrap();
        fs::write(path("data"), "x").unwrap();
        for (name, is_removed) in
            [("dir", true), ("file", true), ("none", true), ("full", false), ("data", false)]
        {
            let there = path(name).exists();
            assert_eq!(remove(&path(name)).is_ok(), is_removed, "{name}");
            assert_eq!(path(name).exists(), there && !is_removed, "{name}");
        }
    }
}

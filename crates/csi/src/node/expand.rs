//! A volume that has grown at its target: its device shows that, and its file system follows.

use std::path::Path;
use std::time::{Duration, Instant};

use tonic::Status;

use super::mounts::{Device, Mounts};
use super::{Node, filesystem, required_path};
use crate::ids::VolumeId;
use crate::proto::{NodeExpandVolumeRequest, NodeExpandVolumeResponse};

/// Time limit until the device has the new size: the target tells its hosts at once.
const SEEN: Duration = Duration::from_secs(10);
/// Pause between two looks at it.
const PAUSE: Duration = Duration::from_millis(50);

impl Node {
    pub(crate) fn expand_volume(
        &self,
        request: &NodeExpandVolumeRequest,
    ) -> Result<NodeExpandVolumeResponse, Status> {
        if request.volume_id.is_empty() || request.volume_path.is_empty() {
            return Err(Status::invalid_argument("the request names no volume, or no path"));
        }
        let id = VolumeId::required(&request.volume_id)?;
        let point = required_path(&request.volume_path, "path of the volume")?;
        let lock = self.locks.take(&id)?;
        let missing = || Status::not_found(format!("{} is not connected here", id.export));
        let found = self.sessions.find(&id)?.ok_or_else(missing)?;
        let device = found.device().ok_or_else(missing)?;
        let wanted = request.capacity_range.as_ref().map_or(0, |it| it.required_bytes);
        let size = await_size(&device, u64::try_from(wanted).unwrap_or(0))?;
        let mounts = Mounts::read()?;
        let seen = |path: &Path| mounts.at(path).filter(|it| it.device == device.number).cloned();
        let staged = Path::new(&request.staging_target_path);
        if let Some(mount) = seen(point).or_else(|| seen(staged)) {
            filesystem::grow(&device, &mount.kind, &mount.point, &lock)?;
        } else if !mounts.of(&device).contains(&point) {
            return Err(Status::not_found(format!("{} is not at {}", id.export, point.display())));
        }
        Ok(NodeExpandVolumeResponse { capacity_bytes: i64::try_from(size).unwrap_or(i64::MAX) })
    }
}

/// Waits until a device has that size at least; returns its size.
fn await_size(device: &Device, wanted: u64) -> Result<u64, Status> {
    let deadline = Instant::now() + SEEN;
    loop {
        let size = device.size();
        if size >= wanted {
            return Ok(size);
        }
        if Instant::now() >= deadline {
            return Err(Status::failed_precondition(format!(
                "{} has {size} bytes, and does not grow in use: ublk devices do from Linux 6.16 \
                 on, or with the parameter `growable`; otherwise when they are staged anew",
                device.path.display()
            )));
        }
        std::thread::sleep(PAUSE);
    }
}

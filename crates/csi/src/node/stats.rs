//! How full a volume is, and how well it does, as this node sees it.

use std::path::Path;

use rustix::fs::statvfs;
use tonic::Status;

use super::Node;
use super::mounts::{Device, Mounts};
use crate::ids::VolumeId;
use crate::proto::volume_health::VolumeHealthEntry;
use crate::proto::volume_usage::Unit;
use crate::proto::{
    NodeGetVolumeHealthRequest, NodeGetVolumeHealthResponse, NodeGetVolumeStatsRequest,
    NodeGetVolumeStatsResponse, VolumeHealth, VolumeHealthErrorType, VolumeUsage,
};

impl Node {
    pub(crate) fn volume_stats(
        &self,
        request: &NodeGetVolumeStatsRequest,
    ) -> Result<NodeGetVolumeStatsResponse, Status> {
        if request.volume_id.is_empty() || request.volume_path.is_empty() {
            return Err(Status::invalid_argument("the request names no volume, or no path"));
        }
        let id = VolumeId::required(&request.volume_id)?;
        let path = Path::new(&request.volume_path);
        let mounts = Mounts::read()?;
        let missing = || Status::not_found(format!("{} is not at {}", id.export, path.display()));
        mounts.at(path).ok_or_else(missing)?;
        let usage = match Device::open(path) {
            Ok(device) => vec![usage(Unit::Bytes, device.size(), None)],
            Err(_) => {
                let failed = |error| Status::internal(format!("{}: {error}", path.display()));
                let found = statvfs(path).map_err(failed)?;
                let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
                let used = bytes(found.f_blocks.saturating_sub(found.f_bfree));
                let room = Some((bytes(found.f_bavail), used));
                let inodes = Some((found.f_favail, found.f_files.saturating_sub(found.f_ffree)));
                vec![
                    usage(Unit::Bytes, bytes(found.f_blocks), room),
                    usage(Unit::Inodes, found.f_files, inodes),
                ]
            }
        };
        Ok(NodeGetVolumeStatsResponse { usage })
    }

    pub(crate) fn volume_health(
        &self,
        request: &NodeGetVolumeHealthRequest,
    ) -> Result<NodeGetVolumeHealthResponse, Status> {
        let id = VolumeId::required(&request.volume_id)?;
        let missing = || Status::not_found(format!("{} is not connected here", id.export));
        let found = self.sessions.find(&id)?.ok_or_else(missing)?;
        let entry = |status: VolumeHealthErrorType, reason: &str, message| VolumeHealthEntry {
            status: status.into(),
            reason: reason.to_owned(),
            message,
        };
        let mut health_statuses = Vec::new();
        if !found.is_live() {
            let said = found.problem.clone().unwrap_or_else(|| found.state.clone());
            let kind = VolumeHealthErrorType::Inaccessible;
            health_statuses.push(entry(kind, "SessionFault", said));
        }
        let links = found.link_problems().into_iter();
        health_statuses
            .extend(links.map(|it| entry(VolumeHealthErrorType::Degraded, "LinkFault", it)));
        let volume_health = Some(VolumeHealth { volume_id: id.to_string(), health_statuses });
        Ok(NodeGetVolumeHealthResponse { volume_health })
    }
}

/// A total, and if they are known what is available and what is used of it.
fn usage(unit: Unit, total: u64, room: Option<(u64, u64)>) -> VolumeUsage {
    let signed = |it: u64| i64::try_from(it).unwrap_or(i64::MAX);
    let (available, used) = room.unwrap_or_default();
    VolumeUsage {
        available: signed(available),
        total: signed(total),
        used: signed(used),
        unit: unit.into(),
    }
}

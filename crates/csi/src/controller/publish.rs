//! Which nodes may have a volume. A node that may not have it any more has nothing at the disk:
//! that is what lets another take over from a node that is lost.

use tonic::Status;

use super::volumes::compatible;
use super::{Controller, no_volume};
use crate::capability::Capability;
use crate::ids::{NodeId, VolumeId, shown};
use crate::proto::{
    ControllerPublishVolumeRequest, ControllerPublishVolumeResponse,
    ControllerUnpublishVolumeRequest, ControllerUnpublishVolumeResponse,
};

impl Controller {
    pub(crate) fn publish_volume(
        &self,
        request: &ControllerPublishVolumeRequest,
    ) -> Result<ControllerPublishVolumeResponse, Status> {
        if request.volume_id.is_empty() || request.node_id.is_empty() {
            return Err(Status::invalid_argument("the request names no volume, or no node"));
        }
        let asked = Capability::required(request.volume_capability.as_ref())?;
        let id = VolumeId::required(&request.volume_id)?;
        let lock = self.locks.take(&id)?;
        let target = self.target(&id.target).holding(&lock);
        let inventory = target.inventory()?;
        let export = inventory.export(&id.export).ok_or_else(|| no_volume(&id))?;
        let node = NodeId::parse(&request.node_id).ok_or_else(|| {
            Status::not_found(format!("`{}` is no node of this driver", shown(&request.node_id)))
        })?;
        compatible(export, &asked)?;
        let hosts = export.hosts();
        if let Some(other) = hosts.iter().find(|host| **host != node.name)
            && !asked.has_many_nodes
        {
            let message = format!("node {other} has {}, or may have it", export.name);
            return Err(Status::failed_precondition(message));
        }
        target.allow(&id.export, &node)?;
        Ok(ControllerPublishVolumeResponse::default())
    }

    pub(crate) fn unpublish_volume(
        &self,
        request: &ControllerUnpublishVolumeRequest,
    ) -> Result<ControllerUnpublishVolumeResponse, Status> {
        if request.volume_id.is_empty() {
            return Err(Status::invalid_argument("the request names no volume"));
        }
        // What is not there, no node has.
        let Some(id) = VolumeId::parse(&request.volume_id) else {
            return Ok(ControllerUnpublishVolumeResponse {});
        };
        let lock = self.locks.take(&id)?;
        let target = self.target(&id.target).holding(&lock);
        let inventory = target.inventory()?;
        let Some(export) = inventory.export(&id.export) else {
            return Ok(ControllerUnpublishVolumeResponse {});
        };
        if let Some(node) = NodeId::parse(&request.node_id) {
            target.evict_node(&id.export, &node)?;
        } else if request.node_id.is_empty() {
            // All nodes.
            export.hosts().iter().try_for_each(|host| target.evict(&id.export, host))?;
        }
        Ok(ControllerUnpublishVolumeResponse {})
    }
}

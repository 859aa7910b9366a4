//! The services of CSI: what each request is answered by. The work is done by threads, as it is
//! programs that are waited for.

use std::sync::Arc;
use std::time::Instant;

use tonic::{Request, Response, Status, async_trait};

use crate::controller::Controller;
use crate::node::Node;
use crate::proto::plugin_capability::{Service, VolumeExpansion, service, volume_expansion};
use crate::proto::*;

/// The name of the driver, by which storage classes ask for it.
const DRIVER: &str = "csi.tyche";

type Answer<T> = Result<Response<T>, Status>;

/// Has a thread answer a request, and logs that.
async fn answer<P: Send + Sync + 'static, Q: Send + 'static, A: Send + 'static>(
    name: &'static str,
    part: &Arc<P>,
    request: Request<Q>,
    work: fn(&P, Q) -> Result<A, Status>,
) -> Answer<A> {
    let (part, request, began) = (Arc::clone(part), request.into_inner(), Instant::now());
    let done = tokio::task::spawn_blocking(move || work(&part, request)).await;
    let answer = done.unwrap_or_else(|error| Err(Status::internal(error.to_string())));
    let took = began.elapsed().as_secs_f64();
    match &answer {
        Ok(_) => tracing::info!("{name}: done in {took:.3} s"),
        Err(error) => {
            let (code, message) = (error.code(), error.message());
            tracing::warn!("{name}: {code:?} after {took:.3} s: {message}");
        }
    }
    answer.map(Response::new)
}

/// The driver as orchestrators know it.
#[derive(Debug)]
pub(crate) struct IdentityService;

#[async_trait]
impl identity_server::Identity for IdentityService {
    async fn get_plugin_info(
        &self,
        _: Request<GetPluginInfoRequest>,
    ) -> Answer<GetPluginInfoResponse> {
        Ok(Response::new(GetPluginInfoResponse {
            name: DRIVER.to_owned(),
            vendor_version: env!("CARGO_PKG_VERSION").to_owned(),
            ..GetPluginInfoResponse::default()
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<GetPluginCapabilitiesRequest>,
    ) -> Answer<GetPluginCapabilitiesResponse> {
        use plugin_capability::Type;
        let controller = service::Type::ControllerService.into();
        let online = volume_expansion::Type::Online.into();
        let capabilities = [
            Type::Service(Service { r#type: controller }),
            Type::VolumeExpansion(VolumeExpansion { r#type: online }),
        ];
        let capabilities = capabilities.map(|it| PluginCapability { r#type: Some(it) }).to_vec();
        Ok(Response::new(GetPluginCapabilitiesResponse { capabilities }))
    }

    async fn probe(&self, _: Request<ProbeRequest>) -> Answer<ProbeResponse> {
        Ok(Response::new(ProbeResponse { ready: Some(true) }))
    }
}

/// The controller, as a service.
#[derive(Debug)]
pub(crate) struct ControllerService(pub(crate) Arc<Controller>);

#[async_trait]
impl controller_server::Controller for ControllerService {
    async fn controller_get_capabilities(
        &self,
        _: Request<ControllerGetCapabilitiesRequest>,
    ) -> Answer<ControllerGetCapabilitiesResponse> {
        use controller_service_capability::rpc::Type;
        use controller_service_capability::{Rpc, Type as Kind};
        let always = [
            Type::CreateDeleteVolume,
            Type::PublishUnpublishVolume,
            Type::GetCapacity,
            Type::CreateDeleteSnapshot,
            Type::GetSnapshot,
            Type::CloneVolume,
            Type::ExpandVolume,
            Type::GetVolume,
            Type::SingleNodeMultiWriter,
            Type::ModifyVolume,
            Type::GetVolumeHealth,
        ];
        let with_targets = [Type::ListVolumes, Type::ListSnapshots, Type::ListVolumeHealth];
        let listed = with_targets.into_iter().filter(|_| self.0.lists());
        let capability = |it: Type| ControllerServiceCapability {
            r#type: Some(Kind::Rpc(Rpc { r#type: it.into() })),
        };
        let capabilities = always.into_iter().chain(listed).map(capability).collect();
        Ok(Response::new(ControllerGetCapabilitiesResponse { capabilities }))
    }

    async fn create_volume(
        &self,
        request: Request<CreateVolumeRequest>,
    ) -> Answer<CreateVolumeResponse> {
        answer("CreateVolume", &self.0, request, |it, asked| it.create_volume(&asked)).await
    }

    async fn delete_volume(
        &self,
        request: Request<DeleteVolumeRequest>,
    ) -> Answer<DeleteVolumeResponse> {
        answer("DeleteVolume", &self.0, request, |it, asked| it.delete_volume(&asked)).await
    }

    async fn controller_publish_volume(
        &self,
        request: Request<ControllerPublishVolumeRequest>,
    ) -> Answer<ControllerPublishVolumeResponse> {
        let name = "ControllerPublishVolume";
        answer(name, &self.0, request, |it, asked| it.publish_volume(&asked)).await
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<ControllerUnpublishVolumeRequest>,
    ) -> Answer<ControllerUnpublishVolumeResponse> {
        let name = "ControllerUnpublishVolume";
        answer(name, &self.0, request, |it, asked| it.unpublish_volume(&asked)).await
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<ValidateVolumeCapabilitiesRequest>,
    ) -> Answer<ValidateVolumeCapabilitiesResponse> {
        let name = "ValidateVolumeCapabilities";
        answer(name, &self.0, request, Controller::validate_volume_capabilities).await
    }

    async fn list_volumes(
        &self,
        request: Request<ListVolumesRequest>,
    ) -> Answer<ListVolumesResponse> {
        answer("ListVolumes", &self.0, request, |it, asked| it.list_volumes(&asked)).await
    }

    async fn get_capacity(
        &self,
        request: Request<GetCapacityRequest>,
    ) -> Answer<GetCapacityResponse> {
        answer("GetCapacity", &self.0, request, |it, asked| it.capacity(&asked)).await
    }

    async fn create_snapshot(
        &self,
        request: Request<CreateSnapshotRequest>,
    ) -> Answer<CreateSnapshotResponse> {
        answer("CreateSnapshot", &self.0, request, |it, asked| it.create_snapshot(&asked)).await
    }

    async fn delete_snapshot(
        &self,
        request: Request<DeleteSnapshotRequest>,
    ) -> Answer<DeleteSnapshotResponse> {
        answer("DeleteSnapshot", &self.0, request, |it, asked| it.delete_snapshot(&asked)).await
    }

    async fn list_snapshots(
        &self,
        request: Request<ListSnapshotsRequest>,
    ) -> Answer<ListSnapshotsResponse> {
        answer("ListSnapshots", &self.0, request, |it, asked| it.list_snapshots(&asked)).await
    }

    async fn get_snapshot(
        &self,
        request: Request<GetSnapshotRequest>,
    ) -> Answer<GetSnapshotResponse> {
        answer("GetSnapshot", &self.0, request, |it, asked| it.snapshot(&asked)).await
    }

    async fn controller_expand_volume(
        &self,
        request: Request<ControllerExpandVolumeRequest>,
    ) -> Answer<ControllerExpandVolumeResponse> {
        let name = "ControllerExpandVolume";
        answer(name, &self.0, request, |it, asked| it.expand_volume(&asked)).await
    }

    async fn controller_get_volume(
        &self,
        request: Request<ControllerGetVolumeRequest>,
    ) -> Answer<ControllerGetVolumeResponse> {
        answer("ControllerGetVolume", &self.0, request, |it, asked| it.volume_by_id(&asked)).await
    }

    async fn controller_modify_volume(
        &self,
        request: Request<ControllerModifyVolumeRequest>,
    ) -> Answer<ControllerModifyVolumeResponse> {
        let name = "ControllerModifyVolume";
        answer(name, &self.0, request, |it, asked| it.modify_volume(&asked)).await
    }

    async fn controller_get_volume_health(
        &self,
        request: Request<ControllerGetVolumeHealthRequest>,
    ) -> Answer<ControllerGetVolumeHealthResponse> {
        let name = "ControllerGetVolumeHealth";
        answer(name, &self.0, request, |it, asked| it.volume_health(&asked)).await
    }

    async fn controller_list_volume_health(
        &self,
        request: Request<ControllerListVolumeHealthRequest>,
    ) -> Answer<ControllerListVolumeHealthResponse> {
        let name = "ControllerListVolumeHealth";
        answer(name, &self.0, request, |it, asked| it.list_volume_health(&asked)).await
    }
}

/// The node, as a service.
#[derive(Debug)]
pub(crate) struct NodeService(pub(crate) Arc<Node>);

#[async_trait]
impl node_server::Node for NodeService {
    async fn node_get_capabilities(
        &self,
        _: Request<NodeGetCapabilitiesRequest>,
    ) -> Answer<NodeGetCapabilitiesResponse> {
        use node_service_capability::rpc::Type;
        use node_service_capability::{Rpc, Type as Kind};
        let all = [
            Type::StageUnstageVolume,
            Type::GetVolumeStats,
            Type::ExpandVolume,
            Type::SingleNodeMultiWriter,
            Type::GetVolumeHealth,
        ];
        let capability =
            |it: Type| NodeServiceCapability { r#type: Some(Kind::Rpc(Rpc { r#type: it.into() })) };
        let capabilities = all.map(capability).to_vec();
        Ok(Response::new(NodeGetCapabilitiesResponse { capabilities }))
    }

    async fn node_get_info(
        &self,
        request: Request<NodeGetInfoRequest>,
    ) -> Answer<NodeGetInfoResponse> {
        answer("NodeGetInfo", &self.0, request, |it, _| it.info()).await
    }

    async fn node_stage_volume(
        &self,
        request: Request<NodeStageVolumeRequest>,
    ) -> Answer<NodeStageVolumeResponse> {
        answer("NodeStageVolume", &self.0, request, |it, asked| it.stage_volume(&asked)).await
    }

    async fn node_unstage_volume(
        &self,
        request: Request<NodeUnstageVolumeRequest>,
    ) -> Answer<NodeUnstageVolumeResponse> {
        answer("NodeUnstageVolume", &self.0, request, |it, asked| it.unstage_volume(&asked)).await
    }

    async fn node_publish_volume(
        &self,
        request: Request<NodePublishVolumeRequest>,
    ) -> Answer<NodePublishVolumeResponse> {
        answer("NodePublishVolume", &self.0, request, |it, asked| it.publish_volume(&asked)).await
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<NodeUnpublishVolumeRequest>,
    ) -> Answer<NodeUnpublishVolumeResponse> {
        let name = "NodeUnpublishVolume";
        answer(name, &self.0, request, |it, asked| it.unpublish_volume(&asked)).await
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<NodeGetVolumeStatsRequest>,
    ) -> Answer<NodeGetVolumeStatsResponse> {
        answer("NodeGetVolumeStats", &self.0, request, |it, asked| it.volume_stats(&asked)).await
    }

    async fn node_get_volume_health(
        &self,
        request: Request<NodeGetVolumeHealthRequest>,
    ) -> Answer<NodeGetVolumeHealthResponse> {
        answer("NodeGetVolumeHealth", &self.0, request, |it, asked| it.volume_health(&asked)).await
    }

    async fn node_expand_volume(
        &self,
        request: Request<NodeExpandVolumeRequest>,
    ) -> Answer<NodeExpandVolumeResponse> {
        answer("NodeExpandVolume", &self.0, request, |it, asked| it.expand_volume(&asked)).await
    }
}

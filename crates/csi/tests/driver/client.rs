//! An orchestrator: the clients of the services, and the requests that it makes.

use std::collections::HashMap;
use std::future::Future;
use std::path::Path;
use std::time::Duration;

use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Response, Status};
use tyche_testkit::wait::PATIENCE;

use pb::controller_client::ControllerClient;
use pb::node_client::NodeClient;
use pb::volume_capability::access_mode::Mode;
use pb::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use pb::{CapacityRange, VolumeCapability};

/// The messages and clients of CSI.
#[allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    clippy::restriction,
    reason = "it is made by tonic-prost-build"
)]
pub(crate) mod pb {
    include!(concat!(env!("OUT_DIR"), "/clients/csi.v1.rs"));
}

/// Time limit of a request: longer than any takes.
const LIMIT: Duration = PATIENCE.saturating_mul(3);

/// A connection to a driver.
pub(crate) struct Client {
    runtime: tokio::runtime::Runtime,
    channel: Channel,
}

impl Client {
    /// A connection to the driver at that socket, made when it is first used.
    pub(crate) fn new(socket: &Path) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let address = format!("unix://{}", socket.display());
        let endpoint = Endpoint::from_shared(address).unwrap().timeout(LIMIT);
        let channel = {
            let _inside = runtime.enter();
            endpoint.connect_lazy()
        };
        Self { runtime, channel }
    }

    pub(crate) fn controller(&self) -> ControllerClient<Channel> {
        ControllerClient::new(self.channel.clone())
    }

    pub(crate) fn node(&self) -> NodeClient<Channel> {
        NodeClient::new(self.channel.clone())
    }

    /// The answer to a request.
    pub(crate) fn ask<T>(
        &self,
        request: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, Status> {
        self.runtime.block_on(request).map(Response::into_inner)
    }
}

/// Whether an orchestrator makes a request again after such an error without a change.
pub(crate) fn is_worth_a_retry(error: &Status) -> bool {
    matches!(error.code(), Code::Aborted | Code::Unavailable | Code::Unknown | Code::Cancelled)
}

/// A file system in that access mode.
pub(crate) fn mounted(kind: &str, mode: Mode) -> VolumeCapability {
    let mount = MountVolume { fs_type: kind.to_owned(), ..MountVolume::default() };
    let access_mode = Some(AccessMode { mode: mode.into() });
    VolumeCapability { access_mode, access_type: Some(AccessType::Mount(mount)) }
}

/// A block device in that access mode.
pub(crate) fn block(mode: Mode) -> VolumeCapability {
    let access_mode = Some(AccessMode { mode: mode.into() });
    VolumeCapability { access_mode, access_type: Some(AccessType::Block(BlockVolume {})) }
}

/// That many bytes at least.
pub(crate) fn bytes(count: u64) -> Option<CapacityRange> {
    Some(CapacityRange { required_bytes: count.cast_signed(), limit_bytes: 0 })
}

/// A map of texts.
pub(crate) fn map(entries: &[(&str, &str)]) -> HashMap<String, String> {
    entries.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

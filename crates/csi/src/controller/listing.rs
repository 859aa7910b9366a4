//! Lists of volumes and snapshots, page by page, and what pools have left.

use tonic::Status;

use super::snapshots::snapshot;
use super::{Controller, health, signed};
use crate::ids::{TargetId, VolumeId};
use crate::parameters::Parameters;
use crate::proto::{
    ControllerGetVolumeRequest, ControllerGetVolumeResponse, ControllerListVolumeHealthRequest,
    ControllerListVolumeHealthResponse, GetCapacityRequest, GetCapacityResponse,
    ListSnapshotsRequest, ListSnapshotsResponse, ListVolumesRequest, ListVolumesResponse, Snapshot,
    Volume, VolumeHealth, controller_get_volume_response, list_snapshots_response,
    list_volumes_response,
};
use crate::target::{Export, Pool};

/// A page of a list: those that follow `token`, as many as asked for. Returns what the next page
/// follows, too; it is empty if there is none. An entry that has gone since is no obstacle.
///
/// # Errors
/// `Aborted` for a token that the driver has not given.
fn page<T>(
    mut all: Vec<T>,
    id: impl Fn(&T) -> &str,
    (token, count): (&str, i32),
) -> Result<(Vec<T>, String), Status> {
    let count = usize::try_from(count).map_err(|_| Status::invalid_argument("max_entries"))?;
    if !token.is_empty() && VolumeId::parse(token).is_none() {
        return Err(Status::aborted("the list does not begin with that token"));
    }
    all.sort_by(|a, b| id(a).cmp(id(b)));
    all.retain(|it| id(it) > token);
    let is_cut = count > 0 && count < all.len();
    all.truncate(if is_cut { count } else { all.len() });
    let next = all.last().filter(|_| is_cut).map(|it| id(it).to_owned());
    Ok((all, next.unwrap_or_default()))
}

fn volume(target: &TargetId, export: &Export) -> Option<Volume> {
    export.is_volume().then(|| Volume {
        capacity_bytes: signed(export.size),
        volume_id: target.export(&export.name).to_string(),
        ..Volume::default()
    })
}

impl Controller {
    /// The entries that `make` returns for the exports of these targets.
    fn each<T>(
        &self,
        targets: &[TargetId],
        make: impl Fn(&TargetId, &Export) -> Option<T>,
    ) -> Result<Vec<T>, Status> {
        let mut all = Vec::new();
        for id in targets {
            let inventory = self.target(id).inventory()?;
            all.extend(inventory.exports.iter().filter_map(|export| make(id, export)));
        }
        Ok(all)
    }

    pub(crate) fn list_volumes(
        &self,
        request: &ListVolumesRequest,
    ) -> Result<ListVolumesResponse, Status> {
        let all = self.each(&self.targets, volume)?;
        let asked = (&*request.starting_token, request.max_entries);
        let (volumes, next_token) = page(all, |it| &it.volume_id, asked)?;
        let entry = |volume| list_volumes_response::Entry { volume: Some(volume), status: None };
        Ok(ListVolumesResponse { entries: volumes.into_iter().map(entry).collect(), next_token })
    }

    pub(crate) fn volume_by_id(
        &self,
        request: &ControllerGetVolumeRequest,
    ) -> Result<ControllerGetVolumeResponse, Status> {
        let id = VolumeId::required(&request.volume_id)?;
        let export = super::volume(&self.target(&id.target), &id)?;
        let status = Some(controller_get_volume_response::VolumeStatus::default());
        Ok(ControllerGetVolumeResponse { volume: volume(&id.target, &export), status })
    }

    pub(crate) fn list_volume_health(
        &self,
        request: &ControllerListVolumeHealthRequest,
    ) -> Result<ControllerListVolumeHealthResponse, Status> {
        let of = |target: &TargetId, export: &Export| {
            let volume_id = volume(target, export)?.volume_id;
            Some(VolumeHealth { volume_id, health_statuses: health(export) })
        };
        let all = self.each(&self.targets, of)?;
        let asked = (&*request.starting_token, request.max_entries);
        let (entries, next_token) = page(all, |it| &it.volume_id, asked)?;
        Ok(ControllerListVolumeHealthResponse { entries, next_token })
    }

    pub(crate) fn list_snapshots(
        &self,
        request: &ListSnapshotsRequest,
    ) -> Result<ListSnapshotsResponse, Status> {
        let (of, one) = (&request.source_volume_id, &request.snapshot_id);
        // A snapshot says itself where it is.
        let named = [of, one].into_iter().find(|it| !it.is_empty());
        let targets = match named.map(|it| VolumeId::parse(it)) {
            None => self.targets.clone(),
            Some(Some(id)) => vec![id.target],
            Some(None) => Vec::new(),
        };
        let is_asked_for = |it: &Snapshot| {
            (of.is_empty() || it.source_volume_id == *of)
                && (one.is_empty() || it.snapshot_id == *one)
        };
        let wanted =
            |target: &TargetId, export: &Export| snapshot(target, export).filter(is_asked_for);
        let all = self.each(&targets, wanted)?;
        let asked = (&*request.starting_token, request.max_entries);
        let (snapshots, next_token) = page(all, |it| &it.snapshot_id, asked)?;
        let entry = |it| list_snapshots_response::Entry { snapshot: Some(it) };
        Ok(ListSnapshotsResponse {
            entries: snapshots.into_iter().map(entry).collect(),
            next_token,
        })
    }

    pub(crate) fn capacity(
        &self,
        request: &GetCapacityRequest,
    ) -> Result<GetCapacityResponse, Status> {
        let (targets, of) = match request.parameters.is_empty() {
            true => (self.targets.clone(), None),
            false => {
                let Parameters { target, pool, .. } = Parameters::parse(&request.parameters)?;
                (vec![target], Some(pool))
            }
        };
        let (mut free, mut largest) = (0u64, None);
        for id in &targets {
            let inventory = self.target(id).inventory()?;
            let is_it = |it: &&Pool| of.as_ref().is_none_or(|name| it.pool == *name);
            for pool in inventory.pools.iter().filter(is_it) {
                free = free.saturating_add(pool.free());
                largest = largest.max(pool.size());
            }
        }
        Ok(GetCapacityResponse {
            available_capacity: signed(free),
            maximum_volume_size: largest.map(signed),
            minimum_volume_size: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_each_other_though_entries_come_and_go() {
        let target = TargetId::new("s@h", &format!("tyche_{}", "k".repeat(43))).unwrap();
        let ids = |names: &[&str]| -> Vec<String> {
            names.iter().map(|name| target.export(name).to_string()).collect()
        };
        let page = |all: &[&str], token: &str, count| page(ids(all), |it| it, (token, count));
        let (first, next) = page(&["c", "a", "b"], "", 2).unwrap();
        assert_eq!((first, next.clone()), (ids(&["a", "b"]), target.export("b").to_string()));
        let (second, next) = page(&["a", "d", "c"], &next, 2).unwrap();
        assert_eq!((second, next), (ids(&["c", "d"]), String::new()));
        assert_eq!(page(&["b", "a"], "", 0).unwrap(), (ids(&["a", "b"]), String::new()));
        assert_eq!(page(&[], "nonsense", 0).unwrap_err().code(), tonic::Code::Aborted);
        assert_eq!(page(&[], "", -1).unwrap_err().code(), tonic::Code::InvalidArgument);
    }
}

//! Volumes: made, copied, enlarged, changed, deleted.

use tonic::Status;

use super::capacity::Capacity;
use super::{Controller, health, no_volume, signed, volume};
use crate::capability::Capability;
use crate::ids::{VolumeId, export_name, shown, unfinished};
use crate::parameters::{Parameters, settings};
use crate::proto::validate_volume_capabilities_response::Confirmed;
use crate::proto::volume_content_source::Type;
use crate::proto::{
    ControllerExpandVolumeRequest, ControllerExpandVolumeResponse,
    ControllerGetVolumeHealthRequest, ControllerGetVolumeHealthResponse,
    ControllerModifyVolumeRequest, ControllerModifyVolumeResponse, CreateVolumeRequest,
    CreateVolumeResponse, DeleteVolumeRequest, DeleteVolumeResponse,
    ValidateVolumeCapabilitiesRequest, ValidateVolumeCapabilitiesResponse, Volume,
    VolumeContentSource, VolumeHealth,
};
use crate::target::{Export, Inventory, Target};

/// A volume that is wanted.
struct Wanted {
    id: VolumeId,
    parameters: Parameters,
    capacity: Capacity,
    /// Whether several nodes may write to it.
    is_shared: bool,
    /// The volume or snapshot whose content it begins with.
    source: Option<VolumeId>,
    /// Mutable parameters, as `tyche export set` takes them.
    settings: Vec<String>,
}

impl Controller {
    pub(crate) fn create_volume(
        &self,
        request: &CreateVolumeRequest,
    ) -> Result<CreateVolumeResponse, Status> {
        if request.name.is_empty() {
            return Err(Status::invalid_argument("the volume has no name"));
        }
        let capabilities = Capability::all(&request.volume_capabilities)?;
        let parameters = Parameters::parse(&request.parameters)?;
        let wanted = Wanted {
            id: parameters.target.export(&export_name(&request.name)),
            capacity: Capacity::parse(request.capacity_range.as_ref())?,
            is_shared: capabilities.iter().any(Capability::is_shared),
            source: source(request.volume_content_source.as_ref())?,
            settings: settings(&request.mutable_parameters)?,
            parameters,
        };
        let lock = self.locks.take(&wanted.id)?;
        let target = self.target(&wanted.id.target).holding(&lock);
        let inventory = target.inventory()?;
        let size = match inventory.export(&wanted.id.export) {
            Some(found) => wanted.compare(found)?,
            None => wanted.make(&target, &inventory)?,
        };
        // These win over the parameters of the class, also if an earlier request got no further.
        target.set(&wanted.id.export, &wanted.settings)?;
        let volume = Volume {
            capacity_bytes: signed(size),
            volume_id: wanted.id.to_string(),
            volume_context: wanted.parameters.context,
            content_source: request.volume_content_source.clone(),
            accessible_topology: Vec::new(),
        };
        Ok(CreateVolumeResponse { volume: Some(volume) })
    }

    pub(crate) fn delete_volume(
        &self,
        request: &DeleteVolumeRequest,
    ) -> Result<DeleteVolumeResponse, Status> {
        if request.volume_id.is_empty() {
            return Err(Status::invalid_argument("the request names no volume"));
        }
        // What the driver has not made is not there.
        if let Some(id) = VolumeId::parse(&request.volume_id) {
            self.delete(&id, Export::is_volume)?;
        }
        Ok(DeleteVolumeResponse {})
    }

    /// Deletes an export of that kind; one that is not there is no error.
    pub(super) fn delete(&self, id: &VolumeId, is_it: fn(&Export) -> bool) -> Result<(), Status> {
        let lock = self.locks.take(id)?;
        let target = self.target(&id.target).holding(&lock);
        let inventory = target.inventory()?;
        let rest = unfinished(&id.export);
        if inventory.export(&rest).is_some() {
            target.delete(&rest)?;
        }
        match inventory.export(&id.export) {
            None => {}
            Some(found) if is_it(found) => target.delete(&id.export)?,
            Some(_) => {
                return Err(Status::failed_precondition(format!(
                    "{} of {} is something else, and is not deleted",
                    id.export, id.target.place
                )));
            }
        }
        self.locks.forget(id);
        Ok(())
    }

    pub(crate) fn validate_volume_capabilities(
        &self,
        request: ValidateVolumeCapabilitiesRequest,
    ) -> Result<ValidateVolumeCapabilitiesResponse, Status> {
        let id = VolumeId::required(&request.volume_id)?;
        if request.volume_capabilities.is_empty() {
            return Err(Status::invalid_argument("the request has no capabilities of the volume"));
        }
        let export = volume(&self.target(&id.target), &id)?;
        let fits = Capability::all(&request.volume_capabilities)
            .and_then(|all| all.iter().try_for_each(|it| compatible(&export, it)));
        Ok(match fits {
            Ok(()) => ValidateVolumeCapabilitiesResponse {
                confirmed: Some(Confirmed {
                    volume_context: request.volume_context,
                    volume_capabilities: request.volume_capabilities,
                    parameters: request.parameters,
                    mutable_parameters: request.mutable_parameters,
                }),
                message: String::new(),
            },
            Err(status) => ValidateVolumeCapabilitiesResponse {
                confirmed: None,
                message: status.message().to_owned(),
            },
        })
    }

    pub(crate) fn expand_volume(
        &self,
        request: &ControllerExpandVolumeRequest,
    ) -> Result<ControllerExpandVolumeResponse, Status> {
        let id = VolumeId::required(&request.volume_id)?;
        let missing = || Status::invalid_argument("the request has no capacity");
        let range = request.capacity_range.as_ref().ok_or_else(missing)?;
        let capacity = Capacity::parse(Some(range))?;
        let lock = self.locks.take(&id)?;
        let target = self.target(&id.target).holding(&lock);
        let inventory = target.inventory()?;
        let export = inventory.export(&id.export).filter(|it| it.is_volume());
        let export = export.ok_or_else(|| no_volume(&id))?;
        let grown = capacity.grown(export.size, granularity(&inventory, export))?;
        if let Some(size) = grown {
            target.resize(&id.export, size)?;
        }
        let capacity_bytes = signed(grown.unwrap_or(export.size));
        Ok(ControllerExpandVolumeResponse { capacity_bytes, node_expansion_required: true })
    }

    pub(crate) fn modify_volume(
        &self,
        request: &ControllerModifyVolumeRequest,
    ) -> Result<ControllerModifyVolumeResponse, Status> {
        let id = VolumeId::required(&request.volume_id)?;
        let settings = settings(&request.mutable_parameters)?;
        let lock = self.locks.take(&id)?;
        let target = self.target(&id.target).holding(&lock);
        volume(&target, &id)?;
        target.set(&id.export, &settings)?;
        Ok(ControllerModifyVolumeResponse {})
    }

    pub(crate) fn volume_health(
        &self,
        request: &ControllerGetVolumeHealthRequest,
    ) -> Result<ControllerGetVolumeHealthResponse, Status> {
        let id = VolumeId::required(&request.volume_id)?;
        let health_statuses = health(&volume(&self.target(&id.target), &id)?);
        let volume_health = Some(VolumeHealth { volume_id: id.to_string(), health_statuses });
        Ok(ControllerGetVolumeHealthResponse { volume_health })
    }
}

/// Whether an export can be used like that.
///
/// # Errors
/// `InvalidArgument` if it can't.
pub(super) fn compatible(export: &Export, asked: &Capability) -> Result<(), Status> {
    if asked.is_shared() && !export.shared {
        let message = format!(
            "{} is for one writer: several nodes can write to it if it is created so, or after \
             `tyche export set {} shared=true`",
            export.name, export.name
        );
        return Err(Status::invalid_argument(message));
    }
    Ok(())
}

/// The steps in which an export can grow.
fn granularity(inventory: &Inventory, export: &Export) -> u64 {
    let pool = export.pool.as_deref().and_then(|pool| inventory.pool(pool));
    pool.map_or(4096, |it| it.granularity())
}

/// The volume or snapshot that a new volume is to be a copy of.
fn source(asked: Option<&VolumeContentSource>) -> Result<Option<VolumeId>, Status> {
    let id = match asked.and_then(|it| it.r#type.as_ref()) {
        None => return Ok(None),
        Some(Type::Snapshot(snapshot)) => &snapshot.snapshot_id,
        Some(Type::Volume(volume)) => &volume.volume_id,
    };
    let message = || format!("there is no volume or snapshot `{}`", shown(id));
    VolumeId::parse(id).map(Some).ok_or_else(|| Status::not_found(message()))
}

impl Wanted {
    /// Whether the export that has the name is the one that is wanted; returns its size.
    ///
    /// # Errors
    /// `AlreadyExists` if it is another.
    fn compare(&self, found: &Export) -> Result<u64, Status> {
        let origin = found.origin.as_ref().map(|it| &it.export);
        let differs = if !found.is_volume() {
            "is no volume"
        } else if found.pool.as_ref() != Some(&self.parameters.pool) {
            "is in another pool"
        } else if !self.capacity.fits(found.size) {
            "has another size"
        } else if origin != self.source.as_ref().map(|it| &it.export) {
            "has other content"
        } else if self.is_shared && !found.shared {
            "is for one writer"
        } else {
            return Ok(found.size);
        };
        Err(Status::already_exists(format!("{} is there, and {differs}", found.name)))
    }

    /// Makes it; returns its size.
    fn make(&self, target: &Target<'_>, inventory: &Inventory) -> Result<u64, Status> {
        let pool = &self.parameters.pool;
        let missing =
            || Status::invalid_argument(format!("{} has no pool `{pool}`", target.id.place));
        let pool = inventory.pool(pool).ok_or_else(missing)?;
        if pool.size().is_some_and(|size| size < self.capacity.required) {
            return Err(Status::out_of_range(format!("pool {} is smaller than that", pool.pool)));
        }
        let Some(source) = &self.source else {
            let size = self.capacity.size(pool.granularity())?;
            let mut options = self.parameters.add.clone();
            options.extend(self.is_shared.then(|| "--shared".to_owned()));
            target.add(&self.id.export, (&pool.pool, size), &options)?;
            return Ok(size);
        };
        if source.target != *target.id {
            return Err(Status::invalid_argument("a copy is at the target of its original"));
        }
        let found =
            inventory.export(&source.export).filter(|it| it.is_volume() || it.is_snapshot());
        let missing = || Status::not_found(format!("there is no {}", source.export));
        let original = found.ok_or_else(missing)?;
        if original.pool.as_ref() != Some(&self.parameters.pool) {
            return Err(Status::invalid_argument("a copy is in the pool of its original"));
        }
        let size = self.capacity.grown(original.size, pool.granularity())?;
        self.copy((target, inventory), (&source.export, original.size), size)
    }

    /// Copies a disk, and gives it its name when all is done: hosts of the original may not have
    /// the copy, and a copy that is half done is none.
    fn copy(
        &self,
        (target, inventory): (&Target<'_>, &Inventory),
        (of, of_size): (&str, u64),
        grown: Option<u64>,
    ) -> Result<u64, Status> {
        let name = unfinished(&self.id.export);
        if inventory.export(&name).is_some() {
            target.delete(&name)?;
        }
        target.copy(of, &name, false)?;
        target.revert(&name)?;
        if let Some(size) = grown {
            target.resize(&name, size)?;
        }
        target.set(&name, &[format!("shared={}", self.is_shared)])?;
        target.rename(&name, &self.id.export)?;
        Ok(grown.unwrap_or(of_size))
    }
}

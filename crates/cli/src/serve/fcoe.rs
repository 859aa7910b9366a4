//! `tyche serve --fcoe`: the exports as logical units of Fibre Channel over Ethernet.

use std::path::PathBuf;
use std::sync::Arc;

use tyche_engine::{Target, TargetExport};
use tyche_fcoe::{
    FcoeTarget, FcoeTargetOptions, FcoeTargetReport, PortOptions, TargetUnit, Units, VlanAnnouncer,
};
use tyche_session::fcoe::{Numbers, PortName};
use uuid::Uuid;

use super::config::{Config, Export, FcoePort};
use super::state::{self, State};
use super::vlan;
use crate::error::{CodedResult, Error, Result};
use crate::fcoe::AddressRecord;
use crate::links::LinkArgs;

/// The running ports of a target. Dropping it logs all initiators out.
pub(super) struct Fcoe {
    ports: Vec<FcoeTarget>,
    /// The announcers of their VLANs, which run until they are dropped.
    _announcers: Vec<VlanAnnouncer>,
    units: Arc<Units>,
    /// The names of the ports, with their interfaces.
    names: Vec<(String, PortName)>,
    /// The directory of their N_Port_IDs.
    n_port_ids: PathBuf,
}

/// Refuses exports that hosts of both kinds could write: neither kind knows of the other's writers.
///
/// # Errors
/// `Usage` or `Config`.
pub(super) fn refuse_two_writers(config: &Config) -> Result<()> {
    if config.fcoe.is_empty() || config.link.is_empty() {
        return Ok(());
    }
    let is_one_s = |export: &&Export| !export.read_only && !export.shared;
    match config.export.iter().find(is_one_s) {
        None => Ok(()),
        Some(export) => {
            let message = format!(
                "{} would be writable over FCoE and over other links at once, and one writer \
                 would not keep the other out: leave out --fcoe or --link, make it read-only or \
                 `shared`, or serve it by another target",
                export.described()
            );
            Err(Error::new(export.place.code(), message))
        }
    }
}

/// The UUID and the LUN of each export, if they are to have LUNs.
///
/// # Errors
/// `Config` if there are more exports than LUNs.
pub(super) fn number(
    config: &Config,
    exports: &[TargetExport],
    state: &State,
) -> Result<Vec<(Uuid, u8)>> {
    if config.fcoe.is_empty() {
        return Ok(Vec::new());
    }
    let uuids: Vec<_> = exports.iter().map(|export| export.uuid).collect();
    let luns = state.luns(&uuids)?;
    Ok(uuids.into_iter().zip(luns).collect())
}

impl Fcoe {
    /// Starts the ports. `units`: for each export its UUID and its LUN; `n_port_ids`: the directory
    /// for those.
    pub(super) fn start(
        link: &LinkArgs,
        config: &Config,
        target: &Target,
        (units, n_port_ids): (&[(Uuid, u8)], PathBuf),
    ) -> Result<Self> {
        if config.link.is_empty() && !config.fcoe.is_empty() {
            // Sessions of other kinds that were away must not go on to write what they had cached.
            target.distrust(state::nobody());
        }
        let exports = config.export.iter().zip(units).zip(target.exported());
        let units = exports.map(|((export, &(uuid, number)), exported)| TargetUnit {
            number,
            exported: Arc::clone(exported),
            uuid,
            shared: export.shared,
            initiators: export.initiators.clone(),
        });
        let units = Arc::new(Units::new(units.collect()));
        let _announcers = vlan::announce(link, &config.fcoe_vlan)?;
        let (ports, names) = (Vec::new(), Vec::new());
        let mut this = Self { ports, _announcers, units, names, n_port_ids };
        for port in &config.fcoe {
            this.add(link, port)?;
        }
        Ok(this)
    }

    fn add(&mut self, link: &LinkArgs, port: &FcoePort) -> Result<()> {
        let interface = link.open_fcoe_on(&port.link)?;
        let name = interface.name().to_owned();
        if let Some(warning) = interface.warning() {
            tracing::warn!("{warning}");
        }
        let names = PortName::take(interface.mac(), Numbers::Target).coded()?.or(port.wwpn);
        let address = AddressRecord::of(names.wwpn, &self.n_port_ids);
        let options = FcoeTargetOptions {
            port: PortOptions {
                interface,
                mode: port.mode,
                wwpn: names.wwpn,
                wwnn: names.wwnn,
                recorded: address.read(),
                remember: Some(address.into_callback()),
                e_d_tov: port.e_d_tov(),
            },
            units: Arc::clone(&self.units),
            spin: link.spin(),
        };
        self.ports.push(FcoeTarget::start(options)?);
        self.names.push((name, names));
        Ok(())
    }

    /// The interfaces, each with the name of its port.
    pub(super) fn described(&self) -> Vec<String> {
        let named = self.names.iter().map(|(link, name)| format!("{link} (FCoE {})", name.wwpn));
        named.collect()
    }

    /// Takes the present size of an export: initiators are told of another.
    pub(super) fn resized(&self, export: usize) {
        if !self.ports.is_empty() {
            self.units.resized(export);
        }
    }

    /// Reports the state of the interfaces.
    pub(super) fn report(&self) -> Vec<FcoeTargetReport> {
        self.ports.iter().filter_map(FcoeTarget::report).collect()
    }

    /// The LUNs of the exports, by index.
    pub(super) fn luns(&self) -> Vec<u8> {
        self.units.all().iter().map(|unit| unit.number).collect()
    }
}

//! Fibre Channel over Ethernet: interfaces that are opened for it, the names and
//! addresses of their ports, and what keeps these from a disk.

mod address;
mod name;
mod obstacle;

pub(crate) use address::AddressRecord;
pub(crate) use name::{Numbers, PortName, parse_wwpn};
pub(crate) use obstacle::explain;

use tyche_fcoe::Interface;
use tyche_link::ip::Place;
use tyche_link::packet::usable_interfaces;
use tyche_session::LinkError;

use crate::error::{Code, CodedResult, Error, Result};
use crate::links::LinkArgs;

/// Parses an E_D_TOV in seconds.
pub(crate) fn e_d_tov(text: &str) -> Result<f64, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.05..=60.0).contains(seconds));
    seconds.ok_or_else(|| "0.05 to 60 seconds".into())
}

impl LinkArgs {
    /// Opens the named interfaces for FCoE, or each usable one if none is named.
    ///
    /// # Errors
    /// If one of the named interfaces can't be opened, or none at all.
    pub(crate) fn open_fcoe(&self, named: &[String]) -> Result<Vec<Interface>> {
        if !named.is_empty() {
            return named.iter().map(|name| self.open_fcoe_on(name)).collect();
        }
        let names: Vec<_> = usable_interfaces()?.into_iter().map(|it| it.name).collect();
        let opened: Vec<_> = names.iter().map(|name| self.open_fcoe_on(name)).collect();
        let (opened, failed): (Vec<_>, Vec<_>) = opened.into_iter().partition(Result::is_ok);
        let mut errors = failed.into_iter().filter_map(Result::err);
        if opened.is_empty() {
            return Err(LinkError::NoInterface)
                .coded()
                .map_err(|none| errors.next().unwrap_or(none));
        }
        errors.for_each(|error| tracing::warn!("{error}; going on without it"));
        Ok(opened.into_iter().flatten().collect())
    }

    /// Opens an interface for FCoE, with a laboratory's wrapper around both of its links.
    pub(crate) fn open_fcoe_on(&self, name: &str) -> Result<Interface> {
        if Place::is_named_by(name) {
            let message = format!("FCoE travels on Ethernet: {name} is no interface");
            return Err(Error::new(Code::Usage, message));
        }
        let interface = Interface::open(name, self.qdisc).coded()?;
        let Some(wrapper) = &self.wrapper else { return Ok(interface) };
        let Interface { fip, fcoe } = interface;
        let links = [fip, fcoe].map(|link| (name.to_owned(), link)).into();
        let mut links = wrapper.links(links, self.spin())?.into_iter();
        let mut next = || links.next().expect("as many links as were given");
        Ok(Interface { fip: next(), fcoe: next() })
    }
}

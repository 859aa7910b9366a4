//! Interfaces that are opened for Fibre Channel over Ethernet, and the addresses of their ports.

mod address;

pub(crate) use address::AddressRecord;

use tyche_fcoe::Interface;
use tyche_link::Link;
use tyche_link::packet::usable_interfaces;
use tyche_session::LinkError;
use tyche_session::fcoe::{E_D_TOVS, FcoeError, open_fip, open_interface};

use crate::shared::error::{CodedResult, Result};
use crate::shared::links::LinkArgs;
use crate::shared::seconds::within;

/// Parses an E_D_TOV in seconds.
pub(crate) fn e_d_tov(text: &str) -> Result<f64, String> {
    within(text, &E_D_TOVS)
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
        let interface = open_interface(name, self.qdisc).coded()?;
        let Interface { fip, fcoe } = interface;
        let mut links = self.wrapped(name, vec![fip, fcoe])?.into_iter();
        let mut next = || links.next().expect("as many links as were given");
        Ok(Interface { fip: next(), fcoe: next() })
    }

    /// Opens an interface for FIP alone, with the same.
    pub(crate) fn open_fip_on(&self, name: &str) -> Result<Box<dyn Link>> {
        let link = open_fip(name, self.qdisc).coded()?;
        let mut links = self.wrapped(name, vec![link])?;
        Ok(links.pop().expect("as many links as were given"))
    }

    /// Opens the links of further queues on an interface, with the same.
    pub(crate) fn open_fcoe_queues(&self, name: &str, count: usize) -> Result<Vec<Box<dyn Link>>> {
        let links = (0..count).map(|_| Interface::open_further(name, self.qdisc));
        self.wrapped(name, links.collect::<Result<_, _>>().map_err(FcoeError::from).coded()?)
    }

    fn wrapped(&self, name: &str, links: Vec<Box<dyn Link>>) -> Result<Vec<Box<dyn Link>>> {
        let Some(wrapper) = &self.wrapper else { return Ok(links) };
        let links = links.into_iter().map(|link| (name.to_owned(), link)).collect();
        wrapper.links(links, self.spin())
    }
}

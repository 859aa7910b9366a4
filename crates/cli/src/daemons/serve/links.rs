//! The links of a target: how they are opened, which ones are served, and which ones are missing so
//! far.

use std::num::NonZeroU8;

use tyche_link::Link;
use tyche_link::ip::{ListenAddress, Transport};
use tyche_link::packet::usable_interfaces;
use tyche_native::{LinkRemoval, Target};
use tyche_numa::Placement;
use tyche_session::End;

use super::ServeArgs;
use super::config::{Config, FcoePort};
use crate::shared::error::{Code, Error, Result};
use crate::shared::links::LinkArgs;

/// Opens the links of a target.
pub(super) struct Opener {
    args: LinkArgs,
    named: Vec<String>,
    /// Those that were added by command.
    added: Vec<String>,
    /// Whether all interfaces are served that are up.
    pub(super) takes_all: bool,
    is_found: bool,
    threads: u8,
    placement: Placement,
}

/// Open links of a target.
#[derive(Default)]
pub(super) struct Links {
    /// Their names, as they were given.
    names: Vec<String>,
    first: Vec<Box<dyn Link>>,
    /// The same for each further thread.
    further: Vec<Vec<Box<dyn Link>>>,
    /// The ends for questions to everybody.
    beacons: Vec<Box<dyn Link>>,
    /// Those that are missing.
    pub(super) missing: Vec<Missing>,
}

/// A link that is missing so far, and why.
#[derive(Clone, Debug)]
pub(super) struct Missing {
    pub(super) what: What,
    pub(super) why: String,
}

/// A link of some kind.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum What {
    /// Of Tyche.
    Link(String),
    /// A port of FCoE.
    Port(FcoePort),
    /// The announcer of the VLANs of an interface.
    Vlans(String, Vec<u16>),
}

impl Missing {
    /// Whether it is the link of that name.
    pub(super) fn is_link(&self, name: &str) -> bool {
        matches!(&self.what, What::Link(it) if it == name)
    }
}

impl What {
    /// The name of the interface, or the place to listen at.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Link(name) | Self::Vlans(name, _) => name,
            Self::Port(port) => &port.link,
        }
    }
}

/// Whether the error of a link that does not open may pass without a change of its name.
pub(super) fn may_pass(error: &Error) -> bool {
    matches!(error.code, Code::NotFound | Code::Link)
}

impl Opener {
    pub(super) fn new(args: &ServeArgs, config: &Config, placement: Placement) -> Self {
        Self {
            args: args.link.clone(),
            named: config.link.clone(),
            added: config.added_links.clone(),
            takes_all: config.link.is_empty() && config.fcoe.is_empty(),
            is_found: !config.is_hidden && !args.no_udp_discovery,
            threads: args.threads.or(config.threads.map(NonZeroU8::get)).unwrap_or(1),
            placement,
        }
    }

    /// Threads of each link.
    pub(super) fn threads(&self) -> u8 {
        self.threads
    }

    /// The placement of the links.
    pub(super) fn placement(&self) -> &Placement {
        &self.placement
    }

    /// Opens the links that there are now.
    ///
    /// # Errors
    /// A link can't be opened, now or later; or all named ones are missing.
    pub(super) fn open(&self) -> Result<Links> {
        if self.named.is_empty() && !self.takes_all {
            return Ok(Links::default());
        }
        if self.takes_all && usable_interfaces()?.is_empty() {
            tracing::warn!(
                "no Ethernet interface is up: each is served that comes up; `ip link set NAME up` \
                 starts one"
            );
            return Ok(Links::default());
        }
        self.open_named(&self.named).or_else(|error| {
            // What was added by command keeps no target from starting.
            let is_added = |name: &&String| self.added.contains(name);
            let (added, named): (Vec<_>, Vec<_>) = self.named.iter().partition(is_added);
            if added.is_empty() {
                return Err(error);
            }
            let mut links = self.open_named(&named.into_iter().cloned().collect::<Vec<_>>())?;
            tracing::warn!("{error}; going on without the links that were added by command");
            links.missing.extend(added.into_iter().map(|name| Missing {
                what: What::Link(name.clone()),
                why: error.message.clone(),
            }));
            Ok(links)
        })
    }

    /// Opens a link.
    ///
    /// # Errors
    /// It can't be opened [now](may_pass), or not at all.
    pub(super) fn open_one(&self, name: &str) -> Result<Links> {
        self.open_named(&[name.to_owned()])
    }

    /// Opens the links of these names, or all if there are none.
    fn open_named(&self, named: &[String]) -> Result<Links> {
        self.check_threads(named)?;
        let end = End::Target { is_found: self.is_found, threads: self.threads };
        let mut opened = self.args.open_available(named, end, &self.placement)?;
        let beacons = std::mem::take(&mut opened.beacons);
        let missing = std::mem::take(&mut opened.missing).into_iter();
        let missing =
            missing.map(|(name, error)| Missing { what: What::Link(name), why: error.to_string() });
        let missing: Vec<_> = missing.collect();
        let further = std::mem::take(&mut opened.further);
        let first = opened.logged();
        let is_missing = |name: &&String| missing.iter().any(|it| it.is_link(name));
        let names: Vec<_> = named.iter().filter(|it| !is_missing(it)).cloned().collect();
        let own = || first.iter().map(|link| link.name().to_owned()).collect();
        let names = if named.is_empty() { own() } else { names };
        Ok(Links { names, further, first, beacons, missing })
    }

    /// Checks that links of these names may be there, now or later.
    ///
    /// # Errors
    /// `Config` if a name makes no sense, is there twice, or can't have the target's threads.
    pub(super) fn check(&self, names: &[String]) -> Result<()> {
        check_names(names)
            .and_then(|()| self.check_threads(names))
            .map_err(|error| Error::new(Code::Config, format!("`link`: {error}")))
    }

    fn check_threads(&self, names: &[String]) -> Result<()> {
        let is_single =
            |link: &&String| Transport::named_by(link).is_some_and(|it| !it.has_threads);
        match names.iter().find(|link| self.threads > 1 && is_single(link)) {
            None => Ok(()),
            Some(link) => {
                let message = format!("{link} has one thread: --threads is not for RDMA");
                Err(Error::new(Code::Usage, message))
            }
        }
    }
}

/// The names that a link of this name may have of its own: of an address to listen at, with the
/// addresses that it has now. May query a name server.
pub(super) fn own_names_of(name: &str) -> Vec<String> {
    let Ok(Some(place)) = ListenAddress::parse(name, 0) else { return Vec::new() };
    let addresses = place.resolve().unwrap_or_default();
    let own = |address| format!("{}:{address}", place.transport().name);
    addresses.into_iter().map(own).collect()
}

/// Checks the names of links: addresses to listen at are known by their beginning.
fn check_names(names: &[String]) -> Result<()> {
    for (index, name) in names.iter().enumerate() {
        if let Err(error) = ListenAddress::parse(name, 0) {
            return Err(Error::new(Code::Usage, error.to_string()));
        }
        if name.is_empty() || names[..index].contains(name) {
            let message = format!("`{name}`: name each link once");
            return Err(Error::new(Code::Usage, message));
        }
    }
    Ok(())
}

/// The links of a running target. Behind a lock that is held briefly: not while a link is opened.
#[derive(Default)]
pub(super) struct LinkTable {
    served: Vec<ServedLink>,
    /// The links and ports that are missing so far: these are waited for.
    pub(super) missing: Vec<Missing>,
    /// Whether a thread waits for them.
    pub(super) is_watched: bool,
}

/// A link that is served.
struct ServedLink {
    /// Its name, as it was given.
    named: String,
    /// The link's own name: of `udp:store1` it has the address and the port.
    own: String,
}

impl ServedLink {
    fn is(&self, name: &str) -> bool {
        self.named == name || self.own == name
    }
}

/// A link that was taken out of the table.
pub(super) enum Taken {
    /// It was waited for.
    Missing,
    /// It was served, and ends.
    Served(LinkRemoval),
}

impl LinkTable {
    /// Serves open links.
    ///
    /// # Errors
    /// The system's error. None of them is served then.
    pub(super) fn serve(&mut self, target: &Target, links: Links) -> Result<()> {
        let Links { names, first, further, beacons, missing } = links;
        let own: Vec<_> = first.iter().map(|link| link.name().to_owned()).collect();
        target.add_links(first, further, beacons).map_err(|error| {
            let code = match error.kind() {
                std::io::ErrorKind::ResourceBusy => Code::Device,
                _ => Code::Other,
            };
            Error::new(code, error.to_string())
        })?;
        for (named, own) in names.into_iter().zip(own) {
            self.missing.retain(|it| !it.is_link(&named));
            self.served.push(ServedLink { named, own });
        }
        self.missing.extend(missing);
        Ok(())
    }

    /// Serves an open link that was waited for, unless it is not wanted any more. Returns whether
    /// it is served.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn serve_awaited(&mut self, target: &Target, links: Links) -> Result<bool> {
        let is_awaited = |name: &String| self.missing.iter().any(|it| it.is_link(name));
        match links.names.iter().all(is_awaited) {
            true => self.serve(target, links).map(|()| true),
            false => Ok(false),
        }
    }

    /// The names of the links that are served, as they were given.
    pub(super) fn served(&self) -> impl Iterator<Item = &str> {
        self.served.iter().map(|it| &*it.named)
    }

    /// The links' own names.
    pub(super) fn own_names(&self) -> Vec<String> {
        self.served.iter().map(|it| it.own.clone()).collect()
    }

    /// The link's own name, of a link that is served.
    pub(super) fn own_name(&self, name: &str) -> Option<String> {
        self.served.iter().find(|it| it.is(name)).map(|it| it.own.clone())
    }

    /// The name, as it was given, of a link that is served or missing.
    pub(super) fn named(&self, name: &str) -> Option<String> {
        let served = self.served.iter().find(|it| it.is(name)).map(|it| it.named.clone());
        served.or_else(|| self.missing.iter().any(|it| it.is_link(name)).then(|| name.to_owned()))
    }

    /// Why a link is missing, if it is.
    pub(super) fn why_missing(&self, name: &str) -> Option<&str> {
        self.missing.iter().find(|it| it.is_link(name)).map(|it| &*it.why)
    }

    /// The name, as it was given, of the served link that has one of these names of its own.
    pub(super) fn with_own(&self, names: &[String]) -> Option<&str> {
        self.served.iter().find(|it| names.contains(&it.own)).map(|it| &*it.named)
    }

    /// Has a served link be the one of another name.
    pub(super) fn rename(&mut self, from: &str, to: &str) {
        let link = self.served.iter_mut().find(|it| it.named == from);
        link.into_iter().for_each(|link| to.clone_into(&mut link.named));
    }

    /// Takes a link out: it ends, or is not waited for any more. `None` if there is none.
    pub(super) fn take(&mut self, target: &Target, name: &str) -> Option<Taken> {
        if let Some(at) = self.missing.iter().position(|it| it.is_link(name)) {
            self.missing.remove(at);
            return Some(Taken::Missing);
        }
        let at = self.served.iter().position(|it| it.is(name))?;
        let own = self.served.remove(at).own;
        target.remove_link(&own).map(Taken::Served)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_links_make_sense_and_are_there_once() {
        let check = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
            check_names(&names).map_err(|error| error.message)
        };
        assert_eq!(check(&["eth0", "udp:0.0.0.0", "tcp:[::1]:7"]), Ok(()));
        assert_eq!(own_names_of("udp:127.0.0.1"), ["udp:127.0.0.1:8650"]);
        assert_eq!(own_names_of("tcp:[::1]:7"), ["tcp:[::1]:7"]);
        assert!(own_names_of("udp:localhost").contains(&"udp:127.0.0.1:8650".to_owned()));
        assert_eq!(own_names_of("eth0"), [""; 0]);
        for names in [&["eth0", "eth0"][..], &[""], &["udp:"], &["udp:a:b:c"], &["tcp:a:70000"]] {
            assert!(check(names).is_err(), "{names:?}");
        }
    }
}

//! The links of a target: those that open at the start, and those that come later. A link or a port
//! of FCoE that is missing costs the others nothing, and is served when it comes. Without names, so
//! is every interface that comes up.

use std::collections::BTreeMap;
use std::io;
use std::num::NonZeroU8;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tyche_link::Link;
use tyche_link::ip::Transport;
use tyche_link::packet::{Changes, usable_interfaces};
use tyche_numa::Placement;
use tyche_session::End;

use super::config::{Config, FcoePort};
use super::{ServeArgs, Served};
use crate::shared::error::{Code, Error, Result};
use crate::shared::links::LinkArgs;

/// The interval at which missing links are tried, beside changes of interfaces and addresses.
const TRY_EVERY: Duration = Duration::from_secs(1);
/// The same when none is missing: a message of the kernel may be lost.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// The time for an interface that has just come up to get its carrier, its master, and its address.
const SETTLE: Duration = Duration::from_millis(100);
/// The most links that a target takes without being told their names: each costs a thread, and a
/// machine may make interfaces for ever.
const TAKEN_MAX: usize = 64;

/// Opens the links of a target.
pub(super) struct Opener {
    args: LinkArgs,
    named: Vec<String>,
    /// Whether all interfaces are served that are up.
    takes_all: bool,
    is_found: bool,
    threads: u8,
    placement: Placement,
}

/// Open links of a target.
#[derive(Default)]
pub(super) struct Links {
    pub(super) first: Vec<Box<dyn Link>>,
    /// The same for each further thread.
    pub(super) further: Vec<Vec<Box<dyn Link>>>,
    /// The ends for questions to everybody.
    pub(super) beacons: Vec<Box<dyn Link>>,
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
#[derive(Clone, Debug)]
pub(super) enum What {
    /// Of Tyche.
    Link(String),
    /// A port of FCoE.
    Port(FcoePort),
    /// The announcer of the VLANs of an interface.
    Vlans(String, Vec<u16>),
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
            takes_all: config.link.is_empty() && config.fcoe.is_empty(),
            is_found: !config.is_hidden && !args.no_udp_discovery,
            threads: args.threads.or(config.threads.map(NonZeroU8::get)).unwrap_or(1),
            placement,
        }
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
        self.open_named(&self.named)
    }

    /// Opens the links of these names, or all if there are none.
    fn open_named(&self, names: &[String]) -> Result<Links> {
        let end = End::Target { is_found: self.is_found };
        let mut opened = self.args.open_available(names, end, &self.placement)?;
        let beacons = std::mem::take(&mut opened.beacons);
        let missing = std::mem::take(&mut opened.missing).into_iter();
        let missing =
            missing.map(|(name, error)| Missing { what: What::Link(name), why: error.to_string() });
        let missing = missing.collect();
        let first = opened.logged();
        let names: Vec<_> = first.iter().map(|link| link.name().to_owned()).collect();
        Ok(Links { further: self.open_again(&names)?, first, beacons, missing })
    }

    /// Opens the links once more for each thread but the first.
    fn open_again(&self, links: &[String]) -> Result<Vec<Vec<Box<dyn Link>>>> {
        let is_single =
            |link: &&String| Transport::named_by(link).is_some_and(|it| !it.has_threads);
        if let Some(link) = links.iter().find(|link| self.threads > 1 && is_single(link)) {
            let message = format!("{link} has one thread: --threads is for Ethernet and UDP");
            return Err(Error::new(Code::Usage, message));
        }
        let open = |_| Ok(self.args.open_all(links, End::TargetThread, &self.placement)?.links);
        (1..self.threads).map(open).collect()
    }
}

/// Serves missing links as soon as they open, and if `opener` takes all, interfaces that come up.
/// `served_on`: the names of the present ones.
///
/// # Errors
/// The system's error when the thread cannot be created.
pub(super) fn await_missing(
    opener: Arc<Opener>,
    missing: Vec<Missing>,
    served_on: Vec<String>,
    served: &Arc<Served>,
) -> io::Result<()> {
    if missing.is_empty() && !opener.takes_all {
        return Ok(());
    }
    let weak = Arc::downgrade(served);
    let changes = Changes::open().inspect_err(|error| {
        tracing::warn!("interfaces that come up are noticed late: rtnetlink: {error}");
    });
    served.set_missing(&missing);
    let mut late = Late { opener, missing, served_on, refused: BTreeMap::new() };
    let watch = move || {
        loop {
            let limit = if late.missing.is_empty() { LOOK_EVERY } else { TRY_EVERY };
            match &changes {
                Ok(changes) if changes.wait(limit).is_ok() => {}
                _ => thread::sleep(TRY_EVERY),
            }
            thread::sleep(SETTLE);
            if weak.strong_count() == 0 {
                return;
            }
            late.take_missing(&|| weak.upgrade());
            late.take_new(&|| weak.upgrade());
            if late.missing.is_empty() && !late.opener.takes_all {
                return;
            }
        }
    };
    thread::Builder::new().name("tyche-late".into()).spawn(watch)?;
    Ok(())
}

/// The links that come later.
struct Late {
    opener: Arc<Opener>,
    missing: Vec<Missing>,
    /// The names of those that are served.
    served_on: Vec<String>,
    /// Interfaces that are up and can't be opened, and why.
    refused: BTreeMap<String, String>,
}

/// The target, as long as it runs. It is asked for briefly: whoever has it keeps it from ending.
type Running<'a> = &'a dyn Fn() -> Option<Arc<Served>>;

impl Late {
    /// Tries the missing ones.
    fn take_missing(&mut self, served: Running<'_>) {
        let opener = &self.opener;
        let mut news = false;
        self.missing.retain_mut(|it| {
            let taken = match &it.what {
                What::Link(name) => serve_link(opener, name, served),
                what => served().map_or(Ok(()), |served| served.exports.fcoe.add(what)),
            };
            let name = it.what.name();
            match taken {
                Ok(()) => {
                    tracing::info!("{name} is there: it is served");
                    news = true;
                    return false;
                }
                Err(error) if error.message != it.why => {
                    tracing::warn!("{error}; going on without it");
                    it.why = error.message;
                    news = true;
                }
                Err(_) => {}
            }
            true
        });
        if news && let Some(served) = served() {
            served.set_missing(&self.missing);
        }
    }

    /// Takes interfaces that have come up.
    fn take_new(&mut self, served: Running<'_>) {
        if !self.opener.takes_all || self.served_on.len() >= TAKEN_MAX {
            return;
        }
        let up: Vec<_> = usable_interfaces().unwrap_or_default();
        let up: Vec<_> = up.into_iter().map(|it| it.name).collect();
        self.refused.retain(|name, _| up.contains(name));
        for name in up.into_iter().filter(|name| !self.served_on.contains(name)).collect::<Vec<_>>()
        {
            match serve_link(&self.opener, &name, served) {
                Ok(()) => {
                    tracing::info!("{name} has come up: it is served");
                    self.served_on.push(name);
                }
                Err(error) => {
                    let before = self.refused.insert(name, error.message.clone());
                    if before.as_ref() != Some(&error.message) {
                        tracing::warn!("{error}; going on without it");
                    }
                }
            }
        }
        if self.served_on.len() >= TAKEN_MAX {
            tracing::warn!("{TAKEN_MAX} interfaces are served: others that come up are not");
        }
    }
}

/// Serves the links of a configuration that was read again and that are new in it. One that is not
/// there is not waited for. `names`: the links that are served; those that are new are added.
pub(super) fn serve_new(served: &Served, names: &mut Vec<String>, now: &Config) {
    // All interfaces are served, and instead of them it takes a restart.
    if served.opener.takes_all {
        return;
    }
    for name in &now.link {
        if names.contains(name) {
            continue;
        }
        let opened = served.opener.open_named(std::slice::from_ref(name));
        let added = opened.and_then(|Links { first, further, beacons, missing }| {
            if let Some(Missing { why, .. }) = missing.into_iter().next() {
                return Err(Error::new(Code::Link, why));
            }
            Ok(served.exports.target.add_links(first, further, beacons)?)
        });
        match added {
            Ok(()) => {
                tracing::info!("{name} is served");
                names.push(name.clone());
            }
            Err(error) => {
                tracing::error!("{error}; {name} is tried again when the file is read again");
            }
        }
    }
}

/// Opens a link and serves it.
fn serve_link(opener: &Opener, name: &str, served: Running<'_>) -> Result<()> {
    let Links { first, further, beacons, .. } = opener.open_named(&[name.to_owned()])?;
    match served() {
        Some(served) => Ok(served.exports.target.add_links(first, further, beacons)?),
        None => Ok(()),
    }
}

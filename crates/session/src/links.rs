//! The links of a session, or of a target: opened by name, or on all interfaces that are up.

use std::io;

use thiserror::Error;
use tyche_link::Link;
use tyche_link::ip::{self, End, InvalidAddress, ListenAddress, OpenedLink};
use tyche_link::packet::{
    self, PacketLink, PacketOptions, interfaces, relations, usable_interfaces,
};
use tyche_numa::Placement;
use tyche_proto::wire::Mac;

/// Reasons why a link does not open.
#[derive(Debug, Error)]
pub enum LinkError {
    /// An interface can't be used.
    #[error(transparent)]
    Packet(#[from] packet::OpenError),
    /// The target can't be reached over IP, or the address can't be listened at.
    #[error(transparent)]
    Ip(#[from] ip::OpenError),
    /// The name is neither that of an interface nor of a [`ListenAddress`].
    #[error(transparent)]
    Name(#[from] InvalidAddress),
    /// The host of a [`ListenAddress`] has no address.
    #[error("find the address of {0}: {1}")]
    Address(String, io::Error),
    /// The kernel refuses to place the link's memory.
    #[error(transparent)]
    Placement(#[from] tyche_numa::Error),
    /// There is no interface to use.
    #[error("no Ethernet interface is up; `ip link set NAME up` starts one")]
    NoInterface,
    /// A link is named twice.
    #[error("{0} is named twice: name each link once")]
    Twice(String),
    /// The kernel does not list its interfaces.
    #[error(transparent)]
    System(#[from] io::Error),
}

impl LinkError {
    /// Whether the same link may open later, without a change of its name: the interface is down or
    /// missing, or the address is not there.
    pub fn may_pass(&self) -> bool {
        use packet::OpenError as Packet;
        match self {
            Self::Packet(error) => matches!(
                error,
                Packet::NoSuchInterface { .. }
                    | Packet::Down { .. }
                    | Packet::Member { .. }
                    | Packet::MtuTooSmall { .. }
            ),
            Self::Ip(error) => !matches!(error, ip::OpenError::System { .. }),
            Self::Address(..) | Self::NoInterface => true,
            Self::Name(_) | Self::Placement(_) | Self::Twice(_) | Self::System(_) => false,
        }
    }
}

/// How links are opened.
#[derive(Clone, Copy, Debug)]
pub struct LinkOptions<'a> {
    /// EtherType of the frames.
    pub ethertype: u16,
    /// Whether to send through the interface's queueing discipline.
    pub qdisc: bool,
    /// Placement of the kernel's memory for the links.
    pub placement: &'a Placement,
}

/// Open links, and warnings about them in words.
#[derive(Default)]
pub struct Opened {
    /// The links.
    pub links: Vec<Box<dyn Link>>,
    /// The same for each further thread of a target, in the same order.
    pub further: Vec<Vec<Box<dyn Link>>>,
    /// Of a target that is to be found: its ends for questions to everybody, each of the name of
    /// one of the links.
    pub beacons: Vec<Box<dyn Link>>,
    /// Named links that do not open so far, with the reasons: they may be taken up later.
    pub missing: Vec<(String, LinkError)>,
    /// Problems that do not prevent the use of the links.
    pub warnings: Vec<String>,
}

impl Opened {
    /// Adds a link, with those of further threads.
    fn add(&mut self, link: Box<dyn Link>, further: Vec<Box<dyn Link>>) {
        if self.links.is_empty() {
            self.further.resize_with(further.len(), Vec::new);
        }
        assert_eq!(self.further.len(), further.len(), "all links have as many threads");
        self.links.push(link);
        self.further.iter_mut().zip(further).for_each(|(links, link)| links.push(link));
    }

    /// The links; logs the warnings.
    pub fn logged(self) -> Vec<Box<dyn Link>> {
        log_warnings(&self.warnings);
        self.links
    }
}

impl LinkOptions<'_> {
    /// Opens the named links, or one on each usable interface if none is named.
    ///
    /// # Errors
    /// If one of the named links can't be opened, or no interface at all.
    pub fn open_all(&self, named: &[String], end: End) -> Result<Opened, LinkError> {
        check_names(named)?;
        let mut opened = Opened::default();
        if named.is_empty() {
            self.open_every(end, &mut opened)?;
        }
        for name in named {
            self.open(name, end, &mut opened)?;
        }
        opened.warnings.extend(twins(&opened.links));
        Ok(opened)
    }

    /// As [`open_all`](Self::open_all), but named links that may open later are missing in the
    /// result as long as there is another.
    ///
    /// # Errors
    /// If a link can't be opened now nor later, or none opens.
    pub fn open_available(&self, named: &[String], end: End) -> Result<Opened, LinkError> {
        if named.len() < 2 {
            return self.open_all(named, end);
        }
        check_names(named)?;
        let mut opened = Opened::default();
        for (name, error) in self.open_some(named, end, &mut opened) {
            if !error.may_pass() {
                return Err(error);
            }
            opened.missing.push((name, error));
        }
        if opened.links.is_empty() {
            return Err(opened.missing.swap_remove(0).1);
        }
        opened.warnings.extend(twins(&opened.links));
        let missing = opened.missing.iter();
        opened.warnings.extend(missing.map(|(_, error)| format!("{error}; going on without it")));
        Ok(opened)
    }

    /// Opens a link on each interface that is running and not part of another. Failures are
    /// warnings unless all interfaces fail.
    fn open_every(&self, end: End, opened: &mut Opened) -> Result<(), LinkError> {
        let names: Vec<_> = usable_interfaces()?.into_iter().map(|it| it.name).collect();
        let errors = self.open_some(&names, end, opened);
        if opened.links.is_empty() {
            let first = errors.into_iter().next().map(|(_, error)| error);
            return Err(first.unwrap_or(LinkError::NoInterface));
        }
        let warnings = errors.iter().map(|(_, error)| format!("{error}; going on without it"));
        opened.warnings.extend(warnings);
        Ok(())
    }

    /// Opens those of the links that open; returns the names of the others, with their errors.
    pub fn open_some(
        &self,
        names: &[String],
        end: End,
        opened: &mut Opened,
    ) -> Vec<(String, LinkError)> {
        let failure = |name: &String| Some((name.clone(), self.open(name, end, opened).err()?));
        names.iter().filter_map(failure).collect()
    }

    /// Opens a link on an interface, or over IP. The kernel's memory for it is placed on its NUMA
    /// node.
    fn open(&self, name: &str, end: End, opened: &mut Opened) -> Result<(), LinkError> {
        let home = self.placement.home(name)?;
        if self.placement.is_active() && home.node().is_none() {
            tracing::warn!(interface = name, "is on no NUMA node: it is not placed");
        }
        let _near = home.near()?;
        // A target may use port 0: the kernel chooses a port, and the target reports it.
        if let Some(place) = ListenAddress::parse(name, u16::from(end == End::Host))? {
            return open_ip(&place, end, opened);
        }
        let mut options = PacketOptions::new(name);
        options.ethertype = self.ethertype;
        options.qdisc_bypass = !self.qdisc;
        let link = PacketLink::open(&options)?;
        if let Some(shortfall) = link.shortfall() {
            tracing::warn!(interface = name, "{shortfall}");
        }
        let again = |_| Ok(Box::new(PacketLink::open(&options)?) as Box<dyn Link>);
        let further = (0..end.further()).map(again).collect::<Result<_, LinkError>>()?;
        opened.add(Box::new(link), further);
        Ok(())
    }
}

/// Refuses links that are named twice.
fn check_names(named: &[String]) -> Result<(), LinkError> {
    for (index, name) in named.iter().enumerate() {
        if named[..index].contains(name) {
            return Err(LinkError::Twice(name.clone()));
        }
    }
    Ok(())
}

fn open_ip(place: &ListenAddress, end: End, opened: &mut Opened) -> Result<(), LinkError> {
    let found = place.resolve();
    let addresses = found.map_err(|error| LinkError::Address(place.host().to_owned(), error))?;
    let OpenedLink { link, further, beacon } = (place.transport().open)(place, &addresses, end)?;
    match beacon {
        Ok(beacon) => opened.beacons.extend(beacon),
        Err(warning) => opened.warnings.push(warning),
    }
    opened.add(link, further);
    Ok(())
}

/// Writes warnings to the log.
pub fn log_warnings(warnings: &[String]) {
    for warning in warnings {
        tracing::warn!("{warning}");
    }
}

/// The links on all usable interfaces, with default options.
pub fn open_usable() -> Vec<Box<dyn Link>> {
    let names = usable_interfaces().unwrap_or_default().into_iter().map(|it| it.name);
    let links = names.filter_map(|name| PacketLink::open(&PacketOptions::new(&name)).ok());
    links.map(|link| Box::new(link) as Box<dyn Link>).collect()
}

/// Warnings of interfaces that share an address: a switch delivers frames for it to one of them.
fn twins(links: &[Box<dyn Link>]) -> Vec<String> {
    let mut warnings = Vec::new();
    for (index, link) in links.iter().enumerate() {
        // A VLAN has the address of its parent interface, and a segment of its own.
        let mut same = links[..index].iter().filter(|it| it.mac() == link.mac());
        let first = same.find(|it| vlan(it.name()) == vlan(link.name())).map(|it| it.name());
        // Links over IP have no addresses of Ethernet: all have the same.
        let Some(first) = first.filter(|name| !ListenAddress::is_named_by(name)) else { continue };
        let (second, mac) = (link.name(), Mac(link.mac()));
        warnings.push(format!(
            "interfaces {first} and {second} have the same address {mac}: on one switch only one \
             of them works; `ip link set {second} address ..` gives it another"
        ));
    }
    warnings
}

/// The VLAN ID of an interface, if it is a VLAN.
fn vlan(interface: &str) -> Option<u16> {
    let found = interfaces().ok()?.into_iter().find(|it| it.name == interface)?;
    relations(found.index).ok()?.vlan
}

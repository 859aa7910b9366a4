//! The two links of an interface, and its limits.

use std::io;

use tyche_engine::{BATCH, Batches, Port, Ports};
use tyche_fc::wire::fip::{FCOE_LEN_MAX, payload_within};
use tyche_fc::wire::{ETHERNET_LEN, ETHERTYPE_FCOE, ETHERTYPE_FIP, HEAD_LEN, Mac};
use tyche_link::packet::{OpenError, PacketLink, PacketOptions};
use tyche_link::{Link, Share};
use tyche_numa::NumaAffinity;

/// The port of the FCoE Initialization Protocol.
pub const FIP: usize = 0;
/// The port of encapsulated frames.
pub const FCOE: usize = 1;

/// The MTU that frames with the longest payload need.
pub const MTU_FULL: usize = FCOE_LEN_MAX as usize;
/// The MTU that operators set for FCoE: one that all equipment has.
pub(crate) const MTU_USUAL: usize = 2500;

/// An interface, open for both kinds of frames.
pub struct Interface {
    /// The link for FIP.
    pub fip: Box<dyn Link>,
    /// The link for FCoE.
    pub fcoe: Box<dyn Link>,
}

impl Interface {
    /// Opens an interface. With `qdisc` frames pass its queueing discipline.
    ///
    /// # Errors
    /// Each names a remedy.
    pub fn open(name: &str, qdisc: bool) -> Result<Self, OpenError> {
        Ok(Self { fip: Self::open_fip(name, qdisc)?, fcoe: Self::open_further(name, qdisc)? })
    }

    /// Opens an interface for a switch: the receive ring holds at least so many encapsulated
    /// frames, for nothing holds their senders back.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_for_switch(name: &str, frames_min: usize) -> Result<Self, OpenError> {
        let mut options = options(name, (ETHERTYPE_FCOE, HEAD_LEN), false);
        options.frames_min = frames_min;
        Ok(Self { fip: Self::open_fip(name, false)?, fcoe: Box::new(PacketLink::open(&options)?) })
    }

    /// Opens the link for FIP alone.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_fip(name: &str, qdisc: bool) -> Result<Box<dyn Link>, OpenError> {
        open(name, (ETHERTYPE_FIP, ETHERNET_LEN), qdisc)
    }

    /// Opens another link for FCoE: that of a further queue.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_further(name: &str, qdisc: bool) -> Result<Box<dyn Link>, OpenError> {
        open(name, (ETHERTYPE_FCOE, HEAD_LEN), qdisc)
    }

    /// The name of the interface.
    pub fn name(&self) -> &str {
        self.fip.name()
    }

    /// The interface's own address.
    pub fn mac(&self) -> Mac {
        Mac(self.fip.mac())
    }

    /// A warning about an MTU that is too small for the longest frames, with its remedy.
    pub fn warning(&self) -> Option<String> {
        let mtu = self.fcoe.frame_len_max() - ETHERNET_LEN;
        let name = self.name();
        (mtu < MTU_FULL).then(|| {
            let payload = payload_within(mtu as u16);
            format!(
                "{name} has an MTU of {mtu}, too small for the longest frames of FCoE: they carry \
                 {payload} bytes instead of 2112, and others than Tyche may not log in; `ip link \
                 set {name} mtu {MTU_USUAL}` sets it, at both ends and on switches between them \
                 ({MTU_FULL} is needed)"
            )
        })
    }

    /// The ports of a loop that serves the interface.
    pub fn into_ports(self, home: &NumaAffinity) -> Ports {
        let mut ports = Ports::new();
        let batches = Batches { frames: BATCH, head_len: ETHERNET_LEN, pieces_max: 1 };
        ports.insert(FIP, Port::new(self.fip, home.clone(), batches));
        insert_fcoe(&mut ports, self.fcoe, home);
        ports
    }
}

fn open(name: &str, frames: (u16, usize), qdisc: bool) -> Result<Box<dyn Link>, OpenError> {
    Ok(Box::new(PacketLink::open(&options(name, frames, qdisc))?))
}

/// The options of a link for frames with that EtherType and length of head.
fn options(name: &str, (ethertype, head_len): (u16, usize), qdisc: bool) -> PacketOptions {
    let mut options = PacketOptions::new(name);
    (options.ethertype, options.head_len) = (ethertype, head_len);
    options.qdisc_bypass = !qdisc;
    options
}

/// Adds the port of a link for FCoE.
pub(crate) fn insert_fcoe(ports: &mut Ports, link: Box<dyn Link>, home: &NumaAffinity) {
    let batches = Batches { frames: BATCH, head_len: HEAD_LEN, pieces_max: 2 };
    ports.insert(FCOE, Port::new(link, home.clone(), batches));
}

/// Restricts a link to its share of the frames, where several of them serve an interface: `whose`
/// says for what.
///
/// # Errors
/// `Unsupported` if it can't divide frames.
pub(crate) fn divide(link: &mut dyn Link, share: Share, whose: &str) -> io::Result<()> {
    if link.select(share) {
        return Ok(());
    }
    let message = format!("link {} can't have several {whose}", link.name());
    Err(io::Error::new(io::ErrorKind::Unsupported, message))
}

/// The encapsulated frames that the receive ring of a link holds.
pub(crate) fn receive_capacity(link: &dyn Link) -> u32 {
    link.receive_capacity(link.frame_len_max()) as u32
}

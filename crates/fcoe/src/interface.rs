//! The two links of an interface, and its limits.

use tyche_engine::{BATCH, Batches, Port, Ports};
use tyche_fc::wire::fip::{FCOE_LEN_MAX, payload_within};
use tyche_fc::wire::{ETHERNET_LEN, ETHERTYPE_FCOE, ETHERTYPE_FIP, HEAD_LEN, Mac};
use tyche_link::Link;
use tyche_link::packet::{OpenError, PacketLink, PacketOptions};
use tyche_numa::Home;

/// The port of the FCoE Initialization Protocol.
pub const FIP: usize = 0;
/// The port of encapsulated frames.
pub const FCOE: usize = 1;

/// The MTU that frames with the longest payload need.
pub const MTU_FULL: usize = FCOE_LEN_MAX as usize;
/// The MTU that operators set for FCoE: one that all equipment has.
const MTU_USUAL: usize = 2500;

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
        let open = |ethertype, head_len| {
            let mut options = PacketOptions::new(name);
            (options.ethertype, options.head_len) = (ethertype, head_len);
            options.qdisc_bypass = !qdisc;
            PacketLink::open(&options)
        };
        let fip = open(ETHERTYPE_FIP, ETHERNET_LEN)?;
        let fcoe = open(ETHERTYPE_FCOE, HEAD_LEN)?;
        Ok(Self { fip: Box::new(fip), fcoe: Box::new(fcoe) })
    }

    /// The name of the interface.
    pub fn name(&self) -> &str {
        self.fip.name()
    }

    /// The interface's own address.
    pub fn mac(&self) -> Mac {
        Mac(self.fip.mac())
    }

    /// The encapsulated frames that its receive ring holds.
    pub(crate) fn receive_capacity(&self) -> u32 {
        self.fcoe.receive_capacity(self.fcoe.frame_len_max()) as u32
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
    pub fn into_ports(self, home: &Home) -> Ports {
        let batches = |head_len, pieces_max| Batches { frames: BATCH, head_len, pieces_max };
        let mut ports = Ports::new();
        ports.insert(FIP, Port::new(self.fip, home.clone(), batches(ETHERNET_LEN, 1)));
        ports.insert(FCOE, Port::new(self.fcoe, home.clone(), batches(HEAD_LEN, 2)));
        ports
    }
}

//! A stranger on the network: garbage, and frames that it forges from those that it has heard.
//!
//! It does not forge what only the sender could be told by: see the limits in the module above.

use tyche_fcoe::fc::wire::fcp::TaskManagement;
use tyche_fcoe::fc::wire::{
    ETHERNET_LEN, ETHERTYPE_FCOE, FCtl, FRAME_LEN_MAX, Frame, HEAD_LEN, Kind, PortId, Xid,
};
use tyche_fcoe::{FCOE, FIP};

use crate::random::Random;

/// Frames that it remembers.
const HEARD: usize = 16;
/// A distance beyond every burst.
const BEYOND: u32 = 1 << 20;
/// The place of the task management functions in FCP_CMND.
const MANAGEMENT_AT: usize = 10;
/// OX_ID of its task management.
pub(super) const RESET_OX_ID: Xid = Xid(0x0ff2);
/// The place of TYPE, and its value for FCP.
const TYPE_AT: usize = 36;
const TYPE_FCP: u8 = 0x08;
/// The place of the EtherType.
const ETHERTYPE_AT: usize = 12;

/// A station that belongs to nobody: it keeps frames of FCP that it has heard, and sends garbage
/// and altered copies of these.
pub(super) struct Stranger {
    /// Frames of FCP.
    heard: Vec<Vec<u8>>,
    random: Random,
}

impl Stranger {
    pub(super) fn new(random: Random) -> Self {
        Self { heard: Vec::new(), random }
    }

    /// Hears a frame: of link services, which make and end logins, it keeps none.
    pub(super) fn hear(&mut self, frame: &[u8]) {
        if frame[TYPE_AT] != TYPE_FCP {
            return;
        }
        if self.heard.len() < HEARD {
            self.heard.push(frame.to_vec());
        } else if self.random.chance(0.2) {
            let at = self.random.below(HEARD as u64) as usize;
            self.heard[at] = frame.to_vec();
        }
    }

    /// A frame, by the port of the loop that it goes to.
    pub(super) fn forge(&mut self) -> Option<(usize, Vec<u8>)> {
        let index = self.random.below(self.heard.len().max(1) as u64) as usize;
        let heard = self.heard.get(index)?.clone();
        if self.random.chance(0.2) {
            return Some(self.garbage(&heard));
        }
        let (head, rest) = heard.split_first_chunk::<HEAD_LEN>()?;
        let frame = Frame::parse(head, rest).ok()?;
        let frame = self.bend(frame)?;
        let mut buffer = [0; FRAME_LEN_MAX];
        let len = frame.emit(&mut buffer);
        Some((FCOE, buffer[..len].to_vec()))
    }

    /// Random bytes behind valid addresses, or behind an address and a frame cut short.
    fn garbage(&mut self, heard: &[u8]) -> (usize, Vec<u8>) {
        let len = self.random.between(60, heard.len() as u64) as usize;
        let mut frame = heard[..len].to_vec();
        let from = self.random.between(ETHERNET_LEN as u64, 52) as usize;
        for byte in &mut frame[from..] {
            *byte = self.random.next() as u8;
        }
        let is_fcoe = frame[ETHERTYPE_AT..][..2] == ETHERTYPE_FCOE.to_be_bytes();
        let port = if is_fcoe && self.random.chance(0.8) { FCOE } else { FIP };
        (port, frame)
    }

    /// Makes something of a frame that must have no effect, or only one that costs time.
    fn bend<'f>(&mut self, mut frame: Frame<'f>) -> Option<Frame<'f>> {
        static RESET: [u8; 32] = {
            let mut unit = [0; 32];
            unit[MANAGEMENT_AT] = TaskManagement::LU_RESET.to_wire();
            unit
        };
        let header = &mut frame.header;
        let is_originators = !header.f_ctl.has(FCtl::EX_CTX);
        match self.random.below(5) {
            // Of an exchange that there is not. A command would begin one, and be told what the
            // initiator has to know.
            0 if header.kind != Kind::FcpCmnd => {
                (header.ox_id, header.rx_id) = (Xid(0x0ff0), Xid(0x0ff1));
            }
            // Of a port that is not logged in.
            1 => header.s_id = PortId::new(0x00_fe_ed),
            // An ABTS that crosses.
            2 if is_originators => {
                (header.kind, header.f_ctl, header.parameter) = (Kind::Abts, FCtl::ABTS, 0);
                header.rx_id = if self.random.chance(0.5) { Xid::NONE } else { header.rx_id };
                frame.payload = &[];
            }
            // Data beyond what was asked for.
            3 if header.kind == Kind::FcpData => header.parameter += BEYOND,
            // Another initiator's task management.
            4 if header.kind == Kind::FcpCmnd => {
                (header.ox_id, header.rx_id) = (RESET_OX_ID, Xid::NONE);
                frame.payload = &RESET;
            }
            _ => return None,
        }
        Some(frame)
    }
}

//! Frames of other ports, and those that are sent.

use tyche_fc_wire::fip::{self, Claim, Flags, LinkService, Message, Port, Service, VnPort};
use tyche_fc_wire::{Ethernet, FRAME_LEN_MAX, Fc4, Mac};
use tyche_time::Instant;

use super::neighbours::Noted;
use super::outputs::Send;
use super::{Stage, Vn2vn, is_valid};
use crate::neighbour::{Address, Functions, Neighbour};

impl Vn2vn {
    /// Takes a frame that has come to the interface's own address or to
    /// [`ALL_VN2VN_ENODE_MACS`](fip::ALL_VN2VN_ENODE_MACS). False if it is not one of VN2VN: it is
    /// for others to handle, after the events, for a FLOGI shows that its sender is present.
    pub fn handle_frame(&mut self, now: Instant, frame: &fip::Frame<'_>) -> bool {
        let sender = match &frame.message {
            Message::ProbeRequest(port) | Message::ProbeReply(port) | Message::Beacon(port) => port,
            Message::ClaimNotification(claim) | Message::ClaimResponse(claim) => &claim.port,
            Message::LinkRequest(service) => {
                self.handle_link_request(now, frame.ethernet.source, service);
                return false;
            }
            _ => return false,
        };
        if self.ignores(sender) {
            return true;
        }
        match &frame.message {
            Message::ProbeRequest(port) => {
                self.handle_probe(now, port, frame.flags.has(Flags::REC));
            }
            Message::ProbeReply(port) if port.port.id == self.id => match self.stage {
                Stage::Up => self.repeat_claim(now),
                _ => self.collide(now),
            },
            Message::ClaimNotification(claim) => {
                let is_neighbour = self.handle_claim(now, claim);
                if is_neighbour && self.stage >= Stage::Claim {
                    self.hurry_beacon(now);
                    self.answer(now, Send::ClaimResponse(claim.port.mac, claim.size));
                }
            }
            Message::ClaimResponse(claim) => _ = self.handle_claim(now, claim),
            Message::Beacon(port) => self.handle_beacon(now, port),
            _ => {}
        }
        true
    }

    /// Counts a frame that can't be of another port.
    fn ignores(&mut self, sender: &Port) -> bool {
        let VnPort { mac, id, name } = sender.port;
        let is_wrong = mac != Address::chosen(id).mac || !is_valid(id) || sender.mac.is_group();
        let ignored = &mut self.outputs.ignored;
        let counter = if self.stage == Stage::Down {
            &mut ignored.down
        } else if name == self.config.wwpn {
            &mut ignored.own_name
        } else if is_wrong {
            &mut ignored.wrong_address
        } else {
            return false;
        };
        *counter += 1;
        true
    }

    /// Another port wants an N_Port_ID. Before we have claimed it ourselves, the one that had it
    /// before gets it, else the one with the higher name. The other side decides alike.
    fn handle_probe(&mut self, now: Instant, port: &Port, is_recorded: bool) {
        if port.port.id != self.id {
            return;
        }
        let ours = (self.is_recorded, self.config.wwpn);
        if self.stage >= Stage::Claim || ours > (is_recorded, port.port.name) {
            self.answer(now, Send::ProbeReply(port.mac));
        } else {
            self.collide(now);
        }
    }

    /// Another port has an N_Port_ID. Returns whether it is a neighbour.
    fn handle_claim(&mut self, now: Instant, claim: &Claim) -> bool {
        let claimed = neighbour(claim);
        let is_ours = claimed.id == self.id;
        if is_ours && self.stage >= Stage::Claim && claimed.wwpn < self.config.wwpn {
            self.repeat_claim(now);
            return false;
        }
        let report = self.outputs.reporter(self.stage == Stage::Up);
        let noted = self.neighbours.claim(now, claimed, report);
        match noted {
            Noted::Conflict => self.outputs.ignored.conflict += 1,
            Noted::Full => self.outputs.ignored.no_room += 1,
            Noted::Known => {}
        }
        if is_ours {
            self.collide(now);
        }
        noted == Noted::Known
    }

    fn handle_beacon(&mut self, now: Instant, port: &Port) {
        let VnPort { id, name, .. } = port.port;
        if id == self.id {
            if self.stage >= Stage::Claim && name < self.config.wwpn {
                self.repeat_claim(now);
            } else {
                self.collide(now);
            }
            return;
        }
        let is_up = self.stage == Stage::Up;
        let report = self.outputs.reporter(is_up);
        let is_known = self.neighbours.beacon(now, (name, port.name, id), report);
        if !is_known && is_up && !self.neighbours.is_full() {
            // Its answer says what it is.
            self.repeat_claim(now);
        }
    }

    /// A neighbour logs in as soon as it has heard our beacon. Its own may be as far as the next
    /// interval, and it does not try that long.
    fn handle_link_request(&mut self, now: Instant, source: Mac, request: &LinkService<'_>) {
        if request.service == Service::Flogi && request.header.d_id == self.id {
            let report = self.outputs.reporter(self.stage == Stage::Up);
            self.neighbours.login(now, (source, request.header.s_id), report);
        }
    }

    fn answer(&mut self, now: Instant, frame: Send) {
        if self.answers.takes(now) {
            self.outputs.send(frame);
        } else {
            self.outputs.ignored.busy += 1;
        }
    }

    /// Writes the next frame to send, from its destination address on; returns its length.
    pub fn poll_transmit(&mut self, buffer: &mut [u8; FRAME_LEN_MAX]) -> Option<usize> {
        let send = self.outputs.next_frame()?;
        let (enode, vn_port) = (self.interface.mac, self.mac());
        let port = Port {
            mac: enode,
            name: self.config.wwnn,
            port: VnPort { mac: vn_port, id: self.id, name: self.config.wwpn },
        };
        let size = self.interface.fcoe_len_max();
        let claim = || Claim { port, fc4: Fc4::fcp(self.config.functions.to_bits()), size };
        let all = fip::ALL_VN2VN_ENODE_MACS;
        let (destination, source, message) = match send {
            Send::Probe => (all, enode, Message::ProbeRequest(port)),
            Send::ProbeReply(to) => (to, enode, Message::ProbeReply(port)),
            Send::Claim => (all, enode, Message::ClaimNotification(claim())),
            Send::ClaimResponse(to, _) => (to, enode, Message::ClaimResponse(claim())),
            Send::Beacon => (all, vn_port, Message::Beacon(port)),
        };
        let is_recorded = send == Send::Probe && self.is_recorded;
        let flags = if is_recorded { Flags::REC } else { Flags::EMPTY };
        let mut frame = fip::Frame::new(Ethernet { destination, source }, flags, message);
        if let Send::ClaimResponse(_, theirs) = send {
            // It proves that frames of that length pass.
            frame.len = fip::padded_len(theirs.min(size));
        }
        Some(frame.emit(buffer))
    }
}

fn neighbour(claim: &Claim) -> Neighbour {
    let VnPort { id, name, .. } = claim.port.port;
    let functions = claim.fc4.fcp_functions().unwrap_or(0);
    Neighbour {
        wwpn: name,
        wwnn: Some(claim.port.name),
        id,
        enode: claim.port.mac,
        fcoe_len_max: claim.size,
        functions: Functions::from_bits(functions),
    }
}

//! A lane, its user, and a target that follows a script.

use std::collections::BTreeMap;
use std::time::Duration;

use tyche_fc::Outgoing;
use tyche_fc::exchange::Xids;
use tyche_fc::initiator::{
    Command, Completion, Data, Event, Failure, Lane, LaneConfig, Nexus, Refused, Taken, Unit,
};
use tyche_fc::neighbour::Functions;
use tyche_fc::port::Login;
use tyche_fc::wire::bls::{BaAcc, BaRjt};
use tyche_fc::wire::els::{
    ESTAT_COMPLETE, ESTAT_INITIATIVE, ESTAT_RESPONDER, ExchangeStatus, Rejection, Reply, Request,
};
use tyche_fc::wire::fcp::{Response, TransferReady};
use tyche_fc::wire::{
    Ethernet, FCtl, FRAME_LEN_MAX, FcMap, Frame, HEAD_LEN, Header, Kind, Mac, PortId, Wwn, Xid,
};
use tyche_time::Instant;

pub(crate) const OURS: PortId = PortId::new(0x0a01);
pub(crate) const THEIRS: PortId = PortId::new(0x0b02);
pub(crate) const WWPN: Wwn = Wwn(0x2000_0200_0000_0b02);
pub(crate) const LUN: [u8; 8] = [0, 3, 0, 0, 0, 0, 0, 0];
/// RX_IDs of the target are this much higher than our OX_IDs.
pub(crate) const RX: u16 = 0x100;
/// Bytes of a frame's payload.
pub(crate) const FRAME: u32 = 2016;
/// The state of an exchange, as the target answers REC (ESTAT).
pub(crate) const AT_WORK: u32 = ESTAT_RESPONDER | ESTAT_INITIATIVE;
pub(crate) const OURS_TO_GO_ON: u32 = ESTAT_RESPONDER;
pub(crate) const COMPLETE: u32 = ESTAT_RESPONDER | ESTAT_INITIATIVE | ESTAT_COMPLETE;

pub(crate) const E_D_TOV: u64 = 2_000;
pub(crate) const R_A_TOV: u64 = 10_000;
pub(crate) const REC_TOV: u64 = E_D_TOV + 1_000;

pub(crate) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) fn mac(id: PortId) -> Mac {
    Mac::fpma(FcMap::VN2VN, id)
}

pub(crate) fn login() -> Login {
    Login {
        wwpn: WWPN,
        id: THEIRS,
        mac: mac(THEIRS),
        functions: Functions { initiator: false, target: true },
        payload_max: FRAME as usize,
        retries: false,
        confirms: true,
        e_d_tov: ms(E_D_TOV),
        r_a_tov: ms(R_A_TOV),
    }
}

/// XIDs from 0x2a on.
pub(crate) fn config() -> LaneConfig {
    LaneConfig {
        xids: Xids::new((0x2a, 0xa9), 0, 0),
        seed: 0,
        depth: 32,
        targets: 2,
        units: 4,
        read_frames: 1000,
        write_frames: 1000,
        command_timeout: ms(30_000),
    }
}

/// The byte of data at an offset.
pub(crate) fn byte(offset: u32) -> u8 {
    (offset / 7).wrapping_add(offset) as u8
}

pub(crate) struct Script {
    pub(crate) lane: Lane,
    pub(crate) now: Instant,
    pub(crate) nexus: Nexus,
    pub(crate) unit: Unit,
    /// Frames since the last look.
    frames: Vec<Vec<u8>>,
    /// Frames of the last look.
    pub(crate) seen: Vec<Vec<u8>>,
    pub(crate) ends: Vec<Completion>,
    pub(crate) restarts: Vec<Wwn>,
    /// Data of reads, as far as they have come.
    pub(crate) buffers: BTreeMap<u16, Vec<u8>>,
    /// The header of the last REC or RRQ.
    pub(crate) asked: Option<Header>,
    /// Whether the link takes no frames.
    pub(crate) is_full: bool,
    outgoing: Outgoing,
}

impl Script {
    pub(crate) fn new() -> Self {
        Self::with(config())
    }

    pub(crate) fn with(config: LaneConfig) -> Self {
        let mut lane = Lane::new(config);
        let now = Instant(1_000_000_000);
        let nexus = lane.logged_in(now, (OURS, mac(OURS)), &login()).unwrap();
        let unit = lane.unit(nexus, LUN).unwrap();
        Self {
            lane,
            now,
            nexus,
            unit,
            frames: Vec::new(),
            seen: Vec::new(),
            ends: Vec::new(),
            restarts: Vec::new(),
            buffers: BTreeMap::new(),
            asked: None,
            is_full: false,
            outgoing: Outgoing::new(),
        }
    }

    /// Submits a command of the logical unit; returns its number.
    pub(crate) fn try_submit(&mut self, cdb: u8, data: Data) -> Result<u16, Refused> {
        let modifies = matches!(cdb, 0x8a | 0x93);
        let hears_attentions = cdb != 0x12;
        let mut bytes = [0; 16];
        bytes[0] = cdb;
        self.submit_command(&Command {
            unit: self.unit,
            cdb: bytes,
            data,
            modifies,
            hears_attentions,
        })
    }

    pub(crate) fn submit_command(&mut self, command: &Command) -> Result<u16, Refused> {
        let name = self.lane.submit(command)?;
        if let Data::In(len) = command.data {
            self.buffers.insert(name, vec![0xa5; len as usize]);
        }
        self.drain();
        Ok(name)
    }

    pub(crate) fn read(&mut self, len: u32) -> u16 {
        self.try_submit(0x88, Data::In(len)).unwrap()
    }

    pub(crate) fn write(&mut self, len: u32) -> u16 {
        self.try_submit(0x8a, Data::Out(len)).unwrap()
    }

    /// A flush.
    pub(crate) fn flush(&mut self) -> u16 {
        self.try_submit(0x91, Data::None).unwrap()
    }

    /// Takes all outputs.
    pub(crate) fn drain(&mut self) {
        while let Some(event) = self.lane.poll_event() {
            match event {
                Event::Completed(completion) => self.ends.push(completion),
                Event::Restart(wwpn) => self.restarts.push(wwpn),
            }
        }
        while !self.is_full && self.lane.poll_transmit(self.now, &mut self.outgoing) {
            let part = self.outgoing.part();
            let data = part.map(|it| (it.offset..it.offset + it.len).map(byte).collect());
            let data: Vec<u8> = data.unwrap_or_default();
            let bytes = self.outgoing.to_bytes(&data);
            let header = parse(&bytes).header;
            if header.kind == Kind::ElsRequest {
                self.asked = Some(header);
            }
            self.frames.push(bytes);
        }
    }

    /// The frames that have been sent since the last look, in words.
    pub(crate) fn sent(&mut self) -> String {
        self.seen = std::mem::take(&mut self.frames);
        let words = self.seen.iter().map(|bytes| {
            let frame = parse(bytes);
            let Header { kind, ox_id, parameter, .. } = frame.header;
            match kind {
                Kind::FcpCmnd => format!("command {ox_id}"),
                Kind::FcpData => {
                    let end = if frame.header.f_ctl.has(FCtl::END_SEQ) { "!" } else { "" };
                    format!("data {ox_id} {parameter}+{}{end}", frame.payload.len())
                }
                Kind::FcpConf => format!("confirm {ox_id}"),
                Kind::Abts => format!("abort {ox_id}"),
                Kind::ElsRequest => match Request::parse(frame.payload).unwrap() {
                    Request::Rec(about) => format!("ask {}", about.ox_id),
                    Request::Rrq(about) => format!("release {}", about.ox_id),
                    request => panic!("{request:?}"),
                },
                kind => panic!("{kind:?}"),
            }
        });
        words.collect::<Vec<_>>().join(", ")
    }

    /// The ends since the last look: a status, or a failure.
    pub(crate) fn ends(&mut self) -> Vec<(u16, Result<u8, Failure>)> {
        let ends = std::mem::take(&mut self.ends);
        ends.iter().map(|it| (it.exchange, it.end.map(|answer| answer.status))).collect()
    }

    /// Lets time pass; returns what is sent meanwhile.
    pub(crate) fn wait(&mut self, time: u64) -> String {
        let end = self.now + ms(time);
        while let Some(at) = self.lane.poll_timeout().filter(|at| *at <= end) {
            self.now = self.now.max(at);
            self.lane.handle_timeout(self.now);
            self.drain();
        }
        self.now = end;
        self.sent()
    }

    /// Gives the lane a frame of the target; places its data.
    pub(crate) fn receive(&mut self, header: Header, payload: &[u8]) -> Taken {
        let ethernet = Ethernet { destination: mac(OURS), source: mac(THEIRS) };
        self.receive_frame(&Frame { ethernet, header, payload })
    }

    pub(crate) fn receive_frame(&mut self, frame: &Frame<'_>) -> Taken {
        let taken = self.lane.handle_frame(self.now, frame);
        if let Taken::Place(placement) = taken {
            let buffer = self.buffers.get_mut(&placement.exchange).unwrap();
            let offset = placement.offset as usize;
            buffer[offset..offset + frame.payload.len()].copy_from_slice(frame.payload);
        }
        self.drain();
        taken
    }

    /// Data of a read: whether they are placed.
    pub(crate) fn data(&mut self, ox_id: u16, offset: u32, len: u32) -> bool {
        let payload: Vec<u8> = (0..len).map(|it| byte(offset.wrapping_add(it))).collect();
        let header = Header { parameter: offset, ..header(Kind::FcpData, ox_id) };
        matches!(self.receive(header, &payload), Taken::Place(_))
    }

    pub(crate) fn ask_for(&mut self, ox_id: u16, offset: u32, len: u32) -> String {
        let payload = TransferReady { offset, len }.to_bytes();
        let _ = self.receive(header(Kind::FcpXferRdy, ox_id), &payload);
        self.sent()
    }

    pub(crate) fn respond(&mut self, ox_id: u16, response: &Response<'_>) {
        let mut payload = [0; 512];
        let len = response.emit(&mut payload);
        let _ = self.receive(header(Kind::FcpRsp, ox_id), &payload[..len]);
    }

    pub(crate) fn good(&mut self, ox_id: u16) {
        self.respond(ox_id, &Response::GOOD);
    }

    pub(crate) fn accept_abort(&mut self, ox_id: u16) {
        let payload = BaAcc::whole(Xid(ox_id), Xid(ox_id + RX)).to_bytes();
        let _ = self.receive(header(Kind::BaAcc, ox_id), &payload);
    }

    /// Accepts an abort as Linux does.
    pub(crate) fn accept_abort_without_numbers(&mut self, ox_id: u16) {
        let zero = Xid(0);
        let accepted = BaAcc { seq_id: Some(1), low_seq_cnt: 1, ..BaAcc::whole(zero, zero) };
        let payload = BaAcc { high_seq_cnt: 0, ..accepted }.to_bytes();
        let _ = self.receive(header(Kind::BaAcc, ox_id), &payload);
    }

    pub(crate) fn reject_abort(&mut self, ox_id: u16, reason: u8, explanation: u8) {
        let payload = BaRjt { reason, explanation }.to_bytes();
        let _ = self.receive(header(Kind::BaRjt, ox_id), &payload);
    }

    /// Answers the last REC or RRQ; returns what is sent then.
    pub(crate) fn reply(&mut self, reply: Reply) -> String {
        let asked = self.asked.unwrap();
        let mut payload = [0; 256];
        let len = reply.emit(&mut payload);
        let header = asked.reply(Kind::ElsReply, Xid(0x7777));
        let _ = self.receive(header, &payload[..len]);
        self.sent()
    }

    /// Answers the last REC.
    pub(crate) fn state(&mut self, ox_id: u16, estat: u32) -> String {
        self.reply(Reply::Exchange(ExchangeStatus {
            ox_id: Xid(ox_id),
            rx_id: Xid(ox_id + RX),
            originator: OURS,
            responder: THEIRS,
            transferred: 0,
            estat,
        }))
    }

    /// Refuses it.
    pub(crate) fn refuse(&mut self, reason: u8, explanation: u8) -> String {
        self.reply(Reply::Refused(Rejection { reason, explanation }))
    }

    /// Refuses it: there is no such exchange.
    pub(crate) fn unknown(&mut self) -> String {
        self.refuse(Rejection::LOGICAL, Rejection::INVALID_XID)
    }

    /// Whether the buffer of a read has all its data.
    pub(crate) fn is_whole(&self, name: u16) -> bool {
        (0..).zip(&self.buffers[&name]).all(|(offset, it)| *it == byte(offset))
    }
}

/// The header of a frame of the target's in one of our exchanges.
pub(crate) fn header(kind: Kind, ox_id: u16) -> Header {
    let f_ctl = match kind {
        Kind::FcpData => FCtl::READ_DATA,
        Kind::FcpXferRdy => FCtl::XFER_RDY,
        Kind::FcpRsp => FCtl::RESPONSE,
        _ => FCtl::REPLY,
    };
    let (ox_id, rx_id) = (Xid(ox_id), Xid(ox_id + RX));
    Header { f_ctl, rx_id, ..Header::request(kind, THEIRS, OURS, ox_id) }
}

pub(crate) fn parse(bytes: &[u8]) -> Frame<'_> {
    assert!(bytes.len() <= FRAME_LEN_MAX);
    let (head, rest) = bytes.split_first_chunk::<HEAD_LEN>().unwrap();
    let frame = Frame::parse(head, rest).unwrap();
    frame.check_destination().unwrap();
    frame
}

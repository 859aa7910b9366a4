//! A lane, the user's part of it, and what initiators send, in words.

use std::collections::BTreeMap;
use std::time::Duration;

use tyche_fc::neighbour::Functions;
use tyche_fc::port::Login;
use tyche_fc::target_end::{Action, Command, Completion, Data, Function, Lane, LaneConfig, RX_IDS};
use tyche_fc::wire::bls::{BaAcc, BaRjt};
use tyche_fc::wire::els::{Code, Exchange, Reply, Request};
use tyche_fc::wire::fcp::{self, COMMAND_LEN, Residual, Response, ResponseCode, TransferReady};
use tyche_fc::wire::{
    Ethernet, FCtl, FRAME_LEN_MAX, FcMap, Frame, HEAD_LEN, Header, Kind, Mac, PortId, Wwn, Xid,
};
use tyche_fc::{Outgoing, Part};
use tyche_time::Instant;

pub(crate) const OURS: PortId = PortId::new(0x0b02);
pub(crate) const HOST: Host = Host { id: PortId::new(0x0a01), wwpn: Wwn(0x2000_0000_0000_0a01) };
pub(crate) const OTHER: Host = Host { id: PortId::new(0x0c03), wwpn: Wwn(0x2000_0000_0000_0c03) };
pub(crate) const LUN: [u8; 8] = [0, 3, 0, 0, 0, 0, 0, 0];
pub(crate) const E_D_TOV: Duration = Duration::from_secs(2);
pub(crate) const MANAGEMENT: Duration = Duration::from_secs(8);
pub(crate) const R_A_TOV: Duration = Duration::from_secs(10);
pub(crate) const BURST_LEN: u32 = 64 << 10;
/// Frames of data of a read before it is another's turn.
pub(crate) const TURN: usize = 32;
/// Times E_D_TOV in which a burst must come.
pub(crate) const BURST_TIMES: u32 = 4;
/// Ranges of a write's data that may be apart.
pub(crate) const HOLES: u16 = 16;
/// Slots that commands leave free.
pub(crate) const RESERVED: u16 = 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Host {
    pub(crate) id: PortId,
    pub(crate) wwpn: Wwn,
}

pub(crate) fn mac(id: PortId) -> Mac {
    Mac::fpma(FcMap::VN2VN, id)
}

pub(crate) fn login(host: Host, payload_max: usize) -> Login {
    Login {
        wwpn: host.wwpn,
        id: host.id,
        mac: mac(host.id),
        functions: Functions { initiator: true, target: false },
        payload_max,
        retries: false,
        confirms: true,
        e_d_tov: E_D_TOV,
        r_a_tov: R_A_TOV,
    }
}

/// A target lane under test, with a user that has memory and no store. Methods play the initiators;
/// the lane's actions and frames are returned as text, to be compared in tests.
pub(crate) struct Rig {
    pub(crate) lane: Lane,
    pub(crate) now: Instant,
    /// The memory of each exchange that has some.
    pub(crate) memory: BTreeMap<u16, Vec<u8>>,
    /// Actions since the last look.
    acted: Vec<String>,
    pub(crate) offered: Vec<Command>,
    /// The last sequence of each exchange that we have sent: its SEQ_ID, and whether it goes on
    /// with which SEQ_CNT.
    sequences: BTreeMap<(PortId, Xid, Xid), (u8, Option<u16>)>,
    /// The code of the last link service that was asked for.
    asked: Code,
}

pub(crate) fn rig() -> Rig {
    Rig::new(LaneConfig { frames_max: 4096, ..config(16) })
}

pub(crate) fn config(exchanges: u16) -> LaneConfig {
    LaneConfig { exchanges, seed: 0, burst_len: BURST_LEN, frames_max: 64 }
}

/// A command without a CDB: the rig says what it is.
pub(crate) fn command(data: Data) -> fcp::Command<'static> {
    let (reads, writes) = (matches!(data, Data::In(_)), matches!(data, Data::Out(_)));
    let data_len = match data {
        Data::None => 0,
        Data::In(len) | Data::Out(len) => len,
    };
    fcp::Command { reads, writes, data_len, ..fcp::Command::new(LUN, [0; 16]) }
}

impl Rig {
    pub(crate) fn new(config: LaneConfig) -> Self {
        let mut rig = Self {
            lane: Lane::new(config),
            now: Instant(1),
            memory: BTreeMap::new(),
            acted: Vec::new(),
            offered: Vec::new(),
            sequences: BTreeMap::new(),
            asked: Code::Rec,
        };
        rig.log_in(HOST, 2112);
        rig
    }

    pub(crate) fn log_in(&mut self, host: Host, payload_max: usize) {
        self.lane.logged_in((OURS, mac(OURS)), &login(host, payload_max));
    }

    pub(crate) fn log_out(&mut self, host: Host) -> String {
        self.lane.logged_out(host.wwpn);
        self.actions(&[])
    }

    /// Hands the lane the bytes of a frame; returns what it wants of the user.
    pub(crate) fn receive(&mut self, bytes: &[u8]) -> String {
        let (head, rest) = bytes.split_first_chunk::<HEAD_LEN>().unwrap();
        let Ok(frame) = Frame::parse(head, rest) else { return "damaged".into() };
        assert!(self.lane.handle_frame(self.now, &frame), "{:?}", frame.header);
        self.actions(frame.payload)
    }

    pub(crate) fn frame(&mut self, host: Host, header: Header, payload: &[u8]) -> String {
        let ethernet = Ethernet { destination: mac(OURS), source: mac(host.id) };
        let mut buffer = [0; FRAME_LEN_MAX];
        let len = Frame { ethernet, header, payload }.emit(&mut buffer);
        self.receive(&buffer[..len])
    }

    pub(crate) fn send_command(
        &mut self,
        host: Host,
        ox_id: u16,
        command: fcp::Command<'_>,
    ) -> String {
        let mut payload = [0; COMMAND_LEN + 8];
        let len = command.emit(&mut payload);
        let header = Header::request(Kind::FcpCmnd, host.id, OURS, Xid(ox_id));
        self.frame(host, header, &payload[..len])
    }

    /// Has the host send a command; returns its exchange.
    pub(crate) fn begin(&mut self, ox_id: u16, data: Data) -> u16 {
        self.begin_of(HOST, ox_id, data)
    }

    pub(crate) fn begin_of(&mut self, host: Host, ox_id: u16, data: Data) -> u16 {
        let said = self.send_command(host, ox_id, command(data));
        let offered = self.offered.pop().unwrap();
        assert_eq!((said, offered.initiator), (format!("offer {}", offered.exchange), host.wwpn));
        offered.exchange
    }

    /// A write that was accepted, whose first FCP_XFER_RDY was sent.
    pub(crate) fn asked(&mut self, ox_id: u16, len: u32) -> u16 {
        let exchange = self.begin(ox_id, Data::Out(len));
        assert_eq!(self.accept(exchange, Data::Out(len)), "");
        assert!(self.sent().starts_with(&format!("{ox_id:x} ready 0+")));
        exchange
    }

    /// A write, or a read, that is at the store.
    pub(crate) fn at_work(&mut self, ox_id: u16, data: Data) -> u16 {
        match data {
            Data::Out(len) => {
                let exchange = self.asked(ox_id, len);
                let said = self.data(ox_id, exchange, 0, (0, len), true);
                assert_eq!(said, format!("place {exchange} 0+{len}, execute {exchange}"));
                exchange
            }
            _ => {
                let exchange = self.begin(ox_id, data);
                assert_eq!(self.accept(exchange, data), format!("execute {exchange}"));
                exchange
            }
        }
    }

    /// Has the host send a frame of a write's data, all bytes of which are their offset.
    pub(crate) fn data(
        &mut self,
        ox_id: u16,
        exchange: u16,
        seq_cnt: u16,
        (offset, len): (u32, u32),
        is_last: bool,
    ) -> String {
        self.data_of(HOST, (ox_id, exchange), seq_cnt, (offset, len), is_last)
    }

    pub(crate) fn data_of(
        &mut self,
        host: Host,
        (ox_id, exchange): (u16, u16),
        seq_cnt: u16,
        (offset, len): (u32, u32),
        is_last: bool,
    ) -> String {
        let payload: Vec<u8> = (offset..offset + len).map(pattern).collect();
        let header = Header {
            f_ctl: if is_last { FCtl::WRITE_DATA_END } else { FCtl::WRITE_DATA },
            seq_cnt,
            seq_id: ((offset / BURST_LEN) as u8).wrapping_add(1),
            rx_id: self.rx_id(exchange),
            parameter: offset,
            ..Header::request(Kind::FcpData, host.id, OURS, Xid(ox_id))
        };
        self.frame(host, header, &payload)
    }

    pub(crate) fn abort(&mut self, ox_id: u16, rx_id: Option<u16>) -> String {
        self.abort_of(HOST, ox_id, rx_id)
    }

    pub(crate) fn abort_of(&mut self, host: Host, ox_id: u16, rx_id: Option<u16>) -> String {
        let header = Header {
            f_ctl: FCtl::ABTS,
            seq_id: 7,
            rx_id: rx_id.map_or(Xid::NONE, |exchange| self.rx_id(exchange)),
            ..Header::request(Kind::Abts, host.id, OURS, Xid(ox_id))
        };
        self.frame(host, header, &[])
    }

    /// The RX_ID of an exchange, or one that none has.
    pub(crate) fn rx_id(&self, exchange: u16) -> Xid {
        let strange = || Xid((0..RX_IDS).find(|it| self.index(Xid(*it)).is_none()).unwrap());
        let exchange = Some(exchange).filter(|it| usize::from(*it) < self.lane.capacity());
        exchange.and_then(|it| self.lane.rx_id(it)).unwrap_or_else(strange)
    }

    /// The exchange with an RX_ID.
    pub(crate) fn index(&self, rx_id: Xid) -> Option<u16> {
        (0..self.lane.capacity() as u16).find(|it| self.lane.rx_id(*it) == Some(rx_id))
    }

    /// Has the host ask for a link service about an exchange.
    pub(crate) fn ask(&mut self, request: Request<'_>) -> String {
        let mut payload = [0; 116];
        let len = request.emit(&mut payload);
        self.asked = request.code();
        let header = Header::request(Kind::ElsRequest, HOST.id, OURS, Xid(0x777));
        assert_eq!(self.frame(HOST, header, &payload[..len]), "");
        self.sent()
    }

    pub(crate) fn rec(&mut self, ox_id: u16) -> String {
        self.ask(Request::Rec(about(ox_id)))
    }

    pub(crate) fn accept(&mut self, exchange: u16, data: Data) -> String {
        let (Data::In(len) | Data::Out(len)) = data else {
            self.lane.accept(self.now, exchange, data);
            return self.actions(&[]);
        };
        self.memory.insert(exchange, vec![0; len as usize]);
        self.lane.accept(self.now, exchange, data);
        self.actions(&[])
    }

    /// Ends a command well, with that much data for the initiator.
    pub(crate) fn complete(&mut self, exchange: u16, len: u32) -> String {
        let memory = self.memory.entry(exchange).or_default();
        if len > 0 {
            *memory = (0..len).map(pattern).collect();
        }
        let completion = Completion { len, ..Completion::default() };
        self.lane.complete(self.now, exchange, &completion);
        self.actions(&[])
    }

    pub(crate) fn managed(&mut self, exchange: u16, code: ResponseCode) -> String {
        self.lane.managed(self.now, exchange, code);
        self.actions(&[])
    }

    pub(crate) fn wait(&mut self, time: Duration) -> String {
        let end = self.now + time;
        while let Some(at) = self.lane.poll_timeout().filter(|at| *at <= end) {
            self.now = at;
            self.lane.handle_timeout(at);
            assert!(self.lane.poll_timeout().is_none_or(|next| next > at), "it is over");
        }
        self.now = end;
        self.actions(&[])
    }

    /// The actions for the user since the last look.
    fn actions(&mut self, payload: &[u8]) -> String {
        while let Some(action) = self.lane.poll_action() {
            let text = match action {
                Action::Command(command) => {
                    self.offered.push(command);
                    assert!(!self.memory.contains_key(&command.exchange), "it is released");
                    format!("offer {}", command.exchange)
                }
                Action::Place { exchange, offset, len } => {
                    assert_eq!(len as usize, payload.len());
                    let memory = self.memory.get_mut(&exchange).expect("accepted");
                    memory[offset as usize..][..payload.len()].copy_from_slice(payload);
                    format!("place {exchange} {offset}+{len}")
                }
                Action::Execute { exchange } => format!("execute {exchange}"),
                Action::Release { exchange } => {
                    self.memory.remove(&exchange);
                    format!("release {exchange}")
                }
                Action::Confirmed { exchange } => format!("confirmed {exchange}"),
                Action::Manage { exchange, function, lun, .. } => {
                    assert_eq!(lun, LUN);
                    let name = match function {
                        Function::AbortTaskSet => "abort task set",
                        Function::ClearTaskSet => "clear task set",
                        Function::LuReset => "reset",
                        Function::TargetReset => "reset all",
                    };
                    format!("manage {exchange} {name}")
                }
                Action::Unmanage { exchange } => format!("unmanage {exchange}"),
                Action::Drained(wwpn) => format!("drained {:x}", wwpn.0 & 0xffff),
            };
            self.acted.push(text);
        }
        std::mem::take(&mut self.acted).join(", ")
    }

    /// The next frame that the lane sends.
    pub(crate) fn next_frame(&mut self) -> Option<Vec<u8>> {
        let mut out = Outgoing::new();
        if !self.lane.poll_transmit(self.now, &mut out) {
            return None;
        }
        let data = out.part().map(|Part { exchange, offset, len }| {
            let memory = self.memory.get(&exchange).expect("its memory is not released");
            &memory[offset as usize..][..len as usize]
        });
        Some(out.to_bytes(data.unwrap_or_default()))
    }

    /// The next frame that the lane sends, in words.
    pub(crate) fn send_one(&mut self) -> Option<String> {
        let bytes = self.next_frame()?;
        // Releases are listed with the next actions.
        let acted = self.actions(&[]);
        if !acted.is_empty() {
            self.acted.push(acted);
        }
        let (head, rest) = bytes.split_first_chunk::<HEAD_LEN>().unwrap();
        let frame = Frame::parse(head, rest).unwrap();
        self.check(&frame);
        Some(format!("{:x} {}", frame.header.ox_id.0, self.words(&frame)))
    }

    /// The frames that the lane sends, in words, and what it wants of the user then.
    pub(crate) fn sent(&mut self) -> String {
        let mut sent = Vec::new();
        while let Some(one) = self.send_one() {
            sent.push(one);
        }
        sent.append(&mut self.acted);
        sent.join(", ")
    }

    /// Addresses and places in sequences are as they should be.
    fn check(&mut self, frame: &Frame<'_>) {
        let header = &frame.header;
        frame.check_destination().unwrap();
        assert_eq!((frame.ethernet.source, header.s_id), (mac(OURS), OURS));
        assert!(header.f_ctl.has(FCtl::EX_CTX));
        let is_of_exchange = matches!(header.kind, Kind::FcpData | Kind::FcpRsp | Kind::FcpXferRdy);
        if !is_of_exchange || header.rx_id == Xid::NONE {
            return;
        }
        let key = (header.d_id, header.ox_id, header.rx_id);
        let (seq_id, seq_cnt) = match self.sequences.get(&key) {
            Some((seq_id, Some(seq_cnt))) => (*seq_id, *seq_cnt),
            Some((seq_id, None)) => (seq_id.wrapping_add(1), 0),
            None => (0, 0),
        };
        assert_eq!((header.seq_id, header.seq_cnt), (seq_id, seq_cnt), "{header:?}");
        let next = (!header.f_ctl.has(FCtl::END_SEQ)).then_some(seq_cnt + 1);
        self.sequences.insert(key, (seq_id, next));
        if header.kind == Kind::FcpRsp {
            self.sequences.remove(&key);
            // Only a response that is to be confirmed leaves the exchange and the initiative.
            let confirm = Response::parse(frame.payload).unwrap().confirm;
            let last = [FCtl::LAST_SEQ, FCtl::SEQ_INIT].map(|bit| header.f_ctl.has(bit));
            assert_eq!(last, [!confirm, confirm]);
        }
    }

    fn words(&self, frame: &Frame<'_>) -> String {
        let (header, payload) = (&frame.header, frame.payload);
        match header.kind {
            Kind::FcpXferRdy => {
                assert_eq!(header.f_ctl, FCtl::XFER_RDY);
                let TransferReady { offset, len } = TransferReady::parse(payload).unwrap();
                format!("ready {offset}+{len}")
            }
            Kind::FcpData => {
                let offset = header.parameter;
                let bytes = (offset..).take(payload.len()).map(pattern);
                assert!(bytes.eq(payload.iter().copied()), "the right data");
                let is_last = header.f_ctl == FCtl::READ_DATA_END;
                format!("data {offset}+{}{}", payload.len(), if is_last { " end" } else { "" })
            }
            Kind::FcpRsp => response(&Response::parse(payload).unwrap()),
            Kind::BaAcc => {
                let acc = BaAcc::parse(payload).unwrap();
                assert_eq!(acc, BaAcc::whole(header.ox_id, header.rx_id));
                assert_eq!(header.seq_id, 7);
                "accepted".into()
            }
            Kind::BaRjt => match BaRjt::parse(payload).unwrap() {
                BaRjt::UNKNOWN => "rejected".into(),
                BaRjt { reason, explanation } => format!("rejected {reason:x}/{explanation:x}"),
            },
            _ => match Reply::parse(self.asked, payload).unwrap() {
                Reply::Exchange(status) => {
                    let exchange = self.index(status.rx_id).unwrap();
                    format!("{exchange} {:x} {}", status.estat, status.transferred)
                }
                Reply::Refused(it) => format!("no {:x}/{:x}", it.reason, it.explanation),
                _ => "yes".into(),
            },
        }
    }
}

/// The exchange of the host with that number.
pub(crate) fn about(ox_id: u16) -> Exchange {
    Exchange { originator: HOST.id, ox_id: Xid(ox_id), rx_id: Xid::NONE }
}

/// A byte of data that tells its place.
pub(crate) fn pattern(offset: u32) -> u8 {
    (offset ^ offset >> 8 ^ offset >> 16) as u8
}

fn response(response: &Response<'_>) -> String {
    let mut words = format!("status {:x}", response.status);
    if let [_, _, key, _, _, _, _, _, _, _, _, _, code, qualifier, ..] = response.sense {
        words += &format!(" {key:x}/{code:x}/{qualifier:x}");
    }
    match response.residual {
        Residual::None => {}
        Residual::Over(len) => words += &format!(" over {len}"),
        Residual::Under(len) => words += &format!(" under {len}"),
    }
    if let Some(code) = response.code {
        words += &format!(" code {code}");
    }
    if response.confirm {
        words += " confirm";
    }
    words
}

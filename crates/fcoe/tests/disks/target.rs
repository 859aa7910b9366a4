//! A target without a network: its interfaces, and initiators that are logged in.

use std::sync::Arc;
use std::time::Duration;

use tyche_block::Arena;
use tyche_engine::{Exported, FrameSink, Frames};
use tyche_fcoe::fc::AllRules;
use tyche_fcoe::fc::neighbour::Functions;
use tyche_fcoe::fc::port::{Event, Login};
use tyche_fcoe::fc::target_end::LaneConfig;
use tyche_fcoe::fc::wire::els::{Exchange, LOGIN_LEN, Request};
use tyche_fcoe::fc::wire::fcp::{self, COMMAND_LEN, Response, TaskManagement};
use tyche_fcoe::fc::wire::{
    Ethernet, FCtl, FcMap, Frame, HEAD_LEN, Header, Kind, Mac, PortId, Wwn, Xid,
};
use tyche_fcoe::scsi::cdb::Command;
use tyche_fcoe::scsi::{Code, Sense, Status, Uuid};
use tyche_fcoe::{Generation, Role, Seat, TargetRole, TargetUnit, Units, VisibleTo};
use tyche_proto::Instant;
use tyche_store::Store;
use tyche_store::fault::FaultStore;

const OURS: PortId = PortId::new(0x0b02);
pub(crate) const SIZE: u64 = 1 << 20;

/// An initiator.
pub(crate) type Host = (PortId, Wwn);
pub(crate) const HOST: Host = (PortId::new(0x0a01), Wwn(0x2000_0000_0000_0a01));
pub(crate) const OTHER: Host = (PortId::new(0x0a02), Wwn(0x2000_0000_0000_0a02));

fn mac(id: PortId) -> Mac {
    Mac::fpma(FcMap::VN2VN, id)
}

/// The end of a command.
#[derive(Debug, PartialEq)]
pub(crate) struct End {
    pub(crate) status: Status,
    pub(crate) code: Option<Code>,
    pub(crate) generation: Option<Uuid>,
    pub(crate) data: Vec<u8>,
    pub(crate) confirm: bool,
    pub(crate) exchange: (Xid, Xid),
}

/// An interface of a target, and the initiator whose frames come next.
pub(crate) struct Target {
    pub(crate) role: TargetRole<AllRules>,
    pub(crate) now: Instant,
    host: Host,
    ox_id: u16,
    /// Writes whose data are asked for, and not sent.
    pub(crate) asked: Vec<(Xid, Xid)>,
}

/// The bytes of a frame.
struct Bytes<'b>(&'b mut Vec<u8>);

impl<'d> FrameSink<'d> for Bytes<'_> {
    fn gather(self, front: &[u8], data: &[&'d [u8]], tail: &[u8]) {
        self.0.extend_from_slice(front);
        data.iter().for_each(|it| self.0.extend_from_slice(it));
        self.0.extend_from_slice(tail);
    }

    fn fill(self, _: &[u8], _: usize, _: impl FnOnce(&mut [u8])) {
        unreachable!("frames of FCoE lie in memory");
    }
}

/// A disk of that store.
pub(crate) fn exported(store: impl Store + 'static) -> Arc<Exported> {
    Arc::new(Exported::new("disk".to_owned(), Arc::new(store)))
}

/// A target of one disk, with its generation, to which several initiators may write.
pub(crate) fn units(exported: Arc<Exported>, generation: Option<Generation>) -> Arc<Units> {
    units_of(exported, generation, true)
}

/// The same. `shared`: whether several may write.
pub(crate) fn units_of(
    exported: Arc<Exported>,
    generation: Option<Generation>,
    shared: bool,
) -> Arc<Units> {
    Arc::new(Units::new(vec![TargetUnit { shared, ..unit(exported, generation) }]))
}

/// A logical unit that one initiator may write to.
pub(crate) fn unit(exported: Arc<Exported>, generation: Option<Generation>) -> TargetUnit {
    TargetUnit {
        number: 0,
        exported,
        uuid: Uuid::from_u128(1),
        shared: false,
        initiators: VisibleTo::default(),
        continues: false,
        generation,
    }
}

impl Target {
    /// A target of one interface, and its initiator.
    pub(crate) fn new(store: FaultStore) -> Self {
        let mut target = Self::of(&units(exported(store), None), 1);
        target.login(HOST);
        target
    }

    /// An interface of a target, by its number.
    pub(crate) fn of(units: &Arc<Units>, number: u64) -> Self {
        Self::threads_of(units, number, 1).remove(0)
    }

    /// The threads of such an interface.
    pub(crate) fn threads_of(units: &Arc<Units>, number: u64, threads: usize) -> Vec<Self> {
        let name = Wwn(0x2000_0000_0000_0b00 + number);
        Seat::take(units, name, threads).into_iter().map(Self::new_thread).collect()
    }

    fn new_thread(seat: Seat) -> Self {
        let lane = LaneConfig { exchanges: 256, seed: 1, burst_len: 64 << 10, frames_max: 256 };
        let mut role = TargetRole::with_rules(seat, Arena::new(256), lane, AllRules);
        role.handle_address((OURS, mac(OURS)));
        Self { role, now: Instant(1), host: HOST, ox_id: 0, asked: Vec::new() }
    }

    /// Lets an initiator in, whose frames come from now on.
    pub(crate) fn login(&mut self, host: Host) {
        self.host = host;
        let login = Login {
            wwpn: host.1,
            id: host.0,
            mac: mac(host.0),
            functions: Functions { initiator: true, target: false },
            payload_max: 2112,
            retries: false,
            confirms: true,
            e_d_tov: Duration::from_secs(2),
            r_a_tov: Duration::from_secs(10),
        };
        self.role.handle_login(self.now, Event::LoggedIn(login));
    }

    /// The login of the initiator ends.
    pub(crate) fn logout(&mut self) {
        let cause = tyche_fcoe::fc::port::Cause::Logout;
        self.role.handle_login(self.now, Event::LoggedOut(self.host.1, cause));
    }

    /// The same, and takes all attentions.
    pub(crate) fn welcome(&mut self, host: Host) {
        self.login(host);
        self.attend();
    }

    /// The initiator takes all attentions.
    pub(crate) fn attend(&mut self) -> Vec<Code> {
        let mut codes = Vec::new();
        loop {
            let end = self.run(Command::TestUnitReady, &[]);
            let Some(code) = end.code else { return codes };
            codes.push(code);
            self.confirm(&end);
        }
    }

    /// Frames come from this initiator now.
    pub(crate) fn is_at(&mut self, host: Host) {
        self.host = host;
    }

    /// The same, when the initiator knows that the disk was powered on.
    pub(crate) fn told(store: FaultStore) -> Self {
        let mut target = Self::new(store);
        let end = target.run(Command::TestUnitReady, &[]);
        assert_eq!(end.code, Some(Code::POWER_ON_OR_RESET));
        target.confirm(&end);
        target
    }

    /// A turn of its loop without a frame; false if there was nothing to do.
    pub(crate) fn turn(&mut self) -> bool {
        self.role.listen(self.now) | self.role.confirm_left() | self.role.work(self.now)
    }

    /// The OX_IDs of the next commands are odd, as at the second of two threads.
    pub(crate) fn take_odd_numbers(&mut self) {
        self.ox_id |= 1;
        self.ox_id += 1;
    }

    /// The OX_ID of the last command.
    pub(crate) fn last(&self) -> Xid {
        Xid(self.ox_id)
    }

    /// Asks about an exchange (REC).
    pub(crate) fn inquire(&mut self, ox_id: Xid) {
        let originator = self.host.0;
        let rec = Request::Rec(Exchange { originator, ox_id, rx_id: Xid::NONE });
        let mut payload = [0; LOGIN_LEN];
        let len = rec.emit(&mut payload);
        let header = Header::request(Kind::ElsRequest, originator, OURS, Xid(0x777));
        self.handle(header, &payload[..len]);
    }

    /// Aborts an exchange that is not there.
    pub(crate) fn abort(&mut self) {
        let header = Header::request(Kind::Abts, self.host.0, OURS, Xid(0x778));
        self.handle(header, &[]);
    }

    /// The kinds of frames that are sent now, with their OX_IDs.
    pub(crate) fn kinds(&mut self) -> Vec<(Kind, Xid)> {
        let frames = self.frames();
        let kinds = frames.iter().map(|bytes| {
            let (head, rest) = bytes.split_first_chunk::<HEAD_LEN>().unwrap();
            let header = Frame::parse(head, rest).unwrap().header;
            (header.kind, header.ox_id)
        });
        kinds.collect()
    }

    fn handle(&mut self, header: Header, payload: &[u8]) {
        self.turn();
        let ethernet = Ethernet { destination: mac(OURS), source: mac(self.host.0) };
        self.role.handle_frame(self.now, &Frame { ethernet, header, payload });
        while self.turn() {}
    }

    pub(crate) fn send(&mut self, command: Command, written: usize) {
        self.ox_id += 1;
        let cdb = command.emit().unwrap();
        let (reads, data_len) = match command {
            Command::Read { range, .. } => (true, range.blocks * 512),
            _ => (false, written as u32),
        };
        let writes = written > 0;
        let command =
            fcp::Command { reads, writes, data_len, ..fcp::Command::new([0; 8], *cdb.padded()) };
        self.send_command(&command);
    }

    /// Sends a task management function.
    pub(crate) fn manage(&mut self, management: TaskManagement) {
        self.ox_id += 1;
        self.send_command(&fcp::Command { management, ..fcp::Command::new([0; 8], [0; 16]) });
    }

    fn send_command(&mut self, command: &fcp::Command<'_>) {
        let mut payload = [0; COMMAND_LEN];
        command.emit(&mut payload);
        let header = Header::request(Kind::FcpCmnd, self.host.0, OURS, Xid(self.ox_id));
        self.handle(header, &payload);
    }

    /// The frames that are sent now.
    fn frames(&mut self) -> Vec<Vec<u8>> {
        let (now, mut all) = (self.now, Vec::new());
        let mut frames = self.role.frames();
        while frames.compose(now).is_some() {
            let mut bytes = Vec::new();
            frames.write([0; 6], Bytes(&mut bytes));
            all.push(bytes);
        }
        all
    }

    /// The ends of all commands that have ended.
    pub(crate) fn ends(&mut self, written: &[u8]) -> Vec<End> {
        let (mut ends, mut data) = (Vec::new(), Vec::new());
        loop {
            let frames = self.frames();
            if frames.is_empty() {
                return ends;
            }
            for bytes in frames {
                let (head, rest) = bytes.split_first_chunk::<HEAD_LEN>().unwrap();
                let frame = Frame::parse(head, rest).unwrap();
                let Header { kind, ox_id, rx_id, .. } = frame.header;
                match kind {
                    Kind::FcpData => data.extend_from_slice(frame.payload),
                    Kind::FcpXferRdy if written.is_empty() => self.asked.push((ox_id, rx_id)),
                    Kind::FcpXferRdy => self.deliver((ox_id, rx_id), written),
                    Kind::FcpRsp => {
                        let response = Response::parse(frame.payload).unwrap();
                        ends.push(End {
                            status: Status::parse(response.status).unwrap(),
                            code: Sense::parse(response.sense).ok().map(|it| it.code),
                            generation: Sense::parse(response.sense)
                                .ok()
                                .and_then(|it| it.generation),
                            data: std::mem::take(&mut data),
                            confirm: response.confirm,
                            exchange: (ox_id, rx_id),
                        });
                    }
                    kind => panic!("{kind:?}"),
                }
            }
        }
    }

    /// Sends the data of a write.
    pub(crate) fn deliver(&mut self, (ox_id, rx_id): (Xid, Xid), data: &[u8]) {
        let header = Header::request(Kind::FcpData, self.host.0, OURS, ox_id);
        self.handle(Header { f_ctl: FCtl::WRITE_DATA_END, rx_id, ..header }, data);
    }

    pub(crate) fn run(&mut self, command: Command, written: &[u8]) -> End {
        self.send(command, written.len());
        let mut ends = self.ends(written);
        assert_eq!(ends.len(), 1, "{ends:?}");
        ends.remove(0)
    }

    pub(crate) fn confirm(&mut self, end: &End) {
        assert!(end.confirm);
        let (ox_id, rx_id) = end.exchange;
        let header = Header::request(Kind::FcpConf, self.host.0, OURS, ox_id);
        self.handle(Header { f_ctl: FCtl::CONFIRMATION, rx_id, ..header }, &[]);
    }
}

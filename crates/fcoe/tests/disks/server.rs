//! The answers of a target to commands that our initiator does not send, or not in that way.

use std::sync::Arc;
use std::time::Duration;

use tyche_block::{Arena, Errno, OperationKind};
use tyche_engine::{Exported, Frames, Sink};
use tyche_fcoe::fc::Sound;
use tyche_fcoe::fc::neighbour::Functions;
use tyche_fcoe::fc::port::{Event, Login};
use tyche_fcoe::fc::target::LaneConfig;
use tyche_fcoe::fc::wire::fcp::{self, COMMAND_LEN, Response};
use tyche_fcoe::fc::wire::{
    Ethernet, FCtl, FcMap, Frame, HEAD_LEN, Header, Kind, Mac, PortId, Wwn, Xid,
};
use tyche_fcoe::scsi::cdb::{Command, Form, Range};
use tyche_fcoe::scsi::{Code, Sense, Status, Uuid};
use tyche_fcoe::{Role, TargetRole, TargetUnit, Units};
use tyche_proto::Instant;
use tyche_store::Store;
use tyche_store::fault::{FaultStore, Rule};
use tyche_store::memory::MemoryStore;

const OURS: PortId = PortId::new(0x0b02);
const HOST: (PortId, Wwn) = (PortId::new(0x0a01), Wwn(0x2000_0000_0000_0a01));
const SIZE: u64 = 1 << 20;

fn mac(id: PortId) -> Mac {
    Mac::fpma(FcMap::VN2VN, id)
}

/// The end of a command.
#[derive(Debug, PartialEq)]
struct End {
    status: Status,
    code: Option<Code>,
    data: Vec<u8>,
    confirm: bool,
    exchange: (Xid, Xid),
}

/// A target without a network, and an initiator that is logged in.
struct Target {
    role: TargetRole<Sound>,
    now: Instant,
    ox_id: u16,
}

/// The bytes of a frame.
struct Bytes<'b>(&'b mut Vec<u8>);

impl<'d> Sink<'d> for Bytes<'_> {
    fn gather(self, front: &[u8], data: &[&'d [u8]], tail: &[u8]) {
        self.0.extend_from_slice(front);
        data.iter().for_each(|it| self.0.extend_from_slice(it));
        self.0.extend_from_slice(tail);
    }

    fn fill(self, _: &[u8], _: usize, _: impl FnOnce(&mut [u8])) {
        unreachable!("frames of FCoE lie in memory");
    }
}

impl Target {
    fn new(store: FaultStore) -> Self {
        let store: Arc<dyn Store> = Arc::new(store);
        let unit = TargetUnit {
            number: 0,
            exported: Arc::new(Exported::new("disk".to_owned(), store)),
            uuid: Uuid::from_u128(1),
            shared: false,
            initiators: Vec::new(),
        };
        let units = Arc::new(Units::new(vec![unit]));
        let port = units.port(Wwn(0x2000_0000_0000_0b02));
        let lane = LaneConfig { exchanges: 256, seed: 1, burst_len: 64 << 10, frames_max: 256 };
        let mut role = TargetRole::with_rules((units, port), Arena::new(256), lane, Sound);
        role.handle_address((OURS, mac(OURS)));
        let now = Instant(1);
        let login = Login {
            wwpn: HOST.1,
            id: HOST.0,
            mac: mac(HOST.0),
            functions: Functions { initiator: true, target: false },
            payload_max: 2112,
            retries: false,
            confirms: true,
            e_d_tov: Duration::from_secs(2),
            r_a_tov: Duration::from_secs(10),
        };
        role.handle_login(now, Event::LoggedIn(login));
        Self { role, now, ox_id: 0 }
    }

    /// The same, when the initiator knows that the disk was powered on.
    fn told(store: FaultStore) -> Self {
        let mut target = Self::new(store);
        let end = target.run(Command::TestUnitReady, &[]);
        assert_eq!(end.code, Some(Code::POWER_ON_OR_RESET));
        target.confirm(&end);
        target
    }

    fn handle(&mut self, header: Header, payload: &[u8]) {
        let ethernet = Ethernet { destination: mac(OURS), source: mac(HOST.0) };
        self.role.handle_frame(self.now, &Frame { ethernet, header, payload });
        while self.role.work(self.now) {}
    }

    fn send(&mut self, command: Command, written: usize) {
        self.ox_id += 1;
        let cdb = command.emit().unwrap();
        let (reads, data_len) = match command {
            Command::Read { range, .. } => (true, range.blocks * 512),
            _ => (false, written as u32),
        };
        let writes = written > 0;
        let command =
            fcp::Command { reads, writes, data_len, ..fcp::Command::new([0; 8], *cdb.padded()) };
        let mut payload = [0; COMMAND_LEN];
        command.emit(&mut payload);
        let header = Header::request(Kind::FcpCmnd, HOST.0, OURS, Xid(self.ox_id));
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
    fn ends(&mut self, written: &[u8]) -> Vec<End> {
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
                    Kind::FcpXferRdy => {
                        let f_ctl = FCtl::WRITE_DATA_END;
                        let header = Header::request(Kind::FcpData, HOST.0, OURS, ox_id);
                        self.handle(Header { f_ctl, rx_id, ..header }, written);
                    }
                    Kind::FcpRsp => {
                        let response = Response::parse(frame.payload).unwrap();
                        ends.push(End {
                            status: Status::parse(response.status).unwrap(),
                            code: Sense::parse(response.sense).ok().map(|it| it.code),
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

    fn run(&mut self, command: Command, written: &[u8]) -> End {
        self.send(command, written.len());
        let mut ends = self.ends(written);
        assert_eq!(ends.len(), 1, "{ends:?}");
        ends.remove(0)
    }

    fn confirm(&mut self, end: &End) {
        assert!(end.confirm);
        let (ox_id, rx_id) = end.exchange;
        let header = Header::request(Kind::FcpConf, HOST.0, OURS, ox_id);
        self.handle(Header { f_ctl: FCtl::CONFIRMATION, rx_id, ..header }, &[]);
    }
}

fn store() -> FaultStore {
    FaultStore::with_volatile_cache(MemoryStore::new(SIZE, 512).unwrap()).unwrap()
}

fn range(lba: u64, blocks: u32) -> Range {
    Range { form: Form::Ten, lba, blocks }
}

#[test]
fn verify_reads_and_sends_nothing() {
    let store = store();
    let faults = store.faults();
    let mut target = Target::told(store);
    faults.add(Rule::fail(Errno::IO).on(OperationKind::Read).within(4096..8192));
    let end = target.run(Command::Verify(range(0, 1)), &[]);
    assert_eq!((end.status, end.data.len()), (Status::Good, 0));
    let end = target.run(Command::Verify(range(8, 1)), &[]);
    assert_eq!(end.code, Some(Code::UNRECOVERED_READ_ERROR), "a bad spot is found");
}

#[test]
fn what_is_read_with_fua_is_on_stable_storage() {
    for fua in [true, false] {
        let store = store();
        let faults = store.faults();
        let mut target = Target::told(store);
        let write = Command::Write { range: range(0, 1), fua: false };
        assert_eq!(target.run(write, &[7; 512]).status, Status::Good);
        let read = Command::Read { range: range(0, 1), fua };
        assert_eq!(target.run(read, &[]).data, [7; 512]);
        faults.crash().unwrap();
        let read = Command::Read { range: range(0, 1), fua: false };
        let expected = if fua { 7 } else { 0 };
        let end = target.run(read, &[]);
        // The crash is told first.
        let end = if end.confirm {
            target.confirm(&end);
            target.run(read, &[])
        } else {
            end
        };
        assert_eq!(end.data, [expected; 512], "fua: {fua}");
    }
}

#[test]
fn one_of_many_commands_tells_of_a_reset_and_the_others_are_put_off() {
    let mut target = Target::new(store());
    for _ in 0..100 {
        target.send(Command::TestUnitReady, 0);
    }
    let ends = target.ends(&[]);
    let told: Vec<_> = ends.iter().filter(|it| it.status == Status::CheckCondition).collect();
    assert_eq!((ends.len(), told.len()), (100, 1));
    assert!(ends.iter().all(|it| it.status != Status::Good), "nothing passes it by");
    let exchange = told[0].exchange;
    // Without a confirmation it is told again.
    target.now = target.now + Duration::from_millis(200);
    let end = target.run(Command::TestUnitReady, &[]);
    assert_eq!((end.status, end.code), (Status::CheckCondition, Some(Code::POWER_ON_OR_RESET)));
    assert_ne!(end.exchange, exchange);
    target.confirm(&end);
    assert_eq!(target.run(Command::TestUnitReady, &[]).status, Status::Good);
}

//! Frames without sense, from a seed, and a user who takes its time.
//!
//! A lane may lose commands that nobody in his senses would send. But whatever comes, it keeps what
//! it has promised to its user and to initiators: see [`Stage`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tyche_fc::target_end::{Action, Command, Completion, Data, Lane, LaneConfig};
use tyche_fc::wire::els::{Exchange, Request, Srr};
use tyche_fc::wire::fcp::{self, Response, ResponseCode, TaskManagement};
use tyche_fc::wire::{Ethernet, FCtl, Frame, HEAD_LEN, Header, Kind, Wwn, Xid};
use tyche_fc::{Outgoing, Part};
use tyche_testkit::random::Random;
use tyche_time::Instant;

use crate::rig::{HOST, Host, LUN, OTHER, OURS, config, login, mac};

const HOSTS: [Host; 2] = [HOST, OTHER];

/// The life of an exchange, as the user may be told of it: it is offered; then it is accepted or
/// answered; if it was accepted, it may be executed once, a write only after each of its bytes has
/// been placed; when nobody is at work with it any more, it is released.
#[derive(Clone, Debug, PartialEq)]
enum Stage {
    Offered,
    /// The bytes of a write that are missing.
    Accepted(BTreeSet<u32>),
    Executing,
    Completed,
}

struct World {
    lane: Lane,
    random: Random,
    now: Instant,
    exchanges: BTreeMap<u16, (Stage, Command)>,
    /// Functions that the user does the rest of, and their initiators.
    managing: BTreeMap<u16, Wwn>,
    /// Initiators that are logged in, and those that are drained.
    live: BTreeSet<Wwn>,
    draining: BTreeSet<Wwn>,
    executed: u64,
    responses: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut world = Self {
            lane: Lane::new(LaneConfig { burst_len: 2048, frames_max: 4, ..config(12) }),
            random: Random(seed),
            now: Instant(1),
            exchanges: BTreeMap::new(),
            managing: BTreeMap::new(),
            live: BTreeSet::new(),
            draining: BTreeSet::new(),
            executed: 0,
            responses: 0,
        };
        HOSTS.iter().for_each(|host| world.log_in(*host));
        world
    }

    fn log_in(&mut self, host: Host) {
        if !self.draining.contains(&host.wwpn) {
            self.lane.logged_in((OURS, mac(OURS)), &login(host, 1024));
            self.live.insert(host.wwpn);
        }
    }

    fn log_out(&mut self, host: Host) {
        if self.live.remove(&host.wwpn) {
            self.draining.insert(host.wwpn);
            self.lane.logged_out(host.wwpn);
        }
    }

    fn step(&mut self) {
        match self.random.below(20) {
            0..8 => self.receive(),
            8..14 => self.use_up(),
            14..18 => _ = (0..self.random.below(6)).all(|_| self.transmit()),
            18 => {
                let time = Duration::from_millis(self.random.below(200));
                self.now = self.now + time;
                self.lane.handle_timeout(self.now);
            }
            _ => {
                let host = HOSTS[self.random.below(2) as usize];
                match self.random.below(20) {
                    0 => self.log_out(host),
                    _ => self.log_in(host),
                }
            }
        }
        self.act(&[]);
    }

    /// A frame of some kind, mostly with numbers that there are.
    fn receive(&mut self) {
        let host = HOSTS[self.random.below(2) as usize];
        let counts = host.wwpn == HOSTS[1].wwpn;
        let is_rrq = self.random.chance(20);
        // Nobody asks for that before the abort is accepted.
        while is_rrq && self.transmit() {}
        let mut payload = vec![0; 116];
        let exchange = self.random.below(13) as u16;
        let rx_id = Some(exchange).filter(|it| *it < 12).and_then(|it| self.lane.rx_id(it));
        let r = &mut self.random;
        let f_ctls = [FCtl::REQUEST, FCtl::WRITE_DATA, FCtl::WRITE_DATA_END, FCtl::ABTS];
        let mut header = Header {
            f_ctl: f_ctls[r.below(4) as usize],
            seq_cnt: r.below(3) as u16,
            // Mostly that of a first burst.
            seq_id: if r.chance(4) { r.below(4) as u8 } else { 1 },
            rx_id: rx_id.filter(|_| !r.chance(4)).unwrap_or(Xid::NONE),
            parameter: r.below(8) as u32 * 512,
            ..Header::request(Kind::FcpCmnd, host.id, OURS, Xid(r.below(10) as u16))
        };
        if r.chance(30) {
            header.f_ctl = FCtl::from_wire(r.next() as u32);
            header.parameter = r.next() as u32;
        }
        let exchange = Exchange { originator: host.id, ox_id: header.ox_id, rx_id: header.rx_id };
        header.kind = match r.below(10) {
            _ if is_rrq => Kind::ElsRequest,
            0..4 => Kind::FcpCmnd,
            4..7 => Kind::FcpData,
            7 => Kind::Abts,
            8 => Kind::ElsRequest,
            _ => Kind::ALL[r.below(Kind::ALL.len() as u64) as usize],
        };
        let len = match header.kind {
            Kind::FcpCmnd => {
                let is_management = r.chance(12);
                let command = fcp::Command {
                    lun: if r.chance(3) { [0; 8] } else { LUN },
                    // One of both counts, and was heard before it did.
                    crn: if counts && !r.chance(50) { r.below(256) as u8 } else { 0 },
                    management: TaskManagement::from_wire(if is_management {
                        [2, 4, 16, 32, 64, 18][r.below(6) as usize]
                    } else {
                        0
                    }),
                    reads: r.chance(3),
                    writes: !r.chance(3),
                    data_len: r.below(9) as u32 * 512,
                    ..fcp::Command::new(LUN, [0; 16])
                };
                command.emit(&mut payload)
            }
            Kind::FcpData => {
                payload.resize(1024, 1);
                [1024, 512, 1024, 512, 100, 0][r.below(6) as usize]
            }
            Kind::ElsRequest if is_rrq => Request::Rrq(exchange).emit(&mut payload),
            Kind::ElsRequest | Kind::Fc4Request => match r.below(4) {
                0..3 => Request::Rec(exchange).emit(&mut payload),
                _ => {
                    let Exchange { ox_id, rx_id, .. } = exchange;
                    Request::Srr(Srr { ox_id, rx_id, offset: 0, r_ctl: 5 }).emit(&mut payload)
                }
            },
            _ => r.below(40) as usize,
        };
        let len = if r.chance(40) { r.below(payload.len() as u64) as usize } else { len };
        let ethernet = Ethernet { destination: mac(OURS), source: mac(host.id) };
        let payload = &payload[..len];
        let frame = Frame { ethernet, header, payload };
        self.lane.handle_frame(self.now, &frame);
        self.act(payload);
    }

    /// The user goes on with something.
    fn use_up(&mut self) {
        let r = &mut self.random;
        if let Some((&exchange, _)) = self.managing.first_key_value().filter(|_| r.chance(2)) {
            self.managing.remove(&exchange);
            self.lane.managed(self.now, exchange, ResponseCode::Complete);
            return;
        }
        let choices: Vec<u16> = self.exchanges.keys().copied().collect();
        if choices.is_empty() {
            return;
        }
        let index = choices[r.below(choices.len() as u64) as usize];
        let stage = &mut self.exchanges.get_mut(&index).unwrap().0;
        let len = r.below(8) as u32 * 512;
        match stage {
            Stage::Offered if r.chance(4) => {
                *stage = Stage::Completed;
                let completion = Completion { len, ..Completion::default() };
                self.lane.complete(self.now, index, &completion);
            }
            Stage::Offered => {
                let data = match r.below(3) {
                    0 => Data::None,
                    1 => Data::In(len),
                    _ => Data::Out(len),
                };
                let missing = if matches!(data, Data::Out(_)) { 0..len } else { 0..0 };
                *stage = Stage::Accepted(missing.collect());
                self.lane.accept(self.now, index, data);
            }
            Stage::Executing => {
                *stage = Stage::Completed;
                let completion = Completion { len, ..Completion::default() };
                self.lane.complete(self.now, index, &completion);
            }
            Stage::Accepted(_) | Stage::Completed => {}
        }
    }

    /// Sends a frame; false if there is none.
    fn transmit(&mut self) -> bool {
        let mut out = Outgoing::new();
        if !self.lane.poll_transmit(self.now, &mut out) {
            return false;
        }
        let data = out.part().map_or(0, |Part { exchange, len, .. }| {
            let (stage, _) = &self.exchanges[&exchange];
            assert_eq!(*stage, Stage::Completed, "data of what was read");
            len
        });
        let bytes = out.to_bytes(&vec![0; data as usize]);
        let (head, rest) = bytes.split_first_chunk::<HEAD_LEN>().unwrap();
        let frame = Frame::parse(head, rest).unwrap();
        self.check(&frame);
        self.act(&[]);
        true
    }

    /// Checks that a frame tells an initiator the truth.
    fn check(&mut self, frame: &Frame<'_>) {
        let header = &frame.header;
        let host = HOSTS.iter().find(|it| it.id == header.d_id).unwrap();
        assert!(self.live.contains(&host.wwpn), "it is logged in: {header:?}");
        let index = (0..12).find(|it| self.lane.rx_id(*it) == Some(header.rx_id));
        let index = index.unwrap_or(u16::MAX);
        match header.kind {
            Kind::BaAcc => {
                let stage = self.exchanges.get(&index);
                assert!(stage.is_none(), "aborted, and with the user: {stage:?}");
                assert!(!self.managing.contains_key(&index));
            }
            Kind::FcpRsp => {
                self.responses += 1;
                let response = Response::parse(frame.payload).unwrap();
                let stage = self.exchanges.get(&index).map(|it| &it.0);
                let is_at_work = matches!(stage, Some(Stage::Offered | Stage::Executing));
                assert!(!is_at_work, "{response:?}");
            }
            _ => {}
        }
    }

    fn act(&mut self, payload: &[u8]) {
        while let Some(action) = self.lane.poll_action() {
            match action {
                Action::Command(command) => {
                    assert!(self.live.contains(&command.initiator));
                    let former = self.exchanges.insert(command.exchange, (Stage::Offered, command));
                    assert_eq!(former, None, "released before");
                }
                Action::Place { exchange, offset, len } => {
                    assert_eq!(len as usize, payload.len());
                    let (Stage::Accepted(missing), _) = self.exchanges.get_mut(&exchange).unwrap()
                    else {
                        panic!("data of {exchange}")
                    };
                    (offset..offset + len).for_each(|at| _ = missing.remove(&at));
                }
                Action::Execute { exchange } => {
                    let (stage, command) = self.exchanges.get_mut(&exchange).unwrap();
                    assert_eq!(*stage, Stage::Accepted(BTreeSet::new()), "with all data, once");
                    assert!(self.live.contains(&command.initiator), "not after its logout");
                    *stage = Stage::Executing;
                    self.executed += 1;
                }
                Action::Release { exchange } => {
                    let (stage, _) = self.exchanges.remove(&exchange).unwrap();
                    let is_at_work = matches!(stage, Stage::Offered | Stage::Executing);
                    assert!(!is_at_work, "released while {stage:?}");
                }
                Action::Unmanage { exchange } => _ = self.managing.remove(&exchange),
                Action::Confirmed { .. } => panic!("nothing was to be confirmed"),
                Action::Manage { exchange, initiator, .. } => {
                    self.managing.insert(exchange, initiator);
                }
                Action::Drained(wwpn) => {
                    assert!(self.draining.remove(&wwpn));
                    assert!(self.exchanges.values().all(|(_, it)| it.initiator != wwpn));
                    assert!(self.managing.values().all(|it| *it != wwpn));
                }
            }
        }
    }

    /// The user ends all that it has, and both initiators log out.
    fn end(&mut self) {
        HOSTS.iter().for_each(|host| self.log_out(*host));
        for _ in 0..10_000 {
            self.act(&[]);
            self.use_up();
        }
        self.act(&[]);
        assert!(self.exchanges.is_empty(), "{:?}", self.exchanges);
        assert!(self.draining.is_empty(), "{:?}", self.draining);
        let mut out = Outgoing::new();
        assert!(!self.lane.poll_transmit(self.now, &mut out), "nobody is there");
        while let Some(at) = self.lane.poll_timeout() {
            self.lane.handle_timeout(at);
        }
        self.act(&[]);
        assert_eq!(format!("{:?}", self.lane), "{}", "all exchanges are forgotten");
    }
}

#[test]
fn whatever_comes_promises_are_kept() {
    let (mut executed, mut responses) = (0, 0);
    for seed in 0..200 {
        let mut world = World::new(seed);
        (0..4000).for_each(|_| world.step());
        executed += world.executed;
        responses += world.responses;
        world.end();
    }
    assert!(executed > 10_000 && responses > 10_000, "{executed} executed, {responses} responses");
}

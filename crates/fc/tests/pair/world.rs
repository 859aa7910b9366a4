//! Both ends and what is between them.

use std::time::Duration;

use tyche_fc::exchange::Xids;
use tyche_fc::initiator::{self, Taken};
use tyche_fc::neighbour::Functions;
use tyche_fc::port::Login;
use tyche_fc::target_end as target;
use tyche_fc::wire::{FcMap, Frame, HEAD_LEN, Mac, PortId, Wwn};
use tyche_fc::{Outgoing, Part};
use tyche_time::Instant;

use crate::air::{Air, ms};
use crate::disk::Disk;
use crate::host::Host;

const HOST: usize = 0;
const DISK: usize = 1;
/// The ports of both.
const PORTS: [(PortId, Wwn); 2] = [
    (PortId::new(0x0a01), Wwn(0x2000_0000_0000_0a01)),
    (PortId::new(0x0b02), Wwn(0x2000_0000_0000_0b02)),
];

/// Faults of the network.
#[derive(Clone, Copy, Default)]
pub(crate) struct Faults {
    /// Percent of the frames.
    pub(crate) lost: u64,
    pub(crate) repeated: u64,
    /// The time that a few orders take.
    pub(crate) slow: Duration,
    /// Whether logins end.
    pub(crate) logouts: bool,
}

/// The next step of another login.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The target learns that the login is over.
    LogOut,
    /// The target has drained it, and accepts another.
    LogIn,
    /// The initiator learns of that.
    GoOn,
}

pub(crate) struct World {
    now: Instant,
    air: Air,
    host: Host,
    disk: Disk,
    faults: Faults,
    login: Option<(Instant, Step)>,
    logouts: u64,
}

fn port(end: usize) -> (PortId, Mac) {
    let (id, _) = PORTS[end];
    (id, Mac::fpma(FcMap::VN2VN, id))
}

/// The login with an end.
fn login(end: usize) -> Login {
    Login {
        wwpn: PORTS[end].1,
        id: port(end).0,
        mac: port(end).1,
        functions: Functions { initiator: end == HOST, target: end == DISK },
        payload_max: 1024,
        retries: false,
        confirms: true,
        e_d_tov: ms(50),
        r_a_tov: ms(200),
    }
}

impl World {
    pub(crate) fn new(seed: u64, faults: Faults) -> Self {
        let mut lane = initiator::Lane::new(initiator::LaneConfig {
            xids: Xids::new((0x100, 0x4ff), 0, 0),
            seed,
            depth: 8,
            targets: 1,
            units: 1,
            read_frames: 64,
            write_frames: 64,
            command_timeout: ms(2_000),
        });
        let nexus = lane.logged_in(Instant(1), port(HOST), &login(DISK)).unwrap();
        let unit = lane.unit(nexus, [0; 8]).unwrap();
        lane.number_commands(unit, true);
        let host = Host::new(lane, unit, seed);
        let mut lane = target::Lane::new(target::LaneConfig {
            exchanges: 256,
            seed,
            burst_len: 3072,
            frames_max: 16,
        });
        lane.logged_in(port(DISK), &login(HOST));
        let mut disk = Disk::new(lane, seed + 1);
        disk.slow = faults.slow;
        let mut air = Air::new(seed + 2);
        (air.lost, air.repeated) = (faults.lost, faults.repeated);
        air.keeps_order = faults.repeated == 0;
        Self { now: Instant(1), air, host, disk, faults, login: None, logouts: 0 }
    }

    /// Runs until so many orders are done.
    pub(crate) fn run(&mut self, orders: usize) {
        self.host.left = orders;
        self.settle();
        let end = self.now + Duration::from_secs(3600);
        while !self.host.is_idle() {
            let timers = [
                self.host.lane.poll_timeout(),
                self.disk.lane.poll_timeout(),
                self.disk.next(),
                self.login.map(|(at, _)| at),
            ];
            let next = self.air.next(timers.into_iter(), end);
            let (at, node, frame) = next.expect("orders end within an hour");
            self.now = at;
            match (node, frame) {
                (HOST, Some(frame)) => self.receive_at_host(&frame),
                (_, Some(frame)) => self.receive_at_disk(&frame),
                (0, None) => self.host.lane.handle_timeout(at),
                (1, None) => self.disk.lane.handle_timeout(at),
                (2, None) => self.disk.work(at),
                (_, None) => self.go_on(),
            }
            self.settle();
        }
        assert_eq!(self.disk.versions, self.host.versions, "the disk has it all");
    }

    /// Orders made again, aborts, lost data of writes, and logins that ended.
    pub(crate) fn incidents(&self) -> [u64; 4] {
        let (repairs, ignored) = (self.host.lane.repairs(), self.disk.lane.ignored());
        [self.host.repetitions, repairs.aborts, ignored.lost_data, self.logouts]
    }

    fn receive_at_host(&mut self, bytes: &[u8]) {
        let (head, rest) = bytes.split_first_chunk::<HEAD_LEN>().unwrap();
        let frame = Frame::parse(head, rest).unwrap();
        if let Taken::Place(place) = self.host.lane.handle_frame(self.now, &frame) {
            self.host.place(place.exchange, place.offset, frame.payload);
        }
    }

    fn receive_at_disk(&mut self, bytes: &[u8]) {
        let (head, rest) = bytes.split_first_chunk::<HEAD_LEN>().unwrap();
        let frame = Frame::parse(head, rest).unwrap();
        assert!(self.disk.lane.handle_frame(self.now, &frame));
        self.disk.act(self.now, frame.payload);
    }

    /// Both users and the network do what there is to do.
    fn settle(&mut self) {
        self.disk.act(self.now, &[]);
        self.host.take_events(self.now);
        self.host.submit();
        let chance = self.faults.logouts && self.host.random.chance(8_000);
        if (chance || std::mem::take(&mut self.host.is_stuck)) && self.login.is_none() {
            self.logouts += 1;
            self.host.lane.logged_out(self.now, PORTS[DISK].1);
            self.host.take_events(self.now);
            // Frames are not on the way for longer than a login takes: see FC.md.
            self.login = Some((self.now + ms(25), Step::LogOut));
        }
        if self.disk.drained.take().is_some() {
            self.login = Some((self.now, Step::LogIn));
        }
        self.transmit();
    }

    fn go_on(&mut self) {
        let Some((_, step)) = self.login.take() else { return };
        match step {
            // The next step follows when it is drained.
            Step::LogOut => self.disk.lane.logged_out(PORTS[HOST].1),
            Step::LogIn => {
                self.disk.lane.logged_in(port(DISK), &login(HOST));
                self.login = Some((self.now + ms(1), Step::GoOn));
            }
            Step::GoOn => {
                self.host.lane.logged_in(self.now, port(HOST), &login(DISK)).unwrap();
            }
        }
    }

    fn transmit(&mut self) {
        let mut out = Outgoing::new();
        while self.host.lane.poll_transmit(self.now, &mut out) {
            let find = |Part { exchange, offset, len }| self.host.data(exchange, offset, len);
            let bytes = out.to_bytes(&out.part().map(find).unwrap_or_default());
            self.air.carry(self.now, DISK, &bytes);
        }
        while self.disk.lane.poll_transmit(self.now, &mut out) {
            let find = |Part { exchange, offset, len }| self.disk.data(exchange, offset, len);
            let bytes = out.to_bytes(out.part().map(find).unwrap_or_default());
            self.air.carry(self.now, HOST, &bytes);
            self.disk.act(self.now, &[]);
        }
    }
}

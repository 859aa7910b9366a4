//! An initiator and a target with a wire between them: both lanes, and of their users what data
//! need. Frames are longest at an MTU of 2158.

use std::time::Duration;

use tyche_fc::Outgoing;
use tyche_fc::exchange::Xids;
use tyche_fc::initiator::{self, Command, Event, Taken, Unit};
use tyche_fc::neighbour::Functions;
use tyche_fc::port::Login;
use tyche_fc::target_end::{self as target, Action};
use tyche_fc::wire::fcp::CDB_LEN;
use tyche_fc::wire::{FcMap, Frame, HEAD_LEN, Mac, PAYLOAD_LEN_MAX, PortId, Wwn};
use tyche_time::Instant;

/// The most commands at a time.
pub(crate) const DEPTH: usize = 128;
/// Bytes of a command's data, at most.
const LEN_MAX: usize = 64 << 10;
/// Frames of data that reads, or writes, may cause at a time.
const FRAMES: u32 = 4096;
const E_D_TOV: Duration = Duration::from_secs(2);
const R_A_TOV: Duration = Duration::from_secs(10);

const HOST: Port = Port(PortId::new(0x0a01), Wwn(0x2000_0200_0000_0a01));
const DISK: Port = Port(PortId::new(0x0b02), Wwn(0x2000_0200_0000_0b02));

#[derive(Clone, Copy)]
struct Port(PortId, Wwn);

impl Port {
    fn own(self) -> (PortId, Mac) {
        (self.0, Mac::fpma(FcMap::VN2VN, self.0))
    }

    /// The login of others with it.
    fn login(self, functions: Functions) -> Login {
        Login {
            wwpn: self.1,
            id: self.0,
            mac: self.own().1,
            functions,
            payload_max: PAYLOAD_LEN_MAX,
            retries: false,
            confirms: true,
            e_d_tov: E_D_TOV,
            r_a_tov: R_A_TOV,
        }
    }
}

/// Frames on their way. Their memory is used again.
#[derive(Default)]
pub(crate) struct Wire {
    frames: Vec<Vec<u8>>,
    len: usize,
}

impl Wire {
    /// Seals a frame with its part of the data of the exchanges, and copies it, as the kernel does.
    fn put(&mut self, frame: &Outgoing, buffers: &[Vec<u8>]) {
        if self.len == self.frames.len() {
            self.frames.push(Vec::new());
        }
        let bytes = &mut self.frames[self.len];
        bytes.clear();
        let data = frame.part().map(|part| {
            &buffers[usize::from(part.exchange)][part.offset as usize..][..part.len as usize]
        });
        frame.write(data.as_slice(), |front, data, tail| {
            bytes.extend_from_slice(front);
            data.iter().for_each(|piece| bytes.extend_from_slice(piece));
            bytes.extend_from_slice(tail);
        });
        self.len += 1;
    }

    /// Takes all frames.
    fn take(&mut self, mut each: impl FnMut(&Frame<'_>)) {
        for frame in &self.frames[..self.len] {
            let (head, rest) = frame.split_first_chunk::<HEAD_LEN>().expect("frames have a head");
            each(&Frame::parse(head, rest).expect("frames of ours are right"));
        }
        self.len = 0;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// The initiator and its user.
pub(crate) struct Host {
    lane: initiator::Lane,
    unit: Unit,
    /// Data of each command.
    buffers: Vec<Vec<u8>>,
    frame: Outgoing,
    done: u32,
}

impl Host {
    fn new() -> Self {
        let mut lane = initiator::Lane::new(initiator::LaneConfig {
            xids: Xids::new((0, 0xbfff), 0, 0),
            seed: 0,
            depth: DEPTH,
            targets: 1,
            units: 1,
            read_frames: FRAMES,
            write_frames: FRAMES,
            command_timeout: Duration::from_secs(30),
        });
        let login = DISK.login(Functions { initiator: false, target: true });
        let nexus = lane.logged_in(Instant(1), HOST.own(), &login).expect("room for a target");
        let unit = lane.unit(nexus, [0; 8]).expect("room for a unit");
        let buffers = vec![vec![0xa5; LEN_MAX]; 2 * DEPTH];
        Self { lane, unit, buffers, frame: Outgoing::new(), done: 0 }
    }

    /// Takes a command with these data.
    pub(crate) fn submit(&mut self, data: initiator::Data) {
        let modifies = matches!(data, initiator::Data::Out(_));
        let cdb = [0; CDB_LEN];
        let command = Command { unit: self.unit, cdb, data, modifies, hears_attentions: true };
        self.lane.submit(&command).expect("no more commands than the depth");
    }

    /// Sends all that there is to send.
    pub(crate) fn transmit(&mut self, now: Instant, to: &mut Wire) {
        while self.lane.poll_transmit(now, &mut self.frame) {
            to.put(&self.frame, &self.buffers);
        }
    }

    /// Takes all frames, places their data, and counts commands that are done.
    pub(crate) fn receive(&mut self, now: Instant, from: &mut Wire) {
        from.take(|frame| {
            if let Taken::Place(place) = self.lane.handle_frame(now, frame) {
                let buffer = &mut self.buffers[usize::from(place.exchange)];
                buffer[place.offset as usize..][..frame.payload.len()]
                    .copy_from_slice(frame.payload);
            }
            while let Some(event) = self.lane.poll_event() {
                let Event::Completed(completion) = event else { panic!("{event:?}") };
                assert!(completion.end.is_ok_and(|it| it.status == 0), "{completion:?}");
                self.done += 1;
            }
        });
    }
}

/// The target and its user, whose store does nothing.
pub(crate) struct Disk {
    lane: target::Lane,
    /// The data of all commands of the round.
    pub(crate) data: target::Data,
    /// Data of each exchange.
    buffers: Vec<Vec<u8>>,
    /// Exchanges that the store is at work with.
    at_work: Vec<u16>,
    frame: Outgoing,
}

impl Disk {
    fn new() -> Self {
        let mut lane = target::Lane::new(target::LaneConfig {
            exchanges: 1024,
            seed: 0,
            burst_len: LEN_MAX as u32,
            frames_max: FRAMES,
        });
        lane.logged_in(DISK.own(), &HOST.login(Functions { initiator: true, target: false }));
        let buffers = vec![vec![0x5a; LEN_MAX]; lane.capacity()];
        let (data, at_work) = (target::Data::None, Vec::with_capacity(DEPTH));
        Self { lane, data, buffers, at_work, frame: Outgoing::new() }
    }

    /// Takes all frames, and what comes of them up to the store.
    pub(crate) fn receive(&mut self, now: Instant, from: &mut Wire) {
        from.take(|frame| {
            assert!(self.lane.handle_frame(now, frame), "frames for a target");
            while let Some(action) = self.lane.poll_action() {
                match action {
                    Action::Command(command) => self.lane.accept(now, command.exchange, self.data),
                    Action::Place { exchange, offset, .. } => {
                        let buffer = &mut self.buffers[usize::from(exchange)];
                        buffer[offset as usize..][..frame.payload.len()]
                            .copy_from_slice(frame.payload);
                    }
                    Action::Execute { exchange } => self.at_work.push(exchange),
                    Action::Release { .. } => {}
                    action => unreachable!("{action:?}"),
                }
            }
        });
    }

    /// The store is done with everything.
    pub(crate) fn complete(&mut self, now: Instant) {
        let len = if let target::Data::In(len) = self.data { len } else { 0 };
        let completion = target::Completion { len, ..target::Completion::default() };
        for exchange in self.at_work.drain(..) {
            self.lane.complete(now, exchange, &completion);
        }
    }

    /// Sends all that there is to send.
    pub(crate) fn transmit(&mut self, now: Instant, to: &mut Wire) {
        while self.lane.poll_transmit(now, &mut self.frame) {
            to.put(&self.frame, &self.buffers);
            while self.lane.poll_action().is_some() {}
        }
    }
}

/// An initiator lane and a target lane that are logged in with each other, whose work the benchmark
/// counts. Each end's part of a command is a step of its own, to be measured alone.
pub(crate) struct Pair {
    pub(crate) now: Instant,
    pub(crate) host: Host,
    pub(crate) disk: Disk,
    /// Frames to the target, and to the initiator.
    pub(crate) up: Wire,
    pub(crate) down: Wire,
    /// The data of every command.
    data: initiator::Data,
    submitted: u32,
}

impl Pair {
    /// Both ends, for commands with these data.
    pub(crate) fn new(data: initiator::Data) -> Self {
        let mut disk = Disk::new();
        disk.data = match data {
            initiator::Data::None => target::Data::None,
            initiator::Data::In(len) => target::Data::In(len),
            initiator::Data::Out(len) => target::Data::Out(len),
        };
        let (up, down) = Default::default();
        Self { now: Instant(1), host: Host::new(), disk, up, down, data, submitted: 0 }
    }

    /// Submits so many commands, and sends what that takes.
    pub(crate) fn submit(&mut self, commands: u32) {
        self.submitted += commands;
        for _ in 0..commands {
            self.host.submit(self.data);
            self.host.transmit(self.now, &mut self.up);
        }
    }

    /// The target takes what has been sent.
    pub(crate) fn take_at_disk(&mut self) {
        self.disk.receive(self.now, &mut self.up);
    }

    /// The store is done, and the target sends.
    pub(crate) fn answer(&mut self) {
        self.disk.complete(self.now);
        self.disk.transmit(self.now, &mut self.down);
    }

    /// The initiator takes what has been sent, and goes on.
    pub(crate) fn take_at_host(&mut self) {
        self.host.receive(self.now, &mut self.down);
        self.host.transmit(self.now, &mut self.up);
    }

    /// Carries frames until all commands are done, and lets time pass.
    pub(crate) fn finish(&mut self) {
        loop {
            self.take_at_disk();
            self.answer();
            self.take_at_host();
            if self.up.is_empty() && self.down.is_empty() {
                break;
            }
        }
        assert_eq!(self.host.done, self.submitted, "all commands are done");
        self.now = self.now.plus_ns(1_000_000);
        self.host.lane.handle_timeout(self.now);
        self.disk.lane.handle_timeout(self.now);
    }
}

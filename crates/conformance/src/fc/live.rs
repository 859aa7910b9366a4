//! A target at the other end of a network interface: we have an address there without a fabric, and
//! are logged in as an initiator.

use std::collections::VecDeque;
use std::thread;
use std::time::{Duration, Instant as Clock};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tyche_fc::exchange::Xids;
use tyche_fc::neighbour::{Functions, Interface, Membership};
use tyche_fc::network::{Network, PortConfig};
use tyche_fc::port::{Carrier, Event, Login, Logins, LoginsConfig};
use tyche_fc_wire::{
    ETHERNET_LEN, ETHERTYPE_FCOE, ETHERTYPE_FIP, FRAME_LEN_MAX, Frame, HEAD_LEN, Kind, Mac, Wwn,
    fip,
};
use tyche_link::packet::{PacketLink, PacketOptions};
use tyche_link::{Link, RxBatch, TxVectors};
use tyche_time::Instant;

use super::{FcSubject, PortId};
use crate::Result;

/// Frames received at once.
const BATCH: usize = 64;
/// Time limits for a login, and for sending a frame.
const LOGIN: Duration = Duration::from_secs(20);
const PATIENCE: Duration = Duration::from_secs(2);
/// The longest wait for a frame before timers are looked at.
const TURN: Duration = Duration::from_millis(10);
const E_D_TOV: Duration = Duration::from_secs(2);
const R_A_TOV: Duration = Duration::from_secs(10);

/// A link for one of the two kinds of frames, with what it has received.
struct Half {
    link: PacketLink,
    batch: RxBatch,
    head_len: usize,
}

/// An [`FcSubject`] behind a network interface, in real time.
pub struct FcLive {
    fip: Half,
    fcoe: Half,
    network: Network,
    logins: Logins,
    began: Clock,
    login: Option<Login>,
    own: PortId,
    lun: [u8; 8],
    came: VecDeque<Vec<u8>>,
}

impl Half {
    fn open(interface: &str, ethertype: u16, head_len: usize) -> Result<Self> {
        let mut options = PacketOptions::new(interface);
        (options.ethertype, options.head_len) = (ethertype, head_len);
        let link = PacketLink::open(&options).map_err(|error| error.to_string())?;
        let batch = RxBatch::new(BATCH, link.frame_len_max() - head_len);
        Ok(Self { link, batch, head_len })
    }

    fn send(&mut self, frame: &[u8]) -> Result<()> {
        let mut vectors = TxVectors::new(1, 1);
        let (head, payload) = frame.split_at(self.head_len);
        let mut batch = vectors.batch();
        batch.push(head, [payload], &[]);
        let deadline = Clock::now() + PATIENCE;
        while self.link.send(&batch).map_err(|error| format!("send: {error}"))? == 0 {
            if Clock::now() >= deadline {
                return Err("the interface takes no frames".to_owned());
            }
            thread::yield_now();
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<Vec<Vec<u8>>> {
        self.link.receive(&mut self.batch).map_err(|error| format!("receive: {error}"))?;
        let frames = self.batch.iter().map(|it| [it.head, it.payload].concat()).collect();
        self.batch.clear();
        Ok(frames)
    }
}

impl FcLive {
    /// Opens an interface, and logs in with the first target that shows itself there. `lun` is the
    /// logical unit that is written to.
    ///
    /// # Errors
    /// If the interface can't be opened, or no target lets us in.
    pub fn open(interface: &str, lun: u8, seed: u64) -> Result<Self> {
        let fip = Half::open(interface, ETHERTYPE_FIP, ETHERNET_LEN)?;
        let fcoe = Half::open(interface, ETHERTYPE_FCOE, HEAD_LEN)?;
        // Names that nobody else has.
        let name = 0x2000_0200_0000_0000 | seed & 0xffff_ffff;
        let (wwpn, wwnn) = (Wwn(name), Wwn(name | 1 << 56));
        let functions = Functions { initiator: true, target: false };
        let config = PortConfig::new((wwpn, wwnn), functions, E_D_TOV);
        let exchanges = Xids::new((0xc000, 0xefff), 0, 4);
        let retries = false;
        let logins = LoginsConfig {
            wwpn,
            wwnn,
            functions,
            retries,
            e_d_tov: E_D_TOV,
            r_a_tov: R_A_TOV,
            exchanges,
            seed,
        };
        let mut this = Self {
            fip,
            fcoe,
            network: Network::new(config, Xids::new((0xf000, 0xfffe), 0, 4), seed),
            logins: Logins::new(logins),
            began: Clock::now(),
            login: None,
            own: [0; 3],
            lun: [0, lun, 0, 0, 0, 0, 0, 0],
            came: VecDeque::new(),
        };
        let (mac, mtu) = (Mac(this.fcoe.link.mac()), this.fcoe.link.frame_len_max() - ETHERNET_LEN);
        this.network.handle_link(this.instant(), Some(Interface { mac, mtu }));
        this.settle()?;
        this.await_login()?;
        Ok(this)
    }

    fn await_login(&mut self) -> Result<()> {
        let deadline = Clock::now() + LOGIN;
        while self.login.is_none() {
            if Clock::now() >= deadline {
                return Err("no target lets us in".to_owned());
            }
            self.turn(TURN)?;
        }
        self.came.clear();
        Ok(())
    }

    /// Starts over: logs out, and in again.
    ///
    /// # Errors
    /// If the target does not let us in.
    pub fn renew(&mut self) -> Result<()> {
        if let Some(login) = self.login {
            self.logins.restart(self.instant(), login.wwpn);
            self.settle()?;
        }
        self.await_login()
    }

    fn instant(&self) -> Instant {
        // Zero would be before the first timer.
        Instant(1 + self.began.elapsed().as_nanos() as u64)
    }

    /// Takes the outputs of the machines, until none has one.
    fn settle(&mut self) -> Result<()> {
        let now = self.instant();
        loop {
            if let Some(event) = self.network.poll_event() {
                self.logins.handle_neighbour(now, event, self.network.interface());
            } else if let Some(event) = self.logins.poll_event() {
                self.note(now, event);
            } else {
                break;
            }
        }
        while let Some(membership) = self.network.poll_membership() {
            let (Membership::Join(mac) | Membership::Leave(mac)) = membership;
            let half = if mac.is_group() { &mut self.fip } else { &mut self.fcoe };
            let changed = match membership {
                Membership::Join(_) => half.link.join(mac.0),
                Membership::Leave(_) => half.link.leave(mac.0),
            };
            changed.map_err(|error| format!("{membership:?}: {error}"))?;
        }
        let mut buffer = [0; FRAME_LEN_MAX];
        loop {
            let frame = self.network.poll_transmit(&mut buffer);
            let frame = frame.or_else(|| self.logins.poll_transmit(&mut buffer));
            match frame {
                Some((Carrier::Fip, len)) => self.fip.send(&buffer[..len])?,
                Some((Carrier::Fcoe, len)) => self.fcoe.send(&buffer[..len])?,
                None => return Ok(()),
            }
        }
    }

    fn note(&mut self, now: Instant, event: Event) {
        match event {
            Event::LoggedIn(login) if login.functions.target && self.login.is_none() => {
                self.own = self.network.address().map_or([0; 3], |it| bytes(it.id.to_u32()));
                self.login = Some(login);
            }
            Event::LoggedOut(wwpn, _) => {
                if self.login.is_some_and(|login| login.wwpn == wwpn) {
                    self.login = None;
                }
                self.logins.drained(now, wwpn);
            }
            _ => {}
        }
    }

    /// Receives what has come within that time.
    fn turn(&mut self, patience: Duration) -> Result<()> {
        let fds = [self.fip.link.wait_fd(), self.fcoe.link.wait_fd()];
        let [fip, fcoe] = &fds;
        let mut waited = [PollFd::new(fip, PollFlags::IN), PollFd::new(fcoe, PollFlags::IN)];
        let nanos = patience.min(TURN).subsec_nanos();
        let timeout = Timespec { tv_sec: 0, tv_nsec: nanos.into() };
        poll(&mut waited, Some(&timeout)).map_err(|error| format!("poll: {error}"))?;
        let now = self.instant();
        for bytes in self.fip.receive()? {
            let Ok(frame) = fip::Frame::parse(&bytes) else { continue };
            if !self.network.handle_fip(now, &frame) {
                self.settle()?;
                self.logins.handle_fip(now, &frame);
            }
            self.settle()?;
        }
        for bytes in self.fcoe.receive()? {
            let Some((head, rest)) = bytes.split_first_chunk::<HEAD_LEN>() else { continue };
            let is_ours = match Frame::parse(head, rest) {
                // The answers to REC and RRQ are about exchanges.
                Ok(frame)
                    if frame.header.kind != Kind::ElsReply || frame.header.ox_id.0 >= 0xc000 =>
                {
                    self.logins.handle_frame(now, &frame)
                }
                _ => false,
            };
            if !is_ours {
                self.came.push_back(bytes);
            }
            self.settle()?;
        }
        self.network.handle_timeout(now);
        self.logins.handle_timeout(now);
        self.settle()
    }
}

fn bytes(id: u32) -> PortId {
    let [_, high, middle, low] = id.to_be_bytes();
    [high, middle, low]
}

impl FcSubject for FcLive {
    fn ports(&self) -> [PortId; 2] {
        [self.own, self.login.map_or([0; 3], |login| bytes(login.id.to_u32()))]
    }

    fn lun(&self) -> [u8; 8] {
        self.lun
    }

    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    fn send(&mut self, frame: &[u8]) -> Result<()> {
        self.fcoe.send(frame)
    }

    fn receive(&mut self, patience: Duration) -> Result<Option<Vec<u8>>> {
        let deadline = Clock::now() + patience;
        loop {
            if let Some(frame) = self.came.pop_front() {
                return Ok(Some(frame));
            }
            let left = deadline.saturating_duration_since(Clock::now());
            self.turn(left)?;
            if self.login.is_none() {
                return Err("the login has ended".to_owned());
            }
            if left.is_zero() && self.came.is_empty() {
                return Ok(None);
            }
        }
    }

    fn order(&mut self, _: &str) -> Result<()> {
        Err("a target has no agent".to_owned())
    }

    fn said(&mut self) -> Result<Option<String>> {
        Ok(None)
    }
}

//! A port: a link, the memory for its frames, and its faults.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use tyche_link::{Link, RxBatch, TxBatch, TxVectors};
use tyche_numa::{Home, Node};
use tyche_proto::wire::{
    COOKIE_AT, Content, Control, ENTRIES_MAX, Encoded, Encoder, HEAD_LEN, Mac,
};
use tyche_proto::{Instant, Outgoing, Part, Problem};

use crate::placed;

/// Frames in a batch: enough to share a system call well, few enough to stay in the cache.
pub(crate) const BATCH: usize = 64;
/// The most entries of a receive ring.
const RING_MAX: usize = 512;
/// The pause before an interface that is down is tried again.
const DOWN_PAUSE: Duration = Duration::from_millis(100);

/// Traffic counters of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortStats {
    /// Frames received.
    pub rx_frames: u64,
    /// Bytes received, headers included.
    pub rx_bytes: u64,
    /// Frames sent.
    pub tx_frames: u64,
    /// Bytes sent, headers included.
    pub tx_bytes: u64,
    /// Frames that the interface did not take.
    pub tx_refused: u64,
    /// Frames that the kernel dropped because there was no room for more.
    pub overruns: u64,
}

impl std::ops::AddAssign for PortStats {
    fn add_assign(&mut self, other: Self) {
        self.rx_frames += other.rx_frames;
        self.rx_bytes += other.rx_bytes;
        self.tx_frames += other.tx_frames;
        self.tx_bytes += other.tx_bytes;
        self.tx_refused += other.tx_refused;
        self.overruns += other.overruns;
    }
}

/// See the module.
pub(crate) struct Port {
    link: Box<dyn Link>,
    home: Home,
    ethertype: u16,
    pub(crate) rx: RxBatch,
    vectors: TxVectors,
    encoder: Encoder,
    stats: PortStats,
    /// Set while the interface is down or gone.
    down_until: Option<Instant>,
    /// The fault of the interface.
    trouble: Option<Trouble>,
    /// The failure that the session has not taken yet.
    problem: Option<Problem>,
}

/// A fault of an interface.
struct Trouble {
    kind: io::ErrorKind,
    message: String,
    /// Whether it is a fault of sending: then receiving without an error does not clear it. Without
    /// a carrier there is nothing to receive, and that is no error.
    is_with_sending: bool,
}

impl Port {
    /// Allocates the port's memory near `home`.
    pub(crate) fn new(link: Box<dyn Link>, ethertype: u16, home: Home) -> Self {
        let _near = placed::near(&home);
        // A link's MTU may grow later; frames stay within the length agreed in the handshake.
        let payload_max = link.frame_len_max() - HEAD_LEN;
        Self {
            rx: RxBatch::new(BATCH, payload_max),
            vectors: TxVectors::new(BATCH, ENTRIES_MAX),
            encoder: Encoder::new(),
            stats: PortStats::default(),
            down_until: None,
            trouble: None,
            problem: None,
            ethertype,
            home,
            link,
        }
    }

    pub(crate) fn link(&self) -> &dyn Link {
        &*self.link
    }

    /// The placement of the link.
    pub(crate) fn home(&self) -> &Home {
        &self.home
    }

    /// The NUMA nodes of the memory in which frames are composed.
    pub(crate) fn memory_nodes(&self) -> Vec<Node> {
        self.vectors.memory_nodes()
    }

    /// Entries of the two receive rings such that the link holds a full window of the longest
    /// frames of both.
    pub(crate) fn rings(&self) -> [u16; 2] {
        let frames = self.link.receive_capacity(self.link.frame_len_max()) / 2;
        let positions = frames.clamp(16, RING_MAX);
        let ring =
            if positions.is_power_of_two() { positions } else { positions.next_power_of_two() / 2 };
        [ring as u16; 2]
    }

    pub(crate) fn stats(&mut self) -> PortStats {
        self.stats.overruns = self.link.overruns();
        self.stats
    }

    /// The fault of the interface, if any, with the remedy.
    pub(crate) fn trouble(&self) -> Option<&str> {
        self.trouble.as_ref().map(|it| it.message.as_str())
    }

    /// Takes the pending link failure, if any: the session drops the channels of this link.
    pub(crate) fn take_problem(&mut self) -> Option<Problem> {
        self.problem.take()
    }

    /// The descriptor to wait for. `None` while the interface is down: its socket is then always
    /// ready, with an error.
    pub(crate) fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        if self.down_until.is_some() { None } else { Some(self.link.wait_fd()) }
    }

    /// The time at which an interface that is down is tried again.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.down_until
    }

    fn failed(&mut self, now: Instant, error: &io::Error, is_with_sending: bool) {
        let kind = error.kind();
        match &mut self.trouble {
            Some(trouble) if trouble.kind == kind => trouble.is_with_sending &= is_with_sending,
            trouble => {
                tracing::warn!(link = self.link.name(), %error, "link failed, trying again");
                *trouble = Some(Trouble { kind, message: error.to_string(), is_with_sending });
            }
        }
        if error.kind() == io::ErrorKind::InvalidInput {
            // Shorter frames still get through; the next handshake finds their length.
            self.problem = Some(Problem::Narrowed);
            return;
        }
        self.problem = Some(Problem::Down);
        self.down_until = Some(now + DOWN_PAUSE);
    }

    /// Clears the fault of an interface that works again.
    fn recovered(&mut self) {
        if self.trouble.take().is_some() {
            tracing::info!(link = self.link.name(), "link is back");
        }
    }

    /// Receives waiting frames into `rx`; returns their number.
    pub(crate) fn receive(&mut self, now: Instant) -> usize {
        if self.down_until.is_some_and(|until| now < until) {
            self.rx.clear();
            return 0;
        }
        match self.link.receive(&mut self.rx) {
            Ok(frames) => {
                if frames > 0 || self.trouble.as_ref().is_some_and(|it| !it.is_with_sending) {
                    self.recovered();
                }
                self.down_until = None;
                self.stats.rx_frames += frames as u64;
                self.stats.rx_bytes += self.rx.iter().map(|frame| frame.len() as u64).sum::<u64>();
                frames
            }
            Err(error) => {
                self.rx.clear();
                self.failed(now, &error, false);
                0
            }
        }
    }

    /// Turns the measurement of the frames' time in the kernel on or off.
    pub(crate) fn stamp_arrivals(&mut self, on: bool) {
        if !self.link.stamp_arrivals(on) {
            tracing::debug!(link = self.link.name(), "the link does not say when frames arrive");
        }
    }

    /// The time that the frame at `index` of `rx` waited in the kernel; zero if unknown.
    pub(crate) fn waited(&self, index: usize) -> Duration {
        self.rx.waited(index).unwrap_or_default()
    }

    /// Sends frames while `poll` composes them; returns their number. `data` finds the bytes of a
    /// part of a frame's data. Frames that the interface refuses are lost, as on the wire.
    pub(crate) fn transmit<'a>(
        &mut self,
        now: Instant,
        out: &mut Outgoing,
        mut poll: impl FnMut(&mut Outgoing) -> bool,
        data: impl Fn(&Outgoing, &Part) -> &'a [u8],
    ) -> usize {
        let src = Mac(self.link.mac());
        let (mut frames, mut pending) = (0, poll(out));
        while pending {
            let mut batch = self.vectors.batch();
            while pending && batch.room() > 0 {
                let is_probe = matches!(out.content, Content::Control(Control::Hello(_)));
                // An interface whose MTU is being lowered refuses longer probes, and with them what
                // follows in the batch.
                if is_probe && !batch.is_empty() {
                    break;
                }
                if let Content::Control(Control::Connect(connect)) = &out.content {
                    // Frames that arrive on the channel carry it.
                    self.link.narrow(COOKIE_AT, connect.cookie.first_bytes());
                }
                let sender = (src, self.ethertype);
                let link = &*self.link;
                let push = |frame: &Encoded<'_, 'a>| {
                    if !is_probe || frame.len() <= link.frame_len_max() {
                        batch.push(frame.front, frame.data.iter().copied(), frame.entries);
                    }
                };
                out.encode(&mut self.encoder, sender, |part| data(out, part), push);
                pending = poll(out);
                if is_probe {
                    break;
                }
            }
            frames += batch.len();
            match dispatch(&mut *self.link, &mut self.stats, &batch) {
                Ok(sent) => {
                    if sent > 0 && self.trouble.as_ref().is_some_and(|it| it.is_with_sending) {
                        self.recovered();
                    }
                }
                Err(error) => self.failed(now, &error, true),
            }
        }
        frames
    }
}

/// Sends a batch and counts it; returns how many frames the interface took.
fn dispatch(link: &mut dyn Link, stats: &mut PortStats, batch: &TxBatch<'_>) -> io::Result<usize> {
    if batch.is_empty() {
        return Ok(0);
    }
    let result = link.send(batch);
    let sent = *result.as_ref().unwrap_or(&0);
    stats.tx_refused += (batch.len() - sent) as u64;
    stats.tx_frames += sent as u64;
    stats.tx_bytes += batch.frames().take(sent).map(|frame| frame.len() as u64).sum::<u64>();
    result
}

//! A port: a link, the memory for its frames, and its faults.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use tyche_counters::counters;
use tyche_link::{Link, Mac, RxBatch, RxFrame, TxBatch, TxVectors};
use tyche_numa::{Node, NumaAffinity};
use tyche_time::Instant;

use crate::backlog::Backlog;
use crate::placed;
use crate::protocol::{Composed, Fault, FrameSink, Frames, Received};

/// Frames in a batch, at least: enough to share a system call well.
pub const BATCH: usize = 64;
/// The most frames in a batch of Tyche's, if they are short.
const BATCH_MAX: usize = 256;
/// Bytes of a batch with more than [`BATCH`] frames: some trains of UDP, of which one has up to 64
/// KiB, but few enough to stay in the cache.
const BATCH_BYTES: usize = 384 << 10;
/// The pause before an interface that is down is tried again.
const DOWN_PAUSE: Duration = Duration::from_millis(100);
/// The interval at which a link is asked whether its frames have grown, which also has it look at
/// its interface.
const LOOK_EVERY: Duration = Duration::from_secs(1);

counters! {
    /// Traffic of a link since it was opened.
    pub struct PortStats {
        /// Frames received.
        rx_frames: Counter in Frames,
        /// Bytes received, headers included.
        rx_bytes: Counter in Bytes,
        /// Frames sent.
        tx_frames: Counter in Frames,
        /// Bytes sent, headers included.
        tx_bytes: Counter in Bytes,
        /// Frames that waited for room in the interface's queue.
        tx_held: Counter in Frames,
        /// Frames that the interface did not take.
        tx_refused: Counter in Frames,
        /// Frames that the kernel dropped because they were not fetched in time.
        overruns: Counter in Frames,
    }
}

/// The frames in a batch, if each has up to `frame_len` bytes.
pub fn batch_frames(frame_len: usize) -> usize {
    (BATCH_BYTES / frame_len).clamp(BATCH, BATCH_MAX)
}

/// The form of a port's batches of frames.
#[derive(Clone, Copy, Debug)]
pub struct Batches {
    /// The most frames in a batch.
    pub frames: usize,
    /// Bytes of a frame's head. Received frames that are shorter are dropped.
    pub head_len: usize,
    /// The most pieces of data in a frame.
    pub pieces_max: usize,
}

/// One interface as a loop uses it: receives and sends batches of frames, keeps those that it had
/// no room for, tries again while it is down, and counts.
pub struct Port {
    link: Box<dyn Link>,
    home: NumaAffinity,
    /// Whether the link may place data in memory of its peers.
    places: bool,
    /// Bytes of a frame's head.
    head_len: usize,
    rx: RxBatch,
    vectors: TxVectors,
    backlog: Backlog,
    /// When the link is asked next whether its frames have grown.
    look_at: Instant,
    stats: PortStats,
    /// Set while the interface is down or gone.
    down_until: Option<Instant>,
    /// The fault of the interface.
    trouble: Option<Trouble>,
    /// The failure that the protocol has not taken yet.
    fault: Option<Fault>,
}

/// A fault of an interface.
struct Trouble {
    message: String,
    /// Whether it is a fault of sending: then receiving without an error does not clear it. Without
    /// a carrier there is nothing to receive, and that is no error.
    is_with_sending: bool,
}

impl Port {
    /// Allocates the port's memory near `home`.
    pub fn new(link: Box<dyn Link>, home: NumaAffinity, batches: Batches) -> Self {
        let _near = placed::near(&home);
        let Batches { frames, head_len, pieces_max } = batches;
        let payload_max = link.frame_len_max() - head_len;
        Self {
            rx: RxBatch::with_head(head_len, frames, payload_max),
            vectors: TxVectors::new(frames, pieces_max),
            backlog: Backlog::default(),
            look_at: Instant::default(),
            stats: PortStats::default(),
            down_until: None,
            trouble: None,
            fault: None,
            places: link.placement().is_some(),
            home,
            head_len,
            link,
        }
    }

    /// The link.
    pub fn link(&self) -> &dyn Link {
        &*self.link
    }

    /// As [`Link::join`], for a protocol with groups, or with addresses of its own.
    ///
    /// # Errors
    /// As [`Link::join`].
    pub fn join(&mut self, address: Mac) -> io::Result<()> {
        self.link.join(address)
    }

    /// As [`Link::leave`].
    ///
    /// # Errors
    /// As [`Link::leave`].
    pub fn leave(&mut self, address: Mac) -> io::Result<()> {
        self.link.leave(address)
    }

    /// The placement of the link.
    pub fn home(&self) -> &NumaAffinity {
        &self.home
    }

    /// The NUMA nodes of the memory in which frames are composed.
    pub fn memory_nodes(&self) -> Vec<Node> {
        self.vectors.memory_nodes()
    }

    /// Its traffic so far.
    pub fn stats(&mut self) -> PortStats {
        self.stats.overruns = self.link.overruns();
        self.stats
    }

    /// The fault of the interface, if any, with the remedy.
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_ref().map(|it| it.message.as_str())
    }

    /// Whether the interface is down or gone, as of the last call that used it.
    pub fn is_down(&self) -> bool {
        self.down_until.is_some()
    }

    /// Takes the pending failure, if any.
    pub(crate) fn take_fault(&mut self) -> Option<Fault> {
        self.fault.take()
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

    /// The time at which the link is looked at next.
    pub(crate) fn look_at(&self) -> Instant {
        self.look_at
    }

    /// The time at which an interface without room for more frames is tried again.
    pub(crate) fn retry_at(&self) -> Option<Instant> {
        self.backlog.retry_at()
    }

    fn failed(&mut self, now: Instant, error: &io::Error, is_with_sending: bool) {
        let message = error.to_string();
        match &mut self.trouble {
            Some(it) if it.message == message => it.is_with_sending &= is_with_sending,
            trouble => {
                tracing::warn!(link = self.link.name(), %error, "link failed, trying again");
                *trouble = Some(Trouble { message, is_with_sending });
            }
        }
        if error.kind() == io::ErrorKind::InvalidInput {
            // Shorter frames still get through; the next handshake finds their length.
            self.fault = Some(Fault::Narrowed(self.link.frame_len_max()));
            return;
        }
        self.fault = Some(Fault::Down);
        self.down_until = Some(now + DOWN_PAUSE);
    }

    /// Clears the fault of an interface that works again.
    fn recovered(&mut self) {
        if self.trouble.take().is_some() {
            tracing::info!(link = self.link.name(), "link is back");
        }
    }

    /// Makes room for longer frames from time to time, if the link takes them now; returns their
    /// length, if it has grown.
    pub(crate) fn grow(&mut self, now: Instant) -> Option<usize> {
        if now < self.look_at {
            return None;
        }
        self.look_at = now + LOOK_EVERY;
        let longest = self.link.look_after()?;
        if longest <= self.head_len + self.rx.payload_max() {
            return None;
        }
        let _near = placed::near(&self.home);
        self.rx = RxBatch::with_head(self.head_len, self.rx.capacity(), longest - self.head_len);
        tracing::info!(link = self.link.name(), longest, "the link takes longer frames");
        Some(longest)
    }

    /// Receives waiting frames, to be [handed over](Self::hand_over) next; returns their number.
    pub(crate) fn receive(&mut self, now: Instant) -> usize {
        if self.down_until.is_some_and(|until| now < until) {
            return 0;
        }
        match self.link.receive(&mut self.rx) {
            Ok(frames) => {
                if frames > 0 || self.trouble.as_ref().is_some_and(|it| !it.is_with_sending) {
                    self.recovered();
                }
                self.down_until = None;
                self.stats.rx_frames += frames as u64;
                let len = |index| self.rx.frame(index).len() + self.rx.placed(index);
                self.stats.rx_bytes += (0..frames).map(|index| len(index) as u64).sum::<u64>();
                frames
            }
            Err(error) => {
                self.rx.clear();
                self.failed(now, &error, false);
                0
            }
        }
    }

    /// Hands over the received frames, and gives their memory back. `timed`: with the times that
    /// they have waited.
    pub(crate) fn hand_over(&mut self, timed: bool, mut take: impl FnMut(Received<'_>)) {
        for index in 0..self.rx.len() {
            let RxFrame { head, payload } = self.rx.frame(index);
            let waited = if timed { self.rx.waited(index) } else { None };
            take(Received {
                head,
                payload,
                waited: waited.unwrap_or_default(),
                is_congested: self.rx.is_congested(index),
                is_placed: self.rx.placed(index) > 0,
            });
        }
        self.rx.clear();
    }

    /// Turns the measurement of the frames' time in the kernel on or off.
    pub fn stamp_arrivals(&mut self, on: bool) {
        if !self.link.stamp_arrivals(on) {
            tracing::debug!(link = self.link.name(), "the link does not say when frames arrive");
        }
    }

    /// Sends all frames; returns their number. Those that the interface refuses are lost, as on the
    /// wire, unless the link [retries](Link::retries) them: then no others are composed before they
    /// are sent. A probe is lost: it may be too long for the other end of a virtual cable, which
    /// looks like a full ring.
    pub(crate) fn transmit<'d>(
        &mut self,
        time: impl Fn() -> Instant,
        frames: &mut impl Frames<'d>,
    ) -> usize {
        let source = self.link.mac();
        let mut count = self.retry(&time);
        let mut next = if self.backlog.is_empty() { frames.compose(time()) } else { None };
        while next.is_some() {
            let mut batch = self.vectors.batch();
            let is_probe = next.is_some_and(|frame| frame.probes);
            while let Some(frame) = next.filter(|_| batch.room() > 0) {
                // An interface whose MTU is being lowered refuses longer probes, and with them what
                // follows in the batch.
                if frame.probes && !batch.is_empty() {
                    break;
                }
                let sink = InBatch { batch: &mut batch, burst: frame.burst, places: self.places };
                write(&mut *self.link, source, frame, frames, sink);
                next = frames.compose(time());
                if frame.probes {
                    break;
                }
            }
            count += batch.len();
            let result = dispatch(&mut *self.link, &mut self.stats, &batch);
            batch.skip(*result.as_ref().unwrap_or(&0));
            if result.is_ok() && !batch.is_empty() && !is_probe && self.link.retries() {
                let backlog = &mut self.backlog;
                backlog.begin(time());
                batch.frames().for_each(|frame| backlog.push(frame.parts()));
                if let Some(frame) = next.take().filter(|frame| !frame.probes) {
                    write(&mut *self.link, source, frame, frames, InBacklog(backlog));
                }
                self.stats.tx_held += self.backlog.len() as u64;
            } else {
                self.stats.tx_refused += batch.len() as u64;
            }
            self.note(&time, result);
        }
        count
    }

    /// Sends the frames of the backlog if it is time; returns the number of those that are sent.
    fn retry(&mut self, time: impl Fn() -> Instant) -> usize {
        let mut count = 0;
        while self.backlog.retry_at().is_some_and(|at| at <= time()) {
            let mut batch = self.vectors.batch();
            self.backlog.fill(&mut batch, self.head_len);
            let wanted = batch.len();
            let result = dispatch(&mut *self.link, &mut self.stats, &batch);
            match &result {
                Ok(sent) => {
                    count += *sent;
                    self.backlog.skip(*sent);
                    if *sent < wanted && self.backlog.is_stuck(time(), *sent) {
                        self.drop_backlog();
                    }
                }
                Err(_) => self.drop_backlog(),
            }
            self.note(&time, result);
        }
        count
    }

    fn drop_backlog(&mut self) {
        self.stats.tx_refused += self.backlog.len() as u64;
        self.backlog.clear();
    }

    /// Takes the result of a [`dispatch`].
    fn note(&mut self, time: impl Fn() -> Instant, result: io::Result<usize>) {
        match result {
            Ok(sent) => {
                if sent > 0 && self.trouble.as_ref().is_some_and(|it| it.is_with_sending) {
                    self.recovered();
                }
            }
            Err(error) => self.failed(time(), &error, true),
        }
    }
}

/// Writes a composed frame, unless it is a probe that the interface does not take.
fn write<'d>(
    link: &mut dyn Link,
    source: Mac,
    frame: Composed,
    frames: &mut impl Frames<'d>,
    sink: impl FrameSink<'d>,
) {
    if let Some((at, bytes)) = frame.narrows {
        link.narrow(at, bytes);
    }
    let len_max = if frame.probes { link.frame_len_max() } else { usize::MAX };
    frames.write(source, Limited(sink, len_max));
}

/// The end of a batch.
struct InBatch<'b, 't> {
    batch: &'b mut TxBatch<'t>,
    /// The most bytes that may leave at once with the frame.
    burst: u32,
    /// Whether the link uses the places of data.
    places: bool,
}

impl<'t, 'd: 't> FrameSink<'d> for InBatch<'_, 't> {
    fn gather(self, front: &[u8], data: &[&'d [u8]], tail: &[u8]) {
        self.batch.push(front, data.iter().copied(), tail);
        self.batch.limit_burst(self.burst);
    }

    fn gather_placed(
        self,
        front: &[u8],
        data: &[&'d [u8]],
        tail: &[u8],
        (region, places): (u16, impl Iterator<Item = u32>),
    ) {
        self.batch.push(front, data.iter().copied(), tail);
        self.batch.limit_burst(self.burst);
        if self.places {
            self.batch.place(region, places);
        }
    }

    fn fill(self, front: &[u8], len: usize, write: impl FnOnce(&mut [u8])) {
        self.batch.push_filled(front, len, write);
        self.batch.limit_burst(self.burst);
    }
}

/// The end of a backlog.
struct InBacklog<'b>(&'b mut Backlog);

impl<'d> FrameSink<'d> for InBacklog<'_> {
    fn gather(self, front: &[u8], data: &[&'d [u8]], tail: &[u8]) {
        self.0.push([front].into_iter().chain(data.iter().copied()).chain([tail]));
    }

    fn fill(self, front: &[u8], len: usize, write: impl FnOnce(&mut [u8])) {
        let mut rest = vec![0; len];
        write(&mut rest);
        self.0.push([front, &rest]);
    }
}

/// A place for frames up to a length; longer ones are not taken.
struct Limited<P>(P, usize);

impl<'d, P: FrameSink<'d>> FrameSink<'d> for Limited<P> {
    fn gather(self, front: &[u8], data: &[&'d [u8]], tail: &[u8]) {
        let len = || front.len() + data.iter().map(|it| it.len()).sum::<usize>() + tail.len();
        if self.1 == usize::MAX || len() <= self.1 {
            self.0.gather(front, data, tail);
        }
    }

    /// A probe has no data with places.
    fn gather_placed(
        self,
        front: &[u8],
        data: &[&'d [u8]],
        tail: &[u8],
        places: (u16, impl Iterator<Item = u32>),
    ) {
        self.0.gather_placed(front, data, tail, places);
    }

    fn fill(self, front: &[u8], len: usize, write: impl FnOnce(&mut [u8])) {
        if front.len() + len <= self.1 {
            self.0.fill(front, len, write);
        }
    }
}

/// Sends a batch and counts what the interface took; returns the number of those frames.
fn dispatch(link: &mut dyn Link, stats: &mut PortStats, batch: &TxBatch<'_>) -> io::Result<usize> {
    if batch.is_empty() {
        return Ok(0);
    }
    let sent = link.send(batch)?;
    stats.tx_frames += sent as u64;
    stats.tx_bytes += batch.frames().take(sent).map(|frame| frame.len() as u64).sum::<u64>();
    Ok(sent)
}

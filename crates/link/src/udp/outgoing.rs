//! Trains to be sent, in the form in which `sendmmsg` takes them.
//!
//! Data are sent from where they lie, and all that is between two pieces of data (padding and tail
//! of a frame, header and front of the next) is copied to one place: the kernel's copy takes longer
//! for each piece than for its bytes. Frames without data make one piece, however many they are.
//!
//! ```text
//!  frames  [header][front][data]..[data][tail][padding] [header][front][data]..
//!  pieces  `---copied---' `---where they lie---' `-------copied-------' `---..
//! ```

use std::io;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::{mem, ptr};

use tyche_counters::counters;

use super::TRAIN_MAX;
use super::datagram::{self, ETHERNET};
use super::peers::Peers;
use super::socket::{self, Name};
use super::train::{self, Train};
use crate::{Mac, TxBatch, TxFrame};

/// Data of up to so many bytes are copied, too.
const COPIED_MAX: usize = 128;

/// Bytes of a control message with a 16-bit value.
const CONTROL: usize = 24;

/// Where the frames of a socket go.
#[derive(Clone, Copy)]
pub(super) enum Routes<'a> {
    /// To the peer that the socket is connected to, wherever they are addressed.
    Connected,
    /// To the peers that their destinations stand for; `as_ipv6`: the socket is one of IPv6.
    Table {
        /// The peers.
        peers: &'a Peers,
        /// See [`Peers::find`].
        as_ipv6: bool,
    },
}

counters! {
    /// Sent trains.
    pub(super) struct Counters as "udp_" {
        /// Trains handed to the kernel; a single frame is one, too.
        trains_sent: Counter in Trains,
        /// Frames sent in trains.
        train_frames_sent: Counter in Frames,
        /// Bytes of padding sent, so that the frames of a train have one length.
        padding_sent: Counter in Bytes,
        /// Frames whose destination is not known or can't be reached.
        lost: Counter in Frames,
        /// Whether nothing on the way cuts trains, so that each frame takes a call: 1, otherwise 0.
        uncut: Gauge in Events,
    }
}

/// The send side of a UDP link: it sorts the frames of a batch by destination, joins them to
/// trains, and sends these. Its memory is kept from batch to batch.
pub(super) struct Outgoing {
    /// The frames by destination, in their order for each.
    order: Vec<Item>,
    trains: Vec<Train>,
    storage: Storage,
    /// Whether the kernel cuts trains; otherwise each has one frame.
    segments: bool,
    counters: Counters,
}

/// A frame of the batch.
#[derive(Clone, Copy)]
struct Item {
    /// Its index in the batch.
    index: usize,
    /// Its destination, if there are several.
    to: Mac,
    /// Bytes.
    len: usize,
    /// The most bytes of a train with it.
    burst: usize,
}

/// The memory that the messages of a batch point to.
#[derive(Default)]
struct Storage {
    /// The bytes that are not sent from where they lie.
    copied: Vec<u8>,
    /// The pieces of all trains. Those that are copied have their place in `copied` instead of an
    /// address, until no more is copied: it may move.
    vectors: Vec<libc::iovec>,
    /// The indices of the copied pieces among the vectors.
    places: Vec<usize>,
    /// By train.
    controls: Vec<Control>,
    names: Vec<Name>,
    messages: Vec<libc::mmsghdr>,
}

/// A control message, aligned as the kernel asks for.
#[repr(C, align(8))]
struct Control([u8; CONTROL]);

// SAFETY: the raw pointers inside point into memory of this value or are leftovers of an earlier
// batch, which nothing reads.
unsafe impl Send for Storage {}

impl Outgoing {
    pub(super) fn new() -> Self {
        Self {
            order: Vec::new(),
            trains: Vec::new(),
            storage: Storage::default(),
            segments: true,
            counters: Counters::default(),
        }
    }

    /// The counters so far.
    pub(super) fn counters(&self) -> Counters {
        Counters { uncut: (!self.segments).into(), ..self.counters }
    }

    /// Sends the batch's frames; returns how many were taken. The rest found no room, except that
    /// those for other peers than the next frame's may have been sent. With a table of routes,
    /// frames that can't be sent count as taken, and as lost.
    ///
    /// # Errors
    /// Of a connected socket that took none.
    pub(super) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        batch: &TxBatch<'_>,
        routes: Routes<'_>,
    ) -> io::Result<usize> {
        self.sort(batch, routes);
        self.divide();
        self.storage.compose(batch, &self.order, &self.trains, routes);
        let (mut next, mut refused) = (0, None);
        while next < self.trains.len() {
            // SAFETY: the messages point to memory of the batch and of `storage`.
            match unsafe { socket::send(socket, &mut self.storage.messages[next..]) } {
                Ok(trains) => {
                    self.trains[next..next + trains].iter().for_each(|it| self.counters.sent(it));
                    next += trains;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if self.is_uncut(&error, next) => {
                    self.segments = false;
                    break;
                }
                Err(error) => {
                    // A train may have been refused for the length of its frames only.
                    self.segments |= error.raw_os_error() == Some(libc::EMSGSIZE);
                    match routes {
                        Routes::Connected => {
                            refused = Some(error);
                            break;
                        }
                        // The fault is with this peer; the others are well.
                        Routes::Table { .. } => {
                            self.counters.lost += self.trains[next].frames as u64;
                            next += 1;
                        }
                    }
                }
            }
        }
        match refused {
            Some(error) if next == 0 => Err(error),
            _ => {
                let taken: usize = self.trains[..next].iter().map(|train| train.frames).sum();
                let unsent = self.order[taken..].iter().map(|item| item.index).min();
                Ok(unsent.unwrap_or(batch.len()))
            }
        }
    }

    /// Whether the error says that nobody cuts trains on the way to that peer: not the socket, not
    /// its interface.
    fn is_uncut(&self, error: &io::Error, train: usize) -> bool {
        self.trains[train].frames > 1
            && matches!(error.raw_os_error(), Some(libc::EIO | libc::EINVAL | libc::EOPNOTSUPP))
    }

    /// Orders the frames that can be sent by destination.
    fn sort(&mut self, batch: &TxBatch<'_>, routes: Routes<'_>) {
        self.order.clear();
        for (index, frame) in (0..).zip(batch.frames()) {
            let mut to = Mac::default();
            if let Routes::Table { peers, as_ipv6 } = routes {
                to = destination(&frame);
                if peers.find(to, as_ipv6).is_none() {
                    self.counters.lost += 1;
                    continue;
                }
            }
            let (len, burst) = (frame.len(), frame.burst().min(TRAIN_MAX));
            self.order.push(Item { index, to, len, burst });
        }
        self.order.sort_by_key(|item| item.to);
    }

    /// Divides the frames into trains.
    fn divide(&mut self) {
        self.trains.clear();
        let frames_max = if self.segments { train::FRAMES_MAX } else { 1 };
        let mut rest = &self.order[..];
        while let Some(first) = rest.first() {
            let alike = rest.iter().take_while(|item| item.to == first.to).take(frames_max);
            let train = train::next(alike.map(|item| (item.len, item.burst)));
            let train = train.expect("there is a frame");
            rest = &rest[train.frames..];
            self.trains.push(train);
        }
    }
}

impl Counters {
    fn sent(&mut self, train: &Train) {
        self.trains_sent += 1;
        self.train_frames_sent += train.frames as u64;
        self.padding_sent += train.padding as u64;
    }
}

impl Storage {
    /// Makes the messages of the trains. They point to the batch's frames, and so are good as long
    /// as it lives.
    fn compose(
        &mut self,
        batch: &TxBatch<'_>,
        order: &[Item],
        trains: &[Train],
        routes: Routes<'_>,
    ) {
        self.copied.clear();
        self.vectors.clear();
        self.places.clear();
        self.controls.clear();
        self.names.clear();
        self.messages.clear();
        // Pointers into these stay good: they do not grow beyond their reserve.
        self.controls.reserve(trains.len());
        self.names.reserve(trains.len());

        let mut rest = order;
        for train in trains {
            let (items, others) = rest.split_at(train.frames);
            let first = self.vectors.len();
            for (position, item) in (1..).zip(items) {
                let padding = if position < train.frames { train.segment - item.len } else { 0 };
                self.add(&batch.frame(item.index), padding, first);
            }
            rest = others;
            self.add_message(train, first..self.vectors.len());
            if let Routes::Table { peers, as_ipv6 } = routes {
                let peer = peers.find(items[0].to, as_ipv6);
                let peer = peer.expect("frames to strangers are left out");
                self.names.push(Name::new(&peer));
                let header = &mut self.messages.last_mut().expect("added above").msg_hdr;
                self.names.last().expect("pushed above").address(header);
            }
        }
        self.settle();
    }

    /// Adds the pieces of a frame to a train, whose first piece is `first`.
    fn add(&mut self, frame: &TxFrame<'_>, padding: usize, first: usize) {
        self.copy(&datagram::header(frame.len()), first);
        self.copy(&frame.front()[ETHERNET..], first);
        for data in frame.data() {
            if data.len() <= COPIED_MAX {
                self.copy(data, first);
            } else {
                self.vectors.push(vector(data));
            }
        }
        self.copy(frame.tail(), first);
        if padding > 0 {
            self.grow(padding, first);
            self.copied.resize(self.copied.len() + padding, 0);
        }
    }

    fn copy(&mut self, bytes: &[u8], first: usize) {
        if !bytes.is_empty() {
            self.grow(bytes.len(), first);
            self.copied.extend_from_slice(bytes);
        }
    }

    /// Lengthens the last piece of the train, if that is copied, or begins another one.
    fn grow(&mut self, len: usize, first: usize) {
        match self.places.last() {
            Some(&last) if last >= first && last + 1 == self.vectors.len() => {
                self.vectors[last].iov_len += len;
            }
            _ => {
                self.places.push(self.vectors.len());
                let place = ptr::without_provenance_mut(self.copied.len());
                self.vectors.push(libc::iovec { iov_base: place, iov_len: len });
            }
        }
    }

    /// Adds the message of a train with these pieces, of which so far it has the number only.
    fn add_message(&mut self, train: &Train, pieces: Range<usize>) {
        // SAFETY: all-zero is a valid `mmsghdr`.
        let mut message: libc::mmsghdr = unsafe { mem::zeroed() };
        message.msg_hdr.msg_iovlen = pieces.len() as _;
        if train.frames > 1 {
            self.controls.push(Control([0; CONTROL]));
            let control = &mut self.controls.last_mut().expect("pushed above").0;
            segment(&mut message.msg_hdr, control, train.segment as u16);
        }
        self.messages.push(message);
    }

    /// Has vectors and messages point to what they name: nothing moves any more.
    fn settle(&mut self) {
        let copied = &self.copied[..];
        for &place in &self.places {
            let libc::iovec { iov_base, iov_len } = self.vectors[place];
            self.vectors[place] = vector(&copied[iov_base.addr()..][..iov_len]);
        }
        let mut rest = &mut self.vectors[..];
        for message in &mut self.messages {
            let (pieces, others) = rest.split_at_mut(message.msg_hdr.msg_iovlen);
            message.msg_hdr.msg_iov = pieces.as_mut_ptr();
            rest = others;
        }
    }
}

/// Has the kernel cut the message into datagrams of this length.
fn segment(header: &mut libc::msghdr, control: &mut [u8; CONTROL], len: u16) {
    header.msg_control = control.as_mut_ptr().cast();
    // SAFETY: it only computes.
    header.msg_controllen = unsafe { libc::CMSG_SPACE(size_of_val(&len) as u32) } as usize;
    assert!(header.msg_controllen <= CONTROL, "room for a 16-bit value");
    // SAFETY: the control buffer is aligned, and long enough for one message with such a value.
    unsafe {
        let message = libc::CMSG_FIRSTHDR(header);
        (*message).cmsg_level = libc::SOL_UDP;
        (*message).cmsg_type = libc::UDP_SEGMENT;
        (*message).cmsg_len = libc::CMSG_LEN(size_of_val(&len) as u32) as _;
        libc::CMSG_DATA(message).cast::<u16>().write_unaligned(len);
    }
}

fn destination(frame: &TxFrame<'_>) -> Mac {
    *frame.front().first_chunk().expect("a head")
}

/// A vector for the kernel, which takes `*mut` but only reads what it sends.
fn vector(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: ptr::from_ref(bytes).cast_mut().cast(), iov_len: bytes.len() }
}

//! Trains to be sent, in the form in which `sendmmsg` takes them.
//!
//! ```text
//!  train   [header][front][data]..[tail][padding] [header][front]..
//!           ours    copied  where copied zeroes
//!                   by the  it
//!                   batch   lies
//! ```

use std::io;
use std::os::fd::BorrowedFd;
use std::{mem, ptr};

use super::peers::Peers;
use super::socket::{self, Name};
use super::train::{self, Train};
use super::{ETHERNET, LENGTH_AT, TRAIN_MAX};
use crate::{Mac, TxBatch, TxFrame};

/// Zeroes to pad frames with: enough for the longest, of which an eighth may be padding.
static PADDING: [u8; 8 << 10] = [0; 8 << 10];

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

/// Counters of sent frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counters {
    /// Trains handed to the kernel; a single frame is one, too.
    pub(super) trains: u64,
    /// Frames in them.
    pub(super) frames: u64,
    /// Bytes of padding.
    pub(super) padding: u64,
    /// Frames whose destination is not known or can't be reached.
    pub(super) lost: u64,
}

/// See the module. The memory is kept from batch to batch.
pub(super) struct Outgoing {
    /// The frames by destination, in their order for each.
    order: Vec<u16>,
    trains: Vec<Train>,
    storage: Storage,
    /// Whether the kernel cuts trains; otherwise each has one frame.
    segments: bool,
    pub(super) counters: Counters,
}

/// What the messages of a batch point to.
#[derive(Default)]
struct Storage {
    /// By frame in `order`.
    headers: Vec<[u8; ETHERNET]>,
    /// As many as all frames need.
    vectors: Vec<libc::iovec>,
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

    /// Whether the kernel cuts trains, as far as is known.
    pub(super) fn segments(&self) -> bool {
        self.segments
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
        self.divide(batch, routes);
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
                Err(error) => match routes {
                    Routes::Connected => {
                        // A train may have been refused for the length of its frames only.
                        self.segments |= error.raw_os_error() == Some(libc::EMSGSIZE);
                        refused = Some(error);
                        break;
                    }
                    // The fault is with this peer; the others are well.
                    Routes::Table { .. } => {
                        self.counters.lost += self.trains[next].frames as u64;
                        next += 1;
                    }
                },
            }
        }
        match refused {
            Some(error) if next == 0 => Err(error),
            _ => {
                let taken: usize = self.trains[..next].iter().map(|train| train.frames).sum();
                let unsent = self.order[taken..].iter().min();
                Ok(unsent.map_or(batch.len(), |&index| index.into()))
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
        self.order.extend(0..batch.len() as u16);
        if let Routes::Table { peers, as_ipv6 } = routes {
            let to = |index: u16| destination(&batch.frame(index.into()));
            self.order.retain(|&index| peers.find(to(index), as_ipv6).is_some());
            self.order.sort_by_key(|&index| to(index));
            self.counters.lost += (batch.len() - self.order.len()) as u64;
        }
    }

    /// Divides the frames into trains.
    fn divide(&mut self, batch: &TxBatch<'_>, routes: Routes<'_>) {
        self.trains.clear();
        let frames_max = if self.segments { train::FRAMES_MAX } else { 1 };
        let mut rest = &self.order[..];
        while let Some(&first) = rest.first() {
            let to = destination(&batch.frame(first.into()));
            let frames = rest.iter().map(|&index| batch.frame(index.into()));
            let alike = frames.take_while(|frame| match routes {
                Routes::Connected => true,
                Routes::Table { .. } => destination(frame) == to,
            });
            let frames = alike.take(frames_max);
            let frames = frames.map(|frame| (frame.len(), frame.burst().min(TRAIN_MAX)));
            let train = train::next(frames).expect("there is a frame");
            rest = &rest[train.frames..];
            self.trains.push(train);
        }
    }
}

impl Counters {
    fn sent(&mut self, train: &Train) {
        self.trains += 1;
        self.frames += train.frames as u64;
        self.padding += train.padding as u64;
    }
}

impl Storage {
    /// Makes the messages of the trains. They point to the batch's frames, and so are good as long
    /// as it lives.
    fn compose(
        &mut self,
        batch: &TxBatch<'_>,
        order: &[u16],
        trains: &[Train],
        routes: Routes<'_>,
    ) {
        let Self { headers, vectors, controls, names, messages } = self;
        headers.clear();
        vectors.clear();
        controls.clear();
        names.clear();
        messages.clear();
        // Pointers into these stay good: they do not grow beyond their reserve.
        headers.reserve(order.len());
        // Header, front, tail and padding have one each.
        vectors.reserve(order.len() * (batch.slices_per_frame() + 4));
        controls.reserve(trains.len());
        names.reserve(trains.len());

        let mut frames = order.iter().map(|&index| batch.frame(index.into()));
        for train in trains {
            let first_vector = vectors.len();
            let mut to = None;
            for position in 1..=train.frames {
                let frame = frames.next().expect("trains are made of these frames");
                to = Some(destination(&frame));
                headers.push(header(&frame));
                vectors.push(vector(headers.last().expect("pushed above")));
                let mut parts = frame.parts();
                let front = parts.next().expect("a frame has a front");
                let parts = [&front[ETHERNET..]].into_iter().chain(parts);
                vectors.extend(parts.filter(|part| !part.is_empty()).map(vector));
                if position < train.frames && frame.len() < train.segment {
                    vectors.push(vector(&PADDING[..train.segment - frame.len()]));
                }
            }
            // SAFETY: all-zero is a valid `mmsghdr`.
            let mut message: libc::mmsghdr = unsafe { mem::zeroed() };
            let header = &mut message.msg_hdr;
            header.msg_iov = vectors[first_vector..].as_mut_ptr();
            header.msg_iovlen = (vectors.len() - first_vector) as _;
            if let (Routes::Table { peers, as_ipv6 }, Some(to)) = (routes, to) {
                let peer = peers.find(to, as_ipv6).expect("frames to strangers are left out");
                names.push(Name::new(&peer));
                names.last().expect("pushed above").address(header);
            }
            if train.frames > 1 {
                controls.push(Control([0; CONTROL]));
                let control = &mut controls.last_mut().expect("pushed above").0;
                segment(header, control, train.segment as u16);
            }
            messages.push(message);
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

/// The header of a frame's datagram: its length, in place of Ethernet addresses and EtherType.
fn header(frame: &TxFrame<'_>) -> [u8; ETHERNET] {
    let mut header = [0; ETHERNET];
    header[LENGTH_AT..].copy_from_slice(&(frame.len() as u16).to_be_bytes());
    header
}

fn destination(frame: &TxFrame<'_>) -> Mac {
    *frame.front().first_chunk().expect("a head")
}

/// A vector for the kernel, which takes `*mut` but only reads what it sends.
fn vector(bytes: &[u8]) -> libc::iovec {
    libc::iovec { iov_base: ptr::from_ref(bytes).cast_mut().cast(), iov_len: bytes.len() }
}

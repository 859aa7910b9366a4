//! The transport of a channel, the same at host and target: two rings in each direction, acks,
//! nacks, retransmission, windows, keepalive and echoes. It carries entries without knowing their
//! meaning. A frame is first [checked](Channel::check) and then [taken](Channel::receive); the
//! owner checks its entries between the two. PROTOCOL.md, "Rings and positions" to "Keepalive and
//! disconnect"; docs/protocol-annexes.md, "Echo frames".

mod acks;
pub(crate) mod batching;
pub(crate) mod body;
pub(crate) mod congestion;
pub(crate) mod damq;
pub(crate) mod echo;
pub(crate) mod outgoing;
pub(crate) mod protection;
pub(crate) mod received;
pub(crate) mod ring;
pub(crate) mod rtt;
pub(crate) mod stages;
pub(crate) mod stats;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod turns;
mod upkeep;

use std::sync::Arc;
use std::time::Duration;

use tyche_crypto::Sealer;
use tyche_wire::{
    Body, ChannelId, Content, Cookie, Data, ENTRY_LEN, Entry, EntryList, Flags, HEAD_LEN, Header,
    Kind, Mac, PacketNumber, Position, Reject, Ring, TAG_LEN,
};

use crate::channel::batching::{BatchPolicy, Batching};
use crate::channel::congestion::{Congestion, Pacer};
use crate::channel::echo::Echoes;
use crate::channel::outgoing::{Capacity, Outgoing};
use crate::channel::ring::{Arrival, RxRing, TxRing};
use crate::channel::rtt::Rtt;
use crate::channel::stats::ChannelStats;
use crate::rules::{Rule, Rules};
use crate::time::Instant;

/// How long an ack may wait for a frame that carries it. Lower: more pure acks for slow disks.
/// Higher: the sender's retransmission timer has to wait longer, too.
const ACK_DELAY: Duration = Duration::from_millis(1);
/// How long a gap may last before it is reported: frames that pass through several queues of a NIC
/// overtake each other by tens of microseconds.
const REORDER_WINDOW: Duration = Duration::from_micros(200);
/// How long to wait before the same gap is reported again.
const NACK_INTERVAL: Duration = Duration::from_millis(1);
/// Smallest window of a channel, however many channels share the receiver: enough for later frames
/// to reveal losses.
const RECEIVER_MIN: u16 = 16;
/// How long the oldest frame of a ring may stay without an ack; the keep-alive time if that is
/// longer. The peer may be heard meanwhile: a switch that has begun to drop long frames lets
/// keepalives through. Lower: a channel is given up for a burst of losses.
const STALL_NS_MIN: u64 = 2_000_000_000;
/// How far a packet number may be behind the newest. Positions wrap after 2³² frames, and there are
/// at least as many packet numbers as positions, so an older frame could have a position of an
/// earlier round. The bound is 16 s at a million frames per second, longer than any network delays
/// a frame.
const PACKET_AGE_MAX: u64 = 1 << 24;
/// Time before a peer that was never heard is asked for a sign of life again.
const UNHEARD_INTERVAL: Duration = Duration::from_millis(100);
/// Timer expiries without progress after which the window shrinks to its minimum. If more frames
/// are in flight than that minimum, it shrinks at the second expiry already: they may be late
/// rather than lost, so few are sent again at a time.
const EXPIRIES_STALLED: u32 = 3;

/// Time without frames below which nothing is forgotten of the path.
const REST_NS_MIN: u64 = 5_000_000;

/// Both sides' view of one channel, as settled in the handshake.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChannelConfig {
    /// Index and cookie in frames to us.
    pub(crate) own: (ChannelId, Cookie),
    /// Index and cookie in frames to the peer.
    pub(crate) peer: (ChannelId, Cookie),
    /// The peer's address.
    pub(crate) peer_mac: Mac,
    /// Bytes of the longest frame, in both directions.
    pub(crate) frame_len: usize,
    /// Positions of our receive rings.
    pub(crate) rx_rings: [u16; 2],
    /// Positions of the peer's receive rings.
    pub(crate) tx_rings: [u16; 2],
    /// Silence after which the channel is dead.
    pub(crate) keep_alive_ns: u64,
    /// Whether data sections are covered by the payload checksum.
    pub(crate) checksum: bool,
    /// Whether completions carry stage times.
    pub(crate) stages: bool,
    /// Whether the host may ask for block status.
    pub(crate) block_status: bool,
    /// How our requests or answers share frames.
    pub(crate) batch: BatchPolicy,
}

impl ChannelConfig {
    /// Checks that a frame has this channel's cookie, and comes from the peer.
    ///
    /// # Errors
    /// `Cookie` or `Source`.
    pub(crate) fn check_origin<R: Rules>(&self, src: Mac, header: &Header) -> Result<(), Reject> {
        if header.cookie != self.own.1 && R::keeps(Rule::CheckCookie) {
            return Err(Reject::Cookie);
        }
        if src == self.peer_mac { Ok(()) } else { Err(Reject::Source) }
    }
}

/// Why a channel is dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dead {
    /// Nothing was heard for the keep-alive time.
    Silence,
    /// The peer is heard, but does not acknowledge a frame.
    Stall,
}

/// The transport of one channel: rings, timers, congestion window and counters. The initiator and
/// the target's end each own one, hand it the entries that they send, and check those that it
/// receives.
pub(crate) struct Channel<R> {
    config: ChannelConfig,
    tx: [TxRing; 2],
    rx: [RxRing; 2],
    /// Number of the next frame.
    packet: PacketNumber,
    /// Highest number received.
    newest: PacketNumber,
    /// The peer's window, from its newest frame.
    window: u16,
    congestion: Congestion,
    pacer: Pacer,
    /// The window is full: see [`Congestion::is_full`].
    is_full: bool,
    rtt: Rtt,
    /// Bytes that may leave at once, as of the last ack that said something new.
    burst: u32,
    /// Bytes sent since the peer was last asked for an ack.
    unasked: u64,
    /// When a frame of a ring was sent last.
    pushed_at: Instant,
    /// When an ack is to be sent in a frame of its own, unless another frame carries it first.
    ack_at: Option<Instant>,
    /// Frames received since the last ack went out.
    unacked: u32,
    /// Whether the network has marked one of the peer's frames as congested since then.
    congested: bool,
    /// The newest of our frames that the peer has acknowledged.
    acked: PacketNumber,
    /// The window that we announce for each ring.
    receiver: u16,
    /// The peer is to be asked for a sign of life.
    asking: bool,
    /// When the peer was first asked for a sign of life, if nothing was heard since.
    asked_at: Option<Instant>,
    /// When it was last asked.
    asked_again_at: Instant,
    nack_at: Option<Instant>,
    /// When each ring has waited too long for an ack that makes progress in it. A frame at the end
    /// of one leaves no gap, however many follow in the other.
    retransmit_at: [Option<Instant>; 2],
    /// Expiries of these timers since the last progress in each ring.
    expiries: [u32; 2],
    heard_at: Instant,
    /// Whether the peer was ever heard.
    is_heard: bool,
    sent_at: Instant,
    /// How much fits into a frame.
    pub(crate) capacity: Capacity,
    pub(crate) batching: Batching,
    pub(crate) echoes: Echoes,
    pub(crate) stats: ChannelStats,
    /// Seals our frames, on a channel with keys.
    sealer: Option<Sealer>,
    rules: std::marker::PhantomData<R>,
}

impl<R: Rules> Channel<R> {
    pub(crate) fn new(config: ChannelConfig, now: Instant) -> Self {
        let positions = config.tx_rings.iter().map(|&len| u32::from(len)).sum();
        Self {
            tx: config.tx_rings.map(|len| TxRing::new(len, Position(R::POSITION_FIRST))),
            rx: config.rx_rings.map(|len| RxRing::new(len, Position(R::POSITION_FIRST))),
            packet: PacketNumber(R::PACKET_FIRST),
            newest: PacketNumber(0),
            window: config.tx_rings[0].max(config.tx_rings[1]),
            congestion: Congestion::new(positions, config.frame_len as u64),
            pacer: Pacer::new(now),
            is_full: false,
            rtt: Rtt::new(),
            burst: 2 * config.frame_len as u32,
            unasked: 0,
            pushed_at: now,
            ack_at: None,
            unacked: 0,
            congested: false,
            acked: PacketNumber(0),
            receiver: config.rx_rings[0].max(config.rx_rings[1]),
            asking: false,
            asked_at: None,
            asked_again_at: now,
            nack_at: None,
            retransmit_at: [None; 2],
            expiries: [0; 2],
            heard_at: now,
            is_heard: false,
            sent_at: now,
            capacity: Capacity::new(config.frame_len),
            batching: Batching::new(config.batch, now),
            echoes: Echoes::default(),
            stats: ChannelStats::default(),
            sealer: None,
            rules: std::marker::PhantomData,
            config,
        }
    }

    /// Has our frames sealed from now on: before the first of them.
    pub(crate) fn seal_with(&mut self, sealer: Sealer) {
        self.config.frame_len -= TAG_LEN;
        self.capacity = Capacity::new(self.config.frame_len);
        self.sealer = Some(sealer);
    }

    /// Our index of the channel.
    pub(crate) fn id(&self) -> ChannelId {
        self.config.own.0
    }

    /// The peer's address.
    pub(crate) fn peer(&self) -> Mac {
        self.config.peer_mac
    }

    /// Smoothed round-trip time.
    pub(crate) fn rtt(&self) -> Duration {
        self.rtt.smoothed()
    }

    /// Takes the time of the handshake for the round trip until it is measured.
    pub(crate) fn assume_rtt(&mut self, time: Duration) {
        self.rtt.assume(time.as_nanos() as u64);
    }

    /// The smoothed round-trip time, for people; zero before the first measurement.
    pub(crate) fn measured_rtt(&self) -> Duration {
        self.rtt.measured()
    }

    /// The shortest round-trip time that was seen.
    pub(crate) fn rtt_least(&self) -> Duration {
        self.rtt.least()
    }

    /// When the last valid frame came.
    pub(crate) fn heard_at(&self) -> Instant {
        self.heard_at
    }

    /// Since when the oldest frame of a ring has been without an ack, if it was sent several times.
    pub(crate) fn stuck_since(&self) -> Option<Instant> {
        self.tx.iter().filter_map(TxRing::stuck_since).min()
    }

    /// Whether the oldest frame of a ring was sent several times and has been without an ack for
    /// `limit`.
    fn is_stalled(&self, now: Instant, limit: Duration) -> bool {
        self.stuck_since().is_some_and(|since| now.since(since) >= limit)
    }

    /// Asks the peer for a sign of life, to be sent at once.
    pub(crate) fn ask_for_life(&mut self, now: Instant) {
        (self.asking, self.asked_again_at) = (true, now);
        self.asked_at.get_or_insert(now);
    }

    /// When the peer was first asked for a sign of life, if nothing was heard since.
    pub(crate) fn asked_at(&self) -> Option<Instant> {
        self.asked_at
    }

    /// How long a question for a sign of life has been unanswered.
    pub(crate) fn asked_for(&self, now: Instant) -> Duration {
        self.asked_at.map_or(Duration::ZERO, |at| now.since(at))
    }

    /// Sets the window for a receiver that `channels` channels share.
    pub(crate) fn share_receiver(&mut self, channels: usize) {
        let rings = self.config.rx_rings;
        let part = usize::from(rings[0].max(rings[1])) / channels.max(1);
        self.receiver = u16::try_from(part).expect("a part of a window fits").max(RECEIVER_MIN);
    }

    /// The channel is one of `channels` of its session on the same path: together they take one
    /// share of it.
    pub(crate) fn share_path(&mut self, channels: usize) {
        self.congestion.share(channels);
    }

    /// Frames of full length that may be in flight.
    pub(crate) fn congestion_window(&self) -> u32 {
        (self.congestion.window() / self.congestion.segment()) as u32
    }

    /// Checks cookie and source of a frame, before its payload is parsed.
    ///
    /// # Errors
    /// `Cookie` or `Source`.
    pub(crate) fn check_origin(&self, src: Mac, header: &Header) -> Result<(), Reject> {
        self.config.check_origin::<R>(src, header)
    }

    /// Checks everything but the entries of a frame, and changes nothing, so that a frame is taken
    /// whole or not at all.
    ///
    /// # Errors
    /// `Flags`, `Length`, `Stale`, `AckOfUnsent` or `Window`.
    pub(crate) fn check(&self, header: &Header, body: &Body<'_>) -> Result<Arrival, Reject> {
        let payload = header.data_len as usize + usize::from(header.entries) * ENTRY_LEN;
        let is_checksummed = header.flags.contains(Flags::CHECKSUMMED);
        if header.kind == Kind::Data && is_checksummed != self.config.checksum {
            return Err(Reject::Flags);
        }
        if HEAD_LEN + payload > self.config.frame_len {
            return Err(Reject::Length);
        }
        if header.packet.0.saturating_add(PACKET_AGE_MAX) < self.newest.0
            && R::keeps(Rule::RejectStale)
        {
            return Err(Reject::Stale);
        }
        for (ring, ack) in self.tx.iter().zip(header.acks) {
            ring.check_ack(ack)?;
        }
        if let Body::Control(pdu) = body
            && header.kind == Kind::Ack
        {
            self.check_nack(header, pdu)?;
        }
        match header.ring() {
            Some(ring) => self.rx[ring as usize].check(header.position),
            None => Ok(Arrival::New),
        }
    }

    /// Notes that the network has marked a frame of the peer as congested.
    pub(crate) fn note_congestion(&mut self) {
        self.congested = true;
        self.stats.congested += 1;
    }

    /// Whether the peer has to be told of congestion, once.
    fn take_congestion(&mut self) -> bool {
        let is_congested = self.congested;
        self.congested &= !R::keeps(Rule::TellMarkOnce);
        is_congested
    }

    /// Takes acks and position of a frame that was [checked](Self::check). The caller must ignore
    /// the entries of a `Duplicate`.
    pub(crate) fn receive(
        &mut self,
        now: Instant,
        header: &Header,
        body: &Body<'_>,
        arrival: Arrival,
    ) {
        self.receive_acks(now, header);
        if header.flags.contains(Flags::CONGESTED) {
            // As a loss, though nothing was lost (RFC 3168, section 5).
            self.congestion.lost::<R>(self.acked, self.packet);
        }
        (self.heard_at, self.asked_at) = (now, None);
        self.is_heard = true;
        if header.packet >= self.newest {
            (self.newest, self.window) = (header.packet, header.window);
        }
        if let Body::Control(pdu) = body
            && header.kind == Kind::Ack
        {
            self.receive_nack(now, header, pdu);
        }
        if header.kind == Kind::Keepalive && header.flags.contains(Flags::ACK_REQUEST) {
            self.ack_at = Some(now);
        }
        let Some(ring) = header.ring() else { return };
        match arrival {
            Arrival::New => self.rx[ring as usize].arrive(header.position),
            Arrival::Duplicate => self.stats.duplicates += 1,
        }
        self.unacked += 1;
        let half = u32::from(self.config.rx_rings[ring as usize]) / 2;
        if header.flags.contains(Flags::ACK_REQUEST) || self.unacked >= half {
            self.ack_at = Some(now);
        } else if self.ack_at.is_none() {
            self.ack_at = Some(now + ACK_DELAY);
        }
        if !self.has_gap() {
            self.nack_at = None;
        } else if self.nack_at.is_none() {
            self.nack_at = Some(now + REORDER_WINDOW);
        }
    }

    fn has_gap(&self) -> bool {
        self.rx.iter().any(RxRing::has_gap)
    }

    fn arm_retransmit(&mut self, now: Instant, ring: Ring) {
        let waits = !self.tx[ring as usize].is_empty();
        let timeout_ns = self.rtt.timeout_ns(self.expiries[ring as usize]);
        self.retransmit_at[ring as usize] = waits.then(|| now.plus_ns(timeout_ns) + ACK_DELAY);
    }

    /// Whether the peer has all frames of both rings.
    pub(crate) fn is_acked(&self) -> bool {
        self.tx.iter().all(TxRing::is_empty)
    }

    /// Bytes in flight.
    fn in_flight(&self) -> u64 {
        self.tx.iter().map(TxRing::bytes_in_flight).sum()
    }

    /// Whether a new frame may be sent in the ring now.
    pub(crate) fn may_send(&mut self, now: Instant, ring: Ring) -> bool {
        self.tx[ring as usize].has_room(self.window) && self.may_leave(now)
    }

    /// Sends `entries`, with `data` bytes of data, in the next position of the ring.
    #[inline]
    pub(crate) fn send(
        &mut self,
        now: Instant,
        ring: Ring,
        entries: &[Entry],
        data: usize,
    ) -> Header {
        let packet = self.next_packet();
        let bytes = (HEAD_LEN + data + entries.len() * ENTRY_LEN) as u32;
        let position = self.tx[ring as usize].push(entries, bytes, packet, now);
        self.left(now, bytes);
        self.stats.batches += 1;
        self.stats.batch_entries += entries.len() as u64;
        self.stats.batch_sizes += u64::from(self.batching.size());
        let kind = match ring {
            Ring::Command => Kind::Command,
            Ring::Data => Kind::Data,
        };
        self.sequenced(now, kind, ring, position, packet)
    }

    /// Sends a lost position again. `entries` is filled with those of its entries that are still
    /// `wanted`.
    pub(crate) fn resend(
        &mut self,
        now: Instant,
        entries: &mut EntryList,
        wanted: impl Fn(&Entry) -> bool,
    ) -> Option<Header> {
        if !self.tx.iter().any(TxRing::has_lost) || !self.may_leave(now) {
            return None;
        }
        for ring in Ring::BOTH {
            let Some(position) = self.tx[ring as usize].next_lost() else { continue };
            entries.clear();
            entries.extend(self.tx[ring as usize].entries(position).filter(|entry| wanted(entry)));
            let renumbers = R::keeps(Rule::RenumberResent);
            let packet = if renumbers { self.next_packet() } else { self.packet };
            let bytes = self.tx[ring as usize].resent(position, packet, now);
            self.left(now, bytes);
            self.stats.retransmitted += 1;
            let kind = match ring {
                _ if entries.is_empty() => Kind::Void,
                Ring::Command => Kind::Command,
                Ring::Data => Kind::Data,
            };
            return Some(self.sequenced(now, kind, ring, position, packet));
        }
        None
    }

    /// Notes that a frame of a ring leaves.
    fn left(&mut self, now: Instant, bytes: u32) {
        self.pushed_at = now;
        self.unasked += u64::from(bytes);
        self.pacer.sent(bytes.into());
    }

    fn next_packet(&mut self) -> PacketNumber {
        let packet = self.packet;
        self.packet.0 += 1;
        packet
    }

    #[inline]
    fn sequenced(
        &mut self,
        now: Instant,
        kind: Kind,
        ring: Ring,
        position: Position,
        packet: PacketNumber,
    ) -> Header {
        if self.retransmit_at[ring as usize].is_none() {
            self.arm_retransmit(now, ring);
        }
        let mut flags = Flags::NONE;
        flags.set(Flags::CHECKSUMMED, kind == Kind::Data && self.config.checksum);
        flags.set(Flags::DATA_RING, kind == Kind::Void && ring == Ring::Data);
        flags.set(Flags::CONGESTED, self.take_congestion());
        if self.unasked * 2 >= self.congestion.window() || self.expiries[ring as usize] > 0 {
            flags.set(Flags::ACK_REQUEST, true);
            self.unasked = 0;
        }
        let header = self.header(now, kind);
        Header { flags, packet, position, ..header }
    }

    /// Makes a header. It carries our acks, so none is due any more.
    fn header(&mut self, now: Instant, kind: Kind) -> Header {
        self.sent_at = now;
        self.ack_at = None;
        self.unacked = 0;
        Header {
            channel: self.config.peer.0,
            cookie: self.config.peer.1,
            acks: [self.rx[0].ack::<R>(), self.rx[1].ack::<R>()],
            window: self.receiver,
            ..Header::new(kind)
        }
    }

    /// Makes the header of a frame outside of the rings.
    pub(crate) fn unsequenced(&mut self, now: Instant, kind: Kind, flags: Flags) -> Header {
        let packet = self.next_packet();
        Header { packet, flags, ..self.header(now, kind) }
    }

    /// Notes in `out` the key that the frame with this header is sealed with.
    fn protect(&mut self, out: &mut Outgoing, header: &Header) {
        let Some(sealer) = &mut self.sealer else {
            out.key = None;
            return;
        };
        let key = sealer.key(header.packet.0);
        // Most frames in a row are of one channel: then nothing is counted.
        if !out.key.as_ref().is_some_and(|it| Arc::ptr_eq(it, key)) {
            out.key = Some(Arc::clone(key));
        }
    }

    /// Fills `out` with a frame of the channel without data.
    pub(crate) fn address(&mut self, out: &mut Outgoing, header: Header, content: Content) {
        self.protect(out, &header);
        out.set_sealed(self.peer(), header, content);
        (out.channel, out.burst) = (Some(self.id()), self.burst);
    }

    /// Completes `out`, which has its entries, as a frame of the channel. `place`: see
    /// [`Outgoing::place_data`].
    pub(crate) fn address_entries(
        &mut self,
        out: &mut Outgoing,
        header: Header,
        place: impl Fn(&Data) -> (u32, u32, u32),
    ) {
        self.protect(out, &header);
        (out.destination, out.channel, out.header) = (self.peer(), Some(self.id()), header);
        out.burst = self.burst;
        if header.kind == Kind::Data {
            out.place_data(place);
        } else {
            out.parts.clear();
        }
    }
}

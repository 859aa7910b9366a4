//! Forgeries that only sessions with keys withstand: from the right addresses, in time, and with
//! all that can be read on the segments.

use tyche_proto::Rules;
use tyche_proto::crypto::{Initiator, PSK_LEN};
use tyche_wire::{
    ChannelId, Checksum, CipherSuite, Connect, ConnectFlags, Control, Cookie, ENTRY_LEN,
    ETHERNET_LEN, ExportInfo, Flags, Geometry, HEAD_LEN, Header, Introduction, Kind, Mac, Name,
    Offer, Rejection, SealedAnswer, SealedConnect, TAG_LEN, Text, VERSION, Versions,
};

use super::World;
use super::forgeries::{Forged, Heard, REASONS, Route, STALE, accept, make, next, outside};
use super::strangers::control;
use crate::host::{export_name, uuid};
use crate::keys;
use crate::network::{Delivery, Station};
use crate::random::Random;
use crate::target::Channel;

/// Kinds of frames that are made up on channels.
const KINDS: [Kind; 8] = [
    Kind::Command,
    Kind::Data,
    Kind::Void,
    Kind::Ack,
    Kind::Keepalive,
    Kind::Fence,
    Kind::Fenced,
    Kind::Disconnect,
];

/// Offsets of the checksums of payload and header: PROTOCOL.md, "Header".
const PAYLOAD_CRC_AT: usize = HEAD_LEN - 8;
const HEADER_CRC_AT: usize = HEAD_LEN - 4;

/// Changes up to three bits of a frame behind the Ethernet header, and corrects the checksums of
/// header and, outside of channels, payload.
fn mutate(frame: &mut [u8], is_of_channel: bool, random: &mut Random) {
    let end = if random.chance(0.5) { HEAD_LEN } else { frame.len() };
    for _ in 0..random.between(1, 3) {
        let byte = random.between(ETHERNET_LEN as u64, end as u64 - 1);
        frame[byte as usize] ^= 1 << random.below(8);
    }
    if !is_of_channel {
        let crc = Checksum::of(&frame[HEAD_LEN..]).to_le_bytes();
        frame[PAYLOAD_CRC_AT..HEADER_CRC_AT].copy_from_slice(&crc);
    }
    let crc = Checksum::of(&frame[ETHERNET_LEN..HEADER_CRC_AT]).to_le_bytes();
    frame[HEADER_CRC_AT..HEAD_LEN].copy_from_slice(&crc);
}

fn fill(bytes: &mut [u8], random: &mut Random) {
    bytes.iter_mut().for_each(|byte| *byte = random.next() as u8);
}

impl<R: Rules> World<R> {
    /// Repeats a frame with other bits.
    pub(super) fn forge_mutant(&mut self) -> Option<Forged> {
        let (segment, mut frame) = self.repeat()?;
        let header = Header::parse(frame.first_chunk()?).ok()?;
        mutate(&mut frame, header.kind.on_channel(), &mut self.others.random);
        Some((segment, frame))
    }

    /// Makes a frame of a channel, as much ahead as one can be.
    pub(super) fn forge_ahead(&mut self) -> Option<Forged> {
        let flow = self.draw_flow()?;
        let random = &mut self.others.random;
        let mut header = next(&flow, random.pick(&KINDS));
        header.packet.0 += random.pick(&[0, 1, 1 << 10, 1 << 20, 1 << 22, 1 << 40, 1 << 62]);
        if header.ring().is_some() {
            header.position.0 = flow.header.position.0.wrapping_add(random.below(3) as u32);
        }
        header.flags.set(Flags::ACK_REQUEST, random.chance(0.3));
        let mut frame = make((flow.destination, flow.source), header, None);
        header.entries = random.below(4) as u16;
        header.data_len = random.pick(&[0, 0, 8, 512, 1024]);
        let tag = if random.chance(0.8) { TAG_LEN } else { 0 };
        let payload = header.data_len as usize + usize::from(header.entries) * ENTRY_LEN + tag;
        frame.resize(HEAD_LEN + payload, 0);
        fill(&mut frame[HEAD_LEN..], random);
        header.emit(frame.first_chunk_mut().expect("a head"));
        Some((flow.segment, frame))
    }

    /// Answers a fresh attempt in the clear, or with a message that is not its answer's.
    pub(super) fn forge_verdict(&mut self) -> Option<Forged> {
        let Heard { segment, route, control, .. } = self.draw_control(Kind::SealedConnect)?;
        let Control::SealedConnect(sealed) = control else { return None };
        let SealedConnect { attempt, target, .. } = sealed;
        let (source, destination) = route;
        let other = self.draw_control(Kind::SealedAnswer).map(|it| it.control);
        let random = &mut self.others.random;
        let answer = match random.below(4) {
            0 => {
                let (versions, detail) = (Versions::OURS, Text::EMPTY);
                let reason = random.pick(&REASONS);
                Control::Reject(Rejection { attempt, versions, reason, target, detail })
            }
            1 => {
                let connect = connect(&sealed, random);
                Control::Accept(accept(&connect, attempt, random.next()))
            }
            2 => {
                let Some(Control::SealedAnswer(other)) = other else { return None };
                Control::SealedAnswer(SealedAnswer { attempt, ..other })
            }
            _ => {
                let mut message = [0; SealedAnswer::MESSAGE_LEN];
                fill(&mut message, random);
                Control::SealedAnswer(SealedAnswer { attempt, target, message })
            }
        };
        Some((segment, outside((destination, source), Flags::NONE, answer)))
    }

    /// Connects with the ticket of a host, in the clear or with a key that the target does not
    /// know, or with another's first message.
    pub(super) fn forge_imposter(&mut self) -> Option<Forged> {
        let Heard { at, segment, route, control } = self.draw_control(Kind::SealedConnect)?;
        if self.now.since(at) > STALE {
            return None;
        }
        let Control::SealedConnect(mut sealed) = control else { return None };
        let random = &mut self.others.random;
        if random.chance(0.5) {
            sealed.attempt = random.next();
        }
        let connect = connect(&sealed, random);
        let control = match random.below(3) {
            0 => Control::Connect(connect),
            1 => Control::SealedConnect(introduce(sealed, connect, random)),
            // The message of another attempt, or a changed one.
            _ => {
                let byte = random.below(SealedConnect::MESSAGE_LEN as u64) as usize;
                sealed.message[byte] ^= u8::from(random.chance(0.5));
                // Whoever has the target's public key can prove that.
                if random.chance(0.5) {
                    prove(&mut sealed);
                }
                Control::SealedConnect(sealed)
            }
        };
        Some((segment, outside(route, Flags::NONE, control)))
    }

    /// Offers another disk or target, for a fresh question, from the address of the target or
    /// another.
    pub(super) fn forge_bid(&mut self) -> Option<Forged> {
        let Heard { segment, route, control, .. } = self.draw_control(Kind::Discover)?;
        let Control::Discover(discover) = control else { return None };
        let (_, asker) = route;
        let of_target = self.draw_control(Kind::Offer);
        let random = &mut self.others.random;
        let source = match of_target {
            Some(Heard { route: (_, target), .. }) if random.chance(0.5) => target,
            _ => Mac([2, 0, 0, 0xfd, random.next() as u8, segment as u8]),
        };
        let index = random.below(3);
        let mut geometry = Geometry::new(1 << 20, 512);
        geometry.read_only = random.chance(0.5);
        let export = ExportInfo {
            name: if discover.name.is_empty() {
                export_name(index as usize)
            } else {
                discover.name
            },
            uuid: uuid(4, random.pick(&[66, index, 0])),
            geometry,
            held: random.chance(0.5),
            shared: random.chance(0.5),
        };
        let offer = Offer {
            nonce: discover.nonce,
            versions: Versions::OURS,
            target: uuid(3, random.pick(&[0, 0, 66, 67])),
            name: Name::new("target").expect("a name"),
            first: 0,
            total: 1,
            exports: [export].into_iter().collect(),
            key: random.pick(&[None, Some(*keys::OF_FORGER.secret.public().as_bytes())]),
        };
        Some((segment, outside((asker, source), Flags::NONE, Control::Offer(offer))))
    }

    /// Asks another link of the target about a living channel, which it does not have.
    pub(super) fn forge_lure(&mut self) -> Option<Forged> {
        let flow = self.draw_flow().filter(|flow| flow.to_target)?;
        let port = self.network.draw_port(&mut self.others.random, None)?;
        if self.network.place(port).station != Station::Target {
            return None;
        }
        let (segment, mac) = (self.network.segment(port), self.network.mac(port));
        Some((segment, make((mac, flow.source), next(&flow, Kind::Keepalive), None)))
    }

    /// Resets a channel with a token that was read.
    pub(super) fn forge_token(&mut self) -> Option<Forged> {
        let Heard { control, .. } = self.draw_control(Kind::Reset)?;
        let Control::Reset(reset) = control else { return None };
        let flow = self.others.recorder.flow_to(reset.cookie)?;
        let route: Route = (flow.source, flow.destination);
        Some((flow.segment, outside(route, Flags::NONE, Control::Reset(reset))))
    }

    /// Whether a frame tells a host with keys that a channel is gone which the target has.
    pub(super) fn resets_living(&self, delivery: &Delivery) -> bool {
        let Some((_, Control::Reset(reset))) = control(&delivery.frame, Kind::Reset) else {
            return false;
        };
        let named = |(&(_, index), its): (&(usize, ChannelId), &Channel)| {
            (index, its.cookie) == (reset.channel, Some(reset.cookie))
        };
        let mut open = self.process.iter().flat_map(|process| &process.channels);
        self.plan.keyed && open.any(named)
    }
}

/// A Connect of the forger, with the ticket of another.
fn connect(sealed: &SealedConnect, random: &mut Random) -> Connect {
    let session = uuid(2, random.next() | 1 << 63);
    Connect {
        attempt: sealed.attempt,
        ticket: sealed.ticket,
        target: sealed.target,
        host: uuid(1, random.below(4)),
        session,
        device: session,
        export: uuid(4, 0),
        host_name: Name::new("host-0").expect("a name"),
        cookie: Cookie(random.next() | 1),
        channel: ChannelId(random.below(4) as u16),
        queue_size: 4,
        rings: [16, 16],
        frame_len: 1514,
        damq_pages: 256,
        flags: ConnectFlags::NONE,
        keep_alive_ms: 1000,
    }
}

/// Seals a connect with the forger's key, for a header without a cookie.
fn introduce(
    mut sealed: SealedConnect,
    mut connect: Connect,
    random: &mut Random,
) -> SealedConnect {
    connect.cookie = Cookie(connect.cookie.0 << 32 | 1 << 63);
    let keys = &*keys::OF_FORGER;
    let (suite, export_name) = (CipherSuite::Aes128Gcm, export_name(0));
    let introduction = Introduction { suite, target_name: Name::EMPTY, export_name, connect };
    let prologue = [&b"Tyche"[..], &[VERSION], &[0; 8], &sealed.clear()].concat();
    let mut ephemeral = [0; 32];
    fill(&mut ephemeral, random);
    let ends = (&keys.secret, &keys.target);
    let bytes = introduction.to_bytes();
    let (_, message) = Initiator::new(ends, &[0; PSK_LEN], &prologue, ephemeral, &bytes);
    sealed.message.copy_from_slice(&message);
    prove(&mut sealed);
    sealed
}

/// Shows that the forger knows the target's public key.
fn prove(sealed: &mut SealedConnect) {
    sealed.proof = tyche_proto::connect_proof(&keys::OF_FORGER.target, Cookie(0), sealed);
}

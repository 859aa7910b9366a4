//! Frames in and out, and the state of our end of a channel: numbers, positions, acks.
//!
//! It behaves as a peer must where a vector does not specify otherwise: it numbers frames,
//! acknowledges received ones on request, and drops duplicates. It retransmits nothing by itself.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use serde_json::{Map, Value};

use crate::frame::{
    ACK_REQUEST, Entry, Frame, Mac, check_header, compose, on_channel, readdress, ring,
};
use crate::receiver::Receiver;
use crate::sealed::{ChannelKeys, Handshakes, changes, flip};
use crate::table::{Bindings, Table, hex, number, object};
use crate::{Result, Subject};

/// Positions of our receive rings, as in every vector's handshake.
const WINDOW: u64 = 64;

/// Our end of a channel.
#[derive(Default)]
pub(crate) struct Channel {
    /// Channel and cookie of frames to us, and of frames to the peer.
    own: (Vec<u8>, Vec<u8>),
    peer: (Vec<u8>, Vec<u8>),
    /// Number of the last sent frame, and of the last received one.
    packet: u64,
    packet_received: u64,
    /// The next position in each ring.
    positions: [u32; 2],
    /// Received positions after the first missing one, and that position.
    received: [BTreeSet<u32>; 2],
    awaited: [u32; 2],
    /// Positions that the peer has acknowledged.
    pub(crate) acked: [u32; 2],
    /// Number of received frames.
    pub(crate) frames: u64,
    /// Entries that no step has examined.
    pub(crate) entries: VecDeque<Entry>,
    /// Entries of frames that came again.
    pub(crate) repeated: VecDeque<Entry>,
    /// Whether acknowledging has stopped.
    pub(crate) is_deaf: bool,
    /// Whether a Disconnect has come.
    pub(crate) is_over: bool,
    /// Whether nothing may come any more.
    pub(crate) is_mute: bool,
    /// The keys of its frames, if they are sealed.
    pub(crate) keys: Option<ChannelKeys>,
}

/// A sent frame, kept for sending it again.
#[derive(Clone)]
struct Sent {
    spec: Map<String, Value>,
    bytes: Vec<u8>,
}

/// The player's end of the wire in one vector: its channels, bound values, and what has come and
/// was not examined yet. It sends and receives through the [`Subject`].
pub(crate) struct Exchange<'a> {
    pub(crate) table: &'a Table,
    pub(crate) subject: &'a mut dyn Subject,
    pub(crate) bindings: Bindings,
    pub(crate) channels: BTreeMap<String, Channel>,
    /// Frames without entries that no step has examined.
    pub(crate) inbox: VecDeque<Frame>,
    /// Answers to frames that were repeated until they came: they may come once more, late.
    answers: Vec<Frame>,
    sent: BTreeMap<String, Sent>,
    pub(crate) handshakes: Handshakes,
    /// Whether a channel has, or had, keys.
    pub(crate) has_keys: bool,
    random: &'a mut dyn FnMut() -> u64,
}

impl<'a> Exchange<'a> {
    pub(crate) fn new(
        table: &'a Table,
        subject: &'a mut dyn Subject,
        bindings: Bindings,
        random: &'a mut dyn FnMut() -> u64,
    ) -> Self {
        let (channels, inbox, sent, handshakes) = Default::default();
        let (has_keys, answers) = (false, Vec::new());
        Self {
            table,
            subject,
            bindings,
            channels,
            inbox,
            answers,
            sent,
            handshakes,
            has_keys,
            random,
        }
    }

    /// The next random number.
    pub(crate) fn random(&mut self) -> u64 {
        (self.random)()
    }

    /// Bytes of an ephemeral key.
    pub(crate) fn ephemeral(&mut self) -> [u8; 32] {
        let mut bytes = [0; 32];
        bytes.as_chunks_mut().0.iter_mut().for_each(|it| *it = self.random().to_le_bytes());
        bytes
    }

    /// Opens our end of a channel with the bound values.
    pub(crate) fn open(&mut self, name: &str) -> Result<()> {
        let value = |name: &str| {
            let bytes = self.bindings.get(name).cloned();
            bytes.ok_or_else(|| format!("a channel is opened, but nothing is bound to ${name}"))
        };
        let sized = |name: &str, len: usize| {
            value(name).map(|mut bytes| {
                bytes.resize(len, 0);
                bytes
            })
        };
        let own = (sized("own_channel", 2)?, sized("own_cookie", 8)?);
        let peer = (value("channel")?, value("cookie")?);
        self.channels.insert(name.to_owned(), Channel { own, peer, ..Channel::default() });
        Ok(())
    }

    /// The channel of a frame or a step: `on`, or the one named `main`.
    pub(crate) fn channel(&mut self, spec: &Map<String, Value>) -> Result<&mut Channel> {
        let name = spec.get("on").and_then(Value::as_str).unwrap_or("main");
        self.channels.get_mut(name).ok_or_else(|| format!("no channel is called {name:?}"))
    }

    /// Composes the next frame on its channel; it takes a position if it `counts`.
    fn next(&mut self, spec: &Map<String, Value>, counts: bool) -> Result<Sent> {
        let kind = spec.get("kind").and_then(Value::as_str).unwrap_or_default();
        let code = self.table.value("kind", kind)? as u8;
        let mut auto = Map::new();
        let mut spec = spec.clone();
        let is_sealed = on_channel(code) && self.seals(&spec)?;
        if is_sealed {
            auto.insert("payload_crc".to_owned(), 0.into());
        } else if kind == "Data" {
            auto.insert("flags".to_owned(), Value::from(vec!["CHECKSUMMED"]));
        }
        let label = spec.remove("as");
        self.handshake(kind, &mut spec, label.as_ref().and_then(Value::as_str))?;
        if on_channel(code) {
            let flags = spec.get("flags").or_else(|| auto.get("flags")).cloned();
            let flags = Map::from_iter([("flags".to_owned(), flags.unwrap_or(0.into()))]);
            let flags = number(&self.table.encode("header", &flags, &self.bindings)?[2..4]);
            let out_of_turn = self.out_of_turn(&spec)?;
            let channel = self.channel(&spec)?;
            let number = spec.get("packet").and_then(Value::as_u64).unwrap_or(0);
            match out_of_turn {
                Some(number) => drop(spec.insert("packet".to_owned(), number.into())),
                None => channel.packet = number.max(channel.packet + 1),
            }
            if let Some(ring) = ring(kind, flags)
                && !spec.contains_key("position")
            {
                spec.insert("position".to_owned(), channel.positions[ring].into());
                channel.positions[ring] = channel.positions[ring].wrapping_add(counts.into());
            }
            channel.header(&mut auto);
        } else {
            auto.insert("channel".to_owned(), 0xffff.into());
        }
        let mut bytes = compose(self.table, &spec, auto, self.addresses(&spec)?, &self.bindings)?;
        if is_sealed {
            let keys = serde_json::json!({"on": spec.get("keys_of").or_else(|| spec.get("on"))});
            let keys = self.channel(object(&keys)?)?.keys.as_ref();
            keys.ok_or("keys of a channel that has none")?.seal(&mut bytes);
        }
        let flips = changes(&spec, "flip")?;
        if !flips.is_empty() {
            flip(&mut bytes, &flips, 0)?;
            // The checksum is no secret: somebody who changes the header sets it right.
            check_header(&mut bytes);
        }
        Ok(Sent { spec, bytes })
    }

    /// Whether a frame is to be sealed: its channel has keys, and it is not to be in the clear.
    fn seals(&mut self, spec: &Map<String, Value>) -> Result<bool> {
        let clear = spec.get("clear").and_then(Value::as_bool).unwrap_or(false);
        Ok(!clear && self.channel(spec)?.keys.is_some())
    }

    /// The packet number of a frame that does not get the next one: `number`, or that of the frame
    /// `number_of`.
    fn out_of_turn(&self, spec: &Map<String, Value>) -> Result<Option<u64>> {
        if let Some(number) = spec.get("number").and_then(Value::as_u64) {
            return Ok(Some(number));
        }
        let Some(label) = spec.get("number_of").and_then(Value::as_str) else { return Ok(None) };
        let sent = self.sent.get(label).ok_or_else(|| format!("nothing was sent as {label:?}"))?;
        Ok(Some(number(&sent.bytes[28..36])))
    }

    /// Gives a SealedConnect or a SealedAnswer its message. The frame has the bytes of its body
    /// then.
    fn handshake(
        &mut self,
        kind: &str,
        spec: &mut Map<String, Value>,
        label: Option<&str>,
    ) -> Result<()> {
        let ephemeral = self.ephemeral();
        let parts = (self.table, &self.bindings);
        let body = match kind {
            "SealedConnect" if spec.contains_key("introduction") => {
                let label = label.unwrap_or("connect");
                let (body, cookie) = self.handshakes.connect(parts, (spec, label), ephemeral)?;
                spec.entry("cookie").or_insert(cookie.into());
                body
            }
            "SealedAnswer" if spec.contains_key("verdict") => {
                self.handshakes.answer(parts, spec)?
            }
            _ => return Ok(()),
        };
        let used = ["introduction", "verdict", "body", "key", "peer_key", "prologue", "to", "flip"];
        used.iter().for_each(|field| drop(spec.remove(*field)));
        let digits: String = body.iter().map(|byte| format!("{byte:02x}")).collect();
        spec.insert("data".to_owned(), digits.into());
        Ok(())
    }

    /// Opens what a frame of a handshake has come with, if a step wants to see it.
    ///
    /// # Errors
    /// If it can't be opened, or is other than wanted.
    pub(crate) fn open_handshake(
        &mut self,
        pattern: &Map<String, Value>,
        frame: &Frame,
        bindings: &mut Bindings,
    ) -> Result<()> {
        let (header, body) = (&frame.header.fields, &frame.body.fields);
        if pattern.contains_key("introduction") {
            let ephemeral = self.ephemeral();
            let fields = (header, body);
            self.handshakes.introduced(self.table, pattern, fields, bindings, ephemeral)
        } else if pattern.contains_key("verdict") {
            self.handshakes.answered(self.table, pattern, body, bindings)
        } else {
            Ok(())
        }
    }

    /// Opens a frame of a channel with keys; returns any other as it is. `None` if it may be sealed
    /// with keys that are forgotten.
    ///
    /// # Errors
    /// If it was not sealed with the keys of its channel.
    fn unseal(&mut self, bytes: Vec<u8>) -> Result<Option<(Vec<u8>, bool)>> {
        if bytes.len() < 64 || !on_channel(bytes[15]) {
            return Ok(Some((bytes, false)));
        }
        let ends = (&bytes[18..20], &bytes[20..28]);
        let mut channels = self.channels.values_mut();
        let channel = channels.find(|it| (&*it.own.0, &*it.own.1) == ends);
        match channel {
            Some(Channel { keys: Some(keys), .. }) => Ok(Some((keys.open(&bytes)?, true))),
            None if self.has_keys => Ok(None),
            _ => Ok(Some((bytes, false))),
        }
    }

    fn addresses(&self, spec: &Map<String, Value>) -> Result<(Mac, Mac)> {
        let address = |key: &str, default: &str| {
            let text = spec.get(key).and_then(Value::as_str).unwrap_or(default);
            let bytes = match text.strip_prefix('$') {
                Some(name) => self.bindings.get(name).cloned(),
                None => Some(hex(text)?),
            };
            let bytes = bytes.and_then(|bytes| Mac::try_from(bytes).ok());
            bytes.ok_or_else(|| format!("{key} {text:?} is no address"))
        };
        Ok((address("dst", "$peer")?, address("src", "$own")?))
    }

    /// Sends a frame, or only composes it if it is to be `lost`. It is kept as `label`.
    pub(crate) fn send(&mut self, spec: &Value, label: Option<&str>, lost: bool) -> Result<()> {
        let sent = self.next(object(spec)?, true)?;
        if !lost {
            self.subject.send(&sent.bytes)?;
        }
        if let Some(label) = label {
            self.sent.insert(label.to_owned(), sent);
        }
        Ok(())
    }

    /// Sends a frame that must have no effect: its position is used again.
    pub(crate) fn send_wrong(&mut self, spec: &Value) -> Result<()> {
        let sent = self.next(object(spec)?, false)?;
        self.subject.send(&sent.bytes)
    }

    /// Sends a literal frame that must have no effect.
    pub(crate) fn send_literal(&mut self, mut frame: Vec<u8>) -> Result<()> {
        let spec = Map::new();
        let mut auto = Map::new();
        let channel = self.channel(&spec)?;
        channel.packet += 1;
        channel.header(&mut auto);
        let header = self.table.encode("header", &auto, &self.bindings)?;
        readdress(&mut frame, self.addresses(&spec)?, &header);
        self.subject.send(&frame)
    }

    /// Sends a frame again, with a new number or unchanged.
    pub(crate) fn repeat(&mut self, label: &str, renumbered: bool) -> Result<()> {
        let sent = self.sent.get(label).cloned();
        let mut sent = sent.ok_or_else(|| format!("nothing was sent as {label:?}"))?;
        if renumbered {
            sent = self.next(&sent.spec, false)?;
        }
        self.subject.send(&sent.bytes)
    }

    /// Makes the peer of a channel answer, so that it has processed everything sent before.
    pub(crate) fn probe(&mut self, name: &str) -> Result<()> {
        for _ in 0..2 {
            self.drain()?;
            let spec = serde_json::json!({"on": name});
            let before = self.channel(object(&spec)?)?.frames;
            let probe = serde_json::json!(
                {"kind": "Keepalive", "flags": ["ACK_REQUEST"], "on": name}
            );
            self.send(&probe, None, false)?;
            self.until("the answer to a keepalive that asks for an ack", |this| {
                let channel = this.channel(object(&spec)?)?;
                Ok((channel.frames > before).then_some(()))
            })?;
        }
        Ok(())
    }

    /// Notes an answer to a frame that was repeated until it came.
    pub(crate) fn note_answer(&mut self, frame: Frame) {
        self.answers.push(frame);
    }

    /// The frames that no step has examined, without answers that have come before.
    pub(crate) fn unexamined(&self) -> impl Iterator<Item = &Frame> {
        let same = |it: &Frame, frame: &Frame| {
            it.kind == frame.kind && it.body.fields == frame.body.fields
        };
        self.inbox.iter().filter(move |frame| !self.answers.iter().any(|it| same(it, frame)))
    }
}

impl Receiver for Exchange<'_> {
    fn now(&self) -> Duration {
        self.subject.now()
    }

    fn pump(&mut self, patience: Duration) -> Result<bool> {
        let Some(bytes) = self.subject.receive(patience)? else { return Ok(false) };
        let Some((bytes, was_sealed)) = self.unseal(bytes)? else { return Ok(true) };
        let frame = Frame::parse(self.table, &bytes, was_sealed)?;
        if !on_channel(frame.field("kind") as u8) {
            self.inbox.push_back(frame);
            return Ok(true);
        }
        let own = |field: &str| &frame.header.fields[field];
        let mut channels = self.channels.iter_mut();
        let channel =
            channels.find(|(_, it)| it.own.0 == *own("channel") && it.own.1 == *own("cookie"));
        let Some((name, channel)) = channel else {
            // It belongs to another vector, or to a channel that the vector has not opened.
            return Ok(true);
        };
        let name = name.clone();
        let is_asking = channel.take(&frame)? && !channel.is_deaf;
        let is_bare = frame.kind == "Ack" && frame.body.fields.is_empty();
        let is_taken = matches!(&*frame.kind, "Command" | "Data" | "Void" | "Keepalive");
        if !is_bare && !is_taken {
            self.inbox.push_back(frame);
        }
        if is_asking {
            let ack = serde_json::json!({"kind": "Ack", "on": name});
            self.send(&ack, None, false)?;
        }
        Ok(true)
    }

    fn left(&self) -> Vec<String> {
        let frames = self.inbox.iter().map(|frame| frame.describe(self.table));
        let entries = self.channels.values().flat_map(|channel| &channel.entries);
        frames.chain(entries.map(|entry| entry.describe(self.table))).collect()
    }
}

impl Channel {
    /// Adds the fields of the next frame's header.
    fn header(&self, auto: &mut Map<String, Value>) {
        let bytes = |bytes: &[u8]| Value::from(number(bytes));
        auto.insert("channel".to_owned(), bytes(&self.peer.0));
        auto.insert("cookie".to_owned(), bytes(&self.peer.1));
        auto.insert("packet".to_owned(), self.packet.into());
        auto.insert("ack_command".to_owned(), self.awaited[0].into());
        auto.insert("ack_data".to_owned(), self.awaited[1].into());
        auto.insert("window".to_owned(), WINDOW.into());
    }

    /// Takes a received frame; returns whether it asks for an ack.
    ///
    /// # Errors
    /// If its numbers are wrong.
    fn take(&mut self, frame: &Frame) -> Result<bool> {
        let packet = frame.field("packet");
        if self.is_mute {
            return Err(format!("a {} on a channel that must not be used any more", frame.kind));
        }
        if packet <= self.packet_received {
            return Err(format!("packet number {packet} after {}", self.packet_received));
        }
        self.packet_received = packet;
        self.frames += 1;
        let sent = self.positions;
        self.acked = ["ack_command", "ack_data"].map(|field| frame.field(field) as u32);
        if self.acked.iter().zip(sent).any(|(acked, sent)| *acked > sent) {
            let acked = self.acked;
            return Err(format!("it acks {acked:?}, more than the {sent:?} that it was to take"));
        }
        self.is_over |= frame.kind == "Disconnect";
        if let Some(ring) = ring(&frame.kind, frame.field("flags")) {
            let position = frame.field("position") as u32;
            if position >= self.awaited[ring] + WINDOW as u32 {
                return Err(format!("position {position} beyond the window"));
            }
            let (received, awaited) = (&mut self.received[ring], &mut self.awaited[ring]);
            let is_new = position >= *awaited && received.insert(position);
            let place = if is_new { &mut self.entries } else { &mut self.repeated };
            place.extend(frame.entries.iter().cloned());
            if !self.is_deaf {
                while received.remove(awaited) {
                    *awaited += 1;
                }
            }
        }
        Ok(frame.field("flags") & ACK_REQUEST != 0)
    }
}

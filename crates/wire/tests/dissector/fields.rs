//! The fields that the dissector is to show of a frame, from the values that the crate parses.

use tyche_wire::*;

use crate::frames;

/// A field's name, without `tyche.`, and its value as tshark writes it.
pub(super) type Field = (String, String);

/// Fields that are bytes: tshark's text for these is their hexadecimal digits.
pub(super) const BYTES: [&str; 13] = [
    "data",
    "datagram",
    "datagram_padding",
    "key",
    "message",
    "other_version",
    "padding",
    "part",
    "proof",
    "seal_tag",
    "sealed",
    "ticket",
    "token",
];

/// Fields of a frame, in the order of its bytes.
#[derive(Debug, Default)]
pub(super) struct Fields(pub(super) Vec<Field>);

impl Fields {
    /// All fields of a frame that the crate accepts.
    pub(super) fn of(frame: &[u8]) -> Self {
        let parsed = frames::parse(frame).expect("a good frame");
        let mut fields = Self::default();
        fields.header(&parsed.header, Checksum::of(&frame[frames::VERSION..frames::HEADER_CRC]));
        match parsed.body {
            Body::Empty => {}
            Body::Control(pdu) => fields.control(&pdu.decode()),
            Body::Entries { entries, data } => fields.entries(data.unwrap_or_default(), entries),
            Body::Echo { echo, filling } => fields.echo(&echo, filling),
        }
        fields
    }

    #[expect(clippy::needless_pass_by_value, reason = "calls are rows of a table")]
    fn text(&mut self, name: &str, value: impl ToString) -> &mut Self {
        self.0.push((name.to_owned(), value.to_string()));
        self
    }

    pub(super) fn bytes(&mut self, name: &str, value: &[u8]) -> &mut Self {
        self.text(name, digits(value))
    }

    fn hex(&mut self, name: &str, value: impl Into<u64>, digits: usize) -> &mut Self {
        self.text(name, format!("0x{:0digits$x}", value.into()))
    }

    fn zero(&mut self, len: usize) -> &mut Self {
        self.bytes("zero", &vec![0; len])
    }

    /// A field of flags and its bits, from the lowest on.
    fn flags(&mut self, name: &str, value: u32, digits: usize, bits: &[&str]) -> &mut Self {
        self.hex(name, value, digits);
        for (index, bit) in bits.iter().enumerate() {
            self.text(&format!("{name}.{bit}"), value >> index & 1);
        }
        self
    }

    fn entry(&mut self) -> &mut Self {
        self.text("entry", "")
    }

    fn tag(&mut self, tag: Tag) -> &mut Self {
        self.text("slot", tag.slot).text("slot_generation", tag.generation)
    }

    fn versions(&mut self, versions: Versions) -> &mut Self {
        self.text("version_min", versions.min).text("version_max", versions.max)
    }

    fn header(&mut self, header: &Header, header_crc: u32) {
        let bits = ["checksummed", "reply", "data_ring", "ack_request", "congested"];
        self.text("version", VERSION)
            .hex("kind", header.kind as u8, 2)
            .flags("flags", header.flags.0.into(), 4, &bits)
            .text("channel", header.channel.0)
            .hex("cookie", header.cookie.0, 16)
            .text("packet", header.packet.0)
            .text("position", header.position.0)
            .text("ack_command", header.acks[0].0)
            .text("ack_data", header.acks[1].0)
            .text("window", header.window)
            .text("entries", header.entries)
            .text("data_len", header.data_len)
            .hex("payload_crc", header.payload_crc, 8)
            .hex("header_crc", header_crc, 8);
    }

    fn control(&mut self, control: &Control) {
        match control {
            Control::Discover(it) => self.discover(it),
            Control::Offer(it) => self.offer(it),
            Control::Hello(it) => self.hello(it),
            Control::Connect(it) => self.connect(it),
            Control::Accept(it) => self.accept(it),
            Control::Reject(it) => self.reject(it),
            Control::SealedConnect(it) => self.sealed_connect(it),
            Control::SealedAnswer(it) => self.sealed_answer(it),
            Control::Fence(it) => self.fence(it),
            Control::Fenced(it) => self.fenced(it),
            Control::Reset(it) => self.reset(it),
            Control::Ack(it) => self.nack(it),
        }
    }

    fn discover(&mut self, it: &Discover) {
        self.hex("nonce", it.nonce, 16)
            .versions(it.versions)
            .text("first", it.first)
            .zero(4)
            .text("host", it.host)
            .text("target", it.target)
            .text("uuid", it.uuid)
            .text("name", it.name.as_str());
        if it.padding > 0 {
            self.bytes("padding", &vec![0; it.padding.into()]);
        }
    }

    fn offer(&mut self, it: &Offer) {
        self.hex("nonce", it.nonce, 16)
            .versions(it.versions)
            .zero(6)
            .text("target", it.target)
            .text("name", it.name.as_str())
            .text("first", it.first)
            .text("count", it.exports.len())
            .text("total", it.total)
            .zero(2);
        for export in &it.exports {
            let geometry = &export.geometry;
            let set = [geometry.read_only, geometry.write_cache, export.held, export.shared];
            self.entry()
                .text("name", export.name.as_str())
                .text("uuid", export.uuid)
                .text("size", geometry.size)
                .text("block_size", geometry.block_size)
                .flags(
                    "offer.flags",
                    mask(&set),
                    8,
                    &["read_only", "write_cache", "held", "shared"],
                )
                .zero(8);
        }
        if let Some(key) = &it.key {
            self.bytes("key", key);
        }
    }

    fn hello(&mut self, it: &Hello) {
        self.hex("nonce", it.nonce, 16)
            .text("target", it.target)
            .bytes("ticket", &it.ticket.0)
            .text("frame_len", it.frame_len)
            .bytes("padding", &vec![0; it.padding_len()]);
    }

    fn connect(&mut self, it: &Connect) {
        let bits = ["read_only", "checksum", "resume", "stages", "block_status"];
        self.hex("attempt", it.attempt, 16)
            .bytes("ticket", &it.ticket.0)
            .text("target", it.target)
            .text("host", it.host)
            .text("session", it.session)
            .text("device", it.device)
            .text("export", it.export)
            .text("host_name", it.host_name.as_str())
            .hex("connect.cookie", it.cookie.0, 16)
            .text("connect.channel", it.channel.0)
            .shape(it.queue_size, it.rings, it.frame_len, it.damq_pages)
            .flags("connect.flags", it.flags.0, 8, &bits)
            .text("keep_alive", it.keep_alive_ms);
    }

    fn shape(&mut self, slots: u16, rings: [u16; 2], frame_len: u32, pages: u32) -> &mut Self {
        self.text("queue_size", slots)
            .text("ring_command", rings[0])
            .text("ring_data", rings[1])
            .text("frame_len", frame_len)
            .text("damq_pages", pages)
    }

    fn accept(&mut self, it: &Accept) {
        let disk = &it.geometry;
        let set = [
            disk.read_only,
            it.checksum,
            disk.write_cache,
            disk.discard,
            it.stages,
            disk.rotational,
            it.block_status,
        ];
        let bits = [
            "read_only",
            "checksum",
            "write_cache",
            "discard",
            "stages",
            "rotational",
            "block_status",
        ];
        self.hex("attempt", it.attempt, 16)
            .text("target", it.target)
            .text("generation", it.generation)
            .text("export", it.export)
            .text("size", disk.size)
            .hex("accept.cookie", it.cookie.0, 16)
            .text("accept.channel", it.channel.0)
            .shape(it.queue_size, it.rings, it.frame_len, it.damq_pages)
            .text("block_size", disk.block_size)
            .flags("accept.flags", mask(&set), 8, &bits)
            .text("keep_alive", it.keep_alive_ms)
            .zero(4);
    }

    fn reject(&mut self, it: &Rejection) {
        self.hex("attempt", it.attempt, 16)
            .versions(it.versions)
            .text("reason", it.reason as u16)
            .zero(4)
            .text("target", it.target)
            .text("detail", it.detail.as_str());
    }

    fn reset(&mut self, it: &Reset) {
        self.hex("reset.cookie", it.cookie.0, 16)
            .text("reset.channel", it.channel.0)
            .bytes("token", &it.token.0)
            .text("target", it.target);
    }

    fn sealed_connect(&mut self, it: &SealedConnect) {
        self.hex("attempt", it.attempt, 16)
            .bytes("ticket", &it.ticket.0)
            .text("target", it.target)
            .bytes("message", &it.message)
            .bytes("proof", &it.proof);
    }

    fn sealed_answer(&mut self, it: &SealedAnswer) {
        self.hex("attempt", it.attempt, 16).text("target", it.target).bytes("message", &it.message);
    }

    fn fence(&mut self, it: &Fence) {
        self.hex("fence.cookie", it.cookie.0, 16)
            .text("fence.channel", it.channel.0)
            .text("count", it.tags.len())
            .zero(4);
        for &tag in &it.tags {
            self.entry().tag(tag);
        }
    }

    fn fenced(&mut self, it: &Fenced) {
        self.hex("fence.cookie", it.cookie.0, 16)
            .text("fence.channel", it.channel.0)
            .text("count", it.outcomes.len())
            .zero(4);
        for outcome in &it.outcomes {
            let code = match outcome.fate {
                Fate::Executed(status) => status as u8,
                Fate::NotExecuted => 0xff,
                Fate::Unknown => 0xfe,
            };
            self.entry().tag(outcome.tag).text("outcome", code).zero(3);
        }
    }

    fn nack(&mut self, it: &Ack) {
        let [commands, data] = &it.bitmaps;
        self.text("newest", it.newest.0)
            .text("words_command", commands.len())
            .text("words_data", data.len())
            .zero(4);
        for (name, words) in [("bitmap.command", commands), ("bitmap.data", data)] {
            for &word in words {
                self.hex(name, word, 16);
            }
        }
    }

    fn entries(&mut self, data: &[u8], entries: Entries<'_>) {
        if !data.is_empty() {
            self.bytes("data", data);
        }
        let mut rest = data;
        for entry in entries.iter() {
            if let Entry::Data(it) = entry {
                let part;
                (part, rest) = rest.split_at(it.len as usize);
                self.bytes("part", part);
            }
        }
        for entry in entries.iter() {
            self.entry();
            match entry {
                Entry::Command(it) => self.command(&it),
                Entry::Completion(it) => self.completion(&it),
                Entry::Data(it) => self.data(&it),
                Entry::Event(it) => self.event(it),
                Entry::Credit(pages) => {
                    self.text("entry.kind", 6).zero(19).text("credit", pages);
                }
            }
        }
    }

    fn command(&mut self, it: &Command) {
        self.text("entry.kind", 1)
            .text("operation", it.opcode as u8)
            .flags("command.flags", it.flags.0.into(), 4, &["fua", "may_unmap"])
            .tag(it.tag)
            .text("offset", it.offset)
            .text("request_len", it.len)
            .text("damq_page", it.damq_page);
    }

    fn completion(&mut self, it: &Completion) {
        self.text("entry.kind", 2)
            .text("status", it.status as u8)
            .zero(2)
            .tag(it.tag)
            .text("wake", it.times.wake_ns)
            .text("receive", it.times.receive_ns)
            .text("store", it.times.store_ns)
            .text("transmit", it.times.transmit_ns);
    }

    fn data(&mut self, it: &Data) {
        self.text("entry.kind", 3)
            .zero(3)
            .tag(it.tag)
            .text("part.offset", it.offset)
            .text("part.len", it.len)
            .text("part.total", it.total)
            .text("damq_page", it.damq_page);
    }

    fn event(&mut self, it: Event) {
        let (code, value) = match it {
            Event::Resized(size) => (1, size),
            Event::Removed => (2, 0),
        };
        self.text("entry.kind", 4).text("event", code).zero(6).text("value", value).zero(8);
    }

    fn echo(&mut self, it: &Echo, filling: &[u8]) {
        if !filling.is_empty() {
            self.bytes("data", filling);
        }
        self.entry()
            .text("entry.kind", 5)
            .zero(1)
            .text("replies", it.replies)
            .text("reply_len", it.reply_len)
            .text("sequence", it.sequence)
            .zero(8);
    }

    /// The Ethernet header in front of the fields, as a stream has it.
    pub(super) fn in_stream(self, frame: &[u8]) -> Self {
        let mut all = Self::default();
        all.text("length", frame.len())
            .text("dst", address(&frame[..6]))
            .text("src", address(&frame[6..12]))
            .text("type", format!("0x{}", digits(&frame[12..14])));
        all.0.extend(self.0);
        all
    }

    /// The headers of a datagram around the fields.
    pub(super) fn in_datagram(self, frame: &[u8], padding: usize) -> Self {
        let mut all = Self::default();
        all.bytes("datagram", &[0; 12]).text("length", frame.len());
        all.0.extend(self.0);
        if padding > 0 {
            all.bytes("datagram_padding", &vec![0; padding]);
        }
        all
    }
}

/// The bits of flags, the first the lowest.
fn mask(set: &[bool]) -> u32 {
    set.iter().enumerate().map(|(index, &is_set)| u32::from(is_set) << index).sum()
}

/// Hexadecimal digits.
fn digits(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn address(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

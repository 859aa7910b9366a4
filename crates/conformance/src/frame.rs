//! Frames as bytes: composed from a vector's description, and decoded again.

use serde_json::{Map, Value};
use tyche_wire::Checksum;

use crate::Result;
use crate::table::{Bindings, Decoded, Fields, Table, hex, number, object};

/// Bytes of the Ethernet header, of both headers together, and of an entry.
const ETHERNET: usize = 14;
const HEAD: usize = 64;
const ENTRY: usize = 24;
/// Offset of the header's checksum.
const HEADER_CRC: usize = 60;
/// Offset of the frame length in a Hello.
const HELLO_LEN_AT: usize = 48;

/// An Ethernet address.
pub type Mac = [u8; 6];

/// A frame that was received.
#[derive(Clone, Debug)]
pub(crate) struct Frame {
    /// Its sender.
    pub(crate) src: Mac,
    /// Its kind, by name.
    pub(crate) kind: String,
    /// Its header.
    pub(crate) header: Decoded,
    /// Its body, if it has one.
    pub(crate) body: Decoded,
    /// Its entries.
    pub(crate) entries: Vec<Entry>,
}

/// An entry that was received.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Its kind, by name.
    pub(crate) kind: String,
    /// Its fields.
    pub(crate) fields: Decoded,
    /// The part of the data section that it describes.
    pub(crate) data: Vec<u8>,
}

/// Bits of `flags`.
const CHECKSUMMED: u64 = 1;
const DATA_RING: u64 = 4;
/// See above.
pub(crate) const ACK_REQUEST: u64 = 8;

/// Whether a frame of that kind belongs to a channel, as one of an unknown kind may.
pub(crate) fn on_channel(kind: u8) -> bool {
    !(1..=9).contains(&kind)
}

/// The ring of a frame, by its kind and flags: 0 for the command ring, 1 for the data ring.
pub(crate) fn ring(kind: &str, flags: u64) -> Option<usize> {
    match kind {
        "Command" => Some(0),
        "Data" => Some(1),
        "Void" => Some(usize::from(flags & DATA_RING != 0)),
        _ => None,
    }
}

/// Composes the frame that `spec` describes. `auto` has the header fields that it does not set;
/// lengths and checksums are valid unless it sets them.
///
/// # Errors
/// If the description is invalid.
pub(crate) fn compose(
    table: &Table,
    spec: &Map<String, Value>,
    auto: Map<String, Value>,
    (dst, src): (Mac, Mac),
    with: &Bindings,
) -> Result<Vec<u8>> {
    let kind = spec.get("kind").and_then(Value::as_str).ok_or("a frame without a kind")?;
    let mut header = auto;
    header.insert("version".to_owned(), 2.into());
    for (key, value) in spec {
        match key.as_str() {
            "on" | "src" | "dst" | "body" | "pad" | "data" | "put" => {}
            // How it is sealed: the exchange's affair.
            "clear" | "flip" | "keys_of" | "number" | "number_of" => {}
            "entries" if value.is_array() => {}
            _ => {
                header.insert(key.clone(), value.clone());
            }
        }
    }
    let (data, entries) = payload(table, kind, spec, with)?;
    let (data_len, entry_count) = (data.len(), entries.len() / ENTRY);
    let mut payload = [data, entries].concat();
    header.entry("data_len").or_insert(data_len.into());
    header.entry("entries").or_insert(entry_count.into());
    let puts: Vec<(usize, Vec<u8>)> = puts(spec)?;
    for (at, bytes) in puts.iter().filter(|(at, _)| *at >= HEAD) {
        put(&mut payload, at - HEAD, bytes)?;
    }
    let flags = number(&table.encode("header", &header, with)?[2..4]);
    let covered = match kind {
        "Echo" => &payload[data_len..],
        "Data" if flags & CHECKSUMMED == 0 => &payload[data_len..],
        _ => &payload[..],
    };
    header.entry("payload_crc").or_insert(Checksum::of(covered).into());
    let mut head =
        [&dst[..], &src, &[0x88, 0xb5], &table.encode("header", &header, with)?].concat();
    for (at, bytes) in puts.iter().filter(|(at, _)| *at < HEAD) {
        put(&mut head, *at, bytes)?;
    }
    if !header.contains_key("header_crc") {
        check_header(&mut head);
    }
    Ok([head, payload].concat())
}

/// The data section or body, and the entries.
fn payload(
    table: &Table,
    kind: &str,
    spec: &Map<String, Value>,
    with: &Bindings,
) -> Result<(Vec<u8>, Vec<u8>)> {
    let data = spec.get("data").map(|data| hex(data.as_str().unwrap_or("?"))).transpose()?;
    let mut data = data.unwrap_or_default();
    if let Some(body) = spec.get("body") {
        data = table.encode(&format!("body {kind}"), object(body)?, with)?;
        if kind == "Hello" {
            let len = number(&data[HELLO_LEN_AT..][..4]) as usize;
            data.resize(data.len().max(len.saturating_sub(HEAD)), 0);
        }
        let padding = spec.get("pad").and_then(Value::as_u64).unwrap_or(0);
        data.resize(data.len() + padding as usize, 0);
    }
    let mut entries = Vec::new();
    for entry in spec.get("entries").and_then(Value::as_array).into_iter().flatten() {
        let entry = object(entry)?;
        let kind = entry.get("entry").and_then(Value::as_str).unwrap_or("command");
        entries.extend(table.encode(&format!("entry {kind}"), entry, with)?);
    }
    Ok((data, entries))
}

/// The bytes to put at given offsets: `[[offset, hexadecimal], ..]`.
fn puts(spec: &Map<String, Value>) -> Result<Vec<(usize, Vec<u8>)>> {
    let list = spec.get("put").and_then(Value::as_array).into_iter().flatten();
    list.map(|item| {
        let at = item[0].as_u64().ok_or_else(|| format!("{item}: no offset"))? as usize;
        Ok((at, hex(item[1].as_str().unwrap_or("?"))?))
    })
    .collect()
}

fn put(bytes: &mut [u8], at: usize, what: &[u8]) -> Result<()> {
    let place = bytes.get_mut(at..at + what.len()).ok_or("a put behind the end of the frame")?;
    place.copy_from_slice(what);
    Ok(())
}

/// Makes the header's checksum valid.
pub(crate) fn check_header(frame: &mut [u8]) {
    let crc = Checksum::of(&frame[ETHERNET..HEADER_CRC]);
    frame[HEADER_CRC..HEAD].copy_from_slice(&crc.to_le_bytes());
}

/// Gives a literal frame the addresses and, if it belongs to a channel, the header fields that name
/// the channel and its state. The header's checksum stays as valid or invalid as it was.
pub(crate) fn readdress(frame: &mut [u8], (dst, src): (Mac, Mac), header: &[u8]) {
    frame[..6].copy_from_slice(&dst);
    frame[6..12].copy_from_slice(&src);
    if on_channel(frame[15]) {
        let before = Checksum::of(&frame[ETHERNET..HEADER_CRC]);
        // The fields from the channel to the acks.
        frame[18..48].copy_from_slice(&header[4..34]);
        let change = before ^ Checksum::of(&frame[ETHERNET..HEADER_CRC]);
        let crc = number(&frame[HEADER_CRC..HEAD]) as u32 ^ change;
        frame[HEADER_CRC..HEAD].copy_from_slice(&crc.to_le_bytes());
    }
}

impl Frame {
    /// Decodes a frame, and checks the rules for every frame. Of one that was sealed, `bytes` are
    /// in the clear.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub(crate) fn parse(table: &Table, bytes: &[u8], was_sealed: bool) -> Result<Self> {
        let (head, payload) =
            bytes.split_at_checked(HEAD).ok_or("a frame shorter than 64 bytes")?;
        let (header, _) = table.decode("header", &head[ETHERNET..])?;
        let field = |name: &str| number(&header.fields[name]);
        let code = field("kind");
        let kind = table.name("kind", code).ok_or_else(|| format!("a frame of kind {code}"))?;
        if field("version") != 2 {
            return Err(format!("a {kind} of version {}", field("version")));
        }
        if u64::from(Checksum::of(&head[ETHERNET..HEADER_CRC])) != field("header_crc") {
            return Err(format!("a {kind} with a wrong header checksum"));
        }
        let (data_len, entry_count) = (field("data_len") as usize, field("entries") as usize);
        if payload.len() != data_len + entry_count * ENTRY {
            return Err(format!("a {kind} that is not as long as it says"));
        }
        let (data, entries) = payload.split_at(data_len);
        let covers = kind != "Echo" && (kind != "Data" || field("flags") & CHECKSUMMED != 0);
        let covered = if covers { payload } else { entries };
        let sum = if was_sealed { 0 } else { Checksum::of(covered) };
        if was_sealed && kind == "Data" && covers {
            return Err("a sealed Data that is CHECKSUMMED".to_owned());
        }
        if u64::from(sum) != field("payload_crc") {
            return Err(format!("a {kind} with a wrong payload checksum"));
        }
        let mut body = Decoded::default();
        if table.has(&format!("body {kind}")) && !data.is_empty() {
            let (decoded, rest) = table.decode(&format!("body {kind}"), data)?;
            if !rest.is_empty() && !matches!(kind, "Hello" | "Discover") {
                return Err(format!("a {kind} with {} bytes too many", rest.len()));
            }
            body = decoded;
        }
        let entries = parse_entries(table, entries, if kind == "Data" { data } else { &[] })?;
        let src = bytes[6..12].try_into().map_err(|_| "an address has six bytes")?;
        Ok(Self { src, kind: kind.to_owned(), header, body, entries })
    }

    /// A field of its header as a number.
    pub(crate) fn field(&self, name: &str) -> u64 {
        number(&self.header.fields[name])
    }

    /// Describes the frame for people.
    pub(crate) fn describe(&self, table: &Table) -> String {
        let mut text = self.kind.clone();
        for entry in &self.entries {
            text += &format!(" [{}]", entry.describe(table));
        }
        if self.kind == "Reject" {
            let reason = number(&self.body.fields["reason"]);
            text += &format!(" ({})", table.name("reason", reason).unwrap_or("?"));
        }
        text
    }
}

fn parse_entries(table: &Table, mut bytes: &[u8], mut data: &[u8]) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    while !bytes.is_empty() {
        let code = u64::from(bytes[0]);
        let kind = table.name("entry", code).ok_or_else(|| format!("an entry of kind {code}"))?;
        let (fields, rest) = table.decode(&format!("entry {kind}"), bytes)?;
        let len = if kind == "data" { number(&fields.fields["length"]) as usize } else { 0 };
        let split = data.split_at_checked(len).ok_or("parts longer than the data section")?;
        entries.push(Entry { kind: kind.to_owned(), fields, data: split.0.to_vec() });
        (bytes, data) = (rest, split.1);
    }
    if data.is_empty() { Ok(entries) } else { Err("data that no entry describes".to_owned()) }
}

impl Entry {
    /// A field as a number.
    pub(crate) fn field(&self, name: &str) -> u64 {
        number(&self.fields.fields[name])
    }

    /// Describes the entry for people.
    pub(crate) fn describe(&self, table: &Table) -> String {
        let fields: &Fields = &self.fields.fields;
        let tag = &fields["tag"];
        let tag = format!("{}.{}", number(&tag[..2]), number(&tag[2..]));
        let name = |group| table.name(group, number(&fields[group])).unwrap_or("?").to_owned();
        match self.kind.as_str() {
            "completion" => format!("completion {tag} {}", name("status")),
            "command" => {
                let (offset, length) = (self.field("offset"), self.field("length"));
                format!("command {tag} {} {offset}+{length}", name("operation"))
            }
            "data" => format!("data {tag} {}+{}", self.field("offset"), self.field("length")),
            kind => kind.to_owned(),
        }
    }
}

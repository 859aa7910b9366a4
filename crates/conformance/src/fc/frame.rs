//! Encapsulated frames as bytes: composed from a vector's description, and decoded again. FC.md,
//! "Encapsulated frames".

use serde_json::{Map, Value};
use tyche_fc_wire::crc;

use super::PortId;
use crate::Result;
use crate::table::{Bindings, Decoded, Table, hex, number, object};

const ETHERTYPE: [u8; 2] = [0x89, 0x06];
/// The first half of the address of a port without a fabric.
const PREFIX: [u8; 3] = [0x0e, 0xfd, 0x00];
/// Offsets of the SOF, the header and the payload, and bytes behind payload and fill.
const SOF: usize = 27;
const HEADER: usize = 28;
const PAYLOAD: usize = 52;
const TAIL: usize = 8;
const END_SEQ: u64 = 0x08_0000;
/// Codes of SOF and EOF: the first frame of a sequence or another, the last or another.
const SOF_CODES: [u8; 2] = [0x2e, 0x36];
const EOF_CODES: [u8; 2] = [0x42, 0x41];

/// A frame that was received.
#[derive(Clone, Debug)]
pub(super) struct FcFrame {
    /// Its kind, by name.
    pub(super) kind: String,
    /// Its header.
    pub(super) header: Decoded,
    /// Its payload, as fields if its kind has some.
    pub(super) body: Decoded,
    /// The layout of these.
    pub(super) layout: String,
    /// Its payload without the fill.
    pub(super) payload: Vec<u8>,
}

/// The layout of a body: that of a link service is named by its code.
fn layout(table: &Table, kind: &str, payload: &[u8]) -> String {
    let is_service = matches!(kind, "ElsRequest" | "ElsReply");
    let service = payload.first().and_then(|&code| table.name("service", code.into()));
    format!("body {}", if is_service { service.unwrap_or("?") } else { kind })
}

/// Composes the frame that `spec` describes; `auto` has the header fields that it does not set.
///
/// # Errors
/// If the description is invalid.
pub(super) fn compose(
    table: &Table,
    spec: &Map<String, Value>,
    auto: Map<String, Value>,
    with: &Bindings,
) -> Result<Vec<u8>> {
    let kind = spec.get("kind").and_then(Value::as_str).ok_or("a frame without a kind")?;
    let code = table.value("kind", kind)?;
    let mut header = auto;
    header.insert("r_ctl".to_owned(), (code >> 8).into());
    header.insert("type".to_owned(), (code & 0xff).into());
    for (key, value) in spec {
        match key.as_str() {
            "kind" | "body" | "data" | "src" | "dst" | "as" => {}
            _ => drop(header.insert(key.clone(), value.clone())),
        }
    }
    let mut payload = hex(spec.get("data").and_then(Value::as_str).unwrap_or_default())?;
    if let Some(body) = spec.get("body").map(object).transpose()? {
        let service = body.get("service").and_then(Value::as_str).unwrap_or(kind);
        payload = table.encode(&format!("body {service}"), body, with)?;
    }
    let fill = payload.len().next_multiple_of(4) - payload.len();
    payload.resize(payload.len() + fill, 0);
    let mut bytes = table.encode("header", &header, with)?;
    bytes[11] |= fill as u8;
    let f_ctl = bytes[9..12].iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
    let is_first = bytes[14..16] == [0, 0];
    let address = |field: &str, id: &[u8]| match spec.get(field).and_then(Value::as_str) {
        Some(text) => hex(text),
        None => Ok([&PREFIX, id].concat()),
    };
    let ethernet = [address("dst", &bytes[1..4])?, address("src", &bytes[5..8])?].concat();
    let sof = SOF_CODES[usize::from(!is_first)];
    let eof = EOF_CODES[usize::from(f_ctl & END_SEQ == 0)];
    let sum = crc([&bytes[..], &payload]).to_le_bytes();
    let front = [&ethernet[..], &ETHERTYPE, &[0; 13], &[sof]].concat();
    Ok([&front[..], &bytes, &payload, &sum, &[eof, 0, 0, 0]].concat())
}

impl FcFrame {
    /// Decodes a frame of the port `peer` to us, and checks the rules for every frame.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub(super) fn parse(table: &Table, bytes: &[u8], [own, peer]: [PortId; 2]) -> Result<Self> {
        if bytes.len() < PAYLOAD + TAIL || !bytes.len().is_multiple_of(4) {
            return Err(format!("a frame of {} bytes", bytes.len()));
        }
        let (body, tail) = bytes.split_at(bytes.len() - TAIL);
        if crc([&body[HEADER..]]).to_le_bytes() != tail[..4] {
            return Err("a frame with a wrong CRC".to_owned());
        }
        let (header, _) = table.decode("header", &body[HEADER..])?;
        let field = |name: &str| number(&header.fields[name]);
        let code = field("r_ctl") << 8 | field("type");
        let kind = table.name("kind", code).ok_or_else(|| format!("a frame of kind {code:#x}"))?;
        let mac = |id: PortId| [PREFIX, id].concat();
        let ids = [&header.fields["d_id"][..], &header.fields["s_id"]];
        if ids != [&own[..], &peer] || bytes[..12] != [mac(own), mac(peer)].concat() {
            return Err(format!("a {kind} with other addresses than those of the login"));
        }
        let is_first = field("seq_cnt") == 0;
        let is_last = field("f_ctl") & END_SEQ != 0;
        let ends = [SOF_CODES[usize::from(!is_first)], EOF_CODES[usize::from(!is_last)]];
        if [bytes[SOF], tail[4]] != ends || field("df_ctl") != 0 {
            return Err(format!("a {kind} with a wrong SOF, EOF or DF_CTL"));
        }
        let fill = (field("f_ctl") & 3) as usize;
        let payload = body[PAYLOAD..].len().checked_sub(fill).ok_or("more fill than payload")?;
        let payload = body[PAYLOAD..][..payload].to_vec();
        let layout = layout(table, kind, &payload);
        let body = match table.has(&layout).then(|| table.decode(&layout, &payload)) {
            Some(Ok((body, _))) => body,
            // An answer to another service has fewer fields.
            Some(Err(why)) if kind != "ElsReply" => return Err(why),
            _ => Decoded::default(),
        };
        Ok(Self { kind: kind.to_owned(), header, body, layout, payload })
    }

    /// A field of its header as a number.
    pub(super) fn field(&self, name: &str) -> u64 {
        number(&self.header.fields[name])
    }

    /// Describes the frame for people.
    pub(super) fn describe(&self) -> String {
        let [ox_id, rx_id] = ["ox_id", "rx_id"].map(|name| self.field(name));
        let mut text = format!("{} {ox_id:04x}/{rx_id:04x}", self.kind);
        match self.kind.as_str() {
            "FcpData" => text += &format!(" {}+{}", self.field("parameter"), self.payload.len()),
            "FcpRsp" => text += &format!(" status {}", number(&self.body.fields["status"])),
            _ => {}
        }
        text
    }

    /// Whether it is the last of its sequence.
    pub(super) fn is_last(&self) -> bool {
        self.field("f_ctl") & END_SEQ != 0
    }
}

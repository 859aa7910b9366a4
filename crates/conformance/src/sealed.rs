//! Keys: handshakes of the suite's end, and the sealing of frames. PROTOCOL.md, "Keys".
//!
//! The ciphers and the order of the handshake are those of `tyche-crypto`; all bytes around them
//! are composed here, from the table of fields.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use tyche_crypto::{
    Initiator, Opener, PublicKey, Responder, Sealer, SecretKey, Secrets, Suite, TAG_LEN, digest,
    message_len,
};

use crate::Result;
use crate::table::{Bindings, Decoded, Fields, Table, hex, number, object};

/// Bytes of a frame that its tag binds, beside the payload.
const BOUND: std::ops::Range<usize> = 14..56;
/// Where the payload of a frame begins.
const HEAD: usize = 64;
/// Bytes of a SealedConnect before its message, of its proof, and of a verdict's body.
const CLEAR: usize = 48;
const PROOF: usize = 16;
const VERDICT_BODY: usize = 160;
/// No key is shared beforehand.
const PSK: [u8; tyche_crypto::PSK_LEN] = [0; tyche_crypto::PSK_LEN];

/// The handshakes of a vector, and what the last of them has agreed on.
#[derive(Default)]
pub(crate) struct Handshakes {
    /// Of SealedConnects that were sent, by their labels.
    asked: BTreeMap<String, Initiator>,
    /// SealedConnects that have come, by their labels.
    came: BTreeMap<String, Introduced>,
    agreed: Option<Agreed>,
}

/// A SealedConnect that has come, with what it was opened with.
struct Introduced {
    key: SecretKey,
    prologue: Vec<u8>,
    ephemeral: [u8; 32],
    message: Vec<u8>,
}

/// The secrets of frames that we send and of those that come.
#[derive(Clone)]
struct Agreed {
    suite: Suite,
    ours: [u8; 32],
    theirs: [u8; 32],
}

/// The keys of a channel.
pub(crate) struct ChannelKeys {
    suite: Suite,
    ours: [u8; 32],
    opener: Opener,
}

fn suite(code: u64) -> Result<Suite> {
    match code {
        1 => Ok(Suite::Aes128Gcm),
        2 => Ok(Suite::ChaCha20Poly1305),
        _ => Err(format!("there is no suite {code}")),
    }
}

/// The bytes that the handshake binds: `[[offset, bytes], ..]` in `changes` is put there to have
/// it wrong.
fn prologue(cookie: &[u8], clear: &[u8], changes: &[(usize, Vec<u8>)]) -> Result<Vec<u8>> {
    let mut bytes = [&b"Tyche"[..], &[2], cookie, clear].concat();
    for (at, change) in changes {
        let place = bytes.get_mut(*at..at + change.len());
        place.ok_or("a change behind the end of the prologue")?.copy_from_slice(change);
    }
    Ok(bytes)
}

fn proof(key: &PublicKey, cookie: &[u8], body: &[u8]) -> [u8; 32] {
    digest(&[b"tyche connect", key.as_bytes(), cookie, body])
}

/// Pairs of an offset and bytes: `[[offset, hexadecimal], ..]`.
///
/// # Errors
/// If that is something else.
pub(crate) fn changes(spec: &Map<String, Value>, field: &str) -> Result<Vec<(i64, Vec<u8>)>> {
    let list = spec.get(field).and_then(Value::as_array).into_iter().flatten();
    list.map(|item| {
        let at = item[0].as_i64().ok_or_else(|| format!("{item}: no offset"))?;
        Ok((at, hex(item[1].as_str().unwrap_or("?"))?))
    })
    .collect()
}

impl Handshakes {
    /// Completes the body of a SealedConnect: `introduction` becomes its message. Returns the body,
    /// and the cookie of the header unless the vector has one.
    ///
    /// # Errors
    /// If the description is invalid.
    pub(crate) fn connect(
        &mut self,
        (table, with): (&Table, &Bindings),
        (spec, label): (&Map<String, Value>, &str),
        ephemeral: [u8; 32],
    ) -> Result<(Vec<u8>, u64)> {
        let introduction = spec.get("introduction").ok_or("a SealedConnect introduces its host")?;
        let mut fields = object(introduction)?.clone();
        let connect = fields.remove("connect").ok_or("an introduction has a connect")?;
        let connect = table.encode("body Connect", object(&connect)?, with)?;
        let payload = [table.encode("payload introduction", &fields, with)?, connect].concat();
        let cookie = match spec.get("cookie") {
            Some(_) => {
                let only = Map::from_iter([("cookie".to_owned(), spec["cookie"].clone())]);
                table.encode("header", &only, with)?[6..14].to_vec()
            }
            // The first half of the cookie in the Connect.
            None => [&payload[136 + 176..][..4], &[0; 4]].concat(),
        };
        let body = object(spec.get("body").ok_or("a SealedConnect has a body")?)?;
        let mut bytes = table.encode("body SealedConnect", body, with)?;
        let wrong: Vec<(usize, Vec<u8>)> =
            changes(spec, "prologue")?.into_iter().map(|(at, it)| (at as usize, it)).collect();
        let prologue = prologue(&cookie, &bytes[..CLEAR], &wrong)?;
        let secret = table.keys.named(spec, "key", "host")?;
        let peer = table.keys.named(spec, "peer_key", "target")?.public();
        let (initiator, message) =
            Initiator::new((secret, &peer), &PSK, &prologue, ephemeral, &payload);
        self.asked.insert(label.to_owned(), initiator);
        let proof_at = bytes.len() - PROOF;
        bytes[CLEAR..proof_at].copy_from_slice(&message);
        let flips = changes(spec, "flip")?;
        let (proven, unproven): (Vec<_>, Vec<_>) =
            flips.into_iter().partition(|(at, _)| *at >= 0 && (*at as usize) < HEAD + proof_at);
        flip(&mut bytes, &proven, HEAD)?;
        if !body.contains_key("proof") {
            let proof = proof(&peer, &cookie, &bytes[..proof_at]);
            bytes[proof_at..].copy_from_slice(&proof[..PROOF]);
        }
        flip(&mut bytes, &unproven, HEAD)?;
        Ok((bytes, number(&cookie)))
    }

    /// Opens a SealedConnect that has come, and compares what it says.
    ///
    /// # Errors
    /// If it was not made by the right host for us, or says something else.
    pub(crate) fn introduced(
        &mut self,
        table: &Table,
        spec: &Map<String, Value>,
        (header, body): (&Fields, &Fields),
        with: &mut Bindings,
        ephemeral: [u8; 32],
    ) -> Result<()> {
        let key = table.keys.named(spec, "key", "target")?.clone();
        let host = table.keys.named(spec, "peer_key", "host")?.public();
        let (cookie, message) = (&header["cookie"], body["message"].clone());
        let clear = [&body["attempt"][..], &body["ticket"], &body["target"]].concat();
        let shown = proof(&key.public(), cookie, &[&clear[..], &message].concat());
        if shown[..PROOF] != body["proof"] {
            return Err("it does not prove that its sender knows the key".to_owned());
        }
        let prologue = prologue(cookie, &clear, &[])?;
        let opened = Responder::new(&key, &PSK, &prologue, ephemeral, &message);
        let (_, peer, payload) = opened.map_err(|_| "its message can't be opened")?;
        if peer != host {
            return Err(format!("it is of the owner of {peer}"));
        }
        let pattern = object(spec.get("introduction").ok_or("what introduction?")?)?.clone();
        let (decoded, rest) = table.decode("payload introduction", &payload)?;
        let (connect, rest) = table.decode("body Connect", rest)?;
        if !rest.is_empty() {
            return Err(format!("an introduction with {} bytes too many", rest.len()));
        }
        if connect.fields["cookie"][..4] != cookie[..4] || cookie[4..] != [0; 4] {
            return Err("its header has not the first half of the channel's cookie".to_owned());
        }
        compare_parts(
            table,
            ("payload introduction", "connect"),
            pattern,
            (&decoded, "body Connect", &connect),
            with,
        )?;
        let label = spec.get("as").and_then(Value::as_str).unwrap_or("connect");
        self.came.insert(label.to_owned(), Introduced { key, prologue, ephemeral, message });
        Ok(())
    }

    /// Completes the body of a SealedAnswer: `verdict` becomes its message.
    ///
    /// # Errors
    /// If the description is invalid.
    pub(crate) fn answer(
        &mut self,
        (table, with): (&Table, &Bindings),
        spec: &Map<String, Value>,
    ) -> Result<Vec<u8>> {
        let to = spec.get("to").and_then(Value::as_str).unwrap_or("connect");
        let introduced = self.came.get(to).ok_or_else(|| format!("nothing came as {to:?}"))?;
        let mut fields = object(spec.get("verdict").ok_or("what verdict?")?)?.clone();
        let body = fields.remove("body").ok_or("a verdict has a body")?;
        let kind = fields.get("kind").and_then(Value::as_str).unwrap_or_default();
        let mut inner = table.encode(&format!("body {kind}"), object(&body)?, with)?;
        inner.resize(inner.len().max(VERDICT_BODY), 0);
        let head = table.encode("payload verdict", &fields, with)?;
        let Introduced { key, prologue, ephemeral, message } = introduced;
        let opened = Responder::new(key, &PSK, prologue, *ephemeral, message);
        let (responder, ..) = opened.map_err(|_| "its message can't be opened")?;
        let (message, secrets) = responder.finish(&[&head[..], &inner].concat());
        if let Ok(suite) = suite(u64::from(head[1])) {
            let Secrets { initiator, responder } = secrets;
            self.agreed = Some(Agreed { suite, ours: *responder, theirs: *initiator });
        }
        let body = object(spec.get("body").ok_or("a SealedAnswer has a body")?)?;
        let mut bytes = table.encode("body SealedAnswer", body, with)?;
        let at = bytes.len() - message_len(head.len() + VERDICT_BODY)[1];
        bytes[at..].copy_from_slice(&message);
        flip(&mut bytes, &changes(spec, "flip")?, HEAD)?;
        Ok(bytes)
    }

    /// Opens the answer to a SealedConnect of ours, and compares what it says.
    ///
    /// # Errors
    /// If it can't be opened, or says something else.
    pub(crate) fn answered(
        &mut self,
        table: &Table,
        spec: &Map<String, Value>,
        body: &Fields,
        with: &mut Bindings,
    ) -> Result<()> {
        let to = spec.get("to").and_then(Value::as_str).unwrap_or("connect");
        let initiator =
            self.asked.get_mut(to).ok_or_else(|| format!("nothing was sent as {to:?}"))?;
        let opened = initiator.finish(&body["message"]);
        let (payload, secrets) = opened.map_err(|_| "its message can't be opened")?;
        let (decoded, rest) = table.decode("payload verdict", &payload)?;
        let kind = table.name("kind", number(&decoded.fields["kind"]));
        let layout = format!("body {}", kind.unwrap_or("?"));
        let (inner, rest) = table.decode(&layout, rest)?;
        if rest.iter().any(|&byte| byte != 0) {
            return Err("a verdict that does not end with zeroes".to_owned());
        }
        let pattern = object(spec.get("verdict").ok_or("what verdict?")?)?.clone();
        compare_parts(
            table,
            ("payload verdict", "body"),
            pattern,
            (&decoded, &layout, &inner),
            with,
        )?;
        if let Ok(suite) = suite(number(&decoded.fields["suite"])) {
            let Secrets { initiator, responder } = secrets;
            self.agreed = Some(Agreed { suite, ours: *initiator, theirs: *responder });
        }
        Ok(())
    }

    /// The keys of a channel that the last handshake has opened.
    ///
    /// # Errors
    /// If there was none.
    pub(crate) fn keys(&self) -> Result<ChannelKeys> {
        let Agreed { suite, ours, theirs } = self.agreed.clone().ok_or("no handshake has ended")?;
        Ok(ChannelKeys { suite, ours, opener: Opener::new(suite, &theirs) })
    }
}

/// Compares the fields of a payload, and of the body in it, which the pattern has as `inner`.
fn compare_parts(
    table: &Table,
    (outer, inner): (&str, &str),
    mut pattern: Map<String, Value>,
    (decoded, layout, body): (&Decoded, &str, &Decoded),
    with: &mut Bindings,
) -> Result<()> {
    let nested = pattern.remove(inner);
    table.compare(outer, &pattern, decoded, with)?;
    match nested {
        Some(nested) => table.compare(layout, object(&nested)?, body, with),
        None => Ok(()),
    }
}

impl ChannelKeys {
    /// Seals a frame that was composed in the clear.
    pub(crate) fn seal(&self, frame: &mut Vec<u8>) {
        let packet = number(&frame[28..36]);
        let payload = frame.split_off(HEAD);
        let mut sealed = vec![0; payload.len() + TAG_LEN];
        let mut sealer = Sealer::new(self.suite, &self.ours);
        sealer.key(packet).seal(packet, &frame[BOUND], &[], &payload, &mut sealed);
        frame.extend(sealed);
    }

    /// Opens a frame that has come.
    ///
    /// # Errors
    /// If it was not sealed with these keys.
    pub(crate) fn open(&mut self, frame: &[u8]) -> Result<Vec<u8>> {
        let wrong = || "a frame that was not sealed with the keys of its channel".to_owned();
        let (head, sealed) = frame.split_at(HEAD);
        let mut payload = vec![0; sealed.len().checked_sub(TAG_LEN).ok_or_else(wrong)?];
        let opened = self.opener.open(number(&head[28..36]), &head[BOUND], sealed, &mut payload);
        opened.map_err(|_| wrong())?;
        Ok([head, &payload].concat())
    }
}

/// Inverts bits: `changes` has masks, at offsets of the frame, or from its end if they are
/// negative. The bytes begin at `first` of the frame.
///
/// # Errors
/// If a place is not in the frame.
pub(crate) fn flip(bytes: &mut [u8], changes: &[(i64, Vec<u8>)], first: usize) -> Result<()> {
    let len = bytes.len() as i64;
    for (at, mask) in changes {
        let from = if *at < 0 { len + at } else { at - first as i64 };
        let place = usize::try_from(from).ok().and_then(|from| bytes.get_mut(from..));
        let place = place.filter(|place| place.len() >= mask.len());
        let place = place.ok_or_else(|| format!("no byte {at} in the frame"))?;
        place.iter_mut().zip(mask).for_each(|(byte, mask)| *byte ^= mask);
    }
    Ok(())
}

//! One vector: its steps, one after the other. `conformance/README.md` lists them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};

use crate::exchange::Exchange;
use crate::receiver::{PATIENCE, Receiver, with_difference};
use crate::table::{Table, hex, number, object, shown};
use crate::{Result, Role, Subject};

/// Polling interval for state that no frame reports.
const POLL: Duration = Duration::from_millis(10);
/// Interval between repetitions of a frame that is repeated until it is answered.
const REPEAT: Duration = Duration::from_millis(100);
/// Time limit for the answer to a Disconnect.
const FAREWELL: Duration = Duration::from_millis(500);

/// One run of a vector: executes its steps in order, and fails with the first that the subject does
/// not meet.
pub(crate) struct Run<'a> {
    exchange: Exchange<'a>,
    role: Role,
    preludes: &'a Map<String, Value>,
    /// The agent's answers: its words, by the order's name.
    said: BTreeMap<String, Vec<String>>,
}

impl<'a> Run<'a> {
    pub(crate) fn new(
        table: &'a Table,
        subject: &'a mut dyn Subject,
        role: Role,
        preludes: &'a Map<String, Value>,
        random: &'a mut dyn FnMut() -> u64,
    ) -> Self {
        let mut bindings = crate::table::Bindings::new();
        for name in ["host", "session", "device", "target", "generation"] {
            let bytes = [random().to_le_bytes(), random().to_le_bytes()].concat();
            bindings.insert(name.to_owned(), bytes);
        }
        for name in ["nonce", "attempt", "own_cookie", "number"] {
            bindings.insert(name.to_owned(), (random() | 1).to_le_bytes().to_vec());
        }
        bindings.insert("own_channel".to_owned(), vec![7, 0]);
        bindings.insert("own".to_owned(), subject.address().to_vec());
        bindings.insert("stranger".to_owned(), vec![2, 0, 0, 0, 0xc0, 0xf0]);
        bindings.insert("everybody".to_owned(), vec![0xff; 6]);
        bindings.insert("frame_len".to_owned(), subject.frame_len().to_le_bytes().to_vec());
        bindings.extend(table.keys.bindings());
        let exchange = Exchange::new(table, subject, bindings, random);
        Self { exchange, role, preludes, said: BTreeMap::new() }
    }

    /// Runs all steps.
    pub(crate) fn steps(&mut self, steps: &Value) -> Result<()> {
        let steps = steps.as_array().ok_or("steps are a list")?;
        for (number, step) in steps.iter().enumerate() {
            let step = object(step)?;
            let (name, value) = step.iter().next().ok_or("an empty step")?;
            let done = self.step(name, value);
            done.map_err(|why| format!("step {}, {name}: {why}", number + 1))?;
        }
        Ok(())
    }

    /// Checks that nothing is left, and disconnects open channels; must be called in any case.
    pub(crate) fn end(&mut self) -> Result<()> {
        let names: Vec<String> = self.exchange.channels.keys().cloned().collect();
        let (table, mut left) = (self.exchange.table, Ok(()));
        for name in names {
            let spec = serde_json::json!({"kind": "Disconnect", "on": name});
            let channel = self.exchange.channel(object(&spec)?)?;
            if let Some(entry) = channel.entries.front()
                && left.is_ok()
            {
                let entry = entry.describe(table);
                left = Err(format!("at the end: nothing has asked for {entry}"));
            }
            // For a host the agent is ended instead.
            if self.role.is_host() || self.exchange.channel(object(&spec)?)?.is_over {
                continue;
            }
            self.exchange.send(&spec, None, false)?;
            let deadline = self.exchange.subject.now() + FAREWELL;
            while !self.exchange.channel(object(&spec)?)?.is_over {
                let time_left = deadline.saturating_sub(self.exchange.subject.now());
                if time_left.is_zero() || !self.exchange.pump(time_left)? {
                    break;
                }
            }
        }
        left
    }

    fn step(&mut self, name: &str, value: &Value) -> Result<()> {
        let label = |key: &str| value.get(key).and_then(Value::as_str);
        let text = || value.as_str().ok_or_else(|| format!("{value} is no text"));
        match name {
            "let" => self.bind(object(value)?),
            "use" => {
                let steps = self.preludes.get(text()?);
                self.steps(steps.ok_or_else(|| format!("no prelude is called {value}"))?)
            }
            "open" => self.exchange.open(text()?),
            "seal" => {
                let (on, keys) =
                    (serde_json::json!({"on": text()?}), self.exchange.handshakes.keys());
                self.exchange.channel(object(&on)?)?.keys = Some(keys?);
                self.exchange.has_keys = true;
                Ok(())
            }
            "discard" => self.discard(text()?),
            "mute" => {
                let mute = serde_json::json!({"on": text()?});
                self.exchange.channel(object(&mute)?)?.is_mute = true;
                Ok(())
            }
            "proves" => self.proves(object(value)?),
            "restore" => self.exchange.subject.restore(),
            "send" => self.exchange.send(value, label("as"), false),
            "lose" => self.exchange.send(value, label("as"), true),
            "again" => self.exchange.repeat(text()?, true),
            "replay" => self.exchange.repeat(text()?, false),
            "deaf" => {
                let deaf = serde_json::json!({"on": text()?});
                self.exchange.channel(object(&deaf)?)?.is_deaf = true;
                Ok(())
            }
            "forget" => {
                self.exchange.channels.remove(text()?);
                Ok(())
            }
            "wait" => self.exchange.wait(Duration::from_millis(value.as_u64().unwrap_or(0))),
            "expect" => self.expect(object(value)?),
            "reject" => self.reject(value),
            "quiet" => self.quiet(text()?),
            "completes" => self.completes(object(value)?),
            "repeats" => self.repeats(object(value)?),
            "request" => self.request(object(value)?),
            "acked" => self.acked(object(value)?),
            "order" => self.order(text()?),
            "said" => self.agent_says(object(value)?),
            _ => Err("there is no such step".to_owned()),
        }
    }

    fn bind(&mut self, values: &Map<String, Value>) -> Result<()> {
        for (name, value) in values {
            let bytes = match value {
                Value::String(text) if text.starts_with('$') => {
                    let known = self.exchange.bindings.get(&text[1..]).cloned();
                    known.ok_or_else(|| format!("nothing is bound to {text}"))?
                }
                Value::String(text) => hex(text)?,
                Value::Object(proof) => self.nonce(proof, None)?,
                value => value.as_u64().ok_or("a number")?.to_le_bytes().to_vec(),
            };
            self.exchange.bindings.insert(name.clone(), bytes);
        }
        Ok(())
    }

    /// A nonce that proves that its sender knows a key, for a kind of frame. Its first two bytes
    /// are those of `like`.
    fn nonce(&mut self, proof: &Map<String, Value>, like: Option<&[u8]>) -> Result<Vec<u8>> {
        let text = |field: &str| proof.get(field).and_then(Value::as_str).unwrap_or_default();
        let kind = self.exchange.table.value("kind", text("kind"))? as u8;
        let random = self.exchange.random().to_le_bytes();
        let salt = like.unwrap_or(&random);
        self.exchange.table.keys.nonce(text("key"), kind, [salt[0], salt[1]])
    }

    /// Forgets the frames of a kind that have come.
    fn discard(&mut self, kind: &str) -> Result<()> {
        self.exchange.drain()?;
        self.exchange.inbox.retain(|frame| frame.kind != kind);
        Ok(())
    }

    /// Checks that a nonce proves that its sender knows a key.
    fn proves(&mut self, proof: &Map<String, Value>) -> Result<()> {
        let nonce = self.exchange.bindings.get("nonce").cloned().ok_or("no $nonce")?;
        let right = self.nonce(proof, Some(&nonce))?;
        if nonce == right { Ok(()) } else { Err("the nonce is no proof".to_owned()) }
    }

    /// Waits for a frame without entries that matches the pattern.
    fn expect(&mut self, pattern: &Map<String, Value>) -> Result<()> {
        let kind = pattern.get("kind").and_then(Value::as_str).ok_or("what kind of frame?")?;
        let repeat = pattern.get("repeat").and_then(Value::as_str);
        let mut repeat_at = self.exchange.subject.now() + REPEAT;
        let mut differs = None;
        let came = self.exchange.until(&format!("{kind} as described"), |exchange| {
            if let Some(label) = repeat
                && exchange.subject.now() >= repeat_at
            {
                exchange.repeat(label, false)?;
                repeat_at = exchange.subject.now() + REPEAT;
            }
            while let Some(index) = exchange.inbox.iter().position(|frame| frame.kind == kind) {
                let Some(frame) = exchange.inbox.remove(index) else { break };
                let mut bindings = exchange.bindings.clone();
                bindings.insert("source".to_owned(), frame.src.to_vec());
                let mut header = pattern.clone();
                let others = ["kind", "body", "on", "repeat", "as", "to", "key", "peer_key"];
                let others = [&others[..], &["introduction", "verdict"]].concat();
                header.retain(|key, _| !others.contains(&&**key));
                let table = exchange.table;
                let compared = table.compare("header", &header, &frame.header, &mut bindings);
                let compared = compared.and_then(|()| match pattern.get("body") {
                    Some(body) if frame.body.fields.is_empty() => Err(format!("no {body} in it")),
                    Some(body) => {
                        let name = format!("body {kind}");
                        table.compare(&name, object(body)?, &frame.body, &mut bindings)
                    }
                    None => Ok(()),
                });
                let compared =
                    compared.and_then(|()| exchange.open_handshake(pattern, &frame, &mut bindings));
                match compared {
                    Ok(()) => {
                        exchange.bindings = bindings;
                        if repeat.is_some() {
                            exchange.note_answer(frame);
                        }
                        return Ok(Some(()));
                    }
                    Err(why) => differs = Some(why),
                }
            }
            Ok(None)
        });
        with_difference(came, differs)
    }

    /// Sends a frame that must have no effect, and checks that it has none.
    fn reject(&mut self, value: &Value) -> Result<()> {
        let reason = value["reason"].as_str().ok_or("for what reason?")?;
        let answers = value.get("answers").and_then(Value::as_str);
        self.rejects(reason, answers, |exchange| match value["replay"].as_str() {
            Some(label) => exchange.repeat(label, false),
            None => exchange.send_wrong(&value["frame"]),
        })
    }

    /// Sends a literal frame that must have no effect, and checks that it has none.
    pub(crate) fn rejects_literal(&mut self, reason: &str, frame: &[u8]) -> Result<()> {
        self.rejects(reason, None, |exchange| exchange.send_literal(frame.to_vec()))
    }

    fn rejects(
        &mut self,
        reason: &str,
        answers: Option<&str>,
        send: impl FnOnce(&mut Exchange<'_>) -> Result<()>,
    ) -> Result<()> {
        self.settle()?;
        let before = self.exchange.subject.rejects()?;
        let state = self.state();
        send(&mut self.exchange)?;
        self.settle()?;
        if let Some(before) = before {
            self.await_count(reason, &before)?;
        }
        if let Some(kind) = answers {
            self.expect(object(&serde_json::json!({"kind": kind}))?)?;
        }
        let after = self.state();
        if after == state { Ok(()) } else { Err(format!("it had an effect: {after}, not {state}")) }
    }

    /// Describes the peer's acks, and the received entries and frames that no step has examined.
    fn state(&self) -> String {
        let channels = self.exchange.channels.values();
        let acked: Vec<_> = channels.clone().map(|channel| channel.acked).collect();
        let entries: usize = channels.map(|channel| channel.entries.len()).sum();
        // A host may send further requests at any time.
        let counts = |kind: &str| self.role.is_target() || kind == "Disconnect";
        let frames = self.exchange.unexamined().filter(|frame| counts(&frame.kind)).count();
        format!("acks {acked:?}, {entries} entries, {frames} other frames")
    }

    /// Makes the peer process everything that was sent, on all channels or outside of them.
    fn settle(&mut self) -> Result<()> {
        self.exchange.drain()?;
        let live = self.exchange.channels.iter().filter(|(_, channel)| !channel.is_over);
        let names: Vec<String> = live.map(|(name, _)| name.clone()).collect();
        for name in &names {
            self.exchange.probe(name)?;
        }
        let can_ask = self.exchange.bindings.contains_key("peer");
        if names.is_empty() && self.role.is_target() && can_ask {
            for _ in 0..2 {
                self.hello()?;
            }
        }
        Ok(())
    }

    fn hello(&mut self) -> Result<()> {
        let number = if self.role.has_keys() {
            let proof = serde_json::json!({"key": "target", "kind": "Hello"});
            self.nonce(object(&proof)?, None)?
        } else {
            number(&self.exchange.bindings["number"]).wrapping_add(1).to_le_bytes().to_vec()
        };
        self.exchange.bindings.insert("number".to_owned(), number);
        let body = serde_json::json!({"nonce": "$number", "target": "$target", "frame_len": 1294});
        self.exchange.send(&serde_json::json!({"kind": "Hello", "body": body}), None, false)?;
        let body = serde_json::json!({"nonce": "$number"});
        let reply = serde_json::json!({"kind": "Hello", "flags": ["REPLY"], "body": body});
        self.expect(object(&reply)?)
    }

    /// Waits until the counter of the reason has grown by one, and no other counter.
    fn await_count(&mut self, reason: &str, before: &BTreeMap<String, u64>) -> Result<()> {
        let mut wanted = before.clone();
        *wanted.entry(reason.to_owned()).or_default() += 1;
        let deadline = self.exchange.subject.now() + PATIENCE;
        loop {
            let counts = self.exchange.subject.rejects()?.unwrap_or_default();
            if counts == wanted {
                return Ok(());
            }
            let differs = |(name, count): (&String, &u64)| {
                let more = count - before.get(name).copied().unwrap_or(0);
                (more > 0).then(|| format!("{more} {name}"))
            };
            let counted: Vec<String> = counts.iter().filter_map(differs).collect();
            if !counted.is_empty() || self.exchange.subject.now() >= deadline {
                let counted =
                    if counted.is_empty() { "nothing".into() } else { counted.join(", ") };
                return Err(format!("not counted as {reason}; counted: {counted}"));
            }
            self.exchange.wait(POLL)?;
        }
    }

    /// Checks that nothing has come, and nothing comes.
    fn quiet(&mut self, _why: &str) -> Result<()> {
        self.settle()?;
        let entries = self.exchange.channels.values().any(|channel| !channel.entries.is_empty());
        let frames = self.role.is_target() && self.exchange.unexamined().next().is_some();
        if entries || frames {
            Err(format!("there came {}", self.exchange.describe()))
        } else {
            Ok(())
        }
    }

    /// Waits for the completion of a request, and for the data of a read before or after it.
    fn completes(&mut self, pattern: &Map<String, Value>) -> Result<()> {
        let wanted = self.tag_of(pattern)?;
        let table = self.exchange.table;
        let status = pattern.get("status").and_then(Value::as_str).unwrap_or("Success");
        let status = table.value("status", status)?;
        let data = pattern.get("data").map(|data| hex(data.as_str().unwrap_or("?"))).transpose()?;
        let mut came = vec![None; data.as_ref().map_or(0, Vec::len)];
        let mut ended = None;
        self.exchange.until("the completion, with all data", |exchange| {
            let channel = exchange.channel(pattern)?;
            while let Some(at) =
                channel.entries.iter().position(|it| it.fields.fields.get("tag") == Some(&wanted))
            {
                let Some(entry) = channel.entries.remove(at) else { break };
                if entry.kind == "completion" {
                    ended = Some(entry.field("status"));
                    continue;
                }
                let from = entry.field("offset") as usize;
                let place = came.get_mut(from..from + entry.data.len());
                let place = place.ok_or("data that were not asked for")?;
                for (byte, new) in place.iter_mut().zip(&entry.data) {
                    if byte.replace(*new).is_some() {
                        return Err("the same data twice".to_owned());
                    }
                }
            }
            let failed = ended.is_some_and(|status| status != 0);
            Ok((ended.is_some() && (failed || !came.contains(&None))).then_some(()))
        })?;
        if ended != Some(status) {
            let name = |status| table.name("status", status).unwrap_or("?");
            return Err(format!("it ended with {}", name(ended.unwrap_or(255))));
        }
        match data {
            Some(data) => same_bytes(&came.into_iter().flatten().collect::<Vec<u8>>(), &data),
            None => Ok(()),
        }
    }

    fn tag_of(&self, pattern: &Map<String, Value>) -> Result<Vec<u8>> {
        let tag = pattern.get("tag").ok_or("of which tag?")?.clone();
        let tag = Map::from_iter([("tag".to_owned(), tag)]);
        self.exchange.table.encode("list tag", &tag, &self.exchange.bindings)
    }

    /// Waits for an entry in a retransmitted frame from now on.
    fn repeats(&mut self, pattern: &Map<String, Value>) -> Result<()> {
        self.settle()?;
        let tag = self.tag_of(pattern)?;
        self.exchange.channel(pattern)?.repeated.clear();
        self.exchange.until("the entry once more", |exchange| {
            let repeated = &exchange.channel(pattern)?.repeated;
            let found = repeated.iter().any(|it| it.fields.fields.get("tag") == Some(&tag));
            Ok(found.then_some(()))
        })
    }

    /// Waits for a host's command, and for all data of a write. `as` names its tag and page for
    /// later.
    fn request(&mut self, pattern: &Map<String, Value>) -> Result<()> {
        let label = pattern.get("as").and_then(Value::as_str).unwrap_or("request").to_owned();
        let data = pattern.get("data").map(|data| hex(data.as_str().unwrap_or("?"))).transpose()?;
        let mut wanted = pattern.clone();
        wanted.retain(|key, _| !matches!(key.as_str(), "as" | "data" | "on"));
        let mut differs = String::new();
        let found = self.exchange.until("the request", |exchange| {
            let mut bindings = exchange.bindings.clone();
            let table = exchange.table;
            let channel = exchange.channel(pattern)?;
            let mut commands = channel.entries.iter().enumerate();
            let at = commands.find_map(|(at, entry)| {
                let same = table.compare("entry command", &wanted, &entry.fields, &mut bindings);
                match same {
                    _ if entry.kind != "command" => None,
                    Ok(()) => Some(at),
                    Err(why) => {
                        differs = format!("; {why}");
                        None
                    }
                }
            });
            let Some(entry) = at.and_then(|at| channel.entries.remove(at)) else {
                return Ok(None);
            };
            exchange.bindings = bindings;
            Ok(Some(entry))
        });
        let command = found.map_err(|why| why + &differs)?;
        let tag = command.fields.fields["tag"].clone();
        let page = command.fields.fields["page"].clone();
        self.exchange.bindings.insert(format!("{label}.tag"), tag.clone());
        self.exchange.bindings.insert(format!("{label}.page"), page);
        match data {
            Some(data) => self.gather(pattern, &tag, &data),
            None => Ok(()),
        }
    }

    /// Waits for the data of a write.
    fn gather(&mut self, on: &Map<String, Value>, tag: &[u8], data: &[u8]) -> Result<()> {
        let mut came = vec![None; data.len()];
        self.exchange.until("all data of the write", |exchange| {
            let entries = &mut exchange.channel(on)?.entries;
            let part = |entry: &crate::frame::Entry| {
                entry.kind == "data" && entry.fields.fields["tag"] == tag
            };
            while let Some(entry) = entries.iter().position(part).and_then(|at| entries.remove(at))
            {
                let from = entry.field("offset") as usize;
                let place = came.get_mut(from..from + entry.data.len());
                let place = place.ok_or("data behind the end of the write")?;
                place.iter_mut().zip(&entry.data).for_each(|(byte, new)| *byte = Some(*new));
            }
            Ok((!came.contains(&None)).then_some(()))
        })?;
        same_bytes(&came.into_iter().flatten().collect::<Vec<u8>>(), data)
    }

    /// Waits until the peer has acknowledged this many positions of each ring.
    fn acked(&mut self, wanted: &Map<String, Value>) -> Result<()> {
        let count = |ring: &str| wanted.get(ring).and_then(Value::as_u64).unwrap_or(0) as u32;
        let wanted_acks = [count("command"), count("data")];
        self.settle()?;
        let acked = self.exchange.channel(wanted)?.acked;
        if acked == wanted_acks { Ok(()) } else { Err(format!("it has acknowledged {acked:?}")) }
    }

    fn order(&mut self, line: &str) -> Result<()> {
        self.exchange.subject.order(line)
    }

    /// Waits for the agent's answer to an order, by its `id`.
    fn agent_says(&mut self, wanted: &Map<String, Value>) -> Result<()> {
        let id = wanted.get("id").and_then(Value::as_str).ok_or("of which order?")?.to_owned();
        let expected = wanted.get("words").and_then(Value::as_str).unwrap_or("ok");
        let deadline = self.exchange.subject.now() + PATIENCE;
        let words = loop {
            while let Some(line) = self.exchange.subject.said()? {
                let mut words = line.split_whitespace().map(str::to_owned);
                let id = words.next().unwrap_or_default();
                self.said.insert(id, words.collect());
            }
            if let Some(words) = self.said.remove(&id) {
                break words.join(" ");
            }
            if self.exchange.subject.now() >= deadline {
                let came = self.exchange.describe();
                return Err(format!("the agent says nothing of {id}; there came {came}"));
            }
            self.exchange.pump(POLL)?;
        };
        if words == expected { Ok(()) } else { Err(format!("the agent says {words:?} of {id}")) }
    }
}

fn same_bytes(came: &[u8], wanted: &[u8]) -> Result<()> {
    match came.iter().zip(wanted).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(at) => Err(format!("byte {at} of the data is {}", shown(&came[at..=at]))),
    }
}

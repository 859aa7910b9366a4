//! One vector about exchanges: its steps, one after the other. `conformance/README.md` lists them.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::frame::{FcFrame, compose};
use super::{FcRole, FcSubject};
use crate::Result;
use crate::receiver::{PATIENCE, Receiver, with_difference};
use crate::table::{Bindings, Table, hex, number, object, shown};

/// OX_IDs of a vector, and the first of the first vector.
const XIDS: u16 = 32;
const XID_FIRST: u16 = 0x0100;
/// The first OX_ID of questions whether all was looked at, and questions until a target is ready.
const PROBES: u16 = 0x7000;
const READY_MAX: u32 = 16;
/// The flag of a response that is to be confirmed.
const CONF_REQ: u64 = 0x10;
/// RX_IDs of a target of ours.
const RX_IDS: u64 = 65_521;

/// One run of a vector: executes its steps in order, and fails with the first that the subject does
/// not meet.
pub(super) struct Run<'a> {
    table: &'a Table,
    subject: &'a mut dyn FcSubject,
    role: FcRole,
    preludes: &'a Map<String, Value>,
    bindings: Bindings,
    /// Frames that no step has examined.
    inbox: VecDeque<FcFrame>,
    /// Frames that were sent, by their labels.
    sent: BTreeMap<String, Vec<u8>>,
    /// The agent's answers: its words, by the order's name.
    said: BTreeMap<String, String>,
    probe: u16,
    /// Whether a command has had a number: from then on all of the login have one.
    is_counting: bool,
}

impl<'a> Run<'a> {
    pub(super) fn new(
        table: &'a Table,
        subject: &'a mut dyn FcSubject,
        role: FcRole,
        preludes: &'a Map<String, Value>,
        index: u16,
    ) -> Self {
        let [own, peer] = subject.ports();
        let number = |number: u16| number.to_le_bytes().to_vec();
        let bindings = Bindings::from([
            ("own".to_owned(), own.to_vec()),
            ("peer".to_owned(), peer.to_vec()),
            ("lun".to_owned(), subject.lun().to_vec()),
            ("x".to_owned(), number(XID_FIRST + index * XIDS)),
        ]);
        let probe = PROBES + index * XIDS;
        let (inbox, sent, said) = Default::default();
        Self {
            table,
            subject,
            role,
            preludes,
            bindings,
            inbox,
            sent,
            said,
            probe,
            is_counting: false,
        }
    }

    /// Runs all steps.
    pub(super) fn steps(&mut self, steps: &Value) -> Result<()> {
        let steps = steps.as_array().ok_or("steps are a list")?;
        for (number, step) in steps.iter().enumerate() {
            let (name, value) = object(step)?.iter().next().ok_or("an empty step")?;
            let done = self.step(name, value);
            done.map_err(|why| format!("step {}, {name}: {why}", number + 1))?;
        }
        Ok(())
    }

    /// Checks that nothing is left.
    pub(super) fn end(&mut self) -> Result<()> {
        match self.role {
            FcRole::Target => self.quiet(),
            // Its questions may go on.
            FcRole::Initiator => Ok(()),
        }
    }

    fn step(&mut self, name: &str, value: &Value) -> Result<()> {
        let text = || value.as_str().ok_or_else(|| format!("{value} is no text"));
        match name {
            "let" => self.bind(object(value)?),
            "use" => {
                let steps = self.preludes.get(text()?);
                self.steps(steps.ok_or_else(|| format!("no prelude is called {value}"))?)
            }
            "repeat" => {
                let times = value["times"].as_u64().ok_or("how often?")?;
                (0..times).try_for_each(|_| self.steps(&value["steps"]))
            }
            "send" => self.send(object(value)?, true),
            "lose" => self.send(object(value)?, false),
            "again" => {
                let bytes = self.sent.get(text()?);
                let bytes = bytes.ok_or_else(|| format!("nothing was sent as {value}"))?;
                self.subject.send(bytes)
            }
            "wait" => self.wait(Duration::from_millis(value.as_u64().unwrap_or(0))),
            "ready" => self.ready(),
            "expect" => self.expect(object(value)?),
            "collect" => self.collect(object(value)?),
            "later" => self.later(value),
            "quiet" => self.quiet(),
            "discard" => {
                self.drain()?;
                self.inbox.clear();
                Ok(())
            }
            "order" => self.subject.order(text()?),
            "said" => self.agent_says(object(value)?),
            _ => Err("there is no such step".to_owned()),
        }
    }

    fn bind(&mut self, values: &Map<String, Value>) -> Result<()> {
        for (name, value) in values {
            let bytes = match value {
                Value::String(text) if text.starts_with('$') => {
                    let only = Map::from_iter([("ox_id".to_owned(), value.clone())]);
                    let (header, _) = self
                        .table
                        .decode("header", &self.table.encode("header", &only, &self.bindings)?)?;
                    header.fields["ox_id"].clone()
                }
                Value::String(text) => hex(text)?,
                value => value.as_u64().ok_or("a number")?.to_le_bytes().to_vec(),
            };
            self.bindings.insert(name.clone(), bytes);
        }
        Ok(())
    }

    /// The header fields of a frame of ours that a vector does not set.
    fn defaults(&self, kind: &str, spec: &Map<String, Value>) -> Map<String, Value> {
        let of_initiator = self.role == FcRole::Target;
        let f_ctl = match kind {
            "FcpCmnd" | "ElsRequest" => "REQUEST",
            "FcpData" if of_initiator => "WRITE_DATA_END",
            "FcpData" => "READ_DATA_END",
            "FcpXferRdy" => "XFER_RDY",
            "FcpRsp" => "RESPONSE",
            "Abts" => "ABTS",
            "FcpConf" => "CONFIRMATION",
            _ => "REPLY",
        };
        let mut auto = Map::new();
        auto.insert("f_ctl".to_owned(), f_ctl.into());
        auto.insert("d_id".to_owned(), "$peer".into());
        auto.insert("s_id".to_owned(), "$own".into());
        if !spec.contains_key("rx_id") {
            auto.insert("rx_id".to_owned(), 0xffff.into());
        }
        auto
    }

    fn send(&mut self, spec: &Map<String, Value>, arrives: bool) -> Result<()> {
        let kind = spec.get("kind").and_then(Value::as_str).unwrap_or_default();
        let bytes = compose(self.table, spec, self.defaults(kind, spec), &self.bindings)?;
        self.is_counting |= spec.get("body").is_some_and(|body| body["crn"] != Value::Null);
        if arrives {
            self.subject.send(&bytes)?;
        }
        if let Some(label) = spec.get("as").and_then(Value::as_str) {
            self.sent.insert(label.to_owned(), bytes);
        }
        Ok(())
    }

    /// Waits for a frame of that kind that has these fields. `within` is its time in milliseconds.
    fn expect(&mut self, pattern: &Map<String, Value>) -> Result<()> {
        let kind = pattern.get("kind").and_then(Value::as_str).ok_or("what kind of frame?")?;
        let within = pattern.get("within").and_then(Value::as_u64);
        let patience = within.map_or(PATIENCE, Duration::from_millis);
        let mut header = pattern.clone();
        header.retain(|key, _| !matches!(&**key, "kind" | "body" | "data" | "within"));
        let mut differs = None;
        let came = self.until_within((&format!("{kind} as described"), patience), |this| {
            let mut bindings = this.bindings.clone();
            let fits = |frame: &FcFrame, bindings: &mut Bindings| {
                this.table.compare("header", &header, &frame.header, bindings)?;
                if let Some(body) = pattern.get("body") {
                    this.table.compare(&frame.layout, object(body)?, &frame.body, bindings)?;
                }
                match pattern.get("data").and_then(Value::as_str) {
                    Some(data) => same_bytes(&frame.payload, &hex(data)?),
                    None => Ok(()),
                }
            };
            for at in 0..this.inbox.len() {
                if this.inbox[at].kind != kind {
                    continue;
                }
                match fits(&this.inbox[at], &mut bindings) {
                    Ok(()) => {
                        this.inbox.remove(at);
                        this.bindings = bindings;
                        return Ok(Some(()));
                    }
                    Err(why) => differs = Some(why),
                }
            }
            Ok(None)
        });
        with_difference(came, differs)
    }

    /// Takes the data of a read, which are one sequence, and its response. `rx` is the name that
    /// its RX_ID gets.
    fn collect(&mut self, pattern: &Map<String, Value>) -> Result<()> {
        let only = Map::from_iter([("ox_id".to_owned(), pattern["ox_id"].clone())]);
        let wanted = self.table.encode("header", &only, &self.bindings)?[16..18].to_vec();
        let ox_id = u64::from(wanted[0]) << 8 | u64::from(wanted[1]);
        let data = hex(pattern.get("data").and_then(Value::as_str).unwrap_or_default())?;
        let (mut came, mut sequence, mut is_over) = (vec![0; data.len()], None::<[u64; 3]>, false);
        let response = self.until("the response to a read", |this| {
            let at = this.inbox.iter().position(|frame| frame.field("ox_id") == ox_id);
            let Some(frame) = at.and_then(|at| this.inbox.remove(at)) else { return Ok(None) };
            if frame.kind != "FcpData" {
                return Ok(Some(frame));
            }
            let place = [frame.field("seq_id"), frame.field("rx_id"), frame.field("seq_cnt")];
            let next =
                sequence.map_or(place, |[seq_id, rx_id, seq_cnt]| [seq_id, rx_id, seq_cnt + 1]);
            if place != next || is_over || (sequence.is_none() && place[2] != 0) {
                return Err(format!("{} is not the next of its sequence", frame.describe()));
            }
            (sequence, is_over) = (Some(place), frame.is_last());
            let from = frame.field("parameter") as usize;
            let place = came.get_mut(from..from + frame.payload.len());
            place.ok_or("data that were not asked for")?.copy_from_slice(&frame.payload);
            Ok(None)
        })?;
        let status = number(response.body.fields.get("status").map_or(&[][..], |it| it));
        if response.kind != "FcpRsp" || status != 0 {
            return Err(format!("it ended with {}", response.describe()));
        }
        let rx_id = response.field("rx_id");
        if sequence.is_some_and(|[_, of_data, _]| of_data != rx_id) || !(data.is_empty() || is_over)
        {
            return Err("the data have another RX_ID, or no end".to_owned());
        }
        if let Some(name) = pattern.get("rx").and_then(Value::as_str) {
            self.bindings.insert(name.to_owned(), response.header.fields["rx_id"].clone());
        }
        same_bytes(&came, &data)
    }

    /// Checks that an RX_ID is later than another: FC.md, "Exchanges".
    fn later(&mut self, value: &Value) -> Result<()> {
        let number = |at: usize| {
            let name = value[at].as_str().and_then(|text| text.strip_prefix('$'));
            let bytes = name.and_then(|name| self.bindings.get(name));
            bytes.map(|bytes| number(bytes)).ok_or_else(|| format!("{value}: not bound"))
        };
        let (next, former) = (number(0)?, number(1)?);
        let ahead = (next + RX_IDS - former) % RX_IDS;
        let is_later = next < RX_IDS && (1..=RX_IDS / 2).contains(&ahead);
        if is_later { Ok(()) } else { Err(format!("RX_ID {next:#x} after {former:#x}")) }
    }

    /// Asks a target whether it is there, in an exchange of its own; returns the status.
    fn ask(&mut self) -> Result<u64> {
        self.probe += 1;
        let ox_id = u64::from(self.probe);
        let mut body = json!({"lun": "$lun", "cdb": "00*16"});
        if self.is_counting {
            body["crn"] = 1.into();
        }
        let command = json!({"kind": "FcpCmnd", "ox_id": ox_id, "body": body});
        self.send(object(&command)?, true)?;
        self.until("the answer to TEST UNIT READY", |this| {
            let mut frames = this.inbox.iter();
            let at = frames.position(|it| it.field("ox_id") == ox_id && it.kind == "FcpRsp");
            let frame = at.and_then(|at| this.inbox.remove(at));
            Ok(frame.map(|frame| number(&frame.body.fields["status"])))
        })
    }

    /// Hears the unit attentions of a target.
    fn ready(&mut self) -> Result<()> {
        for _ in 0..READY_MAX {
            if self.ask()? == 0 {
                return Ok(());
            }
        }
        Err("the logical unit is not ready".to_owned())
    }

    /// Checks that nothing has come: a target has looked at all that was sent when it answers
    /// what is sent behind it; an initiator looks at once.
    fn quiet(&mut self) -> Result<()> {
        if self.role == FcRole::Target {
            self.ask()?;
            self.ask()?;
        }
        self.drain()?;
        if self.inbox.is_empty() { Ok(()) } else { Err(format!("there came {}", self.describe())) }
    }

    /// Waits for the agent's answer to an order, by its `id`; with `silent` it has none.
    fn agent_says(&mut self, wanted: &Map<String, Value>) -> Result<()> {
        let id = wanted.get("id").and_then(Value::as_str).ok_or("of which order?")?.to_owned();
        let expected = wanted.get("words").and_then(Value::as_str).unwrap_or("ok");
        let is_silent = wanted.get("silent").is_some();
        let patience = if is_silent { Duration::ZERO } else { PATIENCE };
        let said = self.until_within(("the agent's answer", patience), |this| {
            while let Some(line) = this.subject.said()? {
                let (id, words) = line.split_once(' ').unwrap_or((&line, ""));
                this.said.insert(id.to_owned(), words.to_owned());
            }
            Ok(this.said.remove(&id))
        });
        match said {
            Err(_) if is_silent => Ok(()),
            Ok(words) if is_silent => Err(format!("the agent says {words:?} of {id}")),
            Ok(words) if words == expected => Ok(()),
            Ok(words) => Err(format!("the agent says {words:?} of {id}")),
            Err(why) => Err(why),
        }
    }
}

impl Receiver for Run<'_> {
    fn now(&self) -> Duration {
        self.subject.now()
    }

    fn pump(&mut self, patience: Duration) -> Result<bool> {
        let Some(bytes) = self.subject.receive(patience)? else { return Ok(false) };
        let frame = FcFrame::parse(self.table, &bytes, self.subject.ports())?;
        let flags = frame.body.fields.get("flags").map_or(0, |flags| number(flags));
        if frame.kind == "FcpRsp" && flags & CONF_REQ != 0 {
            let [ox_id, rx_id] = ["ox_id", "rx_id"].map(|name| frame.field(name));
            let confirmation = json!({"kind": "FcpConf", "ox_id": ox_id, "rx_id": rx_id});
            self.send(object(&confirmation)?, true)?;
        }
        self.inbox.push_back(frame);
        Ok(true)
    }

    fn left(&self) -> Vec<String> {
        self.inbox.iter().map(FcFrame::describe).collect()
    }
}

fn same_bytes(came: &[u8], wanted: &[u8]) -> Result<()> {
    if came.len() != wanted.len() {
        return Err(format!("{} bytes of data, not {}", came.len(), wanted.len()));
    }
    match came.iter().zip(wanted).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(at) => Err(format!("byte {at} of the data is {}", shown(&came[at..=at]))),
    }
}

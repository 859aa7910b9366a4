//! Trace of a run: a hash over all events, the last events as text, and optionally all events as
//! text.

use std::collections::VecDeque;
use std::fmt;
use std::io::Write;

use tyche_block::Errno;
use tyche_proto::{Instant, Operation};
use tyche_wire::{Header, Opcode, Tag};

use crate::network::{Fate, LinkRef, Port};
use crate::random::mix;

/// Number of events that a violation shows.
const RECENT: usize = 60;

/// An event of the trace.
#[derive(Clone, Debug)]
pub(crate) enum Happening {
    Frame { port: Port, from: LinkRef, len: usize, fate: Fate, header: Header },
    Submit { host: usize, op: u32, opcode: Opcode, offset: u64, len: u32, stamp: u64 },
    Answer { host: usize, op: u32, result: Result<(), Errno> },
    Host { host: usize, event: String },
    Execute { link: usize, channel: u16, tag: Tag, operation: Operation, stamp: u64 },
    Executed { link: usize, channel: u16, slot: u16, result: Result<(), Errno> },
    Incident(String),
}

impl Happening {
    /// The part of the event that is hashed: enough to distinguish two runs.
    fn digest(&self) -> u64 {
        let text = |text: &str| text.bytes().fold(7, |hash, byte| mix(hash ^ u64::from(byte)));
        match self {
            Self::Frame { port, len, fate, header, .. } => {
                let place = (*port as u64) << 16 | *fate as u64;
                mix(place) ^ header.packet.0 << 20 ^ *len as u64 ^ header.cookie.0
            }
            Self::Submit { host, op, offset, len, stamp, .. } => {
                mix(u64::from(*op) << 8 | *host as u64) ^ offset << 20 ^ u64::from(*len) ^ stamp
            }
            Self::Answer { host, op, result } => {
                let errno = result.err().map_or(0, |errno| errno.0);
                u64::from(*op) << 16 | (*host as u64) << 8 | errno as u64
            }
            Self::Host { host, event } => text(event) ^ *host as u64,
            Self::Execute { operation, stamp, .. } => mix(*stamp) ^ operation.offset,
            Self::Executed { slot, result, .. } => {
                u64::from(*slot) << 8 | result.err().map_or(0, |errno| errno.0) as u64
            }
            Self::Incident(what) => text(what),
        }
    }
}

impl fmt::Display for Happening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame { from, len, fate, header, .. } => {
                write!(f, "{from}: {header} ({len} B)")?;
                if *fate == Fate::Sent { Ok(()) } else { write!(f, " {fate:?}") }
            }
            Self::Submit { host, op, opcode, offset, len, stamp } => {
                write!(f, "host {host} submits {opcode:?} {offset}+{len} as {op}, stamp {stamp}")
            }
            Self::Answer { host, op, result } => write!(f, "host {host} gets {result:?} for {op}"),
            Self::Host { host, event } => write!(f, "host {host}: {event}"),
            Self::Execute { link, channel, tag, operation, stamp } => {
                let Operation { opcode, offset, len, .. } = operation;
                write!(f, "disk begins {opcode:?} {tag:?} {offset}+{len}, stamp {stamp}, ")?;
                write!(f, "for channel {channel} of link {link}")
            }
            Self::Executed { link, channel, slot, result } => {
                write!(f, "disk ends slot {slot} of channel {channel} of link {link}: {result:?}")
            }
            Self::Incident(what) => f.write_str(what),
        }
    }
}

/// The record of a run's events. Its hash tells two runs of a seed apart, and a violation shows the
/// last events as text.
pub(crate) struct Trace {
    hash: u64,
    recent: VecDeque<(Instant, Happening)>,
    verbose: Option<Box<dyn Write>>,
}

impl Trace {
    pub(crate) fn new(verbose: Option<Box<dyn Write>>) -> Self {
        Self { hash: 0, recent: VecDeque::with_capacity(RECENT), verbose }
    }

    pub(crate) fn note(&mut self, now: Instant, happening: Happening) {
        self.hash = mix(self.hash ^ now.0).wrapping_add(happening.digest());
        if let Some(out) = &mut self.verbose
            && writeln!(out, "{}", line(now, &happening)).is_err()
        {
            // The reader is gone: the run goes on without output.
            self.verbose = None;
        }
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back((now, happening));
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// The last events, as text.
    pub(crate) fn recent(&self) -> Vec<String> {
        self.recent.iter().map(|(at, happening)| line(*at, happening)).collect()
    }
}

fn line(at: Instant, happening: &Happening) -> String {
    format!("{:>14.3} ms  {happening}", at.0 as f64 / 1e6)
}

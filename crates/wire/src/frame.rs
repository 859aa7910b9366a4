//! The whole frame: header and payload, checked together.

use core::fmt;

use crate::body::{BODY_LEN_MAX, Writer};
use crate::{
    Accept, Ack, Checksums, Connect, Discover, ENTRIES_MAX, ENTRY_LEN, Echo, Entry, Fence, Fenced,
    Flags, HEAD_LEN, Header, Hello, Kind, Offer, Open, Reject, Rejection, Reset, SealedAnswer,
    SealedConnect,
};

/// A body PDU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// [`Kind::Discover`]
    Discover(Discover),
    /// [`Kind::Offer`]
    Offer(Offer),
    /// [`Kind::Hello`]
    Hello(Hello),
    /// [`Kind::Connect`]
    Connect(Connect),
    /// [`Kind::Accept`]
    Accept(Accept),
    /// [`Kind::Reject`]
    Reject(Rejection),
    /// [`Kind::SealedConnect`]
    SealedConnect(SealedConnect),
    /// [`Kind::SealedAnswer`]
    SealedAnswer(SealedAnswer),
    /// [`Kind::Fence`]
    Fence(Fence),
    /// [`Kind::Fenced`]
    Fenced(Fenced),
    /// [`Kind::Reset`]
    Reset(Reset),
    /// [`Kind::Ack`] with bitmaps.
    Ack(Ack),
}

/// The contents of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Body<'a> {
    /// Nothing: void, ack without bitmaps, keepalive, disconnect.
    Empty,
    /// Entries, and the data that they describe.
    Entries {
        /// Commands, completions, events and parts of the data, at least one.
        entries: Entries<'a>,
        /// The whole data section; `None` if it lies elsewhere: see [`Body::parse_placed`].
        data: Option<&'a [u8]>,
    },
    /// An echo.
    Echo {
        /// Its only entry.
        echo: Echo,
        /// The whole data section: any bytes.
        filling: &'a [u8],
    },
    /// A PDU of its own.
    Control(Pdu<'a>),
}

/// The body PDU of a frame, checked. It is decoded on demand: a [`Control`] takes more than a
/// kilobyte, and most frames carry none.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Pdu<'a> {
    kind: Kind,
    bytes: &'a [u8],
}

/// Entries of a frame, checked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Entries<'a>(&'a [u8]);

/// A parsed frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The header.
    pub header: Header,
    /// The payload.
    pub body: Body<'a>,
}

impl<'a> Frame<'a> {
    /// Parses a frame: its first 64 bytes and all the rest.
    ///
    /// # Errors
    /// The first fault found. A frame with any fault has no effect at all.
    pub fn parse(head: &[u8; HEAD_LEN], payload: &'a [u8]) -> Result<Self, Reject> {
        let header = Header::parse(head)?;
        let body = Body::parse(&header, payload, &Checksums)?;
        Ok(Self { header, body })
    }
}

impl<'a> Body<'a> {
    /// Parses the payload of a frame whose header is known: a receiver first checks whether the
    /// frame is for it, and how it is protected.
    ///
    /// # Errors
    /// The first fault found.
    pub fn parse(
        header: &Header,
        payload: &'a [u8],
        protection: &impl Open,
    ) -> Result<Self, Reject> {
        let data_len = header.data_len as usize;
        if data_len.checked_add(entries_len(header)?) != Some(payload.len()) {
            return Err(Reject::Length);
        }
        let (data, tail) = payload.split_at(data_len);
        protection.open(header, payload, tail.len())?;
        match header.kind {
            Kind::Command if data_len > 0 => Err(Reject::Length),
            Kind::Command | Kind::Data => {
                let entries = Entries::parse(tail, data_len)?;
                Ok(Self::Entries { entries, data: Some(data) })
            }
            Kind::Echo => {
                let entry = tail.try_into().expect("there is one entry");
                let is_reply = header.flags.contains(Flags::REPLY);
                Echo::parse(entry, is_reply, data.len())
                    .map(|echo| Self::Echo { echo, filling: data })
            }
            Kind::Void | Kind::Keepalive | Kind::Disconnect => {
                if data.is_empty() {
                    Ok(Self::Empty)
                } else {
                    Err(Reject::Length)
                }
            }
            Kind::Ack if data.is_empty() => Ok(Self::Empty),
            kind => {
                if let Control::Hello(hello) = Control::parse(kind, data)? {
                    hello.check_ticket(header.flags)?;
                }
                Ok(Self::Control(Pdu { kind, bytes: data }))
            }
        }
    }

    /// Parses what follows the data section of a frame whose peer has placed that where it belongs:
    /// memory of the receiver, page for page as its channel's `damq`.
    ///
    /// # Errors
    /// The first fault found; `Unexpected` if the payload's checksum would cover the data.
    pub fn parse_placed(
        header: &Header,
        tail: &'a [u8],
        protection: &impl Open,
    ) -> Result<Self, Reject> {
        if header.kind != Kind::Data || header.covers_data() {
            return Err(Reject::Unexpected);
        }
        if entries_len(header)? != tail.len() {
            return Err(Reject::Length);
        }
        protection.open(header, tail, tail.len())?;
        let entries = Entries::parse(tail, header.data_len as usize)?;
        Ok(Self::Entries { entries, data: None })
    }
}

/// Bytes of the entries of a frame.
///
/// # Errors
/// `EntryCount` if its kind has fewer or more.
fn entries_len(header: &Header) -> Result<usize, Reject> {
    let (least, most) = match header.kind {
        Kind::Command | Kind::Data => (1, ENTRIES_MAX),
        Kind::Echo => (1, 1),
        _ => (0, 0),
    };
    let entries = usize::from(header.entries);
    if entries < least || entries > most {
        return Err(Reject::EntryCount);
    }
    Ok(entries * ENTRY_LEN)
}

impl Pdu<'_> {
    /// Decodes the PDU.
    pub fn decode(&self) -> Control {
        Control::parse(self.kind, self.bytes).expect("checked by `Body::parse`")
    }
}

impl fmt::Debug for Pdu<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.decode(), f)
    }
}

impl<'a> Entries<'a> {
    /// Checks the entries of a frame with so many bytes of data.
    fn parse(bytes: &'a [u8], data_len: usize) -> Result<Self, Reject> {
        let (entries, _) = bytes.as_chunks::<ENTRY_LEN>();
        let mut described = 0;
        for bytes in entries {
            if let Entry::Data(part) = Entry::parse(bytes)? {
                described += part.len as usize;
            }
        }
        if described == data_len { Ok(Self(bytes)) } else { Err(Reject::DataLength) }
    }
}

impl Entries<'_> {
    /// The entries in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Entry> {
        let (entries, _) = self.0.as_chunks::<ENTRY_LEN>();
        entries.iter().map(|bytes| Entry::decode(bytes).expect("checked by `Body::parse`"))
    }
}

impl fmt::Debug for Entries<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

const _: () = assert!(Discover::FIELDS_LEN + Discover::PADDING_MAX == Control::LEN_MAX);

impl Control {
    /// The most bytes of a body, a hello's padding aside. The shortest frame has room for it.
    pub const LEN_MAX: usize = BODY_LEN_MAX;

    fn parse(kind: Kind, body: &[u8]) -> Result<Self, Reject> {
        match kind {
            Kind::Discover => Discover::parse(body).map(Self::Discover),
            Kind::Offer => Offer::parse(body).map(Self::Offer),
            Kind::Hello => Hello::parse(body).map(Self::Hello),
            Kind::Connect => Connect::parse(body).map(Self::Connect),
            Kind::Accept => Accept::parse(body).map(Self::Accept),
            Kind::Reject => Rejection::parse(body).map(Self::Reject),
            Kind::Fence => Fence::parse(body).map(Self::Fence),
            Kind::Fenced => Fenced::parse(body).map(Self::Fenced),
            Kind::Reset => Reset::parse(body).map(Self::Reset),
            Kind::SealedConnect => SealedConnect::parse(body).map(Self::SealedConnect),
            Kind::SealedAnswer => SealedAnswer::parse(body).map(Self::SealedAnswer),
            Kind::Ack => Ack::parse(body).map(Self::Ack),
            Kind::Command
            | Kind::Data
            | Kind::Void
            | Kind::Keepalive
            | Kind::Disconnect
            | Kind::Echo => unreachable!("{kind:?} has no body of its own"),
        }
    }

    /// The kind of frame that carries it.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Discover(_) => Kind::Discover,
            Self::Offer(_) => Kind::Offer,
            Self::Hello(_) => Kind::Hello,
            Self::Connect(_) => Kind::Connect,
            Self::Accept(_) => Kind::Accept,
            Self::Reject(_) => Kind::Reject,
            Self::Fence(_) => Kind::Fence,
            Self::Fenced(_) => Kind::Fenced,
            Self::Reset(_) => Kind::Reset,
            Self::SealedConnect(_) => Kind::SealedConnect,
            Self::SealedAnswer(_) => Kind::SealedAnswer,
            Self::Ack(_) => Kind::Ack,
        }
    }

    /// Writes the body without padding; returns its length.
    pub fn emit(&self, body: &mut [u8; Self::LEN_MAX]) -> usize {
        let mut fields = Writer::new(body);
        match self {
            Self::Discover(pdu) => pdu.emit(&mut fields),
            Self::Offer(pdu) => pdu.emit(&mut fields),
            Self::Hello(pdu) => pdu.emit(&mut fields),
            Self::Connect(pdu) => pdu.emit(&mut fields),
            Self::Accept(pdu) => pdu.emit(&mut fields),
            Self::Reject(pdu) => pdu.emit(&mut fields),
            Self::Fence(pdu) => pdu.emit(&mut fields),
            Self::Fenced(pdu) => pdu.emit(&mut fields),
            Self::Reset(pdu) => pdu.emit(&mut fields),
            Self::SealedConnect(pdu) => pdu.emit(&mut fields),
            Self::SealedAnswer(pdu) => pdu.emit(&mut fields),
            Self::Ack(pdu) => pdu.emit(&mut fields),
        }
        fields.len()
    }

    /// The number of zero bytes that follow the body.
    pub fn padding_len(&self) -> usize {
        match self {
            Self::Hello(hello) => hello.padding_len(),
            Self::Discover(discover) => discover.padding.into(),
            _ => 0,
        }
    }
}

impl fmt::Display for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Discover(pdu) => pdu.fmt(f),
            Self::Offer(pdu) => pdu.fmt(f),
            Self::Hello(pdu) => pdu.fmt(f),
            Self::Connect(pdu) => pdu.fmt(f),
            Self::Accept(pdu) => pdu.fmt(f),
            Self::Reject(pdu) => pdu.fmt(f),
            Self::Fence(pdu) => pdu.fmt(f),
            Self::Fenced(pdu) => pdu.fmt(f),
            Self::Reset(pdu) => pdu.fmt(f),
            Self::SealedConnect(pdu) => pdu.fmt(f),
            Self::SealedAnswer(pdu) => pdu.fmt(f),
            Self::Ack(pdu) => pdu.fmt(f),
        }
    }
}

impl fmt::Display for Frame<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.body {
            Body::Empty => self.header.fmt(f),
            Body::Entries { entries, .. } => {
                self.header.fmt(f)?;
                entries.iter().try_for_each(|entry| write!(f, " [{entry}]"))
            }
            Body::Echo { echo, .. } => write!(f, "{} [{echo}]", self.header),
            Body::Control(pdu) if self.header.kind.on_channel() => {
                write!(f, "{} {}", self.header, pdu.decode())
            }
            // Outside of a channel the PDU shows its kind, and the header adds nothing.
            Body::Control(pdu) => {
                pdu.decode().fmt(f)?;
                self.header.flags.names().try_for_each(|name| write!(f, " {name}"))
            }
        }
    }
}

//! The payload of a frame of a channel: opened if it is sealed, then parsed.

use tyche_wire::{Body, Checksums, HEAD_LEN, Header, Reject, Sealed};

/// A frame as it was received.
#[derive(Clone, Copy, Debug)]
pub struct RawFrame<'p> {
    /// Its first 64 bytes.
    pub head: &'p [u8; HEAD_LEN],
    /// The rest.
    pub payload: &'p [u8],
    /// Whether the network has marked it as congested (ECN, RFC 3168). The peer is told if the
    /// frame is one of a channel and is not rejected: marks of made-up frames must not slow anybody
    /// down.
    pub is_congested: bool,
    /// Whether the peer has placed the data section where it belongs, so that the payload has none:
    /// memory of ours, page for page as the `damq`. Only a link that has such memory of a channel
    /// says so.
    pub is_placed: bool,
}

impl<'p> From<(&'p [u8; HEAD_LEN], &'p [u8])> for RawFrame<'p> {
    fn from((head, payload): (&'p [u8; HEAD_LEN], &'p [u8])) -> Self {
        Self { head, payload, is_congested: false, is_placed: false }
    }
}

use crate::channel::protection::{Guard, Opened};
use crate::rules::{Rule, Rules, Unchecked};

/// Parses the payload of a frame of a channel.
///
/// # Errors
/// The first thing that is wrong with it.
pub(crate) fn parse_body<'a, R: Rules>(
    header: &Header,
    payload: &'a [u8],
) -> Result<Body<'a>, Reject> {
    if R::keeps(Rule::CheckPayload) {
        Body::parse(header, payload, &Checksums)
    } else {
        Body::parse(header, payload, &Unchecked)
    }
}

/// The payload of a frame of a channel: what it is in the clear, and what it says.
pub(crate) type Payload<'p> = (&'p [u8], Body<'p>);

/// Opens the payload of a frame of a channel, if it is a sealed one, and parses it.
///
/// # Errors
/// The first thing that is wrong with it.
pub(crate) fn open_body<'p, R: Rules>(
    guard: Option<&mut Guard>,
    header: &Header,
    frame: &RawFrame<'p>,
    opened: &'p mut Opened,
) -> Result<Payload<'p>, Reject> {
    let RawFrame { head, payload, is_placed, .. } = *frame;
    let Some(guard) = guard else {
        let body = match is_placed {
            false => parse_body::<R>(header, payload),
            true => Body::parse_placed(header, payload, &Checksums),
        };
        return Ok((payload, body?));
    };
    if is_placed {
        // Sealed data have to be opened.
        return Err(Reject::Unexpected);
    }
    let payload = guard.open::<R>((header, head), payload, opened)?;
    Ok((payload, Body::parse(header, payload, &Sealed)?))
}

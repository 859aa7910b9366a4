//! The payload of a frame of a channel: opened if it is sealed, then parsed.

use tyche_wire::{Body, Checksums, HEAD_LEN, Header, Reject, Sealed};

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
    (header, head): (&Header, &[u8; HEAD_LEN]),
    payload: &'p [u8],
    opened: &'p mut Opened,
) -> Result<Payload<'p>, Reject> {
    let Some(guard) = guard else { return Ok((payload, parse_body::<R>(header, payload)?)) };
    let payload = guard.open::<R>((header, head), payload, opened)?;
    Ok((payload, Body::parse(header, payload, &Sealed)?))
}

//! Reset: the answer to a frame for a channel that does not exist here, e.g. after a restart.
//!
//! ```text
//! off len field
//!   0   8 cookie        that the frame carried
//!   8   2 channel       that the frame was for
//!  10   6 token         of a sealed channel, else 0
//!  16  16 target        UUID of the target that sends it
//! ```

use core::fmt;

use uuid::Uuid;

use crate::body::{Reader, Writer};
use crate::{ChannelId, Cookie, Reject};

/// Proves to a host that a reset of its sealed channel is the target's. A forged reset causes no
/// more than a pause, so six bytes, which nobody guesses in a year, are enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResetToken(pub [u8; 6]);

/// Tells the sender of a frame that its channel is gone: a hint to connect again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reset {
    /// The cookie of the frame.
    pub cookie: Cookie,
    /// The channel of the frame.
    pub channel: ChannelId,
    /// The token of the channel, from a target with a key; else zero.
    pub token: ResetToken,
    /// The target that does not have the channel.
    pub target: Uuid,
}

impl Reset {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Reject> {
        let mut fields = Reader::new(body);
        let (cookie, channel) = (Cookie(fields.u64()?), ChannelId(fields.u16()?));
        let (token, target) = (ResetToken(fields.bytes()?), fields.uuid()?);
        fields.end()?;
        Ok(Self { cookie, channel, token, target })
    }

    pub(crate) fn emit(&self, fields: &mut Writer<'_>) {
        fields.u64(self.cookie.0).u16(self.channel.0).bytes(&self.token.0).uuid(&self.target);
    }
}

impl fmt::Display for Reset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reset ch={} cookie={:?}", self.channel.0, self.cookie)
    }
}

//! Reset: a frame came for a channel that does not exist here, e.g. after a restart.
//!
//! ```text
//! off len field
//!   0   8 cookie        that the frame carried
//!   8   2 channel       that the frame was for
//!  10   6 0
//! ```

use core::fmt;

use crate::body::{Reader, Writer};
use crate::{ChannelId, Cookie, Reject};

/// Tells the sender of a frame that its channel is gone. Believed only if it repeats the cookie,
/// which nobody else knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reset {
    /// The frame's.
    pub cookie: Cookie,
    /// The frame's.
    pub channel: ChannelId,
}

impl Reset {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Reject> {
        let mut fields = Reader::new(body);
        let this = Self { cookie: Cookie(fields.u64()?), channel: ChannelId(fields.u16()?) };
        fields.zeroes::<6>()?;
        fields.end()?;
        Ok(this)
    }

    pub(crate) fn emit(&self, fields: &mut Writer<'_>) {
        fields.u64(self.cookie.0).u16(self.channel.0).zeroes::<6>();
    }
}

impl fmt::Display for Reset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reset ch={} cookie={:?}", self.channel.0, self.cookie)
    }
}

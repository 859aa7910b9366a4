//! Discover: who is there?
//!
//! ```text
//! off len field
//!   0   8 nonce         echoed in the offers
//!   8  16 host          UUID of the asking host
//!  24  64 export        name asked for; empty: all
//! ```

use core::fmt;

use uuid::Uuid;

use crate::Name;
use crate::Reject;
use crate::body::{Reader, Writer};

/// Asks targets to make themselves known, by broadcast or to one address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discover {
    /// Echoed in the offers.
    pub nonce: u64,
    /// Who asks; exports may be hidden from some hosts.
    pub host: Uuid,
    /// Only targets with this export answer; empty: all answer.
    pub export: Name,
}

impl Discover {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Reject> {
        let mut fields = Reader::new(body);
        let this = Self { nonce: fields.u64()?, host: fields.uuid()?, export: fields.text()? };
        fields.end()?;
        Ok(this)
    }

    pub(crate) fn emit(&self, fields: &mut Writer<'_>) {
        fields.u64(self.nonce).uuid(&self.host).text(&self.export);
    }
}

impl fmt::Display for Discover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Discover {:?} from {}", self.export, self.host)
    }
}

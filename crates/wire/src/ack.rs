//! Ack: a frame of acknowledgements only. Without a body, its header carries them. With a body it
//! is a *nack*: positions were missing for longer than the reorder window; the bitmaps list them.
//!
//! ```text
//! off len field
//!   0   8 newest        highest packet number received
//!   8   2 words         of the command ring's bitmap, 0 to 64
//!  10   2 words         of the data ring's bitmap, 0 to 64
//!  12   4 0
//!  16 8*n bitmaps       bit i of a bitmap: position ack+i has arrived
//! ```
//!
//! The last word of a bitmap is not zero: a bitmap ends with a position that has arrived. A
//! position whose bit is clear below the highest set bit is missing, unless the last frame that
//! carried it is newer than `newest`: then it may still be in flight.

use core::fmt;

use arrayvec::ArrayVec;

use crate::body::{Reader, Writer};
use crate::{PacketNumber, Reject};

/// The most 64-bit words of one bitmap: 4096 positions.
pub const BITMAP_WORDS_MAX: usize = 64;

/// The positions of a ring, from the ack on, that have arrived. Bit 0 is always clear.
pub type Bitmap = ArrayVec<u64, BITMAP_WORDS_MAX>;

/// The body of a nack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ack {
    /// The highest packet number received when the bitmaps were made.
    pub newest: PacketNumber,
    /// Bitmaps by [`Ring`](crate::Ring); empty where nothing is missing.
    pub bitmaps: [Bitmap; 2],
}

impl Ack {
    pub(crate) fn parse(body: &[u8]) -> Result<Self, Reject> {
        let mut fields = Reader::new(body);
        let newest = PacketNumber(fields.u64()?);
        let words = [fields.u16()?, fields.u16()?];
        fields.zeroes::<4>()?;
        let mut bitmaps = [Bitmap::new(), Bitmap::new()];
        for (bitmap, words) in bitmaps.iter_mut().zip(words) {
            if usize::from(words) > BITMAP_WORDS_MAX {
                return Err(Reject::Range);
            }
            for _ in 0..words {
                bitmap.push(fields.u64()?);
            }
            if bitmap.first().is_some_and(|word| word & 1 != 0) {
                return Err(Reject::Reserved);
            }
            if bitmap.last() == Some(&0) {
                return Err(Reject::Range);
            }
        }
        fields.end()?;
        Ok(Self { newest, bitmaps })
    }

    pub(crate) fn emit(&self, fields: &mut Writer<'_>) {
        fields.u64(self.newest.0);
        fields.u16(self.bitmaps[0].len() as u16).u16(self.bitmaps[1].len() as u16).zeroes::<4>();
        for word in self.bitmaps.iter().flatten() {
            fields.u64(*word);
        }
    }
}

impl fmt::Display for Ack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nack newest={} {:x?}", self.newest.0, self.bitmaps)
    }
}

//! Delimiters of frames: SOF in front of the header, EOF behind the CRC.

use crate::Reject;
use crate::bits::codes;

codes! {
    /// Start of frame: the class of service, and whether the frame begins a sequence.
    Sof(u8) {
        /// Class 3, the first frame of a sequence.
        I3 = 0x2e;
        /// Class 3, another frame.
        N3 = 0x36;
        /// Class F.
        F = 0x28;
        /// Class 2, the first.
        I2 = 0x2d;
        /// Class 2, another.
        N2 = 0x35;
        /// Class 4, the first.
        I4 = 0x29;
        /// Class 4, another.
        N4 = 0x31;
        /// Class 4, activation.
        C4 = 0x39;
    }
}

codes! {
    /// End of frame: whether the frame ends a sequence, and whether it is whole.
    Eof(u8) {
        /// The last frame of a sequence.
        T = 0x42;
        /// Another frame.
        N = 0x41;
        /// The content is damaged.
        Ni = 0x49;
        /// Aborted by its sender.
        A = 0x50;
        /// The last frame, class 1: the connection ends.
        Dt = 0x46;
        /// The last frame, class 1, damaged.
        Dti = 0x4e;
        /// The last frame, class 4: the connection ends.
        Rt = 0x44;
        /// The last frame, class 4, damaged.
        Rti = 0x4f;
    }
}

impl Sof {
    /// The code of a frame with this number in its sequence.
    pub(crate) fn of(seq_cnt: u16) -> Self {
        if seq_cnt == 0 { Self::I3 } else { Self::N3 }
    }

    /// Checks that the code begins a frame of class 3, the only one that is spoken here.
    pub(crate) fn check(code: u8) -> Result<(), Reject> {
        match Self::from_wire(code).ok_or(Reject::Sof)? {
            Self::I3 | Self::N3 => Ok(()),
            _ => Err(Reject::Class),
        }
    }
}

impl Eof {
    /// Checks that the code ends a whole frame of class 3.
    pub(crate) fn check(code: u8) -> Result<(), Reject> {
        match Self::from_wire(code).ok_or(Reject::Eof)? {
            Self::T | Self::N => Ok(()),
            Self::Ni | Self::A => Err(Reject::Aborted),
            _ => Err(Reject::Class),
        }
    }
}

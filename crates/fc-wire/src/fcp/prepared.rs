//! Frames that are written once and patched for each command.
//!
//! The path of a request writes no header field by field: a [`CommandFrame`] is a whole frame of
//! 92 bytes for a logical unit, and a [`PreparedHead`] the first 52 bytes of data frames that go to
//! one peer. Both are bytes of the wire; only the fields that differ are written again.

use crate::fcp::command::{
    CDB_AT, CDB_LEN, COMMAND_LEN, CRN_AT, Command, DATA_LEN_AT, FLAGS_AT, flags,
};
use crate::frame::HEADER_AT;
use crate::header::{at, f_ctl_bytes};
use crate::{Ethernet, FCtl, HEAD_LEN, Header, Sof, TAIL_LEN, Tail, Xid, head};

/// Bytes of the frame of a command.
pub const COMMAND_FRAME_LEN: usize = HEAD_LEN + COMMAND_LEN + TAIL_LEN;

/// The offset of SOF in a frame.
const SOF_AT: usize = HEADER_AT - 1;

/// The head of a frame in an exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreparedHead([u8; HEAD_LEN]);

/// The frame of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommandFrame([u8; COMMAND_FRAME_LEN]);

fn put<const N: usize>(frame: &mut [u8], offset: usize, field: [u8; N]) {
    frame[offset..offset + N].copy_from_slice(&field);
}

impl PreparedHead {
    /// Writes all fields once.
    pub fn new(ethernet: Ethernet, header: &Header) -> Self {
        Self(head(ethernet, header, 0))
    }

    /// Sets the numbers of the exchange.
    pub fn set_exchange(&mut self, ox_id: Xid, rx_id: Xid) {
        put(&mut self.0, HEADER_AT + at::OX_ID, ox_id.0.to_be_bytes());
        put(&mut self.0, HEADER_AT + at::RX_ID, rx_id.0.to_be_bytes());
    }

    /// Sets what differs from frame to frame of a sequence: the place in the sequence, the relative
    /// offset, and the length of the payload, on which the fill depends.
    pub fn set_data(
        &mut self,
        f_ctl: FCtl,
        (seq_id, seq_cnt): (u8, u16),
        offset: u32,
        payload_len: usize,
    ) {
        let frame = &mut self.0;
        frame[SOF_AT] = Sof::of(seq_cnt).to_wire();
        put(frame, HEADER_AT + at::F_CTL, f_ctl_bytes(f_ctl, payload_len));
        frame[HEADER_AT + at::SEQ_ID] = seq_id;
        put(frame, HEADER_AT + at::SEQ_CNT, seq_cnt.to_be_bytes());
        put(frame, HEADER_AT + at::PARAMETER, offset.to_be_bytes());
    }

    /// The bytes to be sent in front of the payload.
    pub fn as_bytes(&self) -> &[u8; HEAD_LEN] {
        &self.0
    }
}

impl CommandFrame {
    /// Writes all fields once.
    ///
    /// # Panics
    /// If the CDB is longer than [`CDB_LEN`] bytes.
    pub fn new(ethernet: Ethernet, header: &Header, command: &Command<'_>) -> Self {
        assert!(command.more_cdb.is_empty(), "frames of commands are of one length");
        let mut frame = [0; COMMAND_FRAME_LEN];
        frame[..HEAD_LEN].copy_from_slice(&head(ethernet, header, COMMAND_LEN));
        command.emit(&mut frame[HEAD_LEN..]);
        let mut this = Self(frame);
        this.seal();
        this
    }

    /// Makes it the frame of another command for the same logical unit, with its CRC.
    pub fn patch(
        &mut self,
        (ox_id, seq_id): (Xid, u8),
        crn: u8,
        (reads, writes): (bool, bool),
        cdb: &[u8; CDB_LEN],
        data_len: u32,
    ) {
        let frame = &mut self.0;
        put(frame, HEADER_AT + at::OX_ID, ox_id.0.to_be_bytes());
        frame[HEADER_AT + at::SEQ_ID] = seq_id;
        frame[HEAD_LEN + CRN_AT] = crn;
        frame[HEAD_LEN + FLAGS_AT] = flags(reads, writes);
        put(frame, HEAD_LEN + CDB_AT, *cdb);
        put(frame, HEAD_LEN + DATA_LEN_AT, data_len.to_be_bytes());
        self.seal();
    }

    /// The bytes of the frame.
    pub fn as_bytes(&self) -> &[u8; COMMAND_FRAME_LEN] {
        &self.0
    }

    fn seal(&mut self) {
        let (head, rest) = self.0.split_first_chunk().expect("longer than a head");
        let tail = Tail::seal(head, [&rest[..COMMAND_LEN]]);
        self.0[HEAD_LEN + COMMAND_LEN..].copy_from_slice(tail.as_bytes());
    }
}

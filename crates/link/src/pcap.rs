//! A wrapper that records frames to a file for Wireshark.
//!
//! The file is classic pcap with nanosecond timestamps, Ethernet link type, in the byte order of
//! this machine, as the format specifies. It holds every frame received and every frame that the
//! link took for sending, in the order of the calls; the addresses tell the direction. All frames
//! of one batch have the time of the call that moved them.
//!
//! Recording never disturbs the traffic: if the file can't be written, recording ends, and
//! [`PcapLink::failure`] returns the reason.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::{Link, RxBatch, TxBatch};

/// The magic number for timestamps in nanoseconds.
const MAGIC: u32 = 0xA1B2_3C4D;
const VERSION: (u16, u16) = (2, 4);
const LINKTYPE_ETHERNET: u32 = 1;

/// The longest frame that readers accept, in bytes; longer than any Ethernet frame.
pub const SNAP_LEN_MAX: u32 = 262_144;

/// A link whose frames are recorded.
pub struct PcapLink<L, W: Write = BufWriter<File>> {
    inner: L,
    recorder: Recorder<W>,
}

impl<L: Link> PcapLink<L> {
    /// Records the first `snap_len` bytes of every frame of `inner` to a file, which is replaced.
    /// 64 bytes are enough to follow the protocol without the data.
    ///
    /// # Errors
    /// If the file can't be created or written.
    pub fn create(inner: L, path: &Path, snap_len: u32) -> io::Result<Self> {
        Self::new(inner, BufWriter::new(File::create(path)?), snap_len)
    }
}

impl<L: Link, W: Write> PcapLink<L, W> {
    /// Records the first `snap_len` bytes of every frame of `inner` to `writer`.
    ///
    /// # Errors
    /// If writing fails.
    pub fn new(inner: L, writer: W, snap_len: u32) -> io::Result<Self> {
        Ok(Self { inner, recorder: Recorder::new(writer, snap_len.min(SNAP_LEN_MAX))? })
    }

    /// The wrapped link.
    pub fn inner(&self) -> &L {
        &self.inner
    }

    /// The reason why recording ended, if it did.
    pub fn failure(&self) -> Option<&io::Error> {
        self.recorder.failure.as_ref()
    }

    /// Writes out the buffer. Also done when the link is dropped.
    ///
    /// # Errors
    /// The writer's error.
    pub fn flush(&mut self) -> io::Result<()> {
        self.recorder.writer.flush()
    }
}

impl<L: Link, W: Write + Send> crate::Wrapper for PcapLink<L, W> {
    type Inner = L;

    fn inner(&self) -> &L {
        &self.inner
    }

    fn inner_mut(&mut self) -> &mut L {
        &mut self.inner
    }

    fn receive(&mut self, batch: &mut RxBatch) -> io::Result<usize> {
        let received = self.inner.receive(batch)?;
        let frames =
            batch.iter().map(|frame| (frame.len(), [frame.head, frame.payload].into_iter()));
        self.recorder.record(frames);
        Ok(received)
    }

    fn send(&mut self, batch: &TxBatch<'_>) -> io::Result<usize> {
        let sent = self.inner.send(batch)?;
        self.recorder.record(batch.frames().take(sent).map(|frame| (frame.len(), frame.parts())));
        Ok(sent)
    }
}

impl<L: Link, W: Write> std::fmt::Debug for PcapLink<L, W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PcapLink({})", self.inner.name())
    }
}

/// Writes records until the writer fails.
struct Recorder<W: Write> {
    writer: W,
    snap_len: u32,
    failure: Option<io::Error>,
}

impl<W: Write> Recorder<W> {
    fn new(mut writer: W, snap_len: u32) -> io::Result<Self> {
        writer.write_all(&MAGIC.to_ne_bytes())?;
        writer.write_all(&VERSION.0.to_ne_bytes())?;
        writer.write_all(&VERSION.1.to_ne_bytes())?;
        // Time zone and accuracy of the timestamps: always zero in practice.
        writer.write_all(&[0; 8])?;
        writer.write_all(&snap_len.to_ne_bytes())?;
        writer.write_all(&LINKTYPE_ETHERNET.to_ne_bytes())?;
        Ok(Self { writer, snap_len, failure: None })
    }

    /// Records frames, given as their lengths and parts.
    fn record<'a, P>(&mut self, frames: impl ExactSizeIterator<Item = (usize, P)>)
    where
        P: Iterator<Item = &'a [u8]>,
    {
        if self.failure.is_some() || frames.len() == 0 {
            return;
        }
        // A clock before 1970 is shown as 1970.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // The format has 32 bits of seconds: they wrap in 2106.
        let time = (now.as_secs() as u32, now.subsec_nanos());
        for (len, parts) in frames {
            if let Err(error) = self.write(time, len, parts) {
                self.failure = Some(error);
                return;
            }
        }
    }

    fn write<'a>(
        &mut self,
        (seconds, nanoseconds): (u32, u32),
        len: usize,
        parts: impl Iterator<Item = &'a [u8]>,
    ) -> io::Result<()> {
        let len = u32::try_from(len).expect("a frame has less than 4 GiB");
        let kept = len.min(self.snap_len);
        for field in [seconds, nanoseconds, kept, len] {
            self.writer.write_all(&field.to_ne_bytes())?;
        }
        let mut left = kept as usize;
        for part in parts {
            let part = &part[..part.len().min(left)];
            self.writer.write_all(part)?;
            left -= part.len();
        }
        Ok(())
    }
}

impl<W: Write> Drop for Recorder<W> {
    fn drop(&mut self) {
        // The error has no recipient here; `flush` returns it.
        let _ = self.writer.flush();
    }
}

//! A disk that discards writes and reads as zeroes, to measure everything but the disk.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tyche_block::{Geometry, Operation, Request, StatusRun, StatusWriter};

use crate::inline::{self, Serve};
use crate::{Queue, ResizeError, Store, resize};

/// See the [module](self).
pub struct NullStore {
    null: Arc<Null>,
}

struct Null {
    geometry: Geometry,
    /// The current size; the one in `geometry` is the initial size.
    size: AtomicU64,
}

impl NullStore {
    /// A disk of `size` bytes.
    ///
    /// # Errors
    /// `InvalidInput` if `block_size` is neither 512 nor 4096, or `size` not a multiple of it.
    pub fn new(size: u64, block_size: u32) -> io::Result<Self> {
        let geometry = inline::geometry(size, block_size)?;
        Ok(Self { null: Arc::new(Null { geometry, size: AtomicU64::new(size) }) })
    }

    /// Makes the disk read-only.
    ///
    /// # Panics
    /// If the disk has a queue already.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        let disk =
            Arc::get_mut(&mut self.null).expect("a disk becomes read-only before it is used");
        disk.geometry.read_only = true;
        self
    }
}

impl Store for NullStore {
    fn geometry(&self) -> Geometry {
        self.null.geometry()
    }

    fn queue(&self, depth: usize) -> io::Result<Box<dyn Queue>> {
        inline::queue(&self.null, depth)
    }

    fn resize(&self, size: Option<u64>) -> Result<u64, ResizeError> {
        let Some(size) = size else { return Ok(self.geometry().size) };
        resize::check(size, &self.geometry())?;
        self.null.size.fetch_max(size, Ordering::Relaxed);
        Ok(size)
    }
}

impl Serve for Null {
    fn geometry(&self) -> Geometry {
        Geometry { size: self.size.load(Ordering::Relaxed), ..self.geometry }
    }

    fn serve(&self, request: &mut Request) {
        let Some(buffer) = &mut request.buffer else { return };
        let bytes = &mut buffer[..request.len as usize];
        match request.operation {
            Operation::Read => bytes.fill(0),
            Operation::BlockStatus => {
                let rest = self.geometry().size.saturating_sub(request.offset);
                StatusWriter::new(bytes).push(StatusRun::hole(rest));
            }
            _ => {}
        }
    }
}

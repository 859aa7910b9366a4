//! A disk that answers at once, stores nothing, and records its requests. Asked for the status of a
//! range, it has data in the first block, and a hole behind it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard};

use tyche_block::{
    Arena, Completion, Disk, Geometry, Operation, Request, Sink, StatusRun, StatusWriter,
};

/// Bytes of the disk.
pub(crate) const SIZE: u64 = 1 << 20;

/// Block size of the disk, in bytes.
pub(crate) const BLOCK: u32 = 512;

/// Requests recorded without allocating.
const ENTRIES: usize = 8192;

/// A request that the disk has executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) operation: Operation,
    pub(crate) offset: u64,
    pub(crate) len: u32,
    /// Digest of the written data.
    pub(crate) digest: u64,
}

/// The disk.
pub(crate) struct Ledger {
    arena: Arena,
    entries: Mutex<Vec<Entry>>,
}

impl Ledger {
    /// A disk with an arena of `pages`.
    pub(crate) fn new(pages: usize) -> Arc<Self> {
        let entries = Mutex::new(Vec::with_capacity(ENTRIES));
        Arc::new(Self { arena: Arena::new(pages), entries })
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap()
    }

    /// Requests executed since the last call. Panics if any of them is invalid.
    pub(crate) fn take(&self, payload_max: u32) -> Vec<Entry> {
        let mut entries = self.entries();
        let taken = entries.clone();
        entries.clear();
        for &Entry { operation, offset, len, .. } in &taken {
            let whole = offset % u64::from(BLOCK) == 0 && len % BLOCK == 0;
            let within = offset.checked_add(u64::from(len)).is_some_and(|end| end <= SIZE);
            assert!(whole && within, "{operation:?} of {len} bytes at {offset}");
            assert_eq!(len == 0, operation == Operation::Flush, "{operation:?} of {len} bytes");
            assert!(len <= payload_max || !operation.has_data(), "{operation:?} of {len} bytes");
        }
        taken
    }
}

impl Disk for Ledger {
    fn geometry(&self) -> Geometry {
        Geometry { write_cache: true, discard: true, ..Geometry::new(SIZE, BLOCK) }
    }

    fn arena(&self) -> &Arena {
        &self.arena
    }

    fn submit(&self, request: Request, token: u64, sink: &Arc<dyn Sink>) {
        let Request { operation, offset, len, mut buffer } = request;
        let mut written = 0;
        if let Some(buffer) = &mut buffer {
            match operation {
                Operation::Read => fill(offset, buffer),
                Operation::BlockStatus => {
                    let mut status = StatusWriter::new(&mut buffer[..len as usize]);
                    let rest = SIZE - offset - u64::from(BLOCK);
                    assert!(status.push(StatusRun::data(BLOCK.into())));
                    assert!(status.push(StatusRun::hole(rest)));
                }
                _ => written = digest(&buffer[..len as usize]),
            }
        }
        self.entries().push(Entry { operation, offset, len, digest: written });
        sink.complete(Completion { token, result: Ok(()), buffer });
    }
}

/// The content of the disk at `offset`, always the same.
pub(crate) fn fill(offset: u64, bytes: &mut [u8]) {
    for (at, byte) in (offset..).zip(bytes) {
        *byte = (at / u64::from(BLOCK)) as u8 ^ (at % 251) as u8;
    }
}

/// A digest of written data.
pub(crate) fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

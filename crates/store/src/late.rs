//! A disk that is missing at first: its file or device is not there yet, or is another's.

use std::io::{self, ErrorKind};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tyche_block::Geometry;

use crate::{BackingError, Queue, ResizeError, Store};

/// A place for a store that opens later. Until then it has no bytes and takes no requests.
pub struct LateStore {
    store: OnceLock<Arc<dyn Store>>,
    /// Why the disk is missing.
    why: Mutex<String>,
}

impl LateStore {
    /// A disk that is missing for that reason.
    pub fn new(why: String) -> Self {
        Self { store: OnceLock::new(), why: Mutex::new(why) }
    }

    /// The disk is still missing, for that reason. Returns whether it is another reason than
    /// before.
    pub fn misses(&self, why: &str) -> bool {
        let mut known = self.why.lock().unwrap_or_else(PoisonError::into_inner);
        let is_another = *known != why;
        why.clone_into(&mut known);
        is_another
    }

    /// The disk is there.
    ///
    /// # Panics
    /// If it was before.
    pub fn arrive(&self, store: Arc<dyn Store>) {
        assert!(self.store.set(store).is_ok(), "a disk arrives once");
    }

    fn missing(&self) -> BackingError {
        BackingError::Missing(self.why.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

impl Store for LateStore {
    fn geometry(&self) -> Geometry {
        self.store.get().map_or(Geometry::new(0, 512), |store| store.geometry())
    }

    fn queue(&self, depth: usize) -> io::Result<Box<dyn Queue>> {
        let store = self
            .store
            .get()
            .ok_or_else(|| io::Error::new(ErrorKind::NotConnected, self.missing()))?;
        store.queue(depth)
    }

    fn resize(&self, size: Option<u64>) -> Result<u64, ResizeError> {
        let store = self.store.get().ok_or_else(|| self.missing())?;
        store.resize(size)
    }

    fn check_backing(&self) -> Result<(), BackingError> {
        let store = self.store.get().ok_or_else(|| self.missing())?;
        store.check_backing()
    }

    fn file(&self) -> Option<BorrowedFd<'_>> {
        self.store.get()?.file()
    }

    fn losses(&self) -> u64 {
        self.store.get().map_or(0, |store| store.losses())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::null::NullStore;

    #[test]
    fn a_missing_disk_has_no_bytes_and_says_why_until_it_is_there() {
        let late = LateStore::new("/dev/x: gone".to_owned());
        assert_eq!(late.geometry().size, 0);
        assert!(late.queue(1).is_err());
        assert!(late.resize(None).is_err());
        let said = late.check_backing().unwrap_err().to_string();
        assert!(said.contains("offline") && said.contains("/dev/x: gone"), "{said}");
        assert!(!late.misses("/dev/x: gone"));
        assert!(late.misses("/dev/x: another disk"));
        late.arrive(Arc::new(NullStore::new(4096, 512).unwrap()));
        assert_eq!((late.geometry().size, late.check_backing()), (4096, Ok(())));
        assert!(late.queue(1).is_ok());
    }
}

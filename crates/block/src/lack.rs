//! The call for more pages: whoever finds none raises a flag, which wakes the thread that grows the
//! arena. Nobody waits for that thread.

use std::sync::OnceLock;

use crate::sync::{AtomicBool, Ordering, Thread};

/// Order of all accesses: a call after the last look must not be missed.
const ORDER: Ordering = Ordering::SeqCst;

/// See the [module](self).
#[derive(Default)]
pub(crate) struct Lack {
    is_raised: AtomicBool,
    /// The thread that answers. Without one the flag stays up.
    helper: OnceLock<Thread>,
}

impl Lack {
    /// Says that pages were looked for in vain. The first call since the last [take](Self::take)
    /// wakes the helper; the others cost a load.
    pub(crate) fn raise(&self) {
        if self.is_raised.load(ORDER) || self.is_raised.swap(true, ORDER) {
            return;
        }
        if let Some(helper) = self.helper.get() {
            helper.unpark();
        }
    }

    /// Lowers the flag; returns whether it was raised.
    pub(crate) fn take(&self) -> bool {
        self.is_raised.swap(false, ORDER)
    }

    /// Has `helper` woken from now on. It must look once more before it parks. Only the first one
    /// counts.
    pub(crate) fn wake(&self, helper: Thread) {
        let _ = self.helper.set(helper);
    }
}

#[cfg(all(test, loom))]
mod models {
    use loom::thread;

    use super::*;
    use crate::sync::Arc;

    #[test]
    fn a_helper_that_parks_hears_of_every_lack() {
        loom::model(|| {
            let shared = Arc::new((Lack::default(), AtomicBool::new(false)));
            let helper = thread::spawn({
                let shared = Arc::clone(&shared);
                move || {
                    let (lack, has_grown) = &*shared;
                    lack.wake(thread::current());
                    while !lack.take() {
                        thread::park();
                    }
                    has_grown.store(true, ORDER);
                }
            });
            let other = thread::spawn({
                let shared = Arc::clone(&shared);
                move || shared.0.raise()
            });
            shared.0.raise();
            helper.join().unwrap();
            other.join().unwrap();
            assert!(shared.1.load(ORDER));
        });
    }
}

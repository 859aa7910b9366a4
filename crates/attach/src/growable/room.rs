//! A disk with room to grow: its apparent size is far larger.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tyche_block::{Arena, Completion, Disk, Errno, Geometry, Operation, Request, Sink};

/// The apparent size: 1 EiB.
const ROOM: u64 = 1 << 60;
/// The offset of the disk. A scan of the device for partitions, file systems and the like finds
/// none at the usual places.
pub(super) const OFFSET: u64 = 1 << 20;

/// See the [module](self). The bytes around the disk read as zeroes and can't be written.
pub(super) struct Room {
    disk: Arc<dyn Disk>,
    /// The largest size of the disk ever shown. If it has shrunk, the lost bytes fail.
    shown: Arc<AtomicU64>,
}

impl Room {
    pub(super) fn new(disk: Arc<dyn Disk>) -> Arc<Self> {
        let shown = Arc::new(AtomicU64::new(disk.geometry().size));
        Arc::new(Self { disk, shown })
    }

    /// Makes all of the present disk accessible.
    pub(super) fn grow(&self) {
        self.shown.fetch_max(self.disk.geometry().size, Ordering::Relaxed);
    }

    /// Serves a request that touches no byte of the disk.
    fn serve_around(request: &mut Request) -> Result<(), Errno> {
        match (request.operation, &mut request.buffer) {
            (Operation::Read, Some(buffer)) => {
                buffer.fill(0);
                Ok(())
            }
            _ => Err(Errno::NOSPC),
        }
    }

    /// Translates the request to the disk's offsets.
    fn place(&self, request: &mut Request) -> Result<(), Errno> {
        if request.operation == Operation::Flush {
            return Ok(());
        }
        request.offset = request.offset.checked_sub(OFFSET).ok_or(Errno::INVAL)?;
        request.check(&self.disk.geometry())
    }
}

impl Disk for Room {
    fn geometry(&self) -> Geometry {
        Geometry { size: ROOM, ..self.disk.geometry() }
    }

    fn arena(&self) -> &Arena {
        self.disk.arena()
    }

    fn submit(&self, mut request: Request, token: u64, sink: &Arc<dyn Sink>) {
        let end = request.offset + u64::from(request.len);
        let beyond = request.offset >= OFFSET + self.shown.load(Ordering::Relaxed);
        let around = request.operation != Operation::Flush && (end <= OFFSET || beyond);
        let result = if around {
            Self::serve_around(&mut request)
        } else {
            match self.place(&mut request) {
                Ok(()) => return self.disk.submit(request, token, sink),
                Err(errno) => Err(errno),
            }
        };
        sink.complete(Completion { token, result, buffer: request.buffer });
    }

    fn queues(&self) -> Vec<Arc<dyn Disk>> {
        let room = |disk| Arc::new(Self { disk, shown: Arc::clone(&self.shown) }) as _;
        self.disk.queues().into_iter().map(room).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    const SIZE: u64 = 8192;

    /// A disk full of ones.
    struct Ones {
        arena: Arena,
        size: AtomicU64,
    }

    impl Disk for Ones {
        fn geometry(&self) -> Geometry {
            let size = self.size.load(Ordering::Relaxed);
            Geometry { discard: true, ..Geometry::new(size, 512) }
        }

        fn arena(&self) -> &Arena {
            &self.arena
        }

        fn submit(&self, mut request: Request, token: u64, sink: &Arc<dyn Sink>) {
            let result = request.check(&self.geometry());
            if let Some(buffer) = &mut request.buffer {
                buffer.fill(1);
            }
            sink.complete(Completion { token, result, buffer: request.buffer });
        }
    }

    struct Answers(Sender<Completion>);

    impl Sink for Answers {
        fn complete(&self, completion: Completion) {
            self.0.send(completion).unwrap();
        }
    }

    /// The result of a request: the first byte read, if it succeeded.
    fn ask(room: &Room, operation: Operation, offset: u64, len: u32) -> Result<Option<u8>, Errno> {
        let (sender, answers) = channel();
        let sink: Arc<dyn Sink> = Arc::new(Answers(sender));
        let buffer = operation.has_data().then(|| room.arena().alloc(len as usize).unwrap());
        let request = Request { operation, offset, len, buffer };
        request.check(&room.geometry())?;
        room.submit(request, 7, &sink);
        let Completion { token, result, buffer } = answers.try_recv().unwrap();
        assert_eq!(token, 7);
        result.map(|()| buffer.map(|buffer| buffer[0]))
    }

    #[test]
    fn the_disk_is_at_its_offset_with_zeroes_around_it() {
        let disk = Arc::new(Ones { arena: Arena::new(16), size: AtomicU64::new(SIZE) });
        let room = Room::new(Arc::clone(&disk) as _);
        assert_eq!(room.geometry().size, ROOM);
        let (read, write) = (Operation::Read, Operation::Write { fua: false });
        assert_eq!(ask(&room, read, OFFSET, 4096), Ok(Some(1)));
        assert_eq!(ask(&room, read, OFFSET + SIZE - 4096, 4096), Ok(Some(1)));
        assert_eq!(ask(&room, write, OFFSET, 512), Ok(Some(1)));
        assert_eq!(ask(&room, Operation::Flush, 0, 0), Ok(None));
        for offset in [0, OFFSET - 512, OFFSET + SIZE, ROOM - 512] {
            assert_eq!(ask(&room, read, offset, 512), Ok(Some(0)));
            assert_eq!(ask(&room, write, offset, 512), Err(Errno::NOSPC));
            assert_eq!(ask(&room, Operation::Discard, offset, 512), Err(Errno::NOSPC));
        }
        assert_eq!(ask(&room, read, OFFSET - 512, 1024), Err(Errno::INVAL));
        assert_eq!(ask(&room, read, OFFSET + SIZE - 512, 1024), Err(Errno::INVAL));
        assert_eq!(ask(&room, write, OFFSET + SIZE - 512, 1024), Err(Errno::NOSPC));
        assert_eq!(ask(&room, read, ROOM, 512), Err(Errno::INVAL));

        disk.size.store(2 * SIZE, Ordering::Relaxed);
        room.grow();
        assert_eq!(ask(&room, read, OFFSET + SIZE, 512), Ok(Some(1)));
        disk.size.store(SIZE, Ordering::Relaxed);
        assert_eq!(ask(&room, read, OFFSET + SIZE, 512), Err(Errno::INVAL), "it is lost, not new");
    }
}

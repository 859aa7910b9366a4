//! A disk with room to grow: it looks far larger than it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tyche_block::{Arena, Completion, Disk, Errno, Geometry, Operation, Request, Sink};

/// How large the disk looks: 1 EiB.
const ROOM: u64 = 1 << 60;
/// Where the disk begins. Who looks at the device for partitions, file systems and the like finds
/// none where they would be.
pub(super) const OFFSET: u64 = 1 << 20;

/// See the [module](self). What is around the disk reads as zeroes and can't be written.
pub(super) struct Room {
    disk: Arc<dyn Disk>,
    /// Bytes of the disk that were ever shown. If it has become smaller, what is lost fails.
    shown: AtomicU64,
}

impl Room {
    pub(super) fn new(disk: Arc<dyn Disk>) -> Arc<Self> {
        let shown = AtomicU64::new(disk.geometry().size);
        Arc::new(Self { disk, shown })
    }

    /// Shows as much of the disk as there is.
    pub(super) fn grow(&self) {
        self.shown.fetch_max(self.disk.geometry().size, Ordering::Relaxed);
    }

    /// What becomes of a request that concerns nothing of the disk.
    fn serve_around(request: &mut Request) -> Result<(), Errno> {
        match (request.operation, &mut request.buffer) {
            (Operation::Read, Some(buffer)) => {
                buffer.fill(0);
                Ok(())
            }
            _ => Err(Errno::NOSPC),
        }
    }

    /// The request as the disk has it.
    fn place(&self, request: &mut Request) -> Result<(), Errno> {
        if request.operation == Operation::Flush {
            return Ok(());
        }
        request.offset = request.offset.checked_sub(OFFSET).ok_or(Errno::INVAL)?;
        self.disk.geometry().check(request)
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
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;

    const SIZE: u64 = 8192;

    /// A disk that is full of ones.
    struct Ones {
        arena: Arena,
        size: AtomicU64,
    }

    impl Disk for Ones {
        fn geometry(&self) -> Geometry {
            Geometry {
                size: self.size.load(Ordering::Relaxed),
                block_size: 512,
                read_only: false,
                write_cache: false,
                discard: true,
                rotational: false,
            }
        }

        fn arena(&self) -> &Arena {
            &self.arena
        }

        fn submit(&self, mut request: Request, token: u64, sink: &Arc<dyn Sink>) {
            let result = self.geometry().check(&request);
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

    /// What comes of a request: the first byte that was read, if it was well.
    fn ask(room: &Room, operation: Operation, offset: u64, len: u32) -> Result<Option<u8>, Errno> {
        let (sender, answers) = channel();
        let sink: Arc<dyn Sink> = Arc::new(Answers(sender));
        let buffer = operation.has_data().then(|| room.arena().alloc(len as usize).unwrap());
        let request = Request { operation, offset, len, buffer };
        room.geometry().check(&request)?;
        room.submit(request, 7, &sink);
        let Completion { token, result, buffer } = answers.try_recv().unwrap();
        assert_eq!(token, 7);
        result.map(|()| buffer.map(|buffer| buffer[0]))
    }

    #[test]
    fn the_disk_is_where_it_is_and_zeroes_are_around_it() {
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

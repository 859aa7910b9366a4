//! A disk with room to grow: it looks far larger than it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tyche_block::{Arena, Completion, Disk, Errno, Geometry, Operation, Request, Sink};

/// How large the disk looks, and may become: 1 EiB.
pub(super) const ROOM: u64 = 1 << 60;

/// See the [module](self). What lies beyond the disk's end reads as zeroes, for those who look
/// there for signatures, and can't be written. Until it is opened that is so from the start: then
/// nobody finds partitions or file systems, and uses them, before the device is ready.
pub(super) struct Room {
    disk: Arc<dyn Disk>,
    open: AtomicBool,
}

impl Room {
    pub(super) fn new(disk: Arc<dyn Disk>) -> Arc<Self> {
        Arc::new(Self { disk, open: AtomicBool::new(false) })
    }

    pub(super) fn open(&self) {
        self.open.store(true, Ordering::Release);
    }

    /// Bytes that there are.
    fn size(&self) -> u64 {
        if self.open.load(Ordering::Acquire) { self.disk.geometry().size } else { 0 }
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
        let size = self.size();
        if request.offset.saturating_add(request.len.into()) <= size {
            return self.disk.submit(request, token, sink);
        }
        let beyond = request.offset >= size;
        let result = match (request.operation, &mut request.buffer) {
            (Operation::Read, Some(buffer)) if beyond => {
                buffer.fill(0);
                Ok(())
            }
            (operation, _) if operation.modifies() => Err(Errno::NOSPC),
            _ => Err(Errno::INVAL),
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
    struct Ones(Arena);

    impl Disk for Ones {
        fn geometry(&self) -> Geometry {
            Geometry {
                size: SIZE,
                block_size: 512,
                read_only: false,
                write_cache: false,
                discard: true,
                rotational: false,
            }
        }

        fn arena(&self) -> &Arena {
            &self.0
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
    fn what_is_there_is_the_disks_own_and_what_is_not_reads_as_zeroes() {
        let room = Room::new(Arc::new(Ones(Arena::new(16))));
        assert_eq!(room.geometry().size, ROOM);
        let (read, write) = (Operation::Read, Operation::Write { fua: false });
        assert_eq!(ask(&room, read, 0, 4096), Ok(Some(0)));
        assert_eq!(ask(&room, write, 0, 4096), Err(Errno::NOSPC));
        assert_eq!(ask(&room, Operation::Flush, 0, 0), Ok(None));
        room.open();
        assert_eq!(ask(&room, read, SIZE - 4096, 4096), Ok(Some(1)));
        assert_eq!(ask(&room, write, 0, 512), Ok(Some(1)));
        assert_eq!(ask(&room, Operation::Flush, 0, 0), Ok(None));
        assert_eq!(ask(&room, read, SIZE, 4096), Ok(Some(0)));
        assert_eq!(ask(&room, read, ROOM - 512, 512), Ok(Some(0)));
        for operation in [write, Operation::Discard] {
            assert_eq!(ask(&room, operation, SIZE, 512), Err(Errno::NOSPC));
            assert_eq!(ask(&room, operation, SIZE - 512, 1024), Err(Errno::NOSPC));
        }
        assert_eq!(ask(&room, read, SIZE - 512, 1024), Err(Errno::INVAL));
        assert_eq!(ask(&room, read, ROOM, 512), Err(Errno::INVAL));
    }
}

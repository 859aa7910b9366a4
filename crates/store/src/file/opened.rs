//! Opens a path: a locked descriptor, the geometry and the abilities of the disk.

use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Instant;

use rustix::fs::{
    AtFlags, FallocateFlags, FileType, Mode, OFlags, SeekFrom, Stat, StatxFlags, fallocate,
    fcntl_getfl, fcntl_setfl, fstat, fsync, ftruncate, ioctl_blksszget, major, minor, open, seek,
    stat, statx,
};
use rustix::io::{Errno, pread};
use tyche_block::{Arena, Extent, Geometry, PAGE};

use super::backing::Found;
use super::job::{Abilities, ZEROES};
use super::status::{self, StatusThread};
use super::syncs::Syncs;
use super::{Direct, FileOptions, OpenError, backing, identity, lock, others};
use crate::BackingError;
use crate::resize::{self, ResizeError};

/// An open file or device: the descriptor that holds the lock and does the I/O.
pub(super) struct Opened {
    pub(super) file: OwnedFd,
    pub(super) can: Abilities,
    pub(super) direct: bool,
    is_device: bool,
    /// See [`FileStore::identity`](super::FileStore::identity).
    pub(super) identity: Option<String>,
    pub(super) syncs: Syncs,
    geometry: Geometry,
    /// The current size; the one in `geometry` is the initial size.
    size: AtomicU64,
    /// The least size of the file that was found below the disk's: what was cut off then is lost,
    /// also if the file is lengthened again.
    cut: AtomicU64,
    /// Held while the size is measured and changed: of two resizes at the same time, the one to the
    /// smaller size could otherwise truncate the file.
    resizing: Mutex<()>,
    /// Bytes at the end of the file that are no whole block, and not exported.
    pub(super) odd: u64,
    zeroes: OnceLock<Extent>,
    pub(super) status: StatusThread,
}

impl Opened {
    pub(super) fn new(path: &Path, options: &FileOptions) -> Result<Self, OpenError> {
        let attempt = Attempt { path, options, deadline: Instant::now() + options.lock_wait };
        let (file, stat) = attempt.open()?;
        let is_device = is_device(&stat);
        attempt.lock(&file, &stat)?;
        let (size, block_size, odd) = attempt.measure(&file, is_device)?;
        let align = attempt.go_direct(&file, block_size)?;
        let discard = if is_device { device_discards(&stat) } else { file_discards(&file, size) };
        let geometry = Geometry {
            size,
            block_size,
            read_only: options.read_only,
            write_cache: options.write_back,
            discard: discard && !options.read_only,
            rotational: is_rotational(&stat, is_device),
        };
        Ok(Self {
            direct: align.is_some(),
            is_device,
            can: Abilities {
                discard_device: AtomicBool::new(is_device),
                punch: AtomicBool::new(is_device || discard),
                zero_range: AtomicBool::new(true),
                holes: !is_device && status::knows_holes(&file),
                write_back: options.write_back,
                direct: align.is_some(),
                align: align.unwrap_or(1),
            },
            identity: if is_device {
                identity::of_device(&stat)
            } else {
                Some(identity::of_file(file.as_fd(), &stat))
            },
            syncs: Syncs::new(reopen(&file).map_err(|errno| attempt.refused("open", errno))?),
            geometry,
            size: AtomicU64::new(size),
            cut: AtomicU64::new(u64::MAX),
            resizing: Mutex::new(()),
            odd,
            zeroes: OnceLock::new(),
            status: StatusThread::new(),
            file,
        })
    }

    pub(super) fn geometry(&self) -> Geometry {
        Geometry { size: self.size.load(Ordering::Relaxed), ..self.geometry }
    }

    /// See [`Store::check_backing`](crate::Store::check_backing).
    pub(super) fn check_backing(&self) -> Result<(), BackingError> {
        // Loaded first: the file is always as long as the disk was then.
        let size = self.size.load(Ordering::Acquire);
        let look = if self.is_device { backing::device } else { backing::regular };
        let Found { size: found, gone } = look(self.file.as_fd());
        let mut now = found.unwrap_or(u64::MAX);
        if !self.is_device {
            // Also of a deleted file: a write would lengthen that as well.
            let cut = if now < size { now } else { u64::MAX };
            now = self.cut.fetch_min(cut, Ordering::Relaxed).min(cut);
        }
        match gone {
            Some(gone) => Err(gone),
            None if now < size => Err(BackingError::Shrunk { now, size }),
            None => Ok(()),
        }
    }

    /// See [`Store::file`](crate::Store::file).
    pub(super) fn regular_file(&self) -> Option<BorrowedFd<'_>> {
        (!self.is_device).then(|| self.file.as_fd())
    }

    /// Notes whether the file has become shorter than the disk. A device can't be lengthened by a
    /// write, and says itself that it has ended.
    pub(super) fn measure(&self) {
        if !self.is_device {
            // Noted by it.
            let _ = self.check_backing();
        }
    }

    /// The end of what is left of the disk.
    pub(super) fn end(&self) -> u64 {
        self.cut.load(Ordering::Relaxed)
    }

    /// See [`Store::losses`](crate::Store::losses). Without a cache all that was completed is
    /// durable, and a sync that fails is the failure of the requests that wait for it.
    pub(super) fn losses(&self) -> u64 {
        if self.can.write_back { self.syncs.failures() } else { 0 }
    }

    /// See [`Store::resize`](crate::Store::resize).
    pub(super) fn resize(&self, size: Option<u64>) -> Result<u64, ResizeError> {
        let _alone = self.resizing.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = |call, errno: Errno| ResizeError::System { call, source: errno.into() };
        // Extending a truncated file would turn the lost bytes into zeroes.
        self.check_backing()?;
        // Another process may have extended the file: a smaller size would lose those blocks.
        let found = seek(&self.file, SeekFrom::End(0)).map_err(|errno| failed("lseek", errno))?;
        let whole = found - found % u64::from(self.geometry.block_size);
        let now = self.size.fetch_max(whole, Ordering::AcqRel).max(whole);
        let Some(size) = size.filter(|&size| size != now) else { return Ok(now) };
        resize::check(size, &self.geometry())?;
        if self.is_device {
            return Err(ResizeError::Device { now });
        }
        if self.geometry.read_only {
            return Err(ResizeError::ReadOnly);
        }
        ftruncate(&self.file, size).map_err(|errno| failed("ftruncate", errno))?;
        // By a description of its own: it takes no report of a loss from the syncs of requests, and
        // gets none of a loss that they were told of.
        let fresh = reopen(&self.file).map_err(|errno| failed("open", errno))?;
        fsync(fresh).map_err(|errno| failed("fsync", errno))?;
        Ok(self.size.fetch_max(size, Ordering::AcqRel).max(size))
    }

    /// [`ZEROES`] bytes of zeroes, for files that cannot zero a range themselves.
    pub(super) fn zeroes(&self) -> &[u8] {
        self.zeroes.get_or_init(|| {
            let arena = Arena::new(ZEROES as usize / PAGE);
            arena.alloc(ZEROES as usize).expect("a new arena has all its pages")
        })
    }
}

/// Opens another file description. It needs no lock, because it writes nothing.
pub(super) fn reopen(file: &OwnedFd) -> Result<OwnedFd, Errno> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

fn is_device(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice
}

/// One call of [`FileStore::open`](super::FileStore::open).
struct Attempt<'a> {
    path: &'a Path,
    options: &'a FileOptions,
    deadline: Instant,
}

impl Attempt<'_> {
    fn open(&self) -> Result<(OwnedFd, Stat), OpenError> {
        let read_only = self.options.read_only;
        // Checked before it is opened: opening a pipe would wait, a tape would rewind.
        let before = stat(self.path).map_err(|errno| self.refused("stat", errno))?;
        self.check_type(&before)?;
        let mut flags = OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
        flags |= if read_only { OFlags::RDONLY } else { OFlags::RDWR };
        if is_device(&before) && !read_only {
            // The open of a device fails while the kernel uses the device (a mount, a RAID); after
            // it, the kernel cannot begin to.
            flags |= OFlags::EXCL;
        }
        let file =
            lock::retry_until(self.deadline, Errno::BUSY, || open(self.path, flags, Mode::empty()))
                .map_err(|errno| match errno {
                    Errno::BUSY => self.busy(&before),
                    errno => self.refused("open", errno),
                })?;
        // Non-blocking was for the open only: io_uring would pass `EAGAIN` on.
        let flags = fcntl_getfl(&file).map_err(|errno| self.refused("fcntl(F_GETFL)", errno))?;
        fcntl_setfl(&file, flags - OFlags::NONBLOCK)
            .map_err(|errno| self.refused("fcntl(F_SETFL)", errno))?;
        let opened = fstat(&file).map_err(|errno| self.refused("fstat", errno))?;
        self.check_type(&opened)?;
        if is_device(&opened) && !read_only && is_write_protected(&opened) {
            return Err(OpenError::WriteProtected { path: self.path.to_owned() });
        }
        if is_device(&opened) != is_device(&before) {
            // Replaced in between, so it may be a device opened without the exclusive claim.
            return Err(self.refused("open", Errno::STALE));
        }
        Ok((file, opened))
    }

    fn check_type(&self, stat: &Stat) -> Result<(), OpenError> {
        let path = self.path.to_owned();
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile | FileType::BlockDevice => Ok(()),
            FileType::Directory => Err(OpenError::Directory { path }),
            _ => Err(OpenError::NotADisk { path }),
        }
    }

    /// Turns the errno of a system call into an error.
    fn refused(&self, call: &'static str, errno: Errno) -> OpenError {
        let path = self.path.to_owned();
        let read_only = self.options.read_only;
        match errno {
            Errno::NOENT | Errno::NOTDIR => OpenError::NotFound { path },
            Errno::ACCESS | Errno::PERM => OpenError::Permission { path, read_only },
            Errno::ROFS => OpenError::WriteProtected { path },
            errno => OpenError::System { path, call, source: errno.into() },
        }
    }

    /// Names the user of a claimed block device: another export, a mount, a device on top.
    fn busy(&self, stat: &Stat) -> OpenError {
        let path = self.path.to_owned();
        if let Ok(file) = open(self.path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
            let holder = lock::holder(file.as_fd());
            if holder.pid.is_some() {
                return OpenError::InUse { path, holder, read_only: self.options.read_only };
            }
        }
        OpenError::Busy { path, occupant: occupant(stat) }
    }

    fn lock(&self, file: &OwnedFd, stat: &Stat) -> Result<(), OpenError> {
        self.lock_ours(file)?;
        if is_device(stat) {
            return Ok(());
        }
        let read_only = self.options.read_only;
        let path = || self.path.to_owned();
        if let Some(device) = others::loop_device(stat).filter(|_| !read_only) {
            return Err(OpenError::Busy { path: path(), occupant: format!("as {device}") });
        }
        let locked = lock::retry_until(self.deadline, Errno::WOULDBLOCK, || {
            others::lock_as_qemu(file.as_fd(), read_only)
        });
        locked.map_err(|_| OpenError::OpenInQemu { path: path(), read_only })
    }

    fn lock_ours(&self, file: &OwnedFd) -> Result<(), OpenError> {
        let read_only = self.options.read_only;
        lock::acquire(file.as_fd(), read_only, self.deadline).map_err(|errno| match errno {
            Errno::WOULDBLOCK => OpenError::InUse {
                path: self.path.to_owned(),
                holder: lock::holder(file.as_fd()),
                read_only,
            },
            errno => self.refused("flock", errno),
        })
    }

    /// Returns the size of the disk and of its blocks, and what is left at the end, in bytes.
    fn measure(&self, file: &OwnedFd, is_device: bool) -> Result<(u64, u32, u64), OpenError> {
        let path = || self.path.to_owned();
        let sector = if is_device {
            ioctl_blksszget(file).map_err(|errno| self.refused("ioctl(BLKSSZGET)", errno))?
        } else {
            512
        };
        let block_size = self.options.block_size.unwrap_or(sector);
        if !Geometry::is_block_size(block_size) {
            return Err(OpenError::BlockSize { path: path(), block_size });
        }
        if block_size < sector {
            return Err(OpenError::BelowSector { path: path(), block_size, sector });
        }
        let size = seek(file, SeekFrom::End(0)).map_err(|errno| self.refused("lseek", errno))?;
        let odd = size % u64::from(block_size);
        if size == odd {
            return Err(OpenError::TooSmall { path: path(), size, block_size });
        }
        if is_device && odd != 0 {
            return Err(OpenError::Indivisible { path: path(), size, block_size });
        }
        Ok((size - odd, block_size, odd))
    }

    /// Switches to direct I/O if it is wanted, and possible for all requests. Returns the alignment
    /// of transfers; `None` if the page cache is used.
    fn go_direct(&self, file: &OwnedFd, block_size: u32) -> Result<Option<u32>, OpenError> {
        if self.options.direct == Direct::Off {
            return Ok(None);
        }
        match try_direct(file, block_size) {
            Ok(align) => Ok(Some(align)),
            Err(_) if self.options.direct == Direct::Auto => Ok(None),
            Err(why) => Err(OpenError::NoDirect { path: self.path.to_owned(), why }),
        }
    }
}

/// Turns `O_DIRECT` on and returns the alignment of offsets, or leaves it off and returns why.
fn try_direct(file: &OwnedFd, block_size: u32) -> Result<u32, String> {
    let demands = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)
        .ok()
        .filter(|statx| statx.stx_mask & StatxFlags::DIOALIGN.bits() != 0)
        .map(|statx| (statx.stx_dio_mem_align, statx.stx_dio_offset_align));
    match demands {
        Some((0, _) | (_, 0)) => return Err("the filesystem does not offer it".to_owned()),
        Some((memory, _)) if memory as usize > PAGE => {
            return Err(format!("memory would have to be aligned to {memory} bytes"));
        }
        Some((_, offset)) if !block_size.is_multiple_of(offset) => {
            return Err(format!("it needs blocks of {offset} bytes; set the block size to that"));
        }
        Some(_) | None => {}
    }
    let flags = fcntl_getfl(file).map_err(|errno| format!("fcntl(F_GETFL): {errno}"))?;
    fcntl_setfl(file, flags | OFlags::DIRECT)
        .map_err(|errno| format!("the filesystem does not offer it: fcntl(F_SETFL): {errno}"))?;
    // A read tests filesystems that do not state their demands: not all refuse the flag itself.
    let align = demands.map_or(block_size, |(_, offset)| offset);
    let arena = Arena::new(1);
    let mut block = arena.alloc(block_size as usize).expect("a block fits a page");
    match pread(file, &mut *block, 0) {
        Ok(_) => Ok(align),
        Err(errno) => {
            fcntl_setfl(file, flags).map_err(|errno| format!("fcntl(F_SETFL): {errno}"))?;
            Err(format!("reading the first {block_size} bytes directly: {errno}"))
        }
    }
}

/// Whether holes can be punched in a file. Tries it beyond the end, where it changes nothing.
fn file_discards(file: &OwnedFd, size: u64) -> bool {
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let beyond = size.next_multiple_of(PAGE as u64) + PAGE as u64;
    fallocate(file, hole, beyond, PAGE as u64).is_ok()
}

/// Whether a device is write-protected: the kernel allows to open it for writing, and fails writes.
fn is_write_protected(stat: &Stat) -> bool {
    identity::attribute(&identity::sysfs(stat.st_rdev), "ro").is_some_and(|flag| flag == "1")
}

fn device_discards(stat: &Stat) -> bool {
    queue_attribute(stat.st_rdev, "discard_max_bytes").is_some_and(|max| max != "0")
}

/// Whether the disk, or the one below a file's filesystem, is rotational. False if unknown:
/// filesystems over several disks do not report them.
fn is_rotational(stat: &Stat, is_device: bool) -> bool {
    let disk = if is_device { stat.st_rdev } else { stat.st_dev };
    queue_attribute(disk, "rotational").is_some_and(|flag| flag == "1")
}

/// A queue attribute of a device, or of the disk that it is a partition of.
fn queue_attribute(device: u64, name: &str) -> Option<String> {
    let node = identity::sysfs(device);
    let paths = [format!("queue/{name}"), format!("../queue/{name}")];
    paths.iter().find_map(|path| identity::attribute(&node, path))
}

/// The kernel's use of a block device, as far as it can be told from here.
fn occupant(stat: &Stat) -> String {
    let number = format!("{}:{}", major(stat.st_rdev), minor(stat.st_rdev));
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mount = mounts.lines().find_map(|line| {
        let mut words = line.split(' ').skip(2);
        (words.next()? == number).then(|| words.nth(1)).flatten()
    });
    if let Some(place) = mount {
        return format!("mounted at {place}");
    }
    let holders = fs::read_dir(identity::sysfs(stat.st_rdev).join("holders"));
    let names: Vec<_> = holders
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    if names.is_empty() {
        "a mount, swap, RAID or another program with an exclusive claim".to_owned()
    } else {
        format!("part of {}", names.join(", "))
    }
}

//! Directories, mounts, devices and processes of a test, all removed at its end in any case.

use std::cell::RefCell;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use tempfile::TempDir;

use tyche_testkit::process;
use tyche_testkit::wait::{PATIENCE, wait_until};

/// Cleans up after a test.
pub(crate) struct Rig {
    dir: TempDir,
    mounted: RefCell<Vec<PathBuf>>,
    devices: RefCell<Vec<PathBuf>>,
}

impl Rig {
    pub(crate) fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("attach-").tempdir().unwrap();
        Self { dir, mounted: RefCell::default(), devices: RefCell::default() }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Detaches a loop device at the end, if it is still bound to a file of this test.
    pub(crate) fn watch(&self, device: &Path) {
        self.devices.borrow_mut().push(device.to_owned());
    }

    /// Mounts `device`.
    pub(crate) fn mount_ext4(&self, device: &Path) -> PathBuf {
        let path = self.dir().join(format!("ext4-{}", self.mounted.borrow().len()));
        fs::create_dir(&path).unwrap();
        mount(device, &path, "ext4", MountFlags::empty(), None).unwrap();
        self.mounted.borrow_mut().push(path.clone());
        path
    }

    /// The name of this test's disk: that of the file below its loop devices.
    pub(crate) fn name(&self) -> &str {
        self.dir().file_name().unwrap().to_str().unwrap()
    }

    /// Whether the device is still bound to a file of this test. Its number may have gone to
    /// another test, whose file has another name.
    pub(crate) fn is_bound(&self, device: &Path) -> bool {
        let bound = fs::read_to_string(backing_file(device));
        bound.is_ok_and(|path| path.trim() == format!("/{}", self.name()))
    }

    /// Unmounts. Another test's child, between its fork and its exec, may briefly have a file of
    /// ours open.
    pub(crate) fn unmount(&self, path: &Path) {
        wait_until("it is unmounted", || {
            let busy = unmount(path, UnmountFlags::NOFOLLOW).err();
            assert!(busy.is_none_or(|error| error == Errno::BUSY), "{busy:?}");
            busy.is_none()
        });
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        for path in self.mounted.borrow().iter() {
            let _ = unmount(path, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW);
        }
        let flags = UnmountFlags::FORCE | UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
        let _ = unmount(self.dir().join("mnt"), flags);
        for device in self.devices.borrow().iter().filter(|device| self.is_bound(device)) {
            let _ = Command::new("losetup").arg("-d").arg(device).status();
        }
    }
}

fn backing_file(device: &Path) -> PathBuf {
    let name = device.file_name().unwrap().to_str().unwrap();
    PathBuf::from(format!("/sys/block/{name}/loop/backing_file"))
}

/// Runs a program that must succeed; returns its output.
pub(crate) fn run(program: &str, args: &[&str]) -> String {
    process::run(Command::new(program).args(args))
}

/// The plain system call `fallocate`; the error is its number.
pub(crate) fn fallocate(file: &File, mode: i32, offset: i64, len: i64) -> Result<(), i32> {
    // SAFETY: the call takes numbers only.
    match unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, len) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error().raw_os_error().unwrap()),
    }
}

/// Memory for direct I/O: it begins with a huge page if the kernel has any.
pub(crate) struct Buffer {
    memory: Vec<u8>,
    len: usize,
}

impl Buffer {
    const HUGE: usize = 2 << 20;

    pub(crate) fn new(len: usize) -> Self {
        let align = if len < Self::HUGE { 4096 } else { Self::HUGE };
        let mut memory = Vec::with_capacity(len + align);
        // SAFETY: the advice concerns memory that is ours, and changes nothing of its content. It
        // fails if there are no huge pages, or if the memory does not begin with a page.
        unsafe {
            let start = memory.spare_capacity_mut().as_mut_ptr();
            let start = start.byte_add(start.align_offset(4096));
            libc::madvise(start.cast(), len, libc::MADV_HUGEPAGE);
        }
        memory.resize(len + align, 0);
        Self { memory, len }
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        let align = if self.len < Self::HUGE { 4096 } else { Self::HUGE };
        let skip = self.memory.as_ptr().align_offset(align);
        &mut self.memory[skip..skip + self.len]
    }
}

/// A file in memory, which others change as well.
pub(crate) struct Map {
    memory: *mut u8,
    len: usize,
}

impl Map {
    pub(crate) fn shared(file: &File, len: usize) -> std::io::Result<Self> {
        let (access, fd) = (libc::PROT_READ | libc::PROT_WRITE, file.as_raw_fd());
        // SAFETY: the kernel chooses a place that nothing else uses.
        let memory =
            unsafe { libc::mmap(std::ptr::null_mut(), len, access, libc::MAP_SHARED, fd, 0) };
        match memory {
            libc::MAP_FAILED => Err(std::io::Error::last_os_error()),
            memory => Ok(Self { memory: memory.cast(), len }),
        }
    }

    pub(crate) fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= self.len);
        // SAFETY: within the map, as was checked.
        (offset..offset + len).map(|at| unsafe { self.memory.add(at).read_volatile() }).collect()
    }

    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.len);
        for (at, byte) in (offset..).zip(bytes) {
            // SAFETY: within the map, as was checked.
            unsafe { self.memory.add(at).write_volatile(*byte) };
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: it was mapped, and no reference to it is left.
        unsafe { libc::munmap(self.memory.cast(), self.len) };
    }
}

/// Another process that serves a disk, for the test to kill.
pub(crate) struct Server {
    pub(crate) device: PathBuf,
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl Server {
    /// Runs the test `serve_until_killed` of this program in a process of its own.
    pub(crate) fn start(name: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "serve_until_killed", "--nocapture", "--test-threads=1"])
            .env("TYCHE_ATTACH_SERVE", name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                // The test prints its own lines between those of the test framework.
                if let Some((_, value)) = line.split_once('=') {
                    let _ = sender.send(value.to_owned());
                }
            }
        });
        let stdin = child.stdin.take().unwrap();
        let device = match lines.recv_timeout(PATIENCE) {
            Ok(device) => PathBuf::from(device),
            Err(error) => {
                let _ = child.kill();
                panic!("the server did not start: {error}");
            }
        };
        Self { device, child, stdin, lines }
    }

    /// Gives the server a command and waits until it is done.
    pub(crate) fn tell(&mut self, command: &str) {
        writeln!(self.stdin, "{command}").unwrap();
        assert_eq!(self.lines.recv_timeout(PATIENCE).unwrap(), command);
    }

    /// Kills it, and waits for its end, which a thread in an endless wait would prevent.
    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        wait_until("the killed process is gone", || self.child.try_wait().unwrap().is_some());
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
    }
}

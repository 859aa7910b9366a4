//! Files with known content: written, and compared after the caches were dropped.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread;

use tyche_testkit::random::Random;
use tyche_testkit::wait::PATIENCE;

/// Bytes in the longest file.
const LEN_MAX: u64 = 8 << 20;

/// A set of files, the same for the same seed.
pub(crate) struct Files {
    seed: u64,
    files: Vec<(PathBuf, u64)>,
}

impl Files {
    /// A set with many small files and some large ones, about `bytes` in all.
    pub(crate) fn new(seed: u64, bytes: u64) -> Self {
        let mut random = Random(seed);
        let (mut files, mut total) = (Vec::new(), 0);
        while total < bytes {
            let number = files.len();
            let bits = random.next() % u64::from(LEN_MAX.ilog2() + 1);
            let len = random.next() % (1 << bits).max(1);
            files.push((PathBuf::from(format!("dir{}/file{number}", number % 17)), len));
            total += len + 64;
        }
        Self { seed, files }
    }

    /// Writes all files below `root`, and waits until they are on the disk.
    pub(crate) fn write(&self, root: &Path) -> io::Result<()> {
        self.write_with(root, |_| {})
    }

    /// Writes all files as [`write`](Self::write) does, and calls `disturb` so many times
    /// meanwhile, after equal parts of the files.
    pub(crate) fn write_disturbed(&self, root: &Path, times: usize, mut disturb: impl FnMut()) {
        let part = self.files.len().div_ceil(times + 1);
        let (sender, written) = channel();
        thread::scope(|scope| {
            let writer = scope.spawn(|| {
                self.write_with(root, |number| {
                    if number > 0 && number % part == 0 {
                        sender.send(()).unwrap();
                    }
                })
            });
            for _ in 0..times {
                written.recv_timeout(PATIENCE).unwrap();
                disturb();
            }
            writer.join().unwrap().unwrap();
        });
    }

    /// Writes all files, and calls `at` with the number of each file before it is written.
    fn write_with(&self, root: &Path, mut at: impl FnMut(usize)) -> io::Result<()> {
        for (number, (path, len)) in self.files.iter().enumerate() {
            at(number);
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap())?;
            let mut file = File::create(&path)?;
            let mut content = self.content(number);
            let mut left = usize::try_from(*len).unwrap();
            let mut buffer = vec![0; left.min(1 << 20)];
            while left > 0 {
                let part = left.min(buffer.len());
                content.fill(&mut buffer[..part]);
                file.write_all(&buffer[..part])?;
                left -= part;
            }
            if number % 64 == 0 {
                file.sync_all()?;
            }
        }
        rustix::fs::syncfs(File::open(root)?)?;
        Ok(())
    }

    /// Compares all files below `root`.
    pub(crate) fn assert_intact(&self, root: &Path) {
        for (number, (path, len)) in self.files.iter().enumerate() {
            let mut found = Vec::new();
            File::open(root.join(path)).unwrap().read_to_end(&mut found).unwrap();
            assert_eq!(found.len() as u64, *len, "length of {}", path.display());
            let mut wanted = vec![0; found.len()];
            // In pieces of the same length as when the file was written.
            let mut content = self.content(number);
            wanted.chunks_mut(1 << 20).for_each(|part| content.fill(part));
            assert!(found == wanted, "{} differs", path.display());
        }
    }

    fn content(&self, number: usize) -> Random {
        Random(self.seed ^ (number as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }
}

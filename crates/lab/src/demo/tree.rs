//! A real tree of files: chosen, copied, and compared by SHA-256.
//!
//! The hashes are taken from the bytes as they are read for copying: source and copy are compared
//! as of the same moment, and the comparison reads the disk alone.

use std::cmp::Reverse;
use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use rustix::fs::syncfs;
use sha2::{Digest, Sha256};

use super::command::{Doing, Failure, Stop};
use super::progress::Measure;

/// Lower and upper limits for the part of a larger tree to copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) bytes_min: u64,
    pub(super) bytes_max: u64,
    pub(super) files_min: usize,
    pub(super) files_max: usize,
}

/// Large enough to be interesting, small enough to wait for.
pub(super) const DEMO: Bounds =
    Bounds { bytes_min: 300_000_000, bytes_max: 450_000_000, files_min: 5_000, files_max: 20_000 };

/// Bytes read or written at a time.
const CHUNK: usize = 1 << 20;
/// Bytes after which the file being written must be on the disk: an error is seen soon, and the bar
/// shows the disk's progress, not the page cache's.
pub(super) const SYNC_EVERY: u64 = 32 << 20;

/// A tree and its chosen entries.
pub(super) struct Tree {
    root: PathBuf,
    /// In order of creation: directories first.
    entries: Vec<Entry>,
    pub(super) files: usize,
    pub(super) bytes: u64,
}

struct Entry {
    /// Path below the root.
    path: PathBuf,
    kind: Kind,
}

enum Kind {
    Directory,
    File,
    Symlink(PathBuf),
}

/// The files and links that were copied.
pub(super) struct Copied {
    files: Vec<(PathBuf, [u8; 32])>,
    links: Vec<(PathBuf, PathBuf)>,
}

/// A file or directory with everything below it, while choosing.
struct Node {
    path: PathBuf,
    metadata: Metadata,
    children: Vec<Node>,
    files: usize,
    bytes: u64,
}

impl Tree {
    /// Scans the tree and chooses what to copy: all of it if it fits, whole subtrees otherwise.
    pub(super) fn choose(root: &Path, bounds: Bounds, stop: &Stop) -> Result<Self, Failure> {
        let root = root.canonicalize().doing(format_args!("open {}", root.display()))?;
        let mut all = Node::scan(&root, PathBuf::new(), stop)?;
        let mut chosen = Vec::new();
        if all.files <= bounds.files_max && all.bytes <= bounds.bytes_max {
            chosen.append(&mut all.children);
        } else {
            let mut candidates = Vec::new();
            all.split(bounds, &mut candidates);
            chosen = select(candidates, bounds);
        }
        let mut tree = Self { root, entries: Vec::new(), files: 0, bytes: 0 };
        for node in &chosen {
            tree.add_parents(&node.path);
            tree.add(node)?;
        }
        Ok(tree)
    }

    fn add_parents(&mut self, path: &Path) {
        let mut parents: Vec<_> = path.ancestors().skip(1).map(Path::to_path_buf).collect();
        parents.retain(|parent| !parent.as_os_str().is_empty());
        for path in parents.into_iter().rev() {
            let known = self.entries.iter().any(|entry| entry.path == path);
            if !known {
                self.entries.push(Entry { path, kind: Kind::Directory });
            }
        }
    }

    fn add(&mut self, node: &Node) -> Result<(), Failure> {
        let kind = if node.metadata.is_dir() {
            Kind::Directory
        } else if node.metadata.is_symlink() {
            let path = self.root.join(&node.path);
            let to = fs::read_link(&path).doing(format_args!("read {}", path.display()))?;
            Kind::Symlink(to)
        } else {
            self.files += 1;
            self.bytes += node.metadata.len();
            Kind::File
        };
        self.entries.push(Entry { path: node.path.clone(), kind });
        node.children.iter().try_for_each(|child| self.add(child))
    }

    /// Copies everything below `to`, which is the root of a file system of its own; syncs the file
    /// being written after each `sync_every` bytes.
    pub(super) fn copy(
        &self,
        to: &Path,
        stop: &Stop,
        sync_every: u64,
        measure: &mut Measure<'_>,
        mut at: impl FnMut(u64),
    ) -> Result<Copied, Failure> {
        let filesystem = File::open(to).map_err(on_disk("open", to))?;
        let mut copied = Copied { files: Vec::new(), links: Vec::new() };
        let mut buffer = vec![0; CHUNK];
        for entry in &self.entries {
            stop.check()?;
            let (from, to) = (self.root.join(&entry.path), to.join(&entry.path));
            match &entry.kind {
                Kind::Directory => fs::create_dir(&to).map_err(on_disk("create", &to))?,
                Kind::Symlink(target) => {
                    symlink(target, &to).map_err(on_disk("create", &to))?;
                    copied.links.push((entry.path.clone(), target.clone()));
                }
                Kind::File => {
                    let sum = copy_file(&from, &to, &mut buffer, stop, |bytes| {
                        measure.add(bytes);
                        at(measure.done());
                        measure.done() / sync_every != (measure.done() - bytes) / sync_every
                    })?;
                    copied.files.push((entry.path.clone(), sum));
                }
            }
        }
        syncfs(&filesystem).map_err(io::Error::from).map_err(on_disk("sync", to))?;
        Ok(copied)
    }
}

impl Node {
    fn scan(root: &Path, path: PathBuf, stop: &Stop) -> Result<Self, Failure> {
        stop.check()?;
        let full = root.join(&path);
        let metadata = fs::symlink_metadata(&full).doing(format_args!("{}", full.display()))?;
        let mut node = Self { path, metadata, children: Vec::new(), files: 0, bytes: 0 };
        if node.metadata.is_file() {
            (node.files, node.bytes) = (1, node.metadata.len());
        }
        if !node.metadata.is_dir() {
            return Ok(node);
        }
        let entries = fs::read_dir(&full).doing(format_args!("read {}", full.display()))?;
        let mut names: Vec<OsString> = Vec::new();
        for entry in entries {
            names.push(entry.doing(format_args!("read {}", full.display()))?.file_name());
        }
        names.sort();
        for name in names {
            let child = Self::scan(root, node.path.join(name), stop)?;
            let kind = child.metadata.file_type();
            // Another file system below is not part of the tree; sockets and devices contain no
            // data.
            let elsewhere = child.metadata.dev() != node.metadata.dev();
            if !elsewhere && (kind.is_file() || kind.is_dir() || kind.is_symlink()) {
                node.files += child.files;
                node.bytes += child.bytes;
                node.children.push(child);
            }
        }
        Ok(node)
    }

    /// Cuts the tree into the largest whole subtrees that leave room for others.
    fn split(self, bounds: Bounds, parts: &mut Vec<Self>) {
        let fits = self.files <= bounds.files_min && self.bytes <= bounds.bytes_max / 8;
        if (fits && !self.path.as_os_str().is_empty()) || !self.metadata.is_dir() {
            parts.push(self);
        } else {
            self.children.into_iter().for_each(|child| child.split(bounds, parts));
        }
    }
}

/// Selects many small files first, then large ones, until there is enough of both.
fn select(mut candidates: Vec<Node>, bounds: Bounds) -> Vec<Node> {
    let (mut chosen, mut files, mut bytes) = (Vec::new(), 0, 0);
    let mut take = |candidates: &mut Vec<Node>, enough: &dyn Fn(usize, u64) -> bool| {
        let mut rest = Vec::new();
        for node in candidates.drain(..) {
            let fits =
                files + node.files <= bounds.files_max && bytes + node.bytes <= bounds.bytes_max;
            if fits && !enough(files, bytes) {
                files += node.files;
                bytes += node.bytes;
                chosen.push(node);
            } else {
                rest.push(node);
            }
        }
        *candidates = rest;
    };
    candidates.sort_by_key(|node| node.bytes / (node.files as u64).max(1));
    candidates.retain(|node| node.files > 0);
    take(&mut candidates, &|files, _| files >= bounds.files_min);
    candidates.sort_by_key(|node| Reverse(node.bytes));
    take(&mut candidates, &|_, bytes| bytes >= bounds.bytes_min);
    chosen.sort_by(|a, b| a.path.cmp(&b.path));
    chosen
}

impl Copied {
    /// Compares the files below `root` with what was copied there.
    pub(super) fn compare(
        &self,
        root: &Path,
        stop: &Stop,
        measure: &mut Measure<'_>,
    ) -> Result<(), Failure> {
        let mut buffer = vec![0; CHUNK];
        for (path, target) in &self.links {
            let path = root.join(path);
            if fs::read_link(&path).map_err(on_disk("read", &path))? != *target {
                return Err(Failure::Failed(format!("{} points elsewhere", path.display())));
            }
        }
        for (path, sum) in &self.files {
            stop.check()?;
            let path = root.join(path);
            let mut file = File::open(&path).map_err(on_disk("open", &path))?;
            let mut hash = Sha256::new();
            loop {
                stop.check()?;
                let read = file.read(&mut buffer).map_err(on_disk("read", &path))?;
                if read == 0 {
                    break;
                }
                hash.update(&buffer[..read]);
                measure.add(read as u64);
            }
            if <[u8; 32]>::from(hash.finalize()) != *sum {
                return Err(Failure::Failed(format!("{} differs from its source", path.display())));
            }
        }
        Ok(())
    }
}

/// Copies one file with its permissions; returns its SHA-256. `done` is called for every piece of
/// the copy, and returns whether to sync now.
fn copy_file(
    from: &Path,
    to: &Path,
    buffer: &mut [u8],
    stop: &Stop,
    mut done: impl FnMut(u64) -> bool,
) -> Result<[u8; 32], Failure> {
    let reading = || format!("read {}", from.display());
    let mut source = File::open(from).doing(reading())?;
    let mut copy = File::create_new(to).map_err(on_disk("create", to))?;
    let mut hash = Sha256::new();
    loop {
        stop.check()?;
        let read = source.read(buffer).doing(reading())?;
        if read == 0 {
            break;
        }
        hash.update(&buffer[..read]);
        copy.write_all(&buffer[..read]).map_err(on_disk("write", to))?;
        if done(read as u64) {
            copy.sync_data().map_err(on_disk("sync", to))?;
        }
    }
    let permissions = source.metadata().doing(reading())?.permissions();
    copy.set_permissions(permissions).map_err(on_disk("chmod", to))?;
    Ok(hash.finalize().into())
}

/// An error of the demo's disk.
fn on_disk(doing: &str, path: &Path) -> impl FnOnce(io::Error) -> Failure {
    let doing = format!("{doing} {}", path.display());
    move |source| Failure::Disk { doing, source }
}

#[cfg(test)]
mod tests {
    use super::super::progress::Progress;
    use super::*;

    fn tree(name: &str, dirs: usize, files: usize, len: usize) -> PathBuf {
        let root = std::env::temp_dir().join(format!("tyche-tree-{}-{name}", std::process::id()));
        for dir in 0..dirs {
            let dir = root.join(format!("dir{dir}/sub"));
            fs::create_dir_all(&dir).unwrap();
            for file in 0..files {
                fs::write(dir.join(format!("file{file}")), vec![file as u8; len + file]).unwrap();
            }
        }
        symlink("dir0/sub", root.join("link")).unwrap();
        root
    }

    #[test]
    fn a_large_tree_is_cut_within_bounds() {
        let root = tree("cut", 10, 20, 1000);
        fs::write(root.join("large"), vec![1; 60_000]).unwrap();
        let stop = Stop::new().unwrap();
        let bounds =
            Bounds { bytes_min: 110_000, bytes_max: 160_000, files_min: 50, files_max: 100 };
        let chosen = Tree::choose(&root, bounds, &stop).unwrap();
        assert!((50..=100).contains(&chosen.files), "{} files", chosen.files);
        assert!((110_000..=160_000).contains(&chosen.bytes), "{} bytes", chosen.bytes);
        fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_copy_compares_until_a_bit_is_turned() {
        let root = tree("copy", 2, 3, 5000);
        let to = root.with_extension("copy");
        fs::create_dir(&to).unwrap();
        let (stop, progress) = (Stop::new().unwrap(), Progress::new());
        let tree = Tree::choose(&root, DEMO, &stop).unwrap();
        assert_eq!((tree.files, tree.bytes), (6, 2 * (3 * 5000 + 3)));
        let mut measure = progress.measure("copy", tree.bytes);
        let copied = tree.copy(&to, &stop, SYNC_EVERY, &mut measure, |_| {}).unwrap();
        assert_eq!(measure.done(), tree.bytes);
        copied.compare(&to, &stop, &mut measure).unwrap();

        let victim = to.join("dir1/sub/file2");
        let mut bytes = fs::read(&victim).unwrap();
        bytes[4000] ^= 1;
        fs::write(&victim, bytes).unwrap();
        let failure = copied.compare(&to, &stop, &mut measure).unwrap_err();
        assert!(failure.to_string().contains("dir1/sub/file2 differs"), "{failure}");
        fs::remove_dir_all(root).unwrap();
        fs::remove_dir_all(to).unwrap();
    }
}

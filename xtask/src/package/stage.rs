//! The files of the package, as they will be installed.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::tool::{output, run_tool};
use crate::Result;

/// A directory that stands for `/`.
pub(super) struct Stage {
    root: PathBuf,
}

impl Stage {
    /// Makes an empty stage.
    pub(super) fn new(root: &Path) -> Result<Self> {
        match fs::remove_dir_all(root) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(format!("{}: {error}", root.display()))
            }
            _ => Ok(Self { root: root.to_owned() }),
        }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// The path of a file or directory in the stage.
    pub(super) fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.join(path)
    }

    /// Adds a copy of a file.
    pub(super) fn copy(&self, source: &Path, target: &Path, mode: u32) -> Result<()> {
        let content = fs::read(source).map_err(|error| format!("{}: {error}", source.display()))?;
        self.put(target, &content, mode)
    }

    /// Adds a file with that content.
    pub(super) fn write(&self, target: &Path, text: &str, mode: u32) -> Result<()> {
        self.put(target, text.as_bytes(), mode)
    }

    fn put(&self, target: &Path, content: &[u8], mode: u32) -> Result<()> {
        let path = self.path(target);
        let put = || {
            fs::create_dir_all(path.parent().unwrap_or(&self.root))?;
            fs::write(&path, content)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(mode))
        };
        put().map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Compresses a file, or all in a directory, so that the same content gives the same bytes.
    pub(super) fn compress(&self, path: &Path) -> Result<()> {
        run_tool(Command::new("gzip").args(["-9", "--no-name", "--recursive"]).arg(path))
    }

    /// The installed size, in KiB.
    pub(super) fn size_kib(&self) -> Result<u64> {
        let said = output(Command::new("du").args(["-k", "--summarize"]).arg(&self.root))?;
        let size = said.split_whitespace().next().and_then(|number| number.parse().ok());
        size.ok_or_else(|| format!("du does not say a size: {said}"))
    }

    /// All files and directories, sorted: the kind (`f`, `d`) and the path.
    pub(super) fn entries(&self) -> Result<Vec<(String, String)>> {
        let mut find = Command::new("find");
        find.current_dir(&self.root).args([".", "-mindepth", "1", "-printf", "%y %P\\n"]);
        let listed = output(&mut find)?;
        let split = |line: &str| line.split_once(' ').map(|(a, b)| (a.to_owned(), b.to_owned()));
        let mut entries: Vec<_> = listed.lines().filter_map(split).collect();
        entries.sort_by(|a, b| a.1.cmp(&b.1));
        Ok(entries)
    }

    /// Checksums of all files, in dpkg's format.
    pub(super) fn checksums(&self) -> Result<String> {
        let mut sum = Command::new("find");
        sum.current_dir(&self.root).args([".", "-type", "f", "-not", "-path", "./DEBIAN/*"]);
        let sums = output(sum.args(["-exec", "md5sum", "{}", "+"]))?;
        let mut lines: Vec<_> = sums.lines().map(|line| line.replacen("  ./", "  ", 1)).collect();
        lines.sort();
        Ok(lines.join("\n") + "\n")
    }
}

//! Debian's kernel, as its package has it: downloaded once, and unpacked below `target`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{Result, succeeds};

/// The package that depends on the newest kernel for virtual machines.
const META: &str = "linux-image-cloud-amd64";

/// An unpacked kernel.
pub(super) struct Kernel {
    image: PathBuf,
    files: Vec<PathBuf>,
}

impl Kernel {
    /// The newest kernel that this Debian has, below `dir`.
    pub(super) fn fetch(dir: &Path) -> Result<Self> {
        let package = newest()?;
        let root = dir.join(&package);
        if !root.exists() {
            eprintln!("xtask: downloading {package}");
            unpack(dir, &package, &root)?;
        }
        let mut files = Vec::new();
        walk(&root, &mut files)?;
        let is_image = |path: &&PathBuf| name(path).starts_with("vmlinuz");
        let image = files.iter().find(is_image).cloned();
        let image = image.ok_or_else(|| format!("{package} has no kernel"))?;
        Ok(Self { image, files })
    }

    /// What to boot.
    pub(super) fn image(&self) -> &Path {
        &self.image
    }

    /// The files of modules and of what they need, each after what it needs itself. What is built
    /// in has none.
    pub(super) fn modules(&self, wanted: &[&str]) -> Result<Vec<PathBuf>> {
        let mut ordered = Vec::new();
        for module in wanted {
            self.add(module, &mut ordered)?;
        }
        Ok(ordered)
    }

    fn add(&self, module: &str, ordered: &mut Vec<PathBuf>) -> Result<()> {
        let file = format!("{module}.ko");
        let Some(path) = self.files.iter().find(|path| name(path) == file) else { return Ok(()) };
        if ordered.contains(path) {
            return Ok(());
        }
        let content = fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        for needed in dependencies(&content) {
            self.add(&needed, ordered)?;
        }
        ordered.push(path.clone());
        Ok(())
    }
}

/// What a module says that it needs: a string `depends=a,b` among others.
fn dependencies(module: &[u8]) -> Vec<String> {
    let key = b"depends=";
    let mut strings = module.split(|byte| *byte == 0);
    let value = strings.find_map(|string| string.strip_prefix(key)).unwrap_or_default();
    let names = value.split(|byte| *byte == b',').filter(|name| !name.is_empty());
    // File names may have a dash where names of modules have an underscore; ours have none.
    names.map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// The package that the meta package stands for.
fn newest() -> Result<String> {
    let output = Command::new("apt-cache").args(["depends", META]).output();
    let output = output.map_err(|error| format!("apt-cache: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let depends = text.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    let package = depends.map(str::to_owned).find(|name| name.starts_with("linux-image-"));
    package.ok_or_else(|| format!("no package {META}: as root, `apt-get update`"))
}

fn unpack(dir: &Path, package: &str, root: &Path) -> Result<()> {
    // To the side at first: what is there under its name is whole.
    let aside = dir.join("unpacking");
    let _ = fs::remove_dir_all(&aside);
    fs::create_dir_all(&aside).map_err(|error| format!("{}: {error}", aside.display()))?;
    let mut download = Command::new("apt-get");
    download.current_dir(&aside).args(["--quiet", "download", package]);
    if !succeeds(&mut download)? {
        return Err(format!("cannot download {package}: see above; as root, `apt-get update`"));
    }
    let mut files = Vec::new();
    walk(&aside, &mut files)?;
    let deb = files.first().ok_or_else(|| format!("{package} was downloaded, and is not there"))?;
    let tree = aside.join("tree");
    if !succeeds(Command::new("dpkg-deb").arg("--extract").arg(deb).arg(&tree))? {
        return Err(format!("cannot unpack {}: see above", deb.display()));
    }
    fs::rename(&tree, root).map_err(|error| format!("{}: {error}", root.display()))
}

/// All files below a directory.
fn walk(dir: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let explain = |error| format!("{}: {error}", dir.display());
    for entry in fs::read_dir(dir).map_err(explain)? {
        let path = entry.map_err(explain)?.path();
        if path.is_dir() && !path.is_symlink() {
            walk(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_says_what_it_needs() {
        let module = b"\x7fELF\0license=GPL\0depends=virtio,virtio_ring\0intree=Y\0";
        assert_eq!(dependencies(module), ["virtio", "virtio_ring"]);
        assert_eq!(dependencies(b"license=GPL\0depends=\0"), [""; 0]);
        assert_eq!(dependencies(b"ELF"), [""; 0]);
    }
}

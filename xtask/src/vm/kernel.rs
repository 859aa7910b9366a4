//! Debian's kernels, from their packages: downloaded once, and unpacked below `target`.
//!
//! The machine boots the plain ELF file inside the compressed image: unpacking itself would take a
//! kernel on an emulated processor longer than the rest of the boot.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{Result, packages, succeeds};

/// A series of Debian's kernels, by the version in their packages' names.
#[derive(Clone, Copy)]
pub(crate) enum Series {
    /// Debian 12's kernel: `nbd`, but not `ublk_drv`.
    V6_1,
    /// Debian 13's kernel, and Debian 12's backport: `ublk_drv`.
    V6_12,
    /// Debian 13's backport: a `ublk_drv` with all the features that we use.
    V7,
}

impl Series {
    /// Version, and name of the directory below `target/vm`.
    pub(crate) fn version(self) -> &'static str {
        match self {
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
            Self::V7 => "7",
        }
    }
}

/// An unpacked kernel.
pub(super) struct Kernel {
    root: PathBuf,
    files: Vec<PathBuf>,
}

impl Kernel {
    /// Finds the newest kernel of that series, below `dir`; `None` if apt knows none.
    pub(super) fn find(dir: &Path, series: Series) -> Result<Option<Self>> {
        let Some(package) = newest(series)? else { return Ok(None) };
        let root = dir.join(&package);
        if !root.exists() {
            eprintln!("xtask: downloading {package}");
            unpack(dir, &package, &root)?;
        }
        let mut files = Vec::new();
        walk(&root, &mut files)?;
        Ok(Some(Self { root, files }))
    }

    /// Finds the kernel as [`find`](Self::find) does, with apt's lists renewed if they are missing
    /// or name a package that is no more; fails if there is none.
    pub(super) fn fetch(dir: &Path, series: Series) -> Result<Self> {
        if let Ok(Some(kernel)) = Self::find(dir, series) {
            return Ok(kernel);
        }
        packages::update()?;
        Self::find(dir, series)?.ok_or_else(|| {
            let version = series.version();
            format!("apt knows no kernel {version}: add the suite that has it")
        })
    }

    /// The kernel image to boot.
    pub(super) fn image(&self) -> PathBuf {
        self.root.join("vmlinux")
    }

    /// The directory that a machine with this kernel mounts as `/lib/modules`.
    pub(super) fn modules_dir(&self) -> Result<&Path> {
        modules_dir(&self.files)
    }

    /// The content of modules and their dependencies, in load order. Built-in modules are left out.
    pub(super) fn modules(&self, wanted: &[&str]) -> Result<Vec<Vec<u8>>> {
        let mut ordered = Vec::new();
        for module in wanted {
            self.add(module, &mut ordered)?;
        }
        Ok(ordered.into_iter().map(|(_, content)| content).collect())
    }

    fn add<'a>(&'a self, module: &str, ordered: &mut Vec<(&'a Path, Vec<u8>)>) -> Result<()> {
        let names = [format!("{module}.ko"), format!("{module}.ko.xz")];
        let mut files = self.files.iter();
        let Some(path) = files.find(|path| names.iter().any(|it| it == name(path))) else {
            return Ok(());
        };
        if ordered.iter().any(|(added, _)| added == path) {
            return Ok(());
        }
        let content = match path.extension().is_some_and(|extension| extension == "xz") {
            true => output(Command::new("xz").args(["--decompress", "--stdout"]).arg(path))?,
            false => fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?,
        };
        for needed in dependencies(&content) {
            self.add(&needed, ordered)?;
        }
        ordered.push((path, content));
        Ok(())
    }
}

/// A module's dependencies: a string `depends=a,b` among others.
fn dependencies(module: &[u8]) -> Vec<String> {
    let key = b"depends=";
    let mut strings = module.split(|byte| *byte == 0);
    let value = strings.find_map(|string| string.strip_prefix(key)).unwrap_or_default();
    let names = value.split(|byte| *byte == b',').filter(|name| !name.is_empty());
    // File names may have a dash where module names have an underscore; ours have none.
    names.map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

fn name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// The package of the newest kernel of a series, if apt knows one.
fn newest(series: Series) -> Result<Option<String>> {
    let mut names = known(&format!("linux-image-{}.", series.version()))?;
    names.retain(|name| is_generic(name));
    Ok(names.into_iter().max_by_key(|name| numbers(name)))
}

/// Whether a package is a generic kernel with all modules: its name has a version and nothing else
/// (others have `-cloud`, `-rt`, or `-unsigned`).
fn is_generic(package: &str) -> bool {
    let version = package.strip_prefix("linux-image-").and_then(|it| it.strip_suffix("-amd64"));
    version.is_some_and(|it| it.split('-').all(|part| part.starts_with(|c: char| c.is_numeric())))
}

/// The numbers in a name, which order versions.
fn numbers(name: &str) -> Vec<u64> {
    let parts = name.split(|c: char| !c.is_ascii_digit()).filter(|part| !part.is_empty());
    parts.map(|part| part.parse().unwrap_or(u64::MAX)).collect()
}

/// The packages of a kernel: several from Linux 7.0 on.
fn parts(package: &str) -> Result<Vec<String>> {
    let version = package.strip_prefix("linux-image-").unwrap_or(package);
    let mut parts = vec![package.to_owned()];
    for part in ["base", "binary", "modules"] {
        let name = format!("linux-{part}-{version}");
        if known(&name)?.contains(&name) {
            parts.push(name);
        }
    }
    Ok(parts)
}

/// The packages with that prefix that apt knows.
fn known(prefix: &str) -> Result<Vec<String>> {
    let names = output(Command::new("apt-cache").args(["pkgnames", prefix]))?;
    Ok(String::from_utf8_lossy(&names).lines().map(str::to_owned).collect())
}

fn unpack(dir: &Path, package: &str, root: &Path) -> Result<()> {
    // Unpacked under another name first: a directory with the final name is complete.
    let aside = dir.join("unpacking");
    let _ = fs::remove_dir_all(&aside);
    fs::create_dir_all(&aside).map_err(|error| format!("{}: {error}", aside.display()))?;
    let mut download = Command::new("apt-get");
    download.current_dir(&aside).args(["--quiet", "download"]).args(parts(package)?);
    if !succeeds(&mut download)? {
        return Err(format!("cannot download {package}: see above; as root, `apt-get update`"));
    }
    let mut debs = Vec::new();
    walk(&aside, &mut debs)?;
    let tree = aside.join("tree");
    for deb in debs {
        if !succeeds(Command::new("dpkg-deb").arg("--extract").arg(&deb).arg(&tree))? {
            return Err(format!("cannot unpack {}: see above", deb.display()));
        }
    }
    complete(&tree)?;
    fs::rename(&tree, root).map_err(|error| format!("{}: {error}", root.display()))
}

/// Adds what the package's installation would make: the module dependencies, and the plain kernel.
fn complete(tree: &Path) -> Result<()> {
    let mut files = Vec::new();
    walk(tree, &mut files)?;
    let compressed = files.iter().find(|path| name(path).starts_with("vmlinuz"));
    extract(compressed.ok_or("the package has no kernel")?, &tree.join("vmlinux"))?;
    let modules = modules_dir(&files)?;
    let version = fs::read_dir(modules).ok().and_then(|mut versions| versions.next()?.ok());
    let version = version.ok_or("the package has no modules")?.file_name();
    // BASE/lib/modules/VERSION
    let base = modules.ancestors().nth(2).unwrap_or(tree);
    if !succeeds(Command::new("depmod").arg("--basedir").arg(base).arg(version))? {
        return Err("depmod failed: see above".to_owned());
    }
    Ok(())
}

fn modules_dir(files: &[PathBuf]) -> Result<&Path> {
    let mut builtin = files.iter().filter(|path| name(path) == "modules.builtin");
    let dir = builtin.next().and_then(|path| path.ancestors().nth(2));
    dir.ok_or_else(|| "the package has no modules".to_owned())
}

/// Extracts the plain kernel from a compressed one (Documentation/arch/x86/boot.rst of the kernel:
/// `setup_sects`, `payload_offset`, `payload_length`).
fn extract(compressed: &Path, plain: &Path) -> Result<()> {
    let image = fs::read(compressed).map_err(|e| format!("{}: {e}", compressed.display()))?;
    let payload =
        payload(&image).ok_or_else(|| format!("{}: not a kernel", compressed.display()))?;
    let (program, args): (_, &[&str]) = match payload {
        [0xfd, b'7', b'z', ..] => ("xz", &["--decompress", "--stdout", "--single-stream"]),
        _ => ("zstd", &["--decompress", "--stdout", "--quiet"]),
    };
    let explain = |error: std::io::Error| format!("{}: {error}", plain.display());
    let packed = plain.with_extension("packed");
    fs::write(&packed, payload).map_err(explain)?;
    let mut unpacker = Command::new(program);
    unpacker.args(args).stdin(File::open(&packed).map_err(explain)?);
    unpacker.stdout(File::create(plain).map_err(explain)?).stderr(Stdio::null());
    // The payload is followed by its length, which the unpackers report as garbage by their exit
    // code; so their output is checked instead.
    succeeds(&mut unpacker)?;
    let _ = fs::remove_file(&packed);
    let unpacked = fs::read(plain).map_err(explain)?;
    if !unpacked.starts_with(b"\x7fELF") {
        return Err(format!("{}: {program} cannot unpack the kernel", compressed.display()));
    }
    Ok(())
}

/// The compressed kernel within the boot loader's image.
fn payload(image: &[u8]) -> Option<&[u8]> {
    let number = |at: usize| {
        let bytes = image.get(at..at + 4)?.try_into().ok()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    };
    // In this field, zero means four.
    let setup_sectors = match usize::from(*image.get(0x1f1)?) {
        0 => 4,
        sectors => sectors,
    };
    let start = (setup_sectors + 1) * 512 + number(0x248)?;
    image.get(start..start.checked_add(number(0x24c)?)?)
}

/// The output of a program that must succeed.
fn output(command: &mut Command) -> Result<Vec<u8>> {
    let program = command.get_program().to_string_lossy().into_owned();
    let done = command.stderr(Stdio::inherit()).output();
    let done = done.map_err(|error| format!("{program}: {error}"))?;
    if !done.status.success() {
        return Err(format!("{program} failed: see above"));
    }
    Ok(done.stdout)
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

    #[test]
    fn the_newest_generic_kernel_is_known_by_its_name() {
        assert!(is_generic("linux-image-6.1.0-56-amd64"));
        assert!(is_generic("linux-image-6.12.117+deb12-amd64"));
        assert!(!is_generic("linux-image-6.12.117+deb12-cloud-amd64"));
        assert!(!is_generic("linux-image-6.1.0-56-rt-amd64"));
        assert!(!is_generic("linux-image-6.1.0-56-amd64-unsigned"));
        assert!(numbers("linux-image-6.1.0-100-amd64") > numbers("linux-image-6.1.0-56-amd64"));
    }

    #[test]
    fn the_payload_is_where_the_header_says() {
        let mut image = vec![0xa5; 2048];
        image[0x1f1] = 1;
        image[0x248..0x24c].copy_from_slice(&16_u32.to_le_bytes());
        image[0x24c..0x250].copy_from_slice(&4_u32.to_le_bytes());
        image[1040..1044].copy_from_slice(b"\xfd7zX");
        assert_eq!(payload(&image), Some(&b"\xfd7zX"[..]));
        image[0x24c..0x250].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(payload(&image), None);
        assert_eq!(payload(&image[..0x1f1]), None);
    }
}

//! The images for containers, in the format of OCI: the program with its libraries, and no shell;
//! and the driver for Kubernetes, with the programs that it runs.
//!
//! Its layout has three blobs, each under its digest: the layer (the files), the configuration
//! (what is run), and the manifest (both). `podman load` and `skopeo` take the archive as it is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::contents;
use super::stage::Stage;
use super::tool::{VERSION, commit, output, read, run_tool};
use super::{container, say};
use crate::packages::{self, Need};
use crate::{Result, root as repository};

const BUILD: &[Need] =
    &[("gzip", "gzip"), ("ldd", "libc-bin"), ("sha256sum", "coreutils"), ("tar", "tar")];

/// The type of the layer.
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const CONFIGURATION: &str = "application/vnd.oci.image.config.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// An image, by what differs.
struct Image {
    name: &'static str,
    /// Its description, a file of the repository.
    configuration: &'static str,
    /// Directories that the program writes to, or finds its configuration in: places for volumes.
    places: &'static [&'static str],
}

/// The program, for targets.
const TYCHE: Image = Image {
    name: "tyche",
    configuration: "packaging/oci/config.json",
    places: &["etc/tyche", "run", "tmp", "var/lib/tyche", "var/log/tyche"],
};

/// The driver for Kubernetes, with the program and those for file systems.
const CSI: Image = Image {
    name: "tyche-csi",
    configuration: "packaging/oci/config-csi.json",
    places: &["csi", "etc/tyche", "etc/tyche-csi", "run", "tmp", "var/lib/tyche-csi"],
};

/// Programs of Debian that the driver runs.
const CSI_NEEDS: [Need; 9] = [
    ("blkid", "util-linux"),
    ("e2fsck", "e2fsprogs"),
    ("mkfs.ext4", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
    ("mount", "mount"),
    ("nsenter", "util-linux"),
    ("resize2fs", "e2fsprogs"),
    ("umount", "mount"),
    ("xfs_growfs", "xfsprogs"),
];

/// Builds the image of a program below `dir`.
pub(super) fn package(program: &Path, dir: &Path) -> Result<PathBuf> {
    make(&TYCHE, program, &[], dir)
}

/// Builds the image of the driver, which is beside the program, below `dir`.
pub(super) fn package_csi(program: &Path, dir: &Path) -> Result<PathBuf> {
    packages::install(&CSI_NEEDS)?;
    let find = |(name, _): &Need| packages::find(name).ok_or_else(|| format!("there is no {name}"));
    let mut programs = CSI_NEEDS.iter().map(find).collect::<Result<Vec<_>>>()?;
    programs.push(program.with_file_name(CSI.name));
    make(&CSI, program, &programs, dir)
}

fn make(image: &Image, program: &Path, others: &[PathBuf], dir: &Path) -> Result<PathBuf> {
    packages::install(BUILD)?;
    let stage = Stage::new(&dir.join("stage"))?;
    contents::program(program, &stage)?;
    let sbin = Path::new(contents::PROGRAM).parent().unwrap_or(Path::new(""));
    for other in others {
        let place = sbin.join(other.file_name().unwrap_or_default());
        stage.copy(other, &place, 0o755)?;
        run_tool(Command::new("strip").arg("--strip-unneeded").arg(stage.path(&place)))?;
    }
    for program in others.iter().map(PathBuf::as_path).chain([program]) {
        for library in libraries(program)? {
            let place = library.trim_start_matches('/');
            stage.copy(Path::new(&library), Path::new(place), 0o755)?;
        }
    }
    for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
        let place = Path::new("usr/share/licenses/tyche").join(licence);
        stage.copy(&repository().join(licence), &place, 0o644)?;
    }
    for place in image.places {
        let place = stage.path(place);
        fs::create_dir_all(&place).map_err(|error| format!("{}: {error}", place.display()))?;
    }
    let layout = Layout::new(&dir.join("layout"))?;
    let architecture = architecture()?;
    layout.fill(image, &stage, &architecture)?;
    let package = dir.join(format!("{}-{VERSION}-{architecture}.tar", image.name));
    archive(layout.stage.root(), ".", &package)?;
    Ok(package)
}

/// Runs the image: its version, and a target that another process of the container finds.
pub(super) fn test(package: &Path) -> Result<bool> {
    let (bundle, good) = unpack(package)?;
    Ok(container::test(&bundle)? && good)
}

/// Runs the image of the driver: each of its programs finds its libraries.
pub(super) fn test_csi(package: &Path) -> Result<bool> {
    let (bundle, good) = unpack(package)?;
    let programs = CSI_NEEDS.iter().map(|it| it.0).filter(|it| *it != "resize2fs");
    let mut all = container::runs(&bundle, "tyche-csi", "--version")?;
    all &= container::runs(&bundle, "tyche", "--version")?;
    for program in programs {
        all &= container::runs(&bundle, program, "-V")?;
    }
    Ok(all && good)
}

/// Unpacks an image to a bundle for crun; returns that, and whether each blob has its digest.
fn unpack(package: &Path) -> Result<(PathBuf, bool)> {
    let bundle = package.with_file_name("bundle");
    let layout = package.with_file_name("unpacked");
    for dir in [&bundle, &layout] {
        run_tool(Command::new("rm").args(["-rf", "--one-file-system"]).arg(dir))?;
        fs::create_dir_all(dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    }
    run_tool(Command::new("tar").arg("-xf").arg(package).arg("-C").arg(&layout))?;
    let good = check_digests(&layout)?;
    say("oci", "each blob has its digest", good);
    let layer = layer(&layout)?;
    let root = bundle.join("rootfs");
    fs::create_dir_all(&root).map_err(|error| format!("{}: {error}", root.display()))?;
    run_tool(Command::new("tar").arg("-xzf").arg(layer).arg("-C").arg(&root))?;
    Ok((bundle, good))
}

/// The shared libraries of a program, the loader among them, where it finds them here.
pub(super) fn libraries(program: &Path) -> Result<Vec<String>> {
    let said = output(Command::new("ldd").arg(program))?;
    let paths = said.lines().filter_map(|line| line.split_whitespace().find(|it| is_path(it)));
    Ok(paths.map(str::to_owned).collect())
}

fn is_path(word: &str) -> bool {
    word.starts_with('/')
}

/// Go's name of the architecture, which images have.
fn architecture() -> Result<String> {
    Ok(output(Command::new("dpkg").arg("--print-architecture"))?.trim().to_owned())
}

/// Writes an archive of what is at `place` in a directory, which is the same for the same files.
pub(super) fn archive(dir: &Path, place: &str, to: &Path) -> Result<()> {
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=ustar"]);
    tar.arg(format!("--mtime=@{}", commit("%ct")?)).arg("-cf").arg(to).arg("-C").arg(dir);
    run_tool(tar.arg(place))
}

/// The SHA-256 of a file, in hexadecimal.
fn digest(file: &Path) -> Result<String> {
    let said = output(Command::new("sha256sum").arg(file))?;
    Ok(said.split_whitespace().next().unwrap_or_default().to_owned())
}

/// The directory that the image is put together in.
struct Layout {
    stage: Stage,
}

/// A blob, as others refer to it.
struct Blob {
    digest: String,
    size: u64,
}

impl Blob {
    fn descriptor(&self, kind: &str) -> String {
        let Self { digest, size } = self;
        format!("{{\"mediaType\":\"{kind}\",\"digest\":\"sha256:{digest}\",\"size\":{size}}}")
    }
}

impl Layout {
    fn new(dir: &Path) -> Result<Self> {
        Ok(Self { stage: Stage::new(dir)? })
    }

    /// Adds everything.
    fn fill(&self, image: &Image, files: &Stage, architecture: &str) -> Result<()> {
        self.stage.write(Path::new("oci-layout"), "{\"imageLayoutVersion\":\"1.0.0\"}", 0o644)?;
        let tar = self.stage.path("layer.tar");
        archive(files.root(), ".", &tar)?;
        let uncompressed = digest(&tar)?;
        self.stage.compress(&tar)?;
        let layer = self.adopt("layer.tar.gz")?;
        let template = read(&repository().join(image.configuration))?;
        let configuration = template
            .replace("@ARCHITECTURE@", architecture)
            .replace("@CREATED@", &commit("%cI")?)
            .replace("@VERSION@", VERSION)
            .replace("@LAYER@", &uncompressed);
        let configuration = self.add(&configuration)?.descriptor(CONFIGURATION);
        let layers = layer.descriptor(LAYER);
        let manifest = self.add(&format!(
            "{{\"schemaVersion\":2,\"mediaType\":\"{MANIFEST}\",\"config\":{configuration},\
             \"layers\":[{layers}]}}"
        ))?;
        let named = manifest.descriptor(MANIFEST);
        let named = named.trim_end_matches('}');
        let index = format!(
            "{{\"schemaVersion\":2,\"manifests\":[{named},\"annotations\":\
             {{\"org.opencontainers.image.ref.name\":\"{}:{VERSION}\"}}}}]}}",
            image.name
        );
        self.stage.write(Path::new("index.json"), &index, 0o644)
    }

    fn add(&self, text: &str) -> Result<Blob> {
        self.stage.write(Path::new("blob"), text, 0o644)?;
        self.adopt("blob")
    }

    /// Makes a file of the layout a blob.
    fn adopt(&self, name: &str) -> Result<Blob> {
        let file = self.stage.path(name);
        let blobs = self.stage.path("blobs/sha256");
        let digest = digest(&file)?;
        let moved = || {
            fs::create_dir_all(&blobs)?;
            fs::rename(&file, blobs.join(&digest))?;
            fs::metadata(blobs.join(&digest))
        };
        let size = moved().map_err(|error| format!("{}: {error}", file.display()))?.len();
        Ok(Blob { digest, size })
    }
}

/// Whether each blob's name is its digest.
fn check_digests(layout: &Path) -> Result<bool> {
    let blobs = layout.join("blobs/sha256");
    let files = fs::read_dir(&blobs).map_err(|error| format!("{}: {error}", blobs.display()))?;
    for file in files {
        let file = file.map_err(|error| format!("{}: {error}", blobs.display()))?;
        if *digest(&file.path())? != *file.file_name() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The layer, found as a program finds it that runs the image: by the index and the manifest.
fn layer(layout: &Path) -> Result<PathBuf> {
    let blob = |text: &str, kind: &str| {
        let (_, rest) =
            text.split_once(&format!("\"mediaType\":\"{kind}\",\"digest\":\"sha256:"))?;
        Some(layout.join("blobs/sha256").join(rest.split('"').next()?))
    };
    let index = read(&layout.join("index.json"))?;
    let manifest = blob(&index, MANIFEST).ok_or("the index has no manifest")?;
    Ok(blob(&read(&manifest)?, LAYER).ok_or("the manifest has no layer")?)
}

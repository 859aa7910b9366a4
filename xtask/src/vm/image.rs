//! The image of a guest: `target/vm/VERSION` with a kernel (`vmlinux`), an initial RAM disk
//! (`initrd`), and modules (`modules`).
//!
//! The initial RAM disk has busybox, the few modules without which nothing can be mounted, and two
//! scripts. All else comes from this machine: its `/usr` over 9p, read-only, and the scripts of a
//! test over the second serial line.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::archive::Archive;
use super::kernel::{Kernel, Series};
use crate::Result;

/// Modules for the guest's network and for the programs of this machine.
const MODULES: [&str; 5] = ["virtio_pci", "virtio_net", "9p", "9pnet_virtio", "virtio_rng"];

/// Makes the image of a series of kernels.
pub(super) fn make(series: Series) -> Result<()> {
    let vm = super::dir()?;
    make_of(&Kernel::fetch(&vm, series)?, &vm, series)
}

/// Makes the image if apt knows a kernel of that series.
pub(super) fn make_if_known(series: Series) -> Result<()> {
    let vm = super::dir()?;
    if let Some(kernel) = Kernel::find(&vm, series)? {
        return make_of(&kernel, &vm, series);
    }
    let dir = vm.join(series.version());
    match fs::remove_dir_all(&dir) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(format!("{}: {error}", dir.display()))
        }
        _ => Ok(()),
    }
}

fn make_of(kernel: &Kernel, vm: &Path, series: Series) -> Result<()> {
    let dir = vm.join(series.version());
    fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
    let initrd = dir.join("initrd");
    let archive = archive(kernel)?;
    fs::write(&initrd, archive).map_err(|error| format!("{}: {error}", initrd.display()))?;
    link(&kernel.image(), &dir.join("vmlinux"))?;
    link(kernel.modules_dir()?, &dir.join("modules"))
}

fn archive(kernel: &Kernel) -> Result<Vec<u8>> {
    let mut archive = Archive::new();
    for (index, module) in kernel.modules(&MODULES)?.iter().enumerate() {
        archive.bytes(&format!("/boot/{index:03}.ko"), module);
    }
    archive.file("/busybox", Path::new("/bin/busybox"))?;
    archive.text("/init", include_str!("init.sh"));
    archive.text("/agent", include_str!("agent.sh"));
    archive.text("/etc/inittab", "null::respawn:/agent\n");
    // udev looks users and groups up for its rules.
    archive.file("/etc/passwd", Path::new("/etc/passwd"))?;
    archive.file("/etc/group", Path::new("/etc/group"))?;
    Ok(archive.end())
}

/// Makes `link` point to `target`, replacing an old link.
fn link(target: &Path, link: &Path) -> Result<()> {
    let explain = |error| format!("{}: {error}", link.display());
    match fs::remove_file(link) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(explain(error)),
        _ => {}
    }
    symlink(target, link).map_err(explain)
}

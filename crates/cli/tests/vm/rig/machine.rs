//! A virtual machine whose only disk is an export: of this machine it has only the kernel and the
//! few modules that find the disk.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use tyche_testkit::process::{Done, finish};

use super::{KERNEL, PATIENCE, Rig, Running, console, run};
use crate::attachment::Kernel;

/// Modules for the root file system.
const MODULES: [&str; 4] = ["virtio_pci", "virtio_blk", "crc32c_generic", "ext4"];

/// Programs of the root file system, all of them links to busybox.
const PROGRAMS: &str = "cat cp head mkdir mount poweroff rm sh sha256sum sleep sync";

/// Polling interval for the console.
const POLL: Duration = Duration::from_millis(100);

/// The init of the initial RAM disk: it hands over to the disk's own.
const INITRD: &str = "#!/busybox sh
/busybox mount -t proc proc /proc
/busybox mount -t devtmpfs dev /dev
for module in /modules/*; do /busybox insmod $module; done
until [ -b /dev/vda ]; do /busybox sleep 0.1; done
/busybox mount -t ext4 /dev/vda /disk
/busybox mount --move /dev /disk/dev
/busybox mount --move /proc /disk/proc
exec /busybox switch_root /disk /init
";

/// The disk's init: checks all files on the disk by their checksums, then repeatedly copies them
/// and checks the copies.
const INIT: &str = "#!/bin/sh
export PATH=/bin
verify() { (cd $1 && sha256sum -c -s /sums) && echo \"$2\" || echo \"BROKEN $2\"; }
exec >/dev/console 2>&1
verify /data VERIFIED
round=0
until [ $round = ROUNDS ]; do
    round=$((round + 1))
    cp -r /data /copy && sync
    echo 3 >/proc/sys/vm/drop_caches
    verify /copy \"ROUND $round\"
    rm -r /copy
done
sync
mount -o remount,ro /
echo END
poweroff -f
";

/// A running machine.
pub(crate) struct Machine {
    qemu: Running,
    dir: PathBuf,
}

impl Machine {
    /// Makes a bootable file system in a file of that size. The machine powers off after `rounds`
    /// rounds of work.
    pub(crate) fn install(rig: &Rig, size: u64, rounds: u32) {
        let root = rig.path("root");
        for dir in ["bin", "data", "dev", "proc"] {
            fs::create_dir_all(root.join(dir)).unwrap();
        }
        fs::copy("/bin/busybox", root.join("bin/busybox")).unwrap();
        for program in PROGRAMS.split(' ') {
            symlink("busybox", root.join("bin").join(program)).unwrap();
        }
        // Files of different lengths, with no two equal blocks.
        for file in 0..40_u32 {
            let words = (0..file * 2000).map(|word| (word ^ file << 20).wrapping_mul(0x9e37_79b9));
            let bytes: Vec<_> = words.flat_map(u32::to_le_bytes).collect();
            fs::write(root.join(format!("data/{file}")), bytes).unwrap();
        }
        let sums = "cd $0/data && sha256sum * >../sums";
        run(Command::new("sh").args(["-c", sums]).arg(&root));
        executable(&root.join("init"), &INIT.replace("ROUNDS", &rounds.to_string()));
        File::create_new(rig.disk()).unwrap().set_len(size).unwrap();
        run(Command::new("mkfs.ext4").args(["-q", "-d"]).arg(&root).arg(rig.disk()));
    }

    /// Boots a machine whose disk is at the vhost-user socket `socket`.
    pub(crate) fn boot(rig: &Rig, kernel: Kernel, socket: &str) -> Self {
        let dir = rig.path("machine");
        let initrd = initrd(&dir, kernel);
        let mut command = rig.command("qemu-system-x86_64");
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        command.args(["-machine", "q35,memory-backend=memory", "-accel", "tcg,thread=multi"]);
        command.args(["-cpu", "max", "-smp", "2", "-m", "512M"]);
        command.args(["-object", "memory-backend-memfd,id=memory,size=512M,share=on"]);
        command.args(["-chardev", &format!("socket,id=disk,path={socket},reconnect=1")]);
        command.args(["-device", "vhost-user-blk-pci,chardev=disk,num-queues=2"]);
        command.args(["-serial", &format!("file:{}", dir.join("console").display())]);
        command.arg("-kernel").arg(kernel.image().join("vmlinux")).arg("-initrd").arg(initrd);
        command.args(["-append", &format!("{KERNEL} tsc=reliable")]);
        let log = File::create(dir.join("qemu.log")).unwrap();
        command.stdout(log.try_clone().unwrap()).stderr(log);
        Self { qemu: Running::start(&mut command), dir }
    }

    /// Waits until the console shows a line.
    pub(crate) fn await_line(&self, line: &str) {
        let deadline = Instant::now() + PATIENCE;
        while !console::read(&self.dir).lines().any(|it| it.trim_end() == line) {
            assert!(Instant::now() < deadline, "no {line}; {}", self.said());
            thread::sleep(POLL);
        }
    }

    /// Waits for the machine's end, which must be successful.
    pub(crate) fn end(mut self) {
        self.await_line("END");
        assert!(self.qemu.end().success(), "{}", self.said());
        let console = console::read(&self.dir);
        assert!(!console.contains("BROKEN") && !console.contains("I/O error"), "{console}");
        assert_eq!(console::alarms(&console), [""; 0], "{console}");
    }

    fn said(&self) -> String {
        let log = fs::read_to_string(self.dir.join("qemu.log")).unwrap_or_default();
        format!("{}\nqemu: {log}", console::read(&self.dir))
    }
}

/// Makes the initial RAM disk of a machine.
fn initrd(dir: &Path, kernel: Kernel) -> PathBuf {
    let root = dir.join("initrd.d");
    for dir in ["dev", "modules", "proc", "disk"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    fs::copy("/bin/busybox", root.join("busybox")).unwrap();
    let mut files: Vec<PathBuf> = Vec::new();
    for module in MODULES {
        let needed = modules(kernel, module);
        files.extend(needed.into_iter().filter(|file| !files.contains(file)).collect::<Vec<_>>());
    }
    for (number, file) in files.iter().enumerate() {
        fs::copy(file, root.join(format!("modules/{number:02}.ko"))).unwrap();
    }
    executable(&root.join("init"), INITRD);
    let initrd = dir.join("initrd");
    let pack = "cd $0 && find . | cpio --quiet --create --format newc >$1";
    run(Command::new("sh").args(["-c", pack]).arg(&root).arg(&initrd));
    initrd
}

/// The files of a module and of its dependencies, in load order.
fn modules(kernel: Kernel, module: &str) -> Vec<PathBuf> {
    // BASE/lib/modules contains one version.
    let dir = fs::canonicalize(kernel.image().join("modules")).unwrap();
    let version = fs::read_dir(&dir).unwrap().next().unwrap().unwrap().file_name();
    let base = dir.ancestors().nth(2).unwrap();
    let mut modprobe = Command::new("modprobe");
    modprobe.arg("--dirname").arg(base).arg("--set-version").arg(version);
    let said = run(modprobe.args(["--show-depends", module]));
    let files = said.lines().filter_map(|line| line.strip_prefix("insmod "));
    files.map(|file| file.trim().into()).collect()
}

fn executable(path: &Path, text: &str) {
    use std::os::unix::fs::PermissionsExt;
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Whether the file system in an unused file has no errors.
pub(crate) fn is_in_order(file: &Path) -> bool {
    let Done { status, stdout, stderr } =
        finish(Command::new("e2fsck").args(["-f", "-n"]).arg(file), PATIENCE);
    if !status.success() {
        eprintln!("{stdout}{stderr}");
    }
    status.success()
}

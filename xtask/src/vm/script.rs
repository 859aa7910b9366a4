//! A virtual machine that runs one script and ends: a kernel, an initial RAM disk, and a serial
//! line for output.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::archive::Archive;
use super::kernel::{Kernel, Series};
use crate::Result;

/// Time limit for a machine.
const TIME_MAX: Duration = Duration::from_secs(600);
/// Prefix of the last line that a machine prints, before the script's exit code.
const END: &str = "VM-END ";

/// A script and its environment in the machine.
pub(crate) struct Script<'a> {
    pub(crate) kernel: Series,
    /// Modules to load, with their dependencies. They may be built in.
    pub(crate) modules: &'a [&'a str],
    /// Programs to include, at the same paths, with their libraries.
    pub(crate) programs: &'a [&'a Path],
    /// Lines of `sh`, run by busybox as root. The last one's exit code is the result.
    pub(crate) lines: &'a str,
}

/// Boots a machine, to which `shape` adds qemu arguments; shows the script's output, and returns
/// whether it succeeded.
pub(crate) fn run(script: &Script<'_>, shape: impl FnOnce(&mut Command)) -> Result<bool> {
    let dir = super::dir()?;
    let kernel = Kernel::fetch(&dir, script.kernel)?;
    let initrd = dir.join("initrd");
    let archive = archive(script, &kernel)?;
    fs::write(&initrd, archive).map_err(|error| format!("{}: {error}", initrd.display()))?;
    let mut qemu = Command::new("qemu-system-x86_64");
    qemu.args(["-accel", "tcg,thread=multi", "-nodefaults", "-display", "none", "-no-reboot"]);
    qemu.args(["-serial", "stdio"]);
    shape(&mut qemu);
    qemu.arg("-kernel").arg(kernel.image()).arg("-initrd").arg(&initrd);
    qemu.args(["-append", "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable"]);
    follow(qemu)
}

/// The initial RAM disk of the machine.
fn archive(script: &Script<'_>, kernel: &Kernel) -> Result<Vec<u8>> {
    let mut archive = Archive::new();
    for (index, module) in kernel.modules(script.modules)?.iter().enumerate() {
        archive.bytes(&format!("/modules/{index:03}.ko"), module);
    }
    archive.file("/bin/busybox", Path::new("/bin/busybox"))?;
    for program in script.programs {
        archive.file(&program.to_string_lossy(), program)?;
        for library in libraries(program)? {
            archive.file(&library.to_string_lossy(), &library)?;
        }
    }
    archive.text("/init", &init(script));
    Ok(archive.end())
}

fn init(script: &Script<'_>) -> String {
    format!(
        "#!/bin/busybox sh\n\
        /bin/busybox mkdir -p /proc /sys /dev /run /tmp /var/tmp /sbin /usr/bin /usr/sbin /root\n\
        /bin/busybox --install -s\n\
        export PATH=/usr/bin:/usr/sbin:/bin:/sbin\n\
        mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev\n\
        ip link set lo up\n\
        for module in /modules/*.ko; do insmod $module; done\n\
        {}\n\
        echo {END}$?\n\
        poweroff -f\n",
        script.lines.trim_end()
    )
}

/// The shared libraries of a program.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let output = Command::new("ldd").arg(program).output();
    let output = output.map_err(|error| format!("ldd: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let words = text.split_whitespace().filter(|word| word.starts_with('/'));
    Ok(words.map(PathBuf::from).collect())
}

/// Runs the machine and shows its output.
fn follow(mut qemu: Command) -> Result<bool> {
    let spawned = qemu.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let mut child = spawned.map_err(|error| format!("qemu-system-x86_64: {error}"))?;
    let lines = lines(&mut child);
    let deadline = Instant::now() + TIME_MAX;
    let mut ended = None;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match lines.recv_timeout(left) {
            Ok(line) => match line.strip_prefix(END) {
                Some(code) => ended = Some(code == "0"),
                None => println!("{line}"),
            },
            Err(RecvTimeoutError::Disconnected) => break,
            Err(RecvTimeoutError::Timeout) => {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("the virtual machine is not done in {TIME_MAX:?}"));
            }
        }
    }
    child.wait().map_err(|error| format!("qemu-system-x86_64: {error}"))?;
    ended.ok_or_else(|| "the virtual machine died: see above".to_owned())
}

/// The lines of a machine's serial output, as they come.
fn lines(child: &mut Child) -> std::sync::mpsc::Receiver<String> {
    let (sender, lines) = channel();
    let stdout = child.stdout.take().expect("piped by the caller");
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).split(b'\n').map_while(|line| line.ok()) {
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    lines
}

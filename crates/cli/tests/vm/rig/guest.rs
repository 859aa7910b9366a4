//! A virtual machine that runs scripts.
//!
//! Its kernel is a Debian kernel; its programs, `tyche` included, are this machine's. A script is a
//! file in a directory that both share, and so is its output; a serial line carries its number in,
//! and its number and exit code out.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::segment::cable;
use super::{KERNEL, Rig, Running, console, wait_until};
use crate::attachment::{Attachment, Kernel};

/// Time limit for any short operation in an emulated machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Time limit for the inspection of a guest after a failure.
const LOOK: Duration = Duration::from_secs(5);

/// How many times a guest is booted at most.
const BOOTS_MAX: u32 = 3;

/// The configuration of a guest.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) kernel: Kernel,
    pub(crate) processors: u16,
    pub(crate) memory_mib: u32,
    /// Network interfaces, `eth0` and so on: on the guest's own cable, and on the next ones.
    pub(crate) interfaces: u8,
    /// The kind of the first one.
    pub(crate) card: Card,
    /// Whether its programs are those of a Debian with systemd, instead of this machine's, which it
    /// has at `/host`.
    pub(crate) debian: bool,
}

/// A kind of network card: what the emulator and the kernel call it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Card {
    pub(crate) device: &'static str,
    /// The module of its driver.
    pub(crate) driver: &'static str,
    /// Options of the emulated device.
    pub(crate) options: &'static str,
    /// Whether it is behind a port, as cards in slots are, and not in the root complex: there
    /// QEMU's igb does not hear its virtual functions.
    pub(crate) in_slot: bool,
    /// The longest MTU that it takes here.
    pub(crate) mtu_max: u16,
}

/// The card of guests in which cards are not the matter.
pub(crate) const VIRTIO: Card = Card {
    device: "virtio-net-pci",
    driver: "virtio_net",
    options: "host_mtu=9000,romfile=",
    in_slot: false,
    mtu_max: 9000,
};

impl From<Kernel> for Shape {
    fn from(kernel: Kernel) -> Self {
        let (interfaces, card) = (1, VIRTIO);
        Self { kernel, processors: 2, memory_mib: 1024, interfaces, card, debian: false }
    }
}

impl From<Attachment> for Shape {
    /// As many processors as the device has queues: the kernel makes no more queues than these.
    fn from(attachment: Attachment) -> Self {
        let shape = Self::from(attachment.kernel());
        Self { processors: shape.processors.max(attachment.queues()), ..shape }
    }
}

/// A running guest.
pub(crate) struct Guest {
    _qemu: Running,
    dir: PathBuf,
    line: UnixStream,
    ended: Arc<Ended>,
    jobs: AtomicU32,
}

/// The agent's messages.
#[derive(Default)]
struct Ended {
    news: Mutex<News>,
    changed: Condvar,
}

#[derive(Default)]
struct News {
    is_ready: bool,
    /// Whether the machine is off.
    is_off: bool,
    /// Exit codes of scripts, by their numbers.
    codes: HashMap<u32, i32>,
}

/// A running script.
pub(crate) struct Job<'a> {
    guest: &'a Guest,
    number: u32,
    script: String,
}

/// The result of a script.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: i32,
    /// Standard output and standard error.
    pub(crate) output: String,
}

impl Guest {
    /// Boots a guest on the cable of that number, and waits until it is ready for scripts.
    ///
    /// QEMU before 8.1 may translate an instruction while another processor of the guest replaces
    /// it. Then the kernel stops at a breakpoint of its own, and is booted again.
    pub(super) fn boot(rig: &Rig, number: u8, shape: &Shape) -> Self {
        let dir = rig.path(&format!("guest{number}"));
        fs::create_dir_all(dir.join("share")).unwrap();
        let mut boots = 0;
        let (qemu, line, ended) = loop {
            let (qemu, line, ended) = power_on(rig, &dir, number, shape);
            let ready = ended.wait(PATIENCE, |news| news.is_ready.then_some(()));
            let Err(why) = ready else { break (qemu, line, ended) };
            boots += 1;
            let console = console::read(&dir);
            let again = boots < BOOTS_MAX && console.contains("Oops: int3");
            assert!(again, "the guest does not boot: {why}\n{console}");
        };
        let guest = Self { _qemu: qemu, dir, line, ended, jobs: AtomicU32::new(0) };
        let (address, Card { driver, mtu_max, .. }) = (2 + number, shape.card);
        // The kernel numbers the interfaces in the order in which their drivers were loaded.
        let mac = mac(number);
        guest.run(&format!(
            "modprobe {driver}\n\
             until at=$(grep -lx {mac} /sys/class/net/*/address); do sleep 0.1; done\n\
             at=${{at%/address}}; at=${{at##*/}}\n\
             if [ $at != eth0 ]; then\n\
             ip link set eth0 name other; ip link set $at name eth0; ip link set other name $at\n\
             fi\n\
             ip link set eth0 mtu {mtu_max}; ip link set eth0 up\n\
             ip addr add 10.9.0.{address}/24 dev eth0"
        ));
        guest
    }

    /// Plugs the cable of a network card in or out: its driver notices.
    pub(crate) fn plug(&self, number: u8, state: &str) {
        let mut monitor = UnixStream::connect(self.dir.join("monitor")).unwrap();
        writeln!(monitor, "set_link nic{number} {state}").unwrap();
        // The answer ends with the next prompt.
        let (mut said, mut bytes) = (Vec::new(), [0; 256]);
        monitor.set_read_timeout(Some(PATIENCE)).unwrap();
        while String::from_utf8_lossy(&said).matches("(qemu)").count() < 2 {
            let count = monitor.read(&mut bytes).unwrap();
            assert!(count > 0, "the monitor is gone");
            said.extend_from_slice(&bytes[..count]);
        }
        let said = String::from_utf8_lossy(&said);
        assert!(!said.contains("Error"), "{said}");
    }

    /// Starts a bash script, which ends at the first command that fails.
    pub(crate) fn start(&self, script: &str) -> Job<'_> {
        self.try_start(script).unwrap()
    }

    fn try_start(&self, script: &str) -> io::Result<Job<'_>> {
        let number = self.jobs.fetch_add(1, Ordering::Relaxed);
        fs::write(self.share(number, "sh"), format!("{script}\n"))?;
        writeln!(&self.line, "{number}")?;
        Ok(Job { guest: self, number, script: script.to_owned() })
    }

    /// Runs a script that must succeed; returns its output.
    pub(crate) fn run(&self, script: &str) -> String {
        self.start(script).succeed(PATIENCE)
    }

    /// Runs a script repeatedly until it succeeds.
    pub(crate) fn wait_until(&self, script: &str) {
        let script = format!("for i in {{1..600}}; do ({script}) && exit; sleep 0.1; done; exit 1");
        self.run(&script);
    }

    /// Copies a file into the guest, as `/share/NAME`.
    pub(crate) fn put(&self, file: &Path, name: &str) {
        let copied = fs::copy(file, self.shared(name));
        copied.unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }

    /// The file that the guest has as `/share/NAME`.
    pub(crate) fn shared(&self, name: &str) -> PathBuf {
        self.dir.join("share").join(name)
    }

    fn share(&self, number: u32, kind: &str) -> PathBuf {
        self.dir.join(format!("share/{number}.{kind}"))
    }

    /// Checks that no process hangs in the guest, and that its kernel has reported no error.
    fn check(&self) {
        // A process may wait for a disk for a moment.
        let stuck = self.start(
            "for i in {1..100}; do\n\
             stuck=$(ps -eo state,pid,wchan:32,args | grep '^D' || true)\n\
             [ -z \"$stuck\" ] && exit\n\
             sleep 0.1\n\
             done; echo \"$stuck\"; exit 1",
        );
        let stuck = stuck.finish(PATIENCE);
        assert_eq!(stuck.code, 0, "hangs: {}", stuck.output);
        let console = console::read(&self.dir);
        assert_eq!(console::alarms(&console), [""; 0], "{console}");
    }
}

/// Starts the emulator; it speaks with the agent on the stream, and its messages go to `Ended`.
fn power_on(rig: &Rig, dir: &Path, number: u8, shape: &Shape) -> (Running, UnixStream, Arc<Ended>) {
    let mut command = rig.command("qemu-system-x86_64");
    arguments(&mut command, dir, number, shape);
    let log = File::create(dir.join("qemu.log")).unwrap();
    command.stdout(log.try_clone().unwrap()).stderr(log);
    let mut qemu = Running::start(&mut command);
    let mut line = None;
    wait_until("the emulator listens", || {
        let is_running = qemu.is_running();
        assert!(is_running, "qemu: {}", fs::read_to_string(dir.join("qemu.log")).unwrap());
        line = UnixStream::connect(dir.join("line")).ok();
        line.is_some()
    });
    let line = line.unwrap();
    let (ended, reader) = (Arc::new(Ended::default()), line.try_clone().unwrap());
    let news = Arc::clone(&ended);
    thread::spawn(move || news.follow(reader));
    (qemu, line, ended)
}

impl Drop for Guest {
    fn drop(&mut self) {
        if thread::panicking() {
            // Shows the processes that hang, and where.
            let look = self.try_start(
                "echo w >/proc/sysrq-trigger; tyche stats; tail -n 50 /var/log/tyche/*.log",
            );
            let said = look.map(|look| {
                let _ = look.code(LOOK);
                look.output()
            });
            let said = said.unwrap_or_else(|error| error.to_string());
            eprintln!("the guest's console:\n{}\nits sessions:\n{said}", console::read(&self.dir));
        } else {
            self.check();
        }
    }
}

impl Ended {
    /// Waits until `find` finds something in the news; the error says why it did not.
    fn wait<T>(&self, limit: Duration, find: impl Fn(&News) -> Option<T>) -> Result<T, String> {
        let deadline = Instant::now() + limit;
        let mut news = self.news.lock().unwrap();
        loop {
            if let Some(found) = find(&news) {
                return Ok(found);
            }
            if news.is_off {
                return Err("the guest is off".to_owned());
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(format!("not within {limit:?}"));
            }
            news = self.changed.wait_timeout(news, left).unwrap().0;
        }
    }

    /// Reads the agent's messages until the machine is off.
    fn follow(&self, line: UnixStream) {
        for line in BufReader::new(line).lines().map_while(Result::ok) {
            let mut news = self.news.lock().unwrap();
            if line.trim() == "ready" {
                news.is_ready = true;
            } else if let Some((number, code)) = line.trim().split_once(' ') {
                news.codes.insert(number.parse().unwrap(), code.parse().unwrap());
            }
            self.changed.notify_all();
        }
        self.news.lock().unwrap().is_off = true;
        self.changed.notify_all();
    }
}

impl Job<'_> {
    /// Waits for the script's end, whether it succeeds or fails.
    pub(crate) fn finish(self, limit: Duration) -> Done {
        let code = self.code(limit);
        let output = self.output();
        let code = code.unwrap_or_else(|why| panic!("{why}: {}\nprinted:\n{output}", self.script));
        Done { code, output }
    }

    /// The script's exit code, once it has ended; or why there is none.
    pub(crate) fn code(&self, limit: Duration) -> Result<i32, String> {
        self.guest.ended.wait(limit, |news| news.codes.get(&self.number).copied())
    }

    /// Waits for the script's end; it must succeed. Returns its output.
    pub(crate) fn succeed(self, limit: Duration) -> String {
        let script = self.script.clone();
        let Done { code, output } = self.finish(limit);
        assert_eq!(code, 0, "{script}\nprinted:\n{output}");
        output
    }

    /// The output so far.
    pub(crate) fn output(&self) -> String {
        let bytes = fs::read(self.guest.share(self.number, "out")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// The address of the interface on a cable.
fn mac(number: u8) -> String {
    format!("52:54:00:09:00:{number:02x}")
}

/// Adds qemu's arguments for the machine.
fn arguments(qemu: &mut Command, dir: &Path, number: u8, shape: &Shape) {
    let image = shape.kernel.image();
    let modules = fs::canonicalize(image.join("modules")).unwrap();
    qemu.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
    qemu.args(["-machine", "q35", "-accel", shape.kernel.accelerator(), "-cpu", "max"]);
    qemu.args(["-smp", &shape.processors.to_string()]);
    qemu.args(["-m", &format!("{}M", shape.memory_mib)]);
    qemu.args(["-serial", &format!("file:{}", dir.join("console").display())]);
    qemu.args(["-serial", &format!("unix:{},server=on,wait=off", dir.join("line").display())]);
    let monitor = format!("unix:{},server=on,wait=off", dir.join("monitor").display());
    qemu.args(["-monitor", &monitor]);
    qemu.arg("-kernel").arg(image.join("vmlinux")).arg("-initrd").arg(image.join("initrd"));
    let kernel = "oops=panic tsc=unstable clocksource=hpet nowatchdog \
                  rcupdate.rcu_cpu_stall_suppress=1 net.ifnames=0";
    let init = if shape.debian { " debian" } else { "" };
    qemu.args(["-append", &format!("{KERNEL} {kernel}{init}")]);
    if shape.debian {
        let file = image.with_file_name("debian.img");
        let drive = format!("if=none,id=root,format=raw,snapshot=on,file={}", file.display());
        qemu.args(["-drive", &drive, "-device", "virtio-blk-pci,drive=root"]);
    }
    for (index, number) in (number..number + shape.interfaces).enumerate() {
        let (net, cable, mac) = (number, cable(number), mac(number));
        let tap = format!("tap,id=net{net},ifname={cable},script=no,downscript=no,vhost=off");
        let card = if index == 0 { shape.card } else { VIRTIO };
        let Card { device, options, in_slot, .. } = card;
        let mut nic = format!("{device},id=nic{net},netdev=net{net},mac={mac},{options}");
        if in_slot {
            qemu.args(["-device", &format!("pcie-root-port,id=slot{net},slot={net}")]);
            nic += &format!(",bus=slot{net}");
        }
        qemu.args(["-netdev", &tap, "-device", &nic]);
    }
    qemu.args(["-device", "virtio-rng-pci"]);
    let shares = [
        ("usr", Path::new("/usr"), ",readonly=on"),
        ("modules", &modules, ",readonly=on"),
        ("tyche", &dir.join("../bin"), ",readonly=on"),
        ("share", &dir.join("share"), ""),
    ];
    for (tag, path, options) in shares {
        let path = path.display();
        let options = format!("{options},multidevs=remap");
        let share = format!("local,id={tag},path={path},security_model=none{options}");
        qemu.args(["-fsdev", &share]);
        qemu.args(["-device", &format!("virtio-9p-pci,fsdev={tag},mount_tag={tag}")]);
    }
}

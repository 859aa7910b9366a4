//! The compared devices, and the servers that they need at the other end of the cable.

use std::process::Stdio;

use tempfile::NamedTempFile;

use crate::attachment::{Attachment, Kernel};
use crate::rig::{Guest, MIB, PATIENCE, Rig, Running, Session, Shape, Target};

/// Size of each device.
const SIZE_MIB: u32 = 64;

/// Tyche's kinds of devices.
const OURS: [(&str, Attachment); 3] = [
    ("Tyche, ublk", Attachment::Ublk),
    ("Tyche, nbd", Attachment::Nbd),
    ("Tyche, loop", Attachment::Loop),
];

/// A block device in the guest; without a path if it could not be made.
pub(super) struct Device {
    pub(super) name: &'static str,
    pub(super) path: Option<String>,
}

/// The servers, dropped in this order.
pub(super) struct Bench {
    servers: Vec<Running>,
    _target: Target,
    nvmet: Guest,
    _memory: NamedTempFile,
    rig: Rig,
}

impl Bench {
    pub(super) fn new() -> Self {
        let rig = Rig::new();
        let exports = OURS
            .map(|(_, attachment)| attachment.name())
            .map(|name| format!("{name}=mem:{SIZE_MIB}M"));
        let target = rig.serve_exports(&exports, &[]);
        let memory = NamedTempFile::new_in("/dev/shm").unwrap();
        memory.as_file().set_len(u64::from(SIZE_MIB) * MIB).unwrap();
        let size = format!("{SIZE_MIB}M");
        let nbdkit = ["--foreground", "--ipaddr", "10.9.0.1", "memory", &size];
        let vblade = ["0", "0", "br0", memory.path().to_str().unwrap()];
        let servers = [("nbdkit", &nbdkit[..]), ("vblade", &vblade)].map(|(program, args)| {
            let mut command = rig.command(program);
            Running::start(command.args(args).stdout(Stdio::null()))
        });
        let nvmet = rig.boot(1, &Shape::from(Kernel::V6_12));
        serve_nvme(&nvmet, "tcp", "10.9.0.3", SIZE_MIB);
        Self { servers: servers.into(), _target: target, nvmet, _memory: memory, rig }
    }

    /// Boots the guest and makes all devices in it.
    pub(super) fn connect(&self) -> (Guest, Vec<Device>) {
        let guest = self.rig.boot(0, &Shape::from(Kernel::V6_12));
        let ours = OURS.map(|(name, attachment)| {
            let session = Session::connect_to(&guest, attachment, attachment.name(), "");
            Device { name, path: Some(session.device) }
        });
        // Tyche's udev rule does the same.
        guest.run("echo none >/sys/block/ublkb0/queue/scheduler");
        let others = [
            (
                "nbd, nbdkit",
                // From the end of the numbers: Tyche uses the first ones.
                "nbd-client 10.9.0.1 10809 /dev/nbd15 -connections 2 >/dev/null; echo /dev/nbd15",
            ),
            (
                "aoe, vblade",
                "modprobe aoe aoe_iflist=eth0; D=/dev/etherd/e0.0\n\
                 for i in {1..100}; do\n\
                 [ -b $D ] && echo $D && exit\n\
                 echo >/dev/etherd/discover; sleep 0.1\n\
                 done; exit 1",
            ),
        ];
        let others = others.map(|(name, script)| Device { name, path: attach(&guest, script) });
        let path = connect_nvme(&guest, "tcp", "10.9.0.3");
        let nvme = Device { name: "nvme-tcp, nvmet", path };
        let devices = ours.into_iter().chain(others).chain([nvme]).collect();
        (guest, devices)
    }

    /// Disconnects the devices that would hang without their servers.
    pub(super) fn disconnect(&self, guest: &Guest) {
        assert_eq!(self.servers.len(), 2);
        guest.run(
            "tyche disconnect --all\n\
             nbd-client -disconnect /dev/nbd15\n\
             echo 1 >/sys/class/nvme/nvme0/delete_controller\n\
             modprobe -r aoe",
        );
        self.nvmet.run("rm /sys/kernel/config/nvmet/ports/1/subsystems/disk");
    }
}

/// Has the kernel of a guest serve a disk in memory by NVMe over fabrics.
pub(crate) fn serve_nvme(guest: &Guest, transport: &str, address: &str, size_mib: u32) {
    guest.run(&format!(
        "modprobe nvmet-{transport}; modprobe brd rd_nr=1 rd_size={}\n\
         mount -t configfs configfs /sys/kernel/config; cd /sys/kernel/config/nvmet\n\
         mkdir -p subsystems/disk/namespaces/1 ports/1\n\
         echo 1 >subsystems/disk/attr_allow_any_host\n\
         echo /dev/ram0 >subsystems/disk/namespaces/1/device_path\n\
         echo 1 >subsystems/disk/namespaces/1/enable\n\
         cd ports/1; echo ipv4 >addr_adrfam; echo {transport} >addr_trtype\n\
         echo {address} >addr_traddr; echo 4420 >addr_trsvcid\n\
         ln -s /sys/kernel/config/nvmet/subsystems/disk subsystems/disk",
        size_mib * 1024
    ));
}

/// Connects that disk; `None` if that fails.
pub(crate) fn connect_nvme(guest: &Guest, transport: &str, address: &str) -> Option<String> {
    let script = format!(
        "modprobe nvme-{transport}; D=/dev/nvme0n1\n\
         printf transport={transport},traddr={address},trsvcid=4420,nqn=disk >/dev/nvme-fabrics\n\
         for i in {{1..100}}; do [ -b $D ] && echo $D && exit; sleep 0.1; done; exit 1"
    );
    attach(guest, &script)
}

/// The device that a script prints, if it succeeds.
fn attach(guest: &Guest, script: &str) -> Option<String> {
    let done = guest.start(script).finish(PATIENCE);
    if done.code != 0 {
        println!("{script}\nexit code {}: {}", done.code, done.output);
        return None;
    }
    done.output.lines().last().map(str::to_owned)
}

//! The Fibre Channel of a guest's kernel: libfc's initiator, and tcm_fc's target.

use tyche_fcoe::fc::wire::Wwn;

use crate::rig::Guest;

/// Directory of the kernel's targets.
const TARGETS: &str = "/sys/kernel/config/target";

/// The port of a guest's kernel.
pub(super) struct LinuxPort<'a> {
    guest: &'a Guest,
    interface: &'static str,
    /// The parameter of the kernel that makes it.
    create: &'static str,
    pub(super) wwpn: Wwn,
}

/// Makes a port without a fabric.
const WITHOUT_FABRIC: &str = "create_vn2vn";
/// Makes one in a fabric: what the kernel does by default.
const IN_FABRIC: &str = "create";

impl<'a> LinuxPort<'a> {
    /// Makes the port of an initiator.
    pub(super) fn initiator(guest: &'a Guest) -> Self {
        Self::initiator_on(guest, "eth0")
    }

    /// Makes the port of an initiator on that interface.
    pub(super) fn initiator_on(guest: &'a Guest, interface: &'static str) -> Self {
        Self::make_initiator(guest, interface, WITHOUT_FABRIC)
    }

    /// Makes the port of an initiator in a fabric.
    pub(super) fn initiator_in_fabric(guest: &'a Guest) -> Self {
        Self::make_initiator(guest, "eth0", IN_FABRIC)
    }

    fn make_initiator(guest: &'a Guest, interface: &'static str, create: &'static str) -> Self {
        guest.run("modprobe --all fcoe sd_mod sg");
        let port = Self { guest, interface, create, wwpn: name(guest, interface) };
        port.create();
        port
    }

    /// Makes the port of a target with a disk in a file for one initiator. The kernel's target is
    /// an initiator as well.
    pub(super) fn target(guest: &'a Guest, host: Wwn) -> Self {
        Self::make_target(guest, host, WITHOUT_FABRIC)
    }

    /// The same in a fabric.
    pub(super) fn target_in_fabric(guest: &'a Guest, host: Wwn) -> Self {
        Self::make_target(guest, host, IN_FABRIC)
    }

    fn make_target(guest: &'a Guest, host: Wwn, create: &'static str) -> Self {
        let interface = "eth0";
        let wwpn = name(guest, interface);
        guest.run(&format!(
            "modprobe --all fcoe tcm_fc target_core_file\n\
             mountpoint -q /sys/kernel/config || mount -t configfs config /sys/kernel/config\n\
             truncate -s {DISK_LEN} /tmp/disk\n\
             store={TARGETS}/core/fileio_0/disk; mkdir -p $store\n\
             echo fd_dev_name=/tmp/disk,fd_dev_size={DISK_LEN} >$store/control\n\
             echo disk >$store/wwn/vpd_unit_serial; echo 1 >$store/enable\n\
             for it in emulate_tpu emulate_tpws unmap_zeroes_data; do\n\
             echo 1 >$store/attrib/$it\n\
             done\n\
             group={TARGETS}/fc/{wwpn}/tpgt_1\n\
             mkdir -p $group/lun/lun_0; ln -s $store $group/lun/lun_0/disk\n\
             mkdir -p $group/acls/{host}/lun_0\n\
             ln -s $group/lun/lun_0 $group/acls/{host}/lun_0/disk"
        ));
        let port = Self { guest, interface, create, wwpn };
        port.create();
        port
    }

    /// Makes the port again, after [`remove`](Self::remove).
    pub(super) fn create(&self) {
        self.tell(self.create);
    }

    /// Waits until the port is up: in a fabric, logged in with it.
    pub(super) fn await_online(&self) {
        self.guest.wait_until("grep -q Online /sys/class/fc_host/*/port_state");
    }

    /// Removes the port; it logs out.
    pub(super) fn remove(&self) {
        self.tell("destroy");
    }

    fn tell(&self, parameter: &str) {
        let interface = self.interface;
        self.guest.run(&format!("echo {interface} >/sys/module/libfcoe/parameters/{parameter}"));
    }

    /// Waits until the kernel is logged in with that port.
    pub(super) fn await_login(&self, of: Wwn) {
        self.guest.wait_until(&is_online(of));
    }

    /// Waits until it is not.
    pub(super) fn await_logout(&self, of: Wwn) {
        self.guest.wait_until(&format!("! {{ {}; }}", is_online(of)));
    }

    /// Waits until the kernel has a disk; returns its device.
    pub(super) fn await_disk(&self) -> String {
        self.guest.wait_until("compgen -G '/sys/block/sd*/capability' >/dev/null");
        format!("/dev/{}", self.guest.run("ls /sys/block | grep ^sd").trim())
    }

    /// The N_Port_ID.
    pub(super) fn id(&self) -> u32 {
        self.await_online();
        let said = self.guest.run("cat /sys/class/fc_host/*/port_id");
        u32::from_str_radix(said.trim().trim_start_matches("0x"), 16).unwrap()
    }
}

/// Bytes of the target's disk.
pub(super) const DISK_LEN: u64 = 384 << 20;

/// The name that the kernel gives to a port.
fn name(guest: &Guest, interface: &str) -> Wwn {
    let mac = guest.run(&format!("cat /sys/class/net/{interface}/address"));
    Wwn::parse(&format!("20:00:{}", mac.trim())).unwrap()
}

/// The condition that a port is there for the kernel.
fn is_online(port: Wwn) -> String {
    let wwpn = format!("{:#018x}", port.0);
    format!(
        "cd /sys/class/fc_remote_ports; for port in $(grep -lx {wwpn} */port_name); do \
         cat ${{port%name}}state; done | grep -qx Online"
    )
}

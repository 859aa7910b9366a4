//! Machines that are broken on purpose, as directories: each fault is named, and has a remedy.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use serde_json::{Value, json};
use tempfile::TempDir;
use uuid::Uuid;

use super::machine::Interface;
use super::*;

/// A change that breaks an interface.
type Change = fn(&mut Interface);
/// Files, by their paths.
type Files<'a> = &'a [(&'a str, &'a str)];

/// A machine below a directory.
struct Made {
    dir: TempDir,
}

impl Made {
    /// A machine with which nothing is wrong, with these files as well.
    fn with(files: Files<'_>) -> Self {
        let made = Self { dir: tempfile::tempdir().unwrap() };
        for (path, text) in [
            ("/proc/sys/kernel/osrelease", "6.12.1-amd64\n"),
            ("/proc/sys/kernel/io_uring_disabled", "0\n"),
            ("/proc/self/status", "Name:\ttyche\nCapEff:\t000001ffffffffff\n"),
            ("/proc/self/limits", "Max open files            1024    524288    files\n"),
            ("/dev/ublk-control", ""),
            ("/etc/machine-id", "0123456789abcdef0123456789abcdef\n"),
            ("/sys/devices/system/cpu/online", "0-7\n"),
        ] {
            made.write(path, text);
        }
        files.iter().for_each(|(path, text)| made.write(path, text));
        made
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path.trim_start_matches('/'))
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn machine(&self) -> Machine {
        let eth1 = Interface {
            name: "eth1".to_owned(),
            mac: "02:00:5e:10:00:01".to_owned(),
            mtu: 9000,
            is_up: true,
            is_running: true,
            master: None,
        };
        Machine { interfaces: vec![eth1], ..Machine::of_files(self.dir.path()) }
    }
}

/// All findings without the network, each checked to have a remedy.
fn findings(machine: &Machine) -> Vec<Finding> {
    let themes = THEMES.iter().chain([&FIREWALL]);
    let found: Vec<_> = themes.flat_map(|(_, check)| check(machine)).collect();
    for finding in &found {
        println!(
            "{} {}: {} -> {}",
            finding.severity.name(),
            finding.id,
            finding.what,
            finding.remedy
        );
        assert!(!finding.remedy.is_empty() && !finding.what.contains('\n'), "{finding:?}");
    }
    found
}

/// The only finding on a machine: name, severity, code, and what was found.
fn only(machine: &Machine) -> (String, Severity, Code, String) {
    let found = findings(machine);
    let [finding] = &found[..] else { panic!("{found:#?}") };
    let Finding { id, severity, code, what, .. } = finding.clone();
    (id, severity, code, what)
}

/// Checks that a machine with these files has one finding of that name.
fn assert_found(id: &str, severity: Severity, files: Files<'_>) {
    let made = Made::with(files);
    let (found, how_bad, _, what) = only(&made.machine());
    assert_eq!((&*found, how_bad), (id, severity), "{what}");
}

/// A session of `vm1` with these fields.
fn session(fields: &Value) -> crate::shared::report::SessionReport {
    let mut report = json!({
        "session": Uuid::nil(), "host": Uuid::nil(), "export": "vm1", "kind": "ublk",
        "device": "/dev/ublkb0", "pid": 7,
    });
    report.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    serde_json::from_value(report).unwrap()
}

fn target(fields: Value) -> crate::shared::report::TargetReport {
    serde_json::from_value(fields).unwrap()
}

#[test]
fn a_machine_with_which_nothing_is_wrong_has_no_finding() {
    let made = Made::with(&[]);
    assert_eq!(findings(&made.machine()), []);
    assert_eq!(worst(&[]), None);
}

#[test]
fn kernels_without_what_tyche_needs_are_named() {
    assert_found("kernel-old", Severity::Error, &[("/proc/sys/kernel/osrelease", "5.10.0-9\n")]);
    let disabled = [("/proc/sys/kernel/io_uring_disabled", "2\n")];
    assert_found("io-uring-disabled", Severity::Error, &disabled);
    let made = Made::with(&[]);
    fs::remove_file(made.path("/dev/ublk-control")).unwrap();
    let (id, severity, ..) = only(&made.machine());
    assert_eq!((&*id, severity), ("no-block-device", Severity::Warning));
    made.write("/lib/modules/6.12.1-amd64/modules.dep", "kernel/drivers/block/nbd.ko.xz:\n");
    assert_eq!(only(&made.machine()).0, "no-ublk");
    made.write("/lib/modules/6.12.1-amd64/modules.dep", "kernel/drivers/block/ublk_drv.ko:\n");
    assert_eq!(findings(&made.machine()), []);
    // A container without the node.
    made.write("/sys/module/ublk_drv/refcnt", "0");
    let found = findings(&made.machine());
    assert_eq!((&*found[0].id, found[0].code), ("device-node-missing", Code::Device));
}

#[test]
fn a_line_that_wants_a_driver_which_is_not_there_is_named() {
    let made = Made::with(&[("/etc/tyche/tychetab", "vm1 - as=nbd\n")]);
    let mut machine = made.machine();
    machine.sessions = vec![session(&json!({ "state": "live" }))];
    let (id, _, code, what) = only(&machine);
    assert_eq!((&*id, code), ("module-missing", Code::Device));
    assert!(what.contains("vm1") && what.contains("no module nbd"), "{what}");
}

#[test]
fn missing_privileges_and_small_limits_are_named() {
    let without = |bits: u64| format!("CapEff:\t{:016x}\n", 0x1ff_ffff_ffff_u64 & !bits);
    let raw = &*without(1 << 13);
    let made = Made::with(&[("/proc/self/status", raw)]);
    let (id, severity, code, what) = only(&made.machine());
    assert_eq!((&*id, severity, code), ("capability-missing", Severity::Error, Code::Permission));
    assert!(what.contains("CAP_NET_RAW"), "{what}");
    let admin = &*without(1 << 21);
    assert_found("capability-missing", Severity::Warning, &[("/proc/self/status", admin)]);
    let files = "Max open files            1024    1024    files\n";
    assert_found("open-files-few", Severity::Warning, &[("/proc/self/limits", files)]);
    let memory = "Max locked memory         65536   65536   bytes\n";
    let lock = &*without(1 << 14);
    let made = Made::with(&[("/proc/self/limits", memory), ("/proc/self/status", lock)]);
    let found = findings(&made.machine());
    assert!(found.iter().any(|it| it.id == "memlock-small"), "{found:?}");
}

#[test]
fn interfaces_that_are_named_and_cannot_be_used_are_named_with_who_names_them() {
    let made = Made::with(&[("/etc/tyche/target.toml", "link = [\"eth1\", \"eth2\"]\n")]);
    let mut machine = made.machine();
    machine.targets = vec![target(json!({ "name": "store1" }))];
    let eth2 = Interface { name: "eth2".to_owned(), ..machine.interfaces[0].clone() };
    let (id, _, code, what) = only(&machine);
    assert_eq!((&*id, code), ("link-missing", Code::Link));
    assert!(what.contains("target.toml names eth2"), "{what}");
    let broken: [(&str, Severity, Change); 5] = [
        ("link-down", Severity::Error, |it| it.is_up = false),
        ("link-no-carrier", Severity::Error, |it| it.is_running = false),
        ("link-member", Severity::Error, |it| it.master = Some("br0".to_owned())),
        ("mtu-too-small", Severity::Error, |it| it.mtu = 1000),
        ("mtu-not-jumbo", Severity::Note, |it| it.mtu = 1500),
    ];
    for (id, severity, break_it) in broken {
        let mut eth2 = eth2.clone();
        break_it(&mut eth2);
        machine.interfaces.truncate(1);
        machine.interfaces.push(eth2);
        let found = only(&machine);
        assert_eq!((&*found.0, found.1), (id, severity), "{}", found.3);
        assert!(found.3.contains("eth2"), "{}", found.3);
    }
    machine.interfaces.clear();
    let found = findings(&machine);
    assert!(found.iter().any(|it| it.id == "no-interface"), "{found:?}");
}

#[test]
fn cards_whose_interrupts_offloads_or_rings_cost_speed_are_named() {
    let made = Made::with(&[
        ("/etc/tyche/target.toml", "link = [\"eth1\"]\n"),
        ("/sys/class/net/eth1/duplex", "half\n"),
        ("/sys/class/net/eth1/device/msi_irqs/41", ""),
        ("/sys/class/net/eth1/device/msi_irqs/42", ""),
        ("/sys/class/net/eth1/device/msi_irqs/43", ""),
        ("/sys/class/net/eth1/device/numa_node", "1\n"),
        ("/sys/class/net/eth1/queues/rx-0/rps_cpus", "00ff\n"),
        ("/sys/devices/system/node/node1/cpulist", "4-7\n"),
        ("/proc/irq/41/smp_affinity_list", "0\n"),
        ("/proc/irq/42/smp_affinity_list", "0\n"),
        ("/proc/irq/43/smp_affinity_list", "0\n"),
    ]);
    let mut machine = made.machine();
    machine.targets = vec![target(json!({ "name": "store1" }))];
    machine.tool = |program, args| {
        assert_eq!(program, "ethtool");
        let ring = "Pre-set maximums:\nRX:\t\t4096\nTX:\t\t4096\nCurrent:\nRX:\t\t256\n";
        (args == ["-g", "eth1"]).then(|| ring.to_owned())
    };
    let ids: Vec<_> = findings(&machine).into_iter().map(|it| it.id).collect();
    assert_eq!(ids, ["half-duplex", "ring-small", "irq-on-one-cpu", "irq-off-node", "rps-on"]);
    made.write("/etc/tyche/target.toml", "link = [\"udp:10.0.0.1\"]\n");
    let mut machine = Machine {
        interfaces: machine.interfaces,
        targets: machine.targets,
        ..Machine::of_files(made.dir.path())
    };
    machine.tool = |program, args| match (program, args) {
        ("ethtool", ["-k", "eth1"]) => {
            Some("generic-receive-offload: off\ntx-udp-segmentation: off [fixed]\n".to_owned())
        }
        ("nft", _) => Some(
            "table inet f {\nchain in {\ntype filter hook input priority 0; policy drop;\n}\n}\n"
                .to_owned(),
        ),
        _ => None,
    };
    let ids: Vec<_> = findings(&machine).into_iter().map(|it| it.id).collect();
    assert_eq!(ids, ["offload-off", "firewall-drops"]);
}

/// A target that exports `/dev/sdb`.
fn exporting(files: Files<'_>) -> (Made, Machine) {
    let config = "[[export]]\nname = \"vm1\"\npath = \"/dev/disk/by-id/b\"\n";
    let made = Made::with(&[("/etc/tyche/target.toml", config), ("/dev/sdb", "")]);
    fs::create_dir_all(made.path("/dev/disk/by-id")).unwrap();
    symlink("../../sdb", made.path("/dev/disk/by-id/b")).unwrap();
    files.iter().for_each(|(path, text)| made.write(path, text));
    let mut machine = made.machine();
    machine.targets = vec![target(json!({ "name": "store1" }))];
    (made, machine)
}

#[test]
fn whoever_else_would_take_the_disks_is_named() {
    let cases: [(&str, Severity, Files<'_>); 6] = [
        ("export-in-use", Severity::Error, &[("/sys/block/sdb/holders/dm-3", "")]),
        ("export-in-use", Severity::Error, &[("/sys/block/sdb/sdb1/holders/md0", "")]),
        (
            "export-mounted",
            Severity::Error,
            &[("/sys/block/sdb/size", "8"), ("/proc/self/mounts", "/dev/sdb1 /srv ext4 rw 0 0\n")],
        ),
        ("lvm-scans-export", Severity::Warning, &[("/etc/lvm/lvm.conf", "devices {\n}\n")]),
        ("md-scans-export", Severity::Note, &[("/etc/mdadm/mdadm.conf", "HOMEHOST <system>\n")]),
        (
            "multipath-takes-devices",
            Severity::Warning,
            &[("/etc/multipath.conf", "blacklist_exceptions {\n devnode \"^ublk\"\n}\n")],
        ),
    ];
    for (id, severity, files) in cases {
        let (_made, machine) = exporting(files);
        let found = only(&machine);
        assert_eq!((&*found.0, found.1), (id, severity), "{}", found.3);
    }
    let kept_off = "devices {\n global_filter = [ \"r|^/dev/sdb$|\" ]\n}\n";
    let (_made, machine) =
        exporting(&[("/etc/lvm/lvm.conf", kept_off), ("/etc/mdadm.conf", "AUTO -all\n")]);
    assert_eq!(findings(&machine), []);
    let devices = [
        ("/etc/lvm/lvm.conf", "devices {\n use_devicesfile = 1\n}\n"),
        ("/etc/lvm/devices/system.devices", "IDTYPE=devname IDNAME=/dev/sda DEVNAME=/dev/sda\n"),
    ];
    assert_eq!(findings(&exporting(&devices).1), []);
}

#[test]
fn files_with_mistakes_are_named_with_their_lines() {
    let tab = |text: &str| {
        let made = Made::with(&[("/etc/tyche/tychetab", text)]);
        only(&made.machine())
    };
    let (id, severity, code, what) = tab("# x\nvm1 - queue-size=0\n");
    assert_eq!((&*id, severity, code), ("tychetab-line", Severity::Error, Code::Config));
    assert!(what.contains("line 2: `queue-size=0`"), "{what}");
    let (id, severity, _, what) = tab("vm1\nvm2 - noauto\n");
    assert_eq!((&*id, severity), ("tychetab-not-connected", Severity::Warning));
    assert!(what.starts_with("vm1 is in tychetab"), "{what}");
    let made = Made::with(&[("/etc/tyche/target.toml", "name = \"a\"\nlinks = 3\n")]);
    let (id, _, code, what) = only(&made.machine());
    assert_eq!((&*id, code), ("target-toml", Code::Config));
    assert!(what.contains("line 2"), "{what}");
    assert_found("target-not-running", Severity::Warning, &[("/etc/tyche/target.toml", "")]);
    let export = "[[export]]\nname = \"a\"\npath = \"mem:1M\"\n";
    let twice = Made::with(&[("/etc/tyche/target.toml", &format!("{export}{export}"))]);
    let mut machine = twice.machine();
    machine.targets = vec![target(json!({ "name": "store1" }))];
    assert_eq!(only(&machine).0, "target-toml");
    let pool = "[[pool]]\nname = \"thin\"\npath = \"lvm-thin:vg0/pool0\"\n";
    let files = [("/etc/tyche/target.toml", pool), ("/usr/sbin/lvcreate", "")];
    let made = Made::with(&files);
    let mut machine = made.machine();
    machine.targets = vec![target(json!({ "name": "store1" }))];
    let (id, severity, code, what) = only(&machine);
    assert_eq!((&*id, severity, code), ("lvm-missing", Severity::Error, Code::Device));
    assert!(what.contains("needs thin_check"), "{what}");
    assert_found("host-id", Severity::Error, &[("/etc/tyche/host-id", "host1\n")]);
    assert_found("machine-id", Severity::Note, &[("/etc/machine-id", "uninitialized\n")]);
}

#[test]
fn keys_that_others_can_read_and_known_targets_that_make_no_sense_are_named() {
    let made = Made::with(&[]);
    let key = made.path("/etc/tyche/key");
    tyche_session::make_key(&key).unwrap();
    assert_eq!(findings(&made.machine()), []);
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let (id, severity, code, what) = only(&made.machine());
    assert_eq!((&*id, severity, code), ("key-file", Severity::Error, Code::Config));
    assert!(what.contains("/etc/tyche/key: others"), "{what}");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    made.write("/etc/tyche/known-targets", "# mine\nnonsense\n");
    let mode = fs::Permissions::from_mode(0o644);
    fs::set_permissions(made.path("/etc/tyche/known-targets"), mode).unwrap();
    let (id, _, _, what) = only(&made.machine());
    assert_eq!(id, "known-targets");
    assert!(what.contains("line 2"), "{what}");
    fs::remove_file(made.path("/etc/tyche/known-targets")).unwrap();
    // A key that a line names, and that is not there.
    made.write("/etc/tyche/tychetab", "vm1 - noauto,key=/etc/tyche/other,target-key=ask\n");
    let (id, _, code, _) = only(&made.machine());
    assert_eq!((&*id, code), ("key-file", Code::NotFound));
}

#[test]
fn sessions_targets_and_what_dead_ones_have_left_are_named() {
    let made = Made::with(&[]);
    let link = json!({ "interface": "eth1", "live": true, "frame_len": 1514,
        "frame_len_max": 9014, "channels": [{}] });
    let busy = |overruns: u64| {
        json!({ "interface": "eth1", "live": true, "tx_frames": 20_000, "rx_frames": 20_000,
            "overruns": overruns })
    };
    let cases = [
        ("session-dead", Code::Device, json!({ "state": "dead", "waits": false, "clear": [] })),
        ("session-silent", Code::Unreachable, json!({ "state": "silent", "problem": "stopped" })),
        ("session-lost", Code::Unreachable, json!({ "state": "lost", "problem": "gone" })),
        ("session-starting", Code::Unreachable, json!({ "state": "starting" })),
        ("session-failed", Code::Device, json!({ "state": "failed", "problem": "gone" })),
        ("mtu-on-the-way", Code::Other, json!({ "state": "live", "links": [link] })),
        (
            "loss-on-the-way",
            Code::Other,
            json!({ "state": "live", "links": [busy(0)],
            "channel": { "retransmitted": 300 } }),
        ),
        ("overruns", Code::Other, json!({ "state": "live", "links": [busy(50)] })),
    ];
    for (id, code, fields) in cases {
        let mut machine = made.machine();
        machine.sessions = vec![session(&fields)];
        let found = only(&machine);
        assert_eq!((&*found.0, found.2), (id, code), "{}", found.3);
    }
    let mut machine = made.machine();
    let problems = json!({
        "name": "store1", "exports": [{ "export": "vm1", "problem": "it is gone" }],
        "links": [{ "interface": "eth1", "problem": "its thread hangs" }],
    });
    machine.targets = vec![target(problems)];
    let found = findings(&machine);
    let ids: Vec<_> = found.iter().map(|it| &*it.id).collect();
    assert_eq!(ids, ["export-problem", "target-link"]);
    assert_eq!(worst(&found), Some(Code::Device), "a disk is worse than a link");
    machine.targets = Vec::new();
    made.write("/sys/block/nbd3/backend", "tyche-7a26e711\n");
    made.write("/sys/block/nbd4/backend", "other\n");
    made.write("/sys/block/loop2/loop/backing_file", "/tyche-1/disk\n");
    let found = findings(&machine);
    let ids: Vec<_> = found.iter().map(|it| &*it.id).collect();
    assert_eq!(ids, ["orphaned-device"; 2]);
    assert!(found[0].what.contains("/dev/loop2") && found[1].what.contains("/dev/nbd3"));
    assert_eq!(worst(&found), Some(Code::Other), "warnings are 1");
}

#[test]
fn clocks_units_and_fstab_are_looked_at() {
    let source = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    assert_found("clock-slow", Severity::Warning, &[(source, "hpet\n")]);
    let made = Made::with(&[("/proc/cpuinfo", "flags\t: fpu hypervisor\n")]);
    tyche_session::make_key(&made.path("/etc/tyche/key")).unwrap();
    assert_eq!(only(&made.machine()).0, "vmgenid-missing");
    for (file, text) in [
        ("tyche@vm1.service.d/time.conf", "[Service]\nTimeoutStartSec=90\n"),
        ("tyche-target.service", "[Service]\nTimeoutStopSec=5s\n"),
    ] {
        let path = format!("/etc/systemd/system/{file}");
        assert_found("unit-timeout", Severity::Warning, &[(&path, text)]);
    }
    let line = "/dev/disk/by-id/tyche-1 /srv ext4 defaults 0 2\n";
    assert_found("fstab-netdev", Severity::Warning, &[("/etc/fstab", line)]);
    let line = "/dev/disk/by-id/tyche-1 /srv ext4 _netdev,nofail 0 2\n";
    assert_eq!(findings(&Made::with(&[("/etc/fstab", line)]).machine()), []);
}

#[test]
fn directories_that_are_none_and_daemons_that_cannot_be_asked_are_named() {
    let made = Made::with(&[]);
    let mut machine = made.machine();
    machine.directories = vec![made.path("/var/lib/tyche")];
    assert_eq!(findings(&machine), []);
    made.write("/var/lib", "a file\n");
    let (id, severity, code, what) = only(&machine);
    assert_eq!((&*id, severity, code), ("directory", Severity::Error, Code::Permission));
    assert!(what.ends_with("/var/lib is no directory"), "{what}");
    machine.directories = Vec::new();
    machine.unasked = Some("/run/tyche: permission denied".to_owned());
    assert_eq!(only(&machine).0, "daemons-unasked");
}

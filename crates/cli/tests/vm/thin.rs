//! A thin pool of LVM as a pool, on a stock kernel: the target runs in the guest, with the volume
//! group on a file, and its exports are connected there, over the guest's own loopback.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use serde_json::{Value, json};

use crate::attachment::Attachment;
use crate::rig::{Guest, MIB, Rig, Session, Shape, wait_until};

const THIS: Attachment = Attachment::Ublk;
/// Time limit for a step: LVM's programs take their time in an emulated machine.
const LIMIT: Duration = Duration::from_secs(400);
/// Where the target listens.
const LINK: &str = "--link udp:127.0.0.1:9000";
/// `tyche`, asked again if the emulated machine stands still (`thin.sh`).
const ASK: &str = ". /share/thin.sh; ask";
/// A target with a pool of that size, whose programs of LVM may be told to kill it (`thin.sh`).
const START: &str = "\
    modprobe -a loop dm-thin-pool\n\
    export DM_DISABLE_UDEV=1\n\
    truncate -s 600M /tmp/pv; losetup /dev/loop0 /tmp/pv\n\
    vgcreate -q vg0 /dev/loop0\n\
    lvcreate -q --yes --type thin-pool --name pool --size $SIZE vg0\n\
    lvchange -q --errorwhenfull y vg0/pool\n\
    . /share/thin.sh; wrap\n\
    printf 'name = \"store\"\\nlink = [\"udp:127.0.0.1:9000\"]\\n[[pool]]\\nname = \"thin\"\\n\
    path = \"lvm-thin:vg0/pool\"\\n' >/tmp/target.toml\n";

/// A guest with a target.
struct Store {
    guest: Guest,
    _rig: Rig,
}

impl Store {
    /// A guest whose thin pool has that size, with a running target.
    fn start(size: &str) -> Self {
        let rig = Rig::new();
        let guest = rig.boot(0, &Shape { memory_mib: 2048, ..Shape::from(THIS) });
        fs::write(guest.shared("thin.sh"), include_str!("thin.sh")).unwrap();
        let store = Self { guest, _rig: rig };
        store.run(&format!("SIZE={size}\n{START}"));
        store.serve("");
        store
    }

    /// Runs a script in the guest, which must succeed.
    fn run(&self, script: &str) -> String {
        self.guest.start(script).succeed(LIMIT)
    }

    /// Starts the target; `before`: what runs it.
    fn serve(&self, before: &str) {
        self.run(&format!(". /share/thin.sh; serve {before}"));
    }

    fn kill(&self) {
        self.run(". /share/thin.sh; kill_target");
    }

    /// `tyche export`, with what it prints.
    fn export(&self, args: &str) -> Value {
        let said = self.run(&format!("{ASK} export {args} -o json"));
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
    }

    /// The same, refused.
    fn refuse(&self, args: &str, code: i32, said: &[&str]) {
        let done = self.guest.start(&format!("{ASK} export {args}")).finish(LIMIT);
        assert_eq!(done.code, code, "{args}: {}", done.output);
        for part in said {
            assert!(done.output.contains(part), "{args}: no {part} in {}", done.output);
        }
    }

    fn target(&self) -> Value {
        self.export("list")["targets"][0].clone()
    }

    fn listed(&self, name: &str) -> Value {
        let target = self.target();
        let found = target["exports"].as_array().unwrap().iter().find(|it| it["export"] == name);
        found.unwrap_or_else(|| panic!("no {name} in {target}")).clone()
    }

    /// The names of the exports, and those of the volumes in the group.
    fn all(&self) -> (BTreeSet<String>, BTreeSet<String>) {
        let target = self.target();
        let exports = target["exports"].as_array().unwrap().iter();
        let exports = exports.map(|it| it["export"].as_str().unwrap().to_owned());
        let volumes = self
            .guest
            .run("lvs --noheadings --options lv_name --select 'lv_name!=pool' vg0 2>/dev/null");
        let volumes = volumes.split_whitespace().map(str::to_owned);
        (exports.collect(), volumes.collect())
    }

    /// Checks that these exports are there, each with a volume of its name, and no other.
    fn assert_all(&self, names: &[&str], about: &str) {
        let wanted: BTreeSet<_> = names.iter().map(|&it| it.to_owned()).collect();
        assert_eq!(self.all(), (wanted.clone(), wanted), "{about}");
    }

    fn connect(&self, export: &str) -> Session<'_> {
        Session::connect_over(&self.guest, THIS, export, LINK)
    }

    /// Writes a byte to the first block of an export.
    fn write(&self, export: &str, byte: u8) {
        let session = self.connect(export);
        session.run(&format!(
            "printf '\\x{byte:02x}' >/tmp/byte; head -c 4095 /dev/zero >>/tmp/byte\n\
             dd if=/tmp/byte of=$D bs=4k oflag=direct status=none"
        ));
        session.disconnect();
    }

    /// The first bytes of volumes.
    fn starts(&self, volumes: &[&str]) -> Vec<u8> {
        let first = |volume: &&str| {
            let said = self.run(&format!(
                "dd if=/dev/vg0/{volume} bs=4k count=1 iflag=direct status=none | od -An -N1 -tu1"
            ));
            said.trim().parse().unwrap()
        };
        volumes.iter().map(first).collect()
    }

    /// Runs programs of LVM, in a guest without udev.
    fn lvm(&self, script: &str) {
        self.run(&format!("export DM_DISABLE_UDEV=1\n{script}"));
    }

    /// Tells the program of LVM to kill the target before, after or while it works.
    fn kill_at(&self, program: &str, moment: &str) {
        self.run(&format!("echo {moment} >/tmp/wrap/{program}.kill"));
    }
}

#[test]
#[ignore = "needs a virtual machine: cargo xtask vm"]
fn volumes_are_made_where_nothing_else_is() {
    let store = Store::start("256M");
    let check = store.run("tyche serve --check --config /tmp/target.toml");
    assert!(check.contains("is valid") && !check.contains("pool thin:"), "{check}");
    let make = "add vm1 --pool thin --size 64M";
    let added = store.export(make);
    assert_eq!((&added["changed"], &added["size"]), (&json!(true), &json!(64 * MIB)));
    assert_eq!(store.export(make)["changed"], false);
    store.refuse("add vm1 --pool thin --size 68M", 10, &["with 64.0 MiB"]);
    store.refuse("add x --pool thin --size 65M", 2, &["write a multiple of 4.0 MiB"]);
    let tags = store.run("lvs --noheadings -o lv_tags vg0/vm1 2>/dev/null");
    assert!(tags.trim().starts_with("tyche-"), "{tags}");
    // Names that LVM does not take, and one that would be an option.
    store.export("add a/b --pool thin --size 4M");
    store.run(&format!("{ASK} export add --pool thin --size 4M -- -rf"));
    store.run("[ -b /dev/vg0/a+2fb ]; [ -b /dev/vg0/+2drf ]");
    store.export("remove a/b --delete");
    store.run(&format!("{ASK} export remove --delete -- -rf"));
    store.assert_all(&["vm1"], "removed");
    // What is there is nobody's but theirs.
    store.lvm("lvcreate -q --yes -V 16M --thinpool pool --name theirs vg0");
    store.refuse("add theirs --pool thin --size 16M", 10, &["is there, and is no export"]);
    store.export("add own=/dev/vg0/theirs");
    store.refuse("snapshot own x", 9, &["no target has made /dev/vg0/theirs"]);
    store.refuse("remove own --delete", 2, &["is in no pool"]);
    assert_eq!(store.listed("own")["pool"], Value::Null);
    store.export("rename own mine");
    store.export("remove mine");
    store.lvm("lvremove -q --yes vg0/theirs");
    store.kill();
}

/// Snapshots, clones, larger volumes, other names, and a machine that is started again.
#[test]
#[ignore = "needs a virtual machine: cargo xtask vm"]
fn volumes_are_cloned_enlarged_and_renamed() {
    let store = Store::start("256M");
    store.export("add vm1 --pool thin --size 64M");
    store.write("vm1", 1);
    let taken = store.export("snapshot vm1 snap");
    assert_eq!((&taken["changed"], &taken["read_only"]), (&json!(true), &json!(true)));
    println!("RESULT writes waited for {} s at most", taken["pause_s"]);
    let again = store.export("snapshot vm1 snap");
    assert_eq!((&again["changed"], &again["pause_s"]), (&json!(false), &Value::Null));
    store.write("vm1", 2);
    store.export("clone snap copy");
    store.write("copy", 3);
    assert_eq!(store.starts(&["vm1", "snap", "copy"]), [2, 1, 3]);
    let tree = store.run(&format!("{ASK} export list --tree"));
    assert!(tree.contains("snapshot of vm1, ") && tree.contains("clone of snap, "), "{tree}");
    // Larger, under a host.
    let session = store.connect("vm1");
    store.export("resize vm1 96M");
    store.refuse("resize vm1 97M", 2, &["write a multiple of 4.0 MiB"]);
    store.refuse("resize vm1 64M", 2, &["disks only grow"]);
    session.disconnect();
    let session = store.connect("vm1");
    session.run(
        "[ $(blockdev --getsize64 $D) = 100663296 ]\n\
                 cmp -n 33554432 -i 67108864:0 $D /dev/zero",
    );
    store.refuse("rename vm1 vm2", 7, &["is connected by"]);
    session.disconnect();
    // Another name, and back.
    store.refuse("rename vm1 copy", 10, &["is there already"]);
    store.export("rename vm1 vm2");
    store.assert_all(&["vm2", "snap", "copy"], "renamed");
    store.export("rename vm2 vm1");
    check_usage(&store);
    // After a restart of the machine nothing is active.
    let uuid = store.listed("vm1")["uuid"].clone();
    store.kill();
    store.lvm("vgchange -q -an vg0; [ ! -e /dev/vg0/vm1 ]");
    store.serve("");
    store.assert_all(&["vm1", "snap", "copy"], "restarted");
    assert_eq!(store.starts(&["vm1", "snap", "copy"]), [2, 1, 3]);
    assert_eq!(store.listed("vm1")["uuid"], uuid);
    // A pool that would hand out what others have written is refused.
    store.kill();
    store.lvm("vgchange -q -an vg0; lvchange -q --zero n vg0/pool");
    let check = store.run("tyche serve --check --config /tmp/target.toml");
    assert!(check.contains("lvchange --zero y vg0/pool"), "{check}");
    store.serve("");
    store.refuse("add x --pool thin --size 4M", 9, &["lvchange --zero y vg0/pool"]);
    for export in ["vm1", "copy", "snap"] {
        store.export(&format!("remove {export} --delete"));
    }
    store.assert_all(&[], "all are deleted");
    store.kill();
}

/// Checks what a target says of a pool with three disks.
fn check_usage(store: &Store) {
    let mut pool = Value::Null;
    // LVM may take longer to answer than a report waits.
    wait_until("LVM has said what there is", || {
        pool = store.target()["pools"][0].clone();
        pool["provisioned"] == json!((96 + 64 + 64) * MIB)
    });
    assert_eq!(pool["path"], "lvm-thin:vg0/pool");
    assert_eq!((&pool["size"], &pool["problem"]), (&json!(256 * MIB), &Value::Null), "{pool}");
    let number = |key: &str| pool[key].as_u64().unwrap();
    assert!(number("used") > 0 && number("used") < 16 * MIB, "{pool}");
    assert!(number("metadata_used") > 0 && number("metadata_used") < number("metadata_size"));
    let vm1 = store.listed("vm1");
    assert_eq!(vm1["pool"], "thin");
    assert!((1..MIB).contains(&vm1["allocated"].as_u64().unwrap()), "{vm1}");
}

/// Snapshots while blocks are written: each has what had completed before the command, and no block
/// without those that had completed before it began.
#[test]
#[ignore = "needs a virtual machine: cargo xtask vm"]
fn snapshots_are_of_one_moment() {
    const DEPTH: usize = 8;
    const BLOCK: usize = 4096;
    let store = Store::start("400M");
    store.export("add vm1 --pool thin --size 64M");
    let session = store.connect("vm1");
    // Each block has its offset everywhere.
    let load = session.start(
        "fio --name=load --filename=$D --rw=write --bs=4k --size=64M --direct=1 \\\n\
         --ioengine=libaio --iodepth=8 --verify=pattern --verify_pattern=%o --do_verify=0 \\\n\
         --rate_iops=400 --minimal",
    );
    let written = || -> u64 {
        let sectors = session.run("set -- $(cat /sys/block/${D#/dev/}/stat); echo $7");
        sectors.trim().parse::<u64>().unwrap() * 512 / BLOCK as u64
    };
    session.await_requests(500);
    let mut under_load = 0;
    for round in 0..4 {
        let name = format!("snap{round}");
        let before = written();
        let taken = store.export(&format!("snapshot vm1 {name}"));
        let after = written();
        store.run(&format!("dd if=/dev/vg0/{name} of=/share/{name} bs=1M status=none"));
        let data = fs::read(store.guest.shared(&name)).unwrap();
        let mut found = Vec::new();
        for (number, block) in data.chunks(BLOCK).enumerate().skip(1) {
            let offset = ((number * BLOCK) as u64).to_le_bytes();
            if block.iter().any(|byte| *byte != 0) {
                assert!(block.chunks(8).all(|it| it == offset), "block {number} is torn");
                found.push(number);
            }
        }
        let count = found.len() as u64 + 1;
        let (last, pause) = (found.last().copied().unwrap_or(0), &taken["pause_s"]);
        println!("RESULT {name}: {before} blocks before, {count} in it, {after} after; {pause} s");
        assert!(count >= before, "{name}: {before} had completed, and {count} are in it");
        assert!(
            count <= after + DEPTH as u64,
            "{name}: {count} are in it, and {after} were written"
        );
        assert!(last - found.len() < DEPTH, "{name}: {} of {last} are in it", found.len());
        under_load += u32::from(after < 64 * MIB / BLOCK as u64);
        store.export(&format!("remove {name} --delete"));
    }
    assert!(under_load > 1, "the load was over");
    load.succeed(LIMIT);
    session.disconnect();
    store.assert_all(&["vm1"], "removed");
    store.kill();
}

/// Kills the target at each step of each command, starts it again, and looks whether what it serves
/// is what was answered, or all of it; the command succeeds then.
#[test]
#[ignore = "needs a virtual machine: cargo xtask vm"]
fn a_target_that_is_killed_has_made_all_or_nothing() {
    let store = Store::start("256M");
    store.export("add vm1 --pool thin --size 16M");
    store.write("vm1", 7);
    // A program that goes on without its target has its turn first.
    for (command, program, moment, names, is_kept) in [
        ("add vm2 --pool thin --size 16M", "lvcreate", "before", &["vm1"][..], false),
        ("add vm2 --pool thin --size 16M", "lvcreate", "after", &["vm1"], false),
        ("add vm2 --pool thin --size 16M", "lvcreate", "meanwhile", &["vm1"], false),
        ("snapshot vm1 snap", "lvcreate", "after", &["vm1"], false),
        ("snapshot vm1 snap", "lvcreate", "meanwhile", &["vm1"], false),
        ("rename vm1 vm3", "lvrename", "before", &["vm1"], false),
        ("rename vm1 vm3", "lvrename", "after", &["vm1"], false),
        ("rename vm1 vm3", "lvrename", "meanwhile", &["vm1"], false),
        ("remove copy --delete", "lvremove", "before", &["vm1"], true),
        ("remove copy --delete", "lvremove", "after", &["vm1"], true),
        ("remove copy --delete", "lvremove", "meanwhile", &["vm1"], true),
    ] {
        let about = format!("{command}, killed {moment} {program}");
        println!("{about}");
        if command.starts_with("remove") {
            store.export("clone vm1 copy");
        }
        store.kill_at(program, moment);
        let done = store.guest.start(&format!("{ASK} export {command}"));
        assert_ne!(done.finish(LIMIT).code, 0, "{about}");
        store.serve("");
        store.assert_all(names, &about);
        assert_eq!(store.starts(&["vm1"]), [7], "{about}");
        if is_kept {
            store.refuse(command, 3, &["copy"]);
            continue;
        }
        assert_eq!(store.export(command)["changed"], true, "{about}");
        match command.split_whitespace().nth(2) {
            Some("vm3") => drop(store.export("rename vm3 vm1")),
            Some("snap") => drop(store.export("remove snap --delete")),
            _ => drop(store.export("remove vm2 --delete")),
        }
        store.assert_all(&["vm1"], &about);
    }
    // Each replacement of the state, and the directory that is synced after it.
    let state = "/var/lib/tyche/targets/store";
    for (call, number, path, is_there) in [
        ("rename", 1, format!("{state}/exports.json.new"), false),
        ("fsync", 1, state.to_owned(), false),
        ("rename", 2, format!("{state}/exports.json.new"), false),
        ("fsync", 2, state.to_owned(), true),
    ] {
        let about = format!("killed at {call} {number} {path}");
        println!("{about}");
        store.kill();
        store.serve(&format!(
            "strace -f -o /tmp/strace.log -P {path} -e trace={call} \
             -e inject={call}:signal=KILL:when={number}+"
        ));
        let done = store.guest.start(&format!("{ASK} export snapshot vm1 snap"));
        assert_ne!(done.finish(LIMIT).code, 0, "{about}");
        store.kill();
        store.serve("");
        store.assert_all(if is_there { &["vm1", "snap"] } else { &["vm1"] }, &about);
        assert_eq!(store.export("snapshot vm1 snap")["changed"], !is_there, "{about}");
        store.export("remove snap --delete");
    }
    let kept = store.run(&format!("cat {state}/exports.json"));
    assert!(!kept.contains("leftover"), "{kept}");
    store.kill();
}

#[test]
#[ignore = "needs a virtual machine: cargo xtask vm"]
fn a_full_pool_fails_writes_and_is_named() {
    let store = Store::start("32M");
    store.export("add vm1 --pool thin --size 128M");
    store.export("add vm2 --pool thin --size 16M");
    let session = store.connect("vm1");
    let done = session.start("dd if=/dev/zero of=$D bs=1M count=64 oflag=direct");
    let done = done.finish(LIMIT);
    assert!(done.code != 0 && done.output.contains("No space left"), "{}", done.output);
    store.guest.wait_until("tyche list | grep -q 'is 100 % full'");
    println!("RESULT {}", store.run("tyche list | grep full").trim());
    session.disconnect();
    // Room comes back with the volume.
    store.export("remove vm1 --delete");
    store.write("vm2", 1);
    store.guest.wait_until("! tyche list | grep -q full");
    store.assert_all(&["vm2"], "removed");
    store.kill();
}

/// The unit of a Debian with udev: it has to be given the rights that LVM needs, and no more.
#[test]
#[ignore = "needs a virtual machine: cargo xtask vm"]
fn in_a_unit() {
    let rig = Rig::new();
    let kernel = THIS.kernel();
    let guest = rig.boot(0, &Shape { debian: true, memory_mib: 2048, ..Shape::from(kernel) });
    guest.put(&kernel.image().with_file_name("package-1.deb"), "package-1.deb");
    fs::write(guest.shared("thin.sh"), include_str!("thin.sh")).unwrap();
    let run = |script: &str| guest.start(script).succeed(LIMIT);
    run("dpkg --install /share/package-1.deb\n\
         . /share/thin.sh; borrow_lvm\n\
         modprobe -a loop dm-thin-pool\n\
         truncate -s 200M /tmp/pv; losetup /dev/loop0 /tmp/pv\n\
         vgcreate -q vg0 /dev/loop0\n\
         lvcreate -q --yes --type thin-pool --name pool --size 128M vg0\n\
         printf 'name = \"store\"\\nlink = [\"udp:127.0.0.1:9000\"]\\n[[pool]]\\nname = \"thin\"\\n\
         path = \"lvm-thin:vg0/pool\"\\n' >/etc/tyche/target.toml\n\
         systemctl start tyche-target");
    let add = "tyche export add vm1 --pool thin --size 16M";
    let done = guest.start(add).finish(LIMIT);
    assert!(done.code == 9 && done.output.contains("needs CAP_SYS_ADMIN"), "{}", done.output);
    // As the guide has it.
    run("dir=/etc/systemd/system/tyche-target.service.d; mkdir -p $dir\n\
         printf '[Service]\\nCapabilityBoundingSet=CAP_SYS_ADMIN\\nReadWritePaths=-/etc/lvm\\n' \
         >$dir/lvm.conf\n\
         systemctl daemon-reload; systemctl restart tyche-target; rm -f /etc/lvm/backup/vg0");
    run(&format!(
        "{add}; [ -b /dev/vg0/vm1 ]; [ -s /etc/lvm/backup/vg0 ]\n\
         tyche export snapshot vm1 snap; tyche export resize vm1 32M\n\
         tyche export rename vm1 vm2; [ -b /dev/vg0/vm2 ]; tyche export list --tree"
    ));
    let session = Session::connect_over(&guest, THIS, "vm2", LINK);
    session.run("dd if=/dev/urandom of=$D bs=1M count=8 oflag=direct status=none");
    session.disconnect();
    run("systemctl restart tyche-target; tyche list --check");
    run("tyche export remove snap --delete; tyche export remove vm2 --delete");
    run("[ -z \"$(lvs --noheadings --options lv_name --select 'lv_name!=pool' vg0)\" ]");
    run("systemctl stop tyche-target");
}

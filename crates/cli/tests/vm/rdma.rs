//! Sessions over RDMA, with the kernel's own card on top of Ethernet (`rdma_rxe`), within one guest:
//! the target and the session are two processes there.

use std::time::Duration;

use crate::attachment::Attachment::{self, Ublk};
use crate::attachment::Kernel;
use crate::rig::{DISK, Guest, Job, Rig, Session, Shape};

/// Time limit for a load.
const LIMIT: Duration = Duration::from_secs(400);
/// The guest's address, at which its card is.
const LINK: &str = "rdma:10.9.0.2";

/// A guest with a card, and a target on it.
struct Card {
    _rig: Rig,
    guest: Guest,
}

impl Card {
    fn new() -> Self {
        let rig = Rig::new();
        let guest = rig.boot(0, &Shape { memory_mib: 2048, ..Shape::from(Kernel::V6_12) });
        plug(&guest);
        guest.run("truncate --size 256M /tmp/disk.img");
        Self { _rig: rig, guest }
    }

    /// Starts a target, and waits until it is found.
    fn serve(&self, links: &str) -> Job<'_> {
        let target = self.guest.start(&format!(
            "exec tyche serve --name card --export {DISK}=/tmp/disk.img --link {LINK} {links}"
        ));
        self.guest.wait_until(&format!("tyche discover --link {LINK} | grep -w {DISK}"));
        target
    }

    fn connect(&self, links: &str) -> Session<'_> {
        Session::connect_over(&self.guest, THIS, DISK, &format!("--link {LINK} {links}"))
    }
}

const THIS: Attachment = Ublk;

/// Puts the card on top of the guest's interface.
fn plug(guest: &Guest) {
    guest.run(
        "mkdir -p /etc/libibverbs.d; echo driver rxe > /etc/libibverbs.d/rxe.driver\n\
         /busybox modprobe crc32_generic\n\
         modprobe --all rdma_rxe rdma_ucm\n\
         rdma link add rxe0 type rxe netdev eth0",
    );
    guest.wait_until("rdma link | grep 'rxe0/1 state ACTIVE'");
}

/// Writes to the device, and compares what it reads back.
fn verify(session: &Session<'_>, size: &str, bytes: &str) {
    session.run_within(
        LIMIT,
        &format!(
            "fio --name=load --filename=$D --rw=randwrite --bsrange={size} --size={bytes} \\\n\
             --direct=1 --ioengine=libaio --iodepth=32 --verify=crc32c --verify_fatal=1 --minimal"
        ),
    );
}

#[test]
#[ignore = "needs a virtual machine: cargo xtask vm"]
fn disk() {
    let card = Card::new();
    let _target = card.serve("");
    let session = card.connect("");
    verify(&session, "4k-4k", "8M");
    verify(&session, "4k-1m", "64M");
    session.run_within(
        LIMIT,
        "mkfs.ext4 -q $D; mount $D /mnt; cp -r /usr/share/misc /mnt/; sync; umount /mnt\n\
         mount $D /mnt; diff -r /usr/share/misc /mnt/misc; umount /mnt; e2fsck -fn $D",
    );
    session.disconnect();
}

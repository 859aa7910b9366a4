//! What dies, and comes back or does not: the session's daemon, the target, the link.

use std::time::Duration;

use crate::attachment::Attachment;
use crate::rig::{DISK, Guest, Job, MIB, Rig, Session, Shape};

const SIZE: u64 = 64 * MIB;
/// For a load to come to its end.
const LIMIT: Duration = Duration::from_secs(240);
/// For many sessions, one after the other.
const ROUNDS_LIMIT: Duration = Duration::from_secs(600);

/// Programs that write to the device and read back what they wrote, until they are told to end or
/// find something wrong.
struct Load<'a> {
    guest: &'a Guest,
    job: Job<'a>,
}

impl<'a> Load<'a> {
    fn start(session: &Session<'a>) -> Self {
        let job = session.start(
            "rm -f /tmp/end\n\
             until [ -e /tmp/end ]; do\n\
             fio --name=load --filename=$D --rw=randwrite --bs=4k-64k --size=32M --direct=1 \\\n\
             --ioengine=libaio --iodepth=16 --verify=crc32c --verify_fatal=1 --minimal\n\
             done",
        );
        Self { guest: session.guest, job }
    }

    /// Lets it come to its end, which must be a good one.
    fn end(self) {
        self.guest.run("touch /tmp/end");
        self.job.succeed(LIMIT);
    }
}

/// The daemon dies under load, and the same command is run again: nothing is seen of that.
pub(crate) fn daemon_killed(attachment: Attachment) {
    if let Some(reason) = attachment.why_mortal() {
        println!("SKIPPED: {reason}");
        return;
    }
    let rig = Rig::new();
    let _target = rig.serve_new(SIZE);
    let guest = rig.boot(0, &Shape::from(attachment.kernel()));
    let mut session = Session::connect(&guest, attachment, "");
    let load = Load::start(&session);
    for _ in 0..3 {
        session.await_requests(100);
        guest.run(&format!("kill -KILL {}", session.pid));
        session.recover();
    }
    session.await_requests(100);
    load.end();
    session.disconnect();
}

/// The daemon dies, and nobody wants another one: whoever waits for the device is let go.
pub(crate) fn given_up(attachment: Attachment) {
    let rig = Rig::new();
    let _target = rig.serve_new(SIZE);
    let guest = rig.boot(0, &Shape::from(attachment.kernel()));
    let session = Session::connect(&guest, attachment, "");
    let reader = session.start("while dd if=$D of=/dev/null bs=64k iflag=direct; do :; done");
    session.await_requests(100);
    guest.run(&format!("kill -KILL {}", session.pid));
    session.disconnect_by_force();
    reader.succeed(LIMIT);
    // Nobody uses this one.
    let session = Session::connect(&guest, attachment, "");
    guest.run(&format!("kill -KILL {}", session.pid));
    session.disconnect();
    guest.run("! tyche list -o json | grep '\"device\"'");
}

/// Prints what is left of sessions and their devices.
const LEFT: &str = "left() {\n\
    for dir in /run/tyche/sessions /sys/class/ublk-char /sys/block; do\n\
    ls -d $dir/*-*-* $dir/ublk* $dir/dm-* $dir/nbd*/pid $dir/loop*/loop/backing_file\n\
    done 2>/dev/null\n\
    }";

/// Connects and disconnects: modules are loaded then, and all that takes longer the first time has
/// been. Returns what follows `tyche connect`.
fn connect_once(guest: &Guest, attachment: Attachment) -> String {
    let session = Session::connect(guest, attachment, "");
    let args = session.args.clone();
    session.disconnect();
    args
}

/// The daemon dies while it starts, at some moment or other: what it has made by then is found and
/// taken away.
pub(crate) fn killed_at_start(attachment: Attachment) {
    if let Some(reason) = attachment.why_immortal_at_start() {
        println!("SKIPPED: {reason}");
        return;
    }
    let rig = Rig::new();
    let _target = rig.serve_new(SIZE);
    let guest = rig.boot(0, &Shape::from(attachment.kernel()));
    let args = connect_once(&guest, attachment);
    let rounds = guest.start(&format!(
        "set +e; {LEFT}\n\
         for round in {{10..58..3}}; do\n\
         tyche connect {args} >/dev/null 2>&1 & connect=$!\n\
         until compgen -G '/run/tyche/sessions/*/lock' >/dev/null; do :; done\n\
         sleep 0.$round\n\
         while all=$(pidof -z tyche); do kill -KILL $all; done; wait $connect\n\
         tyche list -o json | grep -o '\"waits\":true'\n\
         tyche disconnect {DISK} --force >/dev/null 2>&1\n\
         left | grep . && exit 1\n\
         done; exit 0"
    ));
    let said = rounds.succeed(ROUNDS_LIMIT);
    println!("devices that waited: {}", said.matches("waits").count());
    Session::connect(&guest, attachment, "").disconnect();
}

/// The daemon is to end while it starts, and what the kernel has asked by then (for partitions,
/// mostly) is not answered: that holds up nobody for long.
pub(crate) fn unanswered(attachment: Attachment) {
    let rig = Rig::new();
    let _target = rig.serve_new(SIZE);
    let guest = rig.boot(0, &Shape::from(attachment.kernel()));
    let args = connect_once(&guest, attachment);
    rig.starve(0);
    let force = format!("timeout 20 tyche disconnect {DISK} --force");
    let end_by = |signals: &str, then: &str| {
        guest.run(&format!(
            "set +e; {LEFT}\n\
             tyche connect {args} >/dev/null 2>&1 & connect=$!\n\
             until grep -qs '[1-9]' /sys/block/*/inflight || ! kill -0 $connect; do :; done\n\
             for signal in {signals}; do\n\
             kill -$signal $(pidof -z tyche)\n\
             for i in {{1..20}}; do\n\
             pidof -z tyche >/dev/null && ! pgrep -f ^@tyche-claim && sleep 0.1\n\
             done; done; wait $connect\n\
             {then}\n\
             running() {{ pidof -z tyche || pgrep -f ^@tyche-claim; }}\n\
             for i in {{1..200}}; do running >/dev/null || break; sleep 0.1; done\n\
             running && exit 1\n\
             left | grep . && exit 1; exit 0"
        ));
    };
    end_by("TERM", if attachment.is_scanned_early() { "" } else { &force });
    if attachment.why_immortal_at_start().is_none() {
        end_by("KILL", &force);
        // As systemd does, whose patience has an end.
        end_by("TERM KILL", &force);
    }
    rig.feed();
    Session::connect(&guest, attachment, "").disconnect();
}

/// The daemon dies while it disconnects, in good order or by force: the next session works, and
/// after that nothing is left.
pub(crate) fn killed_at_end(attachment: Attachment) {
    let rig = Rig::new();
    let _target = rig.serve_new(SIZE);
    let guest = rig.boot(0, &Shape::from(attachment.kernel()));
    let args = connect_once(&guest, attachment);
    let rounds = guest.start(&format!(
        "set +e; {LEFT}\n\
         for moment in {{02..44..3}}; do for force in '' --force; do\n\
         D=$(tyche connect {args} 2>/tmp/said) || {{ cat /tmp/said; exit 1; }}\n\
         dd if=$D of=/dev/null bs=64k count=1 iflag=direct status=none || exit 1\n\
         daemon=$(pidof -z tyche); tyche disconnect $force {DISK} >/dev/null 2>&1 & disconnect=$!\n\
         sleep 0.$moment; kill -KILL $daemon; wait $disconnect 2>/dev/null\n\
         done; done 2>/dev/null\n\
         tyche list -o json | grep -o '\"waits\":true'\n\
         tyche disconnect {DISK} --force >/dev/null 2>&1\n\
         left | grep . && exit 1; exit 0"
    ));
    rounds.succeed(ROUNDS_LIMIT);
}

/// The target dies under load, and is started again: requests wait for it.
pub(crate) fn target_killed(attachment: Attachment) {
    let rig = Rig::new();
    let mut target = rig.serve_new(SIZE);
    let guest = rig.boot(0, &Shape::from(attachment.kernel()));
    let session = Session::connect(&guest, attachment, "--keep-alive-tmo 1");
    let load = Load::start(&session);
    for _ in 0..2 {
        session.await_requests(100);
        target.kill();
        target = rig.serve(&[]);
    }
    session.await_requests(100);
    load.end();
    session.disconnect();
}

/// The link is lost for longer than requests may wait: they fail, and a forced disconnect leaves
/// nothing behind.
pub(crate) fn link_cut(attachment: Attachment) {
    let rig = Rig::new();
    let _target = rig.serve_new(SIZE);
    let guest = rig.boot(0, &Shape::from(attachment.kernel()));
    let session = Session::connect(&guest, attachment, "--keep-alive-tmo 1 --ctrl-loss-tmo 5");
    let reader = session.start("while dd if=$D of=/dev/null bs=64k iflag=direct; do :; done");
    let writer = session
        .start("while dd if=/dev/zero of=$D bs=64k count=64 oflag=direct conv=fsync; do :; done");
    session.await_requests(100);
    rig.cut(0);
    for job in [reader, writer] {
        let said = job.succeed(LIMIT);
        assert!(said.contains("Input/output error"), "{said}");
    }
    session.disconnect_by_force();
    // The next session has nothing to do with the former.
    rig.mend(0);
    let session = Session::connect(&guest, attachment, "");
    session.run("dd if=$D of=/dev/null bs=64k iflag=direct");
    session.disconnect();
}

/// The target is lost, and nobody wants to wait for it: whoever waits for the device is let go.
pub(crate) fn forced(attachment: Attachment) {
    let rig = Rig::new();
    let target = rig.serve_new(SIZE);
    let guest = rig.boot(0, &Shape::from(attachment.kernel()));
    let session = Session::connect(&guest, attachment, "--keep-alive-tmo 1 --ctrl-loss-tmo -1");
    // Besides, a page that is dirty, which the kernel tries to write when it can.
    session.run("dd if=/dev/zero of=$D bs=64k count=16 seek=16 status=none");
    let reader = session.start("while dd if=$D of=/dev/null bs=64k iflag=direct; do :; done");
    session.await_requests(100);
    target.kill();
    session.disconnect_by_force();
    reader.succeed(LIMIT);
}

/// The link is lost for too long under a mounted file system.
pub(crate) fn link_cut_mounted(attachment: Attachment) {
    let rig = Rig::new();
    let _target = rig.serve_new(SIZE);
    let guest = rig.boot(0, &Shape::from(attachment.kernel()));
    let session = Session::connect(&guest, attachment, "--keep-alive-tmo 1 --ctrl-loss-tmo 5");
    session.run("mkfs.ext4 -q $D; mount $D /mnt");
    let writer =
        session.start("while dd if=/dev/zero of=/mnt/file bs=64k count=64 conv=fsync; do :; done");
    session.await_requests(100);
    rig.cut(0);
    let said = writer.succeed(LIMIT);
    assert!(said.contains("Input/output error") || said.contains("Read-only"), "{said}");
    session.run("umount /mnt");
    session.disconnect_by_force();
}

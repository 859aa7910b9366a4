//! Failures with and without recovery: of the session's daemon, the target, or the link.

use std::time::Duration;

use crate::attachment::Attachment;
use crate::rig::{DISK, Guest, Job, MIB, Rig, Session};

const SIZE: u64 = 64 * MIB;
/// Time limit for a load.
const LIMIT: Duration = Duration::from_secs(240);
/// Time limit for many sessions, one after the other.
const ROUNDS_LIMIT: Duration = Duration::from_secs(600);

/// Programs that write to the device and check what they read back, until they are told to end or
/// find an error.
pub(crate) struct Load<'a> {
    guest: &'a Guest,
    job: Job<'a>,
}

impl<'a> Load<'a> {
    pub(crate) fn start(session: &Session<'a>) -> Self {
        let job = session.start(
            "rm -f /tmp/end\n\
             until [ -e /tmp/end ]; do\n\
             fio --name=load --filename=$D --rw=randwrite --bs=4k-64k --size=32M --direct=1 \\\n\
             --ioengine=libaio --iodepth=16 --verify=crc32c --verify_fatal=1 --minimal\n\
             done",
        );
        Self { guest: session.guest, job }
    }

    /// Waits for its end, which must be successful.
    pub(crate) fn end(self) {
        self.guest.run("touch /tmp/end");
        self.job.succeed(LIMIT);
    }
}

/// Kills the daemon under load, and runs the same command again: the load does not notice.
pub(crate) fn daemon_killed(attachment: Attachment) {
    if let Some(reason) = attachment.why_mortal() {
        println!("SKIPPED: {reason}");
        return;
    }
    let (_rig, _target, guest) = Rig::start(SIZE, attachment);
    kill_under_load(Session::connect(&guest, attachment, ""));
}

/// Kills the daemon of a session under load, and has the next one take its device over.
pub(crate) fn kill_under_load(mut session: Session<'_>) {
    let load = Load::start(&session);
    for _ in 0..3 {
        session.await_requests(100);
        session.guest.run(&format!("kill -KILL {}", session.pid));
        session.recover();
    }
    session.await_requests(100);
    load.end();
    session.disconnect();
}

/// Kills the daemon for good: processes that wait for the device are released.
pub(crate) fn given_up(attachment: Attachment) {
    let (_rig, _target, guest) = Rig::start(SIZE, attachment);
    let session = Session::connect(&guest, attachment, "");
    let reader = session.start("while dd if=$D of=/dev/null bs=64k iflag=direct; do :; done");
    session.await_requests(100);
    guest.run(&format!("kill -KILL {}", session.pid));
    session.disconnect_by_force();
    reader.succeed(LIMIT);
    // This device is unused.
    let session = Session::connect(&guest, attachment, "");
    guest.run(&format!("kill -KILL {}", session.pid));
    session.disconnect();
    guest.run("! tyche list -o json | grep '\"device\"'");
}

/// Prints the remains of sessions and their devices.
const LEFT: &str = "left() {\n\
    for dir in /run/tyche/sessions /sys/class/ublk-char /sys/block; do\n\
    ls -d $dir/*-*-* $dir/ublk* $dir/dm-* $dir/nbd*/pid $dir/loop*/loop/backing_file\n\
    done 2>/dev/null\n\
    }";

/// Connects and disconnects once, so that modules are loaded and slow first-time steps are over.
/// Returns the arguments of `tyche connect`.
fn connect_once(guest: &Guest, attachment: Attachment) -> String {
    let session = Session::connect(guest, attachment, "");
    let args = session.args.clone();
    session.disconnect();
    args
}

/// Kills the daemon at different moments of its start: a later command finds and removes what it
/// has made.
pub(crate) fn killed_at_start(attachment: Attachment) {
    if let Some(reason) = attachment.why_immortal_at_start() {
        println!("SKIPPED: {reason}");
        return;
    }
    let (_rig, _target, guest) = Rig::start(SIZE, attachment);
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

/// Ends the daemon during its start, while the kernel's requests (for partitions, mostly) are not
/// answered: nothing waits for long.
pub(crate) fn unanswered(attachment: Attachment) {
    let (rig, _target, guest) = Rig::start(SIZE, attachment);
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
        // First SIGTERM, then SIGKILL, as systemd does after a time-out.
        end_by("TERM KILL", &force);
    }
    rig.feed();
    Session::connect(&guest, attachment, "").disconnect();
}

/// Kills the daemon while it disconnects, orderly or by force: the next session works, and after
/// that nothing is left.
pub(crate) fn killed_at_end(attachment: Attachment) {
    let (_rig, _target, guest) = Rig::start(SIZE, attachment);
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

/// Kills the target under load, and starts it again: requests wait for it.
pub(crate) fn target_killed(attachment: Attachment) {
    let (rig, mut target, guest) = Rig::start(SIZE, attachment);
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

/// Kills the target, then the daemon, of a session with keys under a file system that is written
/// to: the writer does not notice, and all files are whole.
pub(crate) fn keys(attachment: Attachment) {
    if let Some(reason) = attachment.why_mortal() {
        println!("SKIPPED: {reason}");
        return;
    }
    let rig = Rig::new();
    let guest = rig.boot(0, &attachment.into());
    let host = format!("guest={}", guest.run("tyche key generate /tmp/key").trim());
    let key = rig.path("key").display().to_string();
    let public = rig.tyche(&["key", "generate", &key]);
    let serve = ["--key", &key, "--host", &host];
    let target = rig.serve_new_with(SIZE, &serve);
    let args = format!("--keep-alive-tmo 1 --key /tmp/key --target-key {}", public.trim());
    let mut session = Session::connect(&guest, attachment, &args);
    session.run("mkfs.ext4 -q $D; mount $D /mnt");
    let writer = session.start(
        "rm -f /tmp/end; number=0\n\
         until [ -e /tmp/end ]; do\n\
         name=$((number++ % 60)); head -c 256k /dev/urandom >/tmp/new\n\
         cp /tmp/new /mnt/$name; sync -f /mnt\n\
         echo \"$(md5sum </tmp/new | cut -c -32)  /mnt/$name\" >/tmp/sum.$name\n\
         done",
    );
    session.await_requests(100);
    target.kill();
    let _target = rig.serve(&serve);
    session.await_requests(100);
    guest.run(&format!("kill -KILL {}", session.pid));
    session.recover();
    session.await_requests(100);
    guest.run("touch /tmp/end");
    writer.succeed(LIMIT);
    session.run(
        "umount /mnt; echo 3 >/proc/sys/vm/drop_caches; mount $D /mnt\n\
         cat /tmp/sum.* | md5sum --check --quiet; umount /mnt",
    );
    let stats = guest.run("tyche stats -o json");
    assert!(stats.contains("\"cipher\":\""), "{stats}");
    session.disconnect();
}

/// Cuts the link for longer than requests may wait: they fail, and a forced disconnect leaves
/// nothing behind.
pub(crate) fn link_cut(attachment: Attachment) {
    let (rig, _target, guest) = Rig::start(SIZE, attachment);
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
    // The next session is not affected by the failed one.
    rig.mend(0);
    let session = Session::connect(&guest, attachment, "");
    session.run("dd if=$D of=/dev/null bs=64k iflag=direct");
    session.disconnect();
}

/// Disconnects by force after the target is lost for good: processes that wait for the device are
/// released.
pub(crate) fn forced(attachment: Attachment) {
    let (_rig, target, guest) = Rig::start(SIZE, attachment);
    let session = Session::connect(&guest, attachment, "--keep-alive-tmo 1 --ctrl-loss-tmo -1");
    // A dirty page besides, which the kernel tries to write when it can.
    session.run("dd if=/dev/zero of=$D bs=64k count=16 seek=16 status=none");
    let reader = session.start("while dd if=$D of=/dev/null bs=64k iflag=direct; do :; done");
    session.await_requests(100);
    target.kill();
    session.disconnect_by_force();
    reader.succeed(LIMIT);
}

/// Disconnects in good order after the session has failed for good: nobody uses the device, and
/// what the kernel could not write does not keep it.
pub(crate) fn failed_unused(attachment: Attachment) {
    let (_rig, target, guest) = Rig::start(SIZE, attachment);
    let session = Session::connect(&guest, attachment, "--keep-alive-tmo 1 --ctrl-loss-tmo 3");
    session.run("dd if=/dev/zero of=$D bs=64k count=16 status=none");
    target.kill();
    guest.wait_until("tyche list -o json | grep -q '\"state\":\"failed\"'");
    session.disconnect();
}

/// Cuts the link for too long under a mounted file system.
pub(crate) fn link_cut_mounted(attachment: Attachment) {
    let (rig, _target, guest) = Rig::start(SIZE, attachment);
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

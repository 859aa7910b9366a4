//! Volumes over Fibre Channel over Ethernet, in both modes: a virtual cable whose other end is a
//! target of this process.

#![allow(clippy::unwrap_used, reason = "a test that cannot set its stage has failed")]

mod fcoe_target;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use tyche::{
    Completion, Errno, FcoeMode, FcoeOptions, Mode, NativeOptions, OpenError, Operation, Options,
    Request, SessionOptions, Volume,
};
use tyche_fcoe::FcoeTarget;
use tyche_store::Store;
use tyche_store::memory::MemoryStore;
use tyche_testkit::need_root;
use tyche_testkit::net::{Namespace, lay_cable};
use tyche_testkit::wait::PATIENCE;

use fcoe_target::{E_D_TOV, fcoe_target};

const SIZE: u64 = 8 << 20;
/// The ends of the cable: the target's, and the host's.
const LINKS: [&str; 2] = ["tyfc-t", "tyfc-h"];
const MODES: [Mode; 2] = [Mode::Inline, Mode::Queue];
const WRITE: Operation = Operation::Write { fua: false };

/// A cable with a disk at its far end.
struct Rig {
    namespace: Namespace,
    store: Arc<dyn Store>,
}

impl Rig {
    fn new(name: &str) -> Self {
        let namespace = Namespace::new(format!("tyfc-{name}-{}", std::process::id()));
        lay_cable(LINKS.map(|link| (&namespace, link, 2500)));
        Self { namespace, store: Arc::new(MemoryStore::new(SIZE, 512).unwrap()) }
    }

    fn target(&self) -> (FcoeTarget, String) {
        fcoe_target(&self.namespace, LINKS[0], &self.store)
    }

    fn open(&self, options: &Options) -> Result<Volume, OpenError> {
        self.namespace.on_thread(|| options.open())
    }
}

fn options(disk: &str, mode: Mode) -> Options {
    let mut options = Options::new(disk);
    options.links.push(LINKS[1].to_owned());
    options.fcoe = Some(FcoeOptions { e_d_tov: E_D_TOV, ..FcoeOptions::default() });
    options.mode = mode;
    options.memory = 16 << 20;
    options.session.queue_size = 32;
    options.timeout = PATIENCE;
    options
}

fn submit(volume: &Volume, operation: Operation, offset: u64, len: usize, token: u64) {
    let mut buffer = if operation.has_data() { volume.arena().alloc(len) } else { None };
    if let (WRITE, Some(buffer)) = (operation, &mut buffer) {
        buffer.fill(token as u8);
    }
    volume.submit(Request { operation, offset, len: len as u32, buffer }, token).unwrap();
}

/// Waits for all requests in flight, in the order of their tokens.
fn drain(volume: &Volume) -> Vec<Completion> {
    let mut done = Vec::new();
    volume.wait(&mut done, usize::MAX, usize::MAX, PATIENCE).unwrap();
    assert_eq!(volume.in_flight(), 0, "everything ends in time");
    done.sort_by_key(|it| it.token);
    done
}

/// The result of the one request that is in flight.
fn result(volume: &Volume) -> Result<(), Errno> {
    let [done] = &drain(volume)[..] else { panic!("one request") };
    done.result
}

/// Writes blocks of several lengths, and reads them.
fn write_and_read(volume: &Volume) {
    let len = |token: u64| 512 << (token % 8);
    let requests = |operation| {
        (1..64).for_each(|token| submit(volume, operation, token << 16, len(token), token));
        drain(volume)
    };
    assert!(requests(WRITE).iter().all(|it| it.result == Ok(())));
    for Completion { token, result, buffer } in requests(Operation::Read) {
        assert_eq!(result, Ok(()));
        assert!(buffer.unwrap()[..len(token)].iter().all(|byte| *byte == token as u8), "{token}");
    }
}

#[test]
fn a_disk_over_fcoe_is_used_like_any_other() {
    need_root!();
    let rig = Rig::new("use");
    let (_target, wwpn) = rig.target();
    for mode in MODES {
        let volume = rig.open(&options(&format!("{wwpn}:0"), mode)).unwrap();
        assert_eq!((volume.geometry().size, volume.geometry().block_size), (SIZE, 512));
        write_and_read(&volume);
        let zeroes = Operation::WriteZeroes { fua: true, may_unmap: true };
        for operation in [Operation::Flush, zeroes, Operation::Discard] {
            let len = if operation == Operation::Flush { 0 } else { 4096 };
            submit(&volume, operation, 0, len, 1);
            assert_eq!(result(&volume), Ok(()), "{mode:?}: {operation:?}");
        }
        submit(&volume, Operation::Read, SIZE, 512, 2);
        assert_eq!(result(&volume), Err(Errno::INVAL));
        let report = volume.report().unwrap();
        assert!(report.live && report.requests.succeeded.reads > 0, "{mode:?}");
        assert!(matches!(volume.open_queue(), Err(OpenError::Option(_))), "there is one queue");
        // With requests in flight.
        (0..16).for_each(|token| submit(&volume, Operation::Read, 0, 65536, token));
        volume.close(PATIENCE);
    }
}

#[test]
fn queues_of_a_session_are_one_disk() {
    need_root!();
    let rig = Rig::new("queues");
    let (target, wwpn) = rig.target();
    let queues = 3;
    let first = rig.open(&Options { queues, ..options(&wwpn, Mode::Queue) }).unwrap();
    let others = [first.open_queue().unwrap(), first.open_queue().unwrap()];
    assert!(matches!(first.open_queue(), Err(OpenError::Option(_))), "all are open");
    let volumes = [&first, &others[0], &others[1]];
    thread::scope(|scope| {
        for (lane, volume) in (1..).zip(volumes) {
            scope.spawn(move || {
                write_and_read(volume);
                submit(volume, WRITE, lane << 12, 4096, lane);
                assert_eq!(result(volume), Ok(()));
            });
        }
    });
    let written = |volume: &Volume| {
        (1..=3).for_each(|lane| submit(volume, Operation::Read, lane << 12, 4096, lane));
        let read = drain(volume);
        read.iter().all(|it| it.buffer.as_ref().unwrap()[..4096] == [it.token as u8; 4096])
    };
    assert!(volumes.iter().all(|volume| written(volume)));
    let report = first.report().unwrap();
    assert_eq!((report.queues, report.live), (queues, true));
    assert_eq!(report.requests.succeeded.writes, 3 * 64, "of all queues");
    // Each is used again by itself when the target is back.
    drop(target);
    volumes.iter().for_each(|volume| submit(volume, Operation::Read, 1 << 12, 4096, 1));
    let (_target, _) = rig.target();
    assert!(volumes.iter().all(|volume| result(volume) == Ok(()) && written(volume)));
    let [second, third] = others;
    [second, third, first].into_iter().for_each(|volume| volume.close(PATIENCE));
}

#[test]
fn threads_drive_a_queue_of_a_session_each() {
    need_root!();
    let rig = Rig::new("inline");
    let (target, wwpn) = rig.target();
    let queues = 3;
    let first = rig.open(&Options { queues, ..options(&wwpn, Mode::Inline) }).unwrap();
    let open = || rig.namespace.on_thread(|| first.open_queue());
    let others = [open().unwrap(), open().unwrap()];
    assert!(matches!(open(), Err(OpenError::Option(_))), "all are open");
    let volumes = [&first, &others[0], &others[1]];
    assert!(volumes.iter().all(|it| it.geometry().size == SIZE));
    let (is_back, are_driven) = (AtomicBool::new(false), Barrier::new(1 + queues));
    let _target = thread::scope(|scope| {
        for (lane, volume) in (1..).zip(volumes) {
            let (is_back, are_driven) = (&is_back, &are_driven);
            scope.spawn(move || {
                write_and_read(volume);
                submit(volume, WRITE, lane << 12, 4096, lane);
                assert_eq!(result(volume), Ok(()));
                are_driven.wait();
                // It drives its queue while the target is started again.
                let mut goes_on = true;
                while goes_on {
                    goes_on = !is_back.load(Ordering::Relaxed);
                    submit(volume, Operation::Read, lane << 12, 4096, lane);
                    let read = drain(volume);
                    let data = &read[0].buffer.as_ref().unwrap()[..4096];
                    assert!(read[0].result == Ok(()) && data == [lane as u8; 4096]);
                }
            });
        }
        are_driven.wait();
        drop(target);
        let again = rig.target();
        is_back.store(true, Ordering::Relaxed);
        again
    });
    let report = others[1].report().unwrap();
    assert!(report.requests.succeeded.reads >= 64, "of its own queue");
    let [second, third] = others;
    third.close(PATIENCE);
    submit(&first, Operation::Read, 1 << 12, 4096, 1);
    assert_eq!(result(&first), Ok(()), "the others go on");
    // With a request in flight a session ends as a whole.
    submit(&second, Operation::Read, 0, 4096, 1);
    second.close(PATIENCE);
    first.poll(&mut Vec::new(), 0).unwrap();
    submit(&first, Operation::Read, 0, 4096, 1);
    assert_eq!(result(&first), Err(Errno::IO));
    first.close(PATIENCE);
}

#[test]
fn requests_wait_for_a_target_that_starts_again() {
    need_root!();
    for mode in MODES {
        let rig = Rig::new(if mode == Mode::Inline { "again-i" } else { "again-q" });
        let (target, wwpn) = rig.target();
        let volume = rig.open(&options(&wwpn, mode)).unwrap();
        write_and_read(&volume);
        let mut done = Vec::new();
        // It waits for this end, which in inline mode answers only while it is driven.
        let end = thread::spawn(move || drop(target));
        while !end.is_finished() {
            volume.wait(&mut done, 1, 1, Duration::ZERO).unwrap();
            thread::yield_now();
        }
        end.join().unwrap();
        submit(&volume, WRITE, 0, 4096, 7);
        assert_eq!(volume.wait(&mut done, 1, 1, 5 * E_D_TOV), Ok(0), "{mode:?}: there is nobody");
        let (_target, _) = rig.target();
        assert_eq!(result(&volume), Ok(()), "{mode:?}");
        submit(&volume, Operation::Read, 0, 4096, 8);
        assert!(drain(&volume)[0].buffer.as_ref().unwrap()[..4096] == [7; 4096]);
        volume.close(PATIENCE);
    }
}

#[test]
fn why_a_disk_is_not_there_is_said() {
    need_root!();
    let rig = Rig::new("why");
    let (_target, wwpn) = rig.target();
    let hasty = Duration::from_secs(5);
    for mode in MODES {
        let error = rig.open(&options(&format!("{wwpn}:5"), mode)).err().unwrap();
        assert_eq!(error.errno(), Errno(libc::ENOENT), "{error}");
        assert!(error.to_string().contains("no such LUN; there are: 0"), "{error}");
        let absent = Options { timeout: hasty, ..options("2000020000000001", mode) };
        let error = rig.open(&absent).err().unwrap();
        assert_eq!(error.errno(), Errno(libc::ETIMEDOUT), "{error}");
        let said = "port 20:00:02:00:00:00:00:01 is not heard on tyfc-h";
        assert!(error.to_string().contains(said), "{error}");
        let mut in_fabric = absent;
        in_fabric.fcoe.as_mut().unwrap().mode = FcoeMode::Fabric;
        let error = rig.open(&in_fabric).err().unwrap();
        assert_eq!(error.errno(), Errno(libc::ETIMEDOUT), "{error}");
        assert!(error.to_string().contains("no forwarder (FCF) of a fabric answers"), "{error}");
    }
}

#[test]
fn options_that_make_no_sense_over_fcoe_are_refused() {
    need_root!();
    let rig = Rig::new("options");
    let right = options("2000020000000001", Mode::Inline);
    let native = NativeOptions { channels: 2, ..right.native.clone() };
    let session = SessionOptions { queue_size: 0, ..right.session.clone() };
    for (wrong, said) in [
        (Options { links: Vec::new(), ..right.clone() }, "one interface"),
        (Options { links: vec!["udp:127.0.0.1:1".to_owned()], ..right.clone() }, "no interface"),
        (Options { export: "disk".to_owned(), ..right.clone() }, "16 hexadecimal digits"),
        (Options { queues: 17, ..right.clone() }, "1 to 16 queues"),
        (Options { queues: 17, mode: Mode::Queue, ..right.clone() }, "1 to 16 queues"),
        (Options { native, ..right.clone() }, "Tyche's own protocol"),
        (Options { session, ..right.clone() }, "1 to 1024"),
    ] {
        let error = rig.open(&wrong).err().unwrap();
        assert_eq!(error.errno(), Errno::INVAL, "{error}");
        assert!(error.to_string().contains(said), "{error}");
    }
    let missing = Options { links: vec!["tyfc-none".to_owned()], ..right };
    assert_eq!(rig.open(&missing).err().unwrap().errno(), Errno(libc::ENODEV));
}

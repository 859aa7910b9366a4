//! Invalid frames of our EtherType, sent into both ends while files are copied.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tyche_link::packet::{PacketLink, PacketOptions};
use tyche_link::{HEAD, Link, Mac, TxVectors};
use tyche_proto::wire::{self, COOKIE_AT, Checksum};
use tyche_testkit::random::Random;

use crate::files::Files;
use crate::rig::{Cable, Side, rig, run};

/// Random frames into each end.
const RANDOM_FRAMES: usize = 500_000;
/// Frames sent at once.
const BATCH: usize = 64;
/// The longest random frame.
const LEN_MAX: u64 = 1514;
/// Time limit for sending.
const PATIENCE: Duration = Duration::from_secs(180);
/// Offsets of header fields in the frame.
const VERSION: usize = 14;
const KIND: usize = 15;
const PAYLOAD_CRC: usize = 56;
const HEADER_CRC: usize = 60;

/// An interface on the cable that can send any frame.
struct Injector {
    link: PacketLink,
    vectors: TxVectors,
    from: Side,
    to: Mac,
    sent: usize,
}

impl Injector {
    fn new(cable: &Cable, from: Side, to: Mac) -> Self {
        let options = PacketOptions::new(cable.link(from));
        let link = cable.end(from).on_thread(|| PacketLink::open(&options)).unwrap();
        Self { link, vectors: TxVectors::new(BATCH, 1), from, to, sent: 0 }
    }

    /// Sends frames of any content, with valid addresses and EtherType.
    fn send(&mut self, frames: &mut [Vec<u8>]) {
        let deadline = Instant::now() + PATIENCE;
        let from = self.link.mac();
        for chunk in frames.chunks_mut(BATCH) {
            let mut batch = self.vectors.batch();
            for frame in &mut *chunk {
                frame[..6].copy_from_slice(&self.to);
                frame[6..12].copy_from_slice(&from);
                frame[12..14].copy_from_slice(&[0x88, 0xb5]);
                batch.push_whole(frame, HEAD);
            }
            while !batch.is_empty() {
                let sent = self.link.send(&batch).unwrap();
                self.sent += sent;
                batch.skip(sent);
                assert!(Instant::now() < deadline, "the frames don't go out");
            }
        }
    }

    /// Sends random frames: wholly random, or with a valid version and kind, or also with valid
    /// checksums.
    fn send_random(&mut self, seed: u64) {
        let mut random = Random(seed);
        let mut frames = Vec::new();
        for number in 0..RANDOM_FRAMES {
            let span = if number % 16 == 0 { LEN_MAX } else { 200 };
            let len = HEAD as u64 + random.next() % (span - HEAD as u64 + 1);
            let mut frame = vec![0; usize::try_from(len).unwrap()];
            random.fill(&mut frame);
            self.unmark(&mut frame);
            if number % 3 > 0 {
                frame[VERSION] = wire::VERSION;
                frame[KIND] &= 0x1f;
            }
            if number % 3 > 1 {
                mend(&mut frame);
            }
            frames.push(frame);
            if frames.len() == 1024 {
                self.send(&mut frames);
                frames.clear();
            }
        }
        self.send(&mut frames);
    }

    /// Clears the bytes by which the kernel would drop frames for another host.
    fn unmark(&self, frame: &mut [u8]) {
        if self.from == Side::Target {
            frame[COOKIE_AT..][..4].fill(0);
        }
    }

    /// Sends every golden frame with each byte changed in turn, with and without valid checksums.
    fn send_golden(&mut self) {
        for mut golden in golden() {
            self.unmark(&mut golden);
            let mut frames = Vec::new();
            for byte in VERSION..golden.len() {
                let mut frame = golden.clone();
                frame[byte] ^= 1 << (byte % 8);
                frames.push(frame.clone());
                mend(&mut frame);
                frames.push(frame);
            }
            for len in HEAD..golden.len() {
                frames.push(golden[..len].to_vec());
            }
            self.send(&mut frames);
        }
    }
}

/// Makes the checksums valid, so that the rest of the frame is checked.
fn mend(frame: &mut [u8]) {
    let payload = Checksum::of(&frame[HEAD..]);
    frame[PAYLOAD_CRC..][..4].copy_from_slice(&payload.to_le_bytes());
    let header = Checksum::of(&frame[VERSION..HEADER_CRC]);
    frame[HEADER_CRC..][..4].copy_from_slice(&header.to_le_bytes());
}

/// The literal frames of the protocol's tests: `offset  bytes  ; comment`, where `00*57` stands for
/// 57 zeroes.
fn golden() -> Vec<Vec<u8>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/golden");
    let files = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let frames = files.filter(|path| path.extension().is_some_and(|it| it == "hex")).map(|path| {
        let mut frame = Vec::new();
        for line in fs::read_to_string(path).unwrap().lines() {
            let code = line.split(';').next().unwrap();
            for word in code.split_whitespace().skip(1) {
                let (byte, count) = word.split_once('*').unwrap_or((word, "1"));
                let byte = u8::from_str_radix(byte, 16).unwrap();
                frame.extend(std::iter::repeat_n(byte, count.parse().unwrap()));
            }
        }
        frame
    });
    let frames: Vec<_> = frames.collect();
    assert!(frames.len() > 20, "{} golden frames", frames.len());
    frames
}

/// Reject counters by reason.
fn rejects(value: &Value) -> BTreeMap<String, u64> {
    let counts = value["rejects"].as_object().unwrap().iter();
    counts.map(|(name, count)| (name.clone(), count.as_u64().unwrap())).collect()
}

fn mac(text: &Value) -> Mac {
    let mut bytes = text.as_str().unwrap().split(':').map(|it| u8::from_str_radix(it, 16).unwrap());
    std::array::from_fn(|_| bytes.next().unwrap())
}

#[test]
fn garbage_is_counted_and_changes_nothing() {
    let rig = rig!(alone, 9000);
    let mut target = rig.serve_file(1 << 30);
    let session = rig.connect(&[]);
    let (host_stats, target_stats) = rig.stats();
    let host_mac = mac(&host_stats["links"][0]["mac"]);
    let target_mac = mac(&target_stats["links"][0]["mac"]);
    run(Command::new("mkfs.ext4").arg("-q").arg(&session.device));
    let point = rig.mount(&session.device, "rw");
    let files = Files::new(8, 128 << 20);

    let mut to_target = Injector::new(&rig.cable, Side::Host, target_mac);
    let mut to_host = Injector::new(&rig.cable, Side::Target, host_mac);
    let began = Instant::now();
    thread::scope(|scope| {
        for (seed, injector) in [(1, &mut to_target), (2, &mut to_host)] {
            scope.spawn(move || {
                injector.send_golden();
                injector.send_random(seed);
            });
        }
        files.write(&point).unwrap();
    });
    println!("{} frames in {:.1?}", to_target.sent + to_host.sent, began.elapsed());

    rig.unmount();
    let (host_stats, target_stats) = rig.stats();
    let target_link = &target_stats["links"][0];
    for (name, sent, counts, link) in [
        ("host", to_host.sent, rejects(&host_stats), &host_stats["links"][0]),
        ("target", to_target.sent, rejects(target_link), target_link),
    ] {
        let (total, overruns) = (counts.values().sum::<u64>(), link["overruns"].as_u64().unwrap());
        println!("{name}: {sent} sent, {total} rejected, {overruns} overrun: {counts:?}");
        // A changed golden frame may still be valid; a random one is not.
        assert!(total + overruns >= RANDOM_FRAMES as u64, "{name} counts what is wrong");
        assert!(counts.len() > 5, "{name} tells reasons apart");
    }
    assert!(target.process.is_running(), "{}", target.log());
    session.disconnect();

    rig.assert_kept(&files, &[]);
}

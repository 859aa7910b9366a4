//! How much memory a target takes for its sessions, and that its configuration bounds it.

use std::fs;
use std::time::{Duration, Instant};

use tyche_block::{Completion, Operation, Request};
use tyche_engine::{HostLink, HostOptions, InlineHost};
use tyche_link::packet::{PacketLink, PacketOptions};
use tyche_numa::Placement;
use tyche_proto::wire::{ETHERTYPE, Name};
use tyche_proto::{BatchPolicy, ChannelChoice, ExportId, SessionConfig, TargetId};
use uuid::Uuid;

use crate::refusals::refused;
use crate::rig::{DISK, PATIENCE, Rig, Side, Target, rig};

const SESSIONS: usize = 100;
const QUEUE_SIZE: u16 = 128;
/// What the target grants for the data of each session.
const DATA_QUEUE: usize = 1 << 20;
/// What it takes for each beside that. docs/operating.md says so.
const FIXED_MAX: usize = 256 << 10;
/// Requests whose data use every page of the data queue more than once.
const READ_LEN: u32 = 64 << 10;
const READS: u64 = 64;

/// A host of its own, with a session that only reads.
fn connect(rig: &Rig) -> InlineHost {
    let options = PacketOptions::new(rig.cable.link(Side::Host));
    let link = rig.cable.on_thread(Side::Host, || PacketLink::open(&options)).unwrap();
    let identity = Uuid::new_v4();
    let session = SessionConfig {
        host: Uuid::new_v4(),
        host_name: Name::new("reader").unwrap(),
        session: identity,
        device: identity,
        resumes: None,
        export: ExportId::Name(Name::new(DISK).unwrap()),
        target: TargetId::Any,
        queue_size: QUEUE_SIZE,
        damq_pages: 32 << 8,
        operations_max: u32::from(QUEUE_SIZE),
        read_only: true,
        checksum: true,
        stages: false,
        batch: BatchPolicy::default(),
        channels: 1,
        choice: ChannelChoice::default(),
        // Nobody looks after a session while it is another one's turn.
        keep_alive: Duration::from_secs(60),
        reconnect_delay: Duration::from_secs(1),
        ctrl_loss_tmo: None,
    };
    let mut host = InlineHost::new(HostOptions {
        session,
        links: vec![HostLink { link: Box::new(link), target: None }],
        placement: Placement::default(),
        ethertype: ETHERTYPE,
        arena_pages: READS as usize * READ_LEN as usize / tyche_block::PAGE,
        spin: Duration::ZERO,
        hand_over: false,
    });
    host.connect(PATIENCE).unwrap();
    host
}

fn read(host: &mut InlineHost) {
    for token in 0..READS {
        let buffer = host.arena().alloc(READ_LEN as usize);
        let offset = token * u64::from(READ_LEN);
        let request = Request { operation: Operation::Read, offset, len: READ_LEN, buffer };
        host.submit(request, token).unwrap();
    }
    let (mut done, deadline) = (Vec::<Completion>::new(), Instant::now() + PATIENCE);
    while done.len() < READS as usize {
        assert!(Instant::now() < deadline, "{} of {READS} reads are done", done.len());
        host.wait(&mut done, Duration::from_millis(100));
    }
    assert!(done.iter().all(|it| it.result.is_ok()));
}

/// Bytes of memory that the target occupies, those of its export aside.
fn resident(target: &Target) -> usize {
    let status = fs::read_to_string(format!("/proc/{}/status", target.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

#[test]
fn sessions_take_no_more_than_the_limits_say() {
    let rig = rig!(9000);
    let config = rig.path("target.toml");
    let text = format!(
        "[limits]\nchannels = {SESSIONS}\nqueue_size = {QUEUE_SIZE}\ndata_queue = \"1MiB\"\n\
         [[export]]\nname = \"{DISK}\"\npath = \"mem:16M\"\n"
    );
    fs::write(&config, text).unwrap();
    let target = rig.serve(&["--config", config.to_str().unwrap()]);
    let start = resident(&target);
    let mut hosts: Vec<_> = (0..SESSIONS).map(|_| connect(&rig)).collect();
    let idle = resident(&target) - start;
    hosts.iter_mut().for_each(read);
    let used = resident(&target) - start;
    let per_session = |bytes: usize| (bytes / SESSIONS) >> 10;
    println!(
        "a target without sessions: {} KiB; each of {SESSIONS} sessions of queue depth \
         {QUEUE_SIZE}: {} KiB when it is connected, {} KiB when it has read",
        start >> 10,
        per_session(idle),
        per_session(used)
    );
    assert!(used >= SESSIONS * DATA_QUEUE, "{used} bytes: the whole data queue was used");
    assert!(used <= SESSIONS * (DATA_QUEUE + FIXED_MAX), "{used} bytes");

    let link = rig.cable.link(Side::Host);
    let one_more = ["bench", DISK, "--link", link, "--timeout", "5"];
    refused(&rig, Side::Host, &one_more, 7, &["no room", "`channels`"]);
    hosts.pop().expect("a hundred").disconnect(PATIENCE);
    rig.ask(&["bench", DISK, "--link", link, "--runtime", "0.1"]);
}

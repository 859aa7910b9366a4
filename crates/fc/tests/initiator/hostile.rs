//! Random frames: wrong ones, and right ones at the wrong time.

use std::collections::BTreeSet;

use tyche_fc::initiator::{Data, LaneConfig};
use tyche_fc::wire::{FCtl, Header, Kind, PortId, Xid};
use tyche_testkit::random::Random;

use crate::script::{FRAME, OURS, Script, WWPN, config, header, login, mac};

const KINDS: [Kind; 14] = [
    Kind::FcpData,
    Kind::FcpData,
    Kind::FcpData,
    Kind::FcpXferRdy,
    Kind::FcpXferRdy,
    Kind::FcpRsp,
    Kind::FcpRsp,
    Kind::BaAcc,
    Kind::BaRjt,
    Kind::ElsReply,
    Kind::ElsReply,
    Kind::FcpCmnd,
    Kind::Abts,
    Kind::CtReply,
];

fn random_header(random: &mut Random) -> Header {
    let kind = KINDS[random.below(KINDS.len() as u64) as usize];
    // Most of them fit an exchange.
    let ox_id = 0x28 + random.below(0x88) as u16;
    let mut header = header(kind, ox_id);
    header.parameter = random.below(4 * u64::from(FRAME)) as u32;
    match random.below(40) {
        0 => header.s_id = PortId::new(random.next() as u32),
        1 => header.rx_id = Xid(random.next() as u16),
        2 => header.f_ctl = FCtl::from_wire(random.next() as u32),
        3 => header.parameter = random.next() as u32,
        4 => header.rx_id = Xid::NONE,
        5 => header.ox_id = Xid(random.next() as u16),
        _ => {}
    }
    (header.seq_id, header.seq_cnt) = (random.next() as u8, random.next() as u16);
    header
}

fn random_payload(random: &mut Random, header: &Header) -> Vec<u8> {
    let ids = [header.ox_id.0.to_be_bytes(), header.rx_id.0.to_be_bytes()].concat();
    let len = random.below(64) as usize;
    let mut payload = random.bytes(len);
    let start = match (header.kind, random.below(3)) {
        (_, 0) => vec![],
        (Kind::FcpXferRdy, _) => {
            let [offset, len] = [random.below(3), random.below(4)].map(|it| it as u32 * FRAME);
            [offset.to_be_bytes(), len.to_be_bytes(), [0; 4]].concat()
        }
        (Kind::FcpRsp, _) => vec![0; 24],
        (Kind::BaAcc, _) => [vec![0; 4], ids, vec![0, 0, 0xff, 0xff]].concat(),
        (Kind::BaRjt, _) => vec![0, 3, 3, 0],
        (Kind::ElsReply, 1) => vec![1, 0, 0, 0, 0, 3, 0x17, 0],
        (Kind::ElsReply, _) => {
            let mut reply = vec![0; 24];
            reply[0] = 2;
            reply[4..6].copy_from_slice(&(0x2a + random.below(8) as u16).to_be_bytes());
            reply[20] = random.next() as u8 & 0xe0;
            reply
        }
        _ => vec![],
    };
    let len = start.len().min(payload.len());
    payload[..len].copy_from_slice(&start[..len]);
    if payload.len() < start.len() {
        payload = start;
    }
    payload
}

/// Every command ends once, whatever comes, and nothing is left over in the end.
fn run(seed: u64) -> (u64, BTreeSet<String>) {
    let mut random = Random(seed);
    let mut script = Script::with(LaneConfig { read_frames: 12, ..config() });
    let mut open = BTreeSet::new();
    let mut kinds = BTreeSet::new();
    let mut ended = 0;
    for _ in 0..3000 {
        match random.below(20) {
            0..3 => {
                let (cdb, data) = match random.below(4) {
                    0 => (0x91, Data::None),
                    1 => (0x93, Data::None),
                    2 => (0x88, Data::In(1 + random.below(3 * u64::from(FRAME)) as u32)),
                    _ => (0x8a, Data::Out(1 + random.below(3 * u64::from(FRAME)) as u32)),
                };
                if let Ok(name) = script.try_submit(cdb, data) {
                    assert!(open.insert(name), "seed {seed}: {name} twice");
                }
            }
            3 => {
                let time = [0, 1, 500, 3_000, 10_000][random.below(5) as usize];
                script.wait(time);
            }
            4 if random.chance(30) => {
                script.lane.logged_out(script.now, WWPN);
                script.drain();
                assert_eq!(script.lane.commands(), 0);
                script.lane.logged_in(script.now, (OURS, mac(OURS)), &login()).unwrap();
            }
            _ => {
                let header = random_header(&mut random);
                let mut payload = random_payload(&mut random, &header);
                if header.kind == Kind::FcpData {
                    // Whatever it is: what is placed must lie within the buffer.
                    payload.resize(1 + random.below(u64::from(FRAME)) as usize, 0);
                }
                let _ = script.receive(header, &payload);
            }
        }
        script.sent();
        for end in std::mem::take(&mut script.ends) {
            assert!(open.remove(&end.exchange), "seed {seed}: {} ended twice", end.exchange);
            kinds.insert(match end.end {
                Ok(answer) => format!("{}", answer.status.min(1)),
                Err(failure) => format!("{failure:?}"),
            });
            ended += 1;
        }
        assert_eq!(script.lane.commands(), open.len(), "seed {seed}");
    }
    script.lane.logged_out(script.now, WWPN);
    script.drain();
    assert_eq!(script.ends.len(), open.len(), "seed {seed}");
    script.wait(1_000_000);
    assert_eq!(script.lane.poll_timeout(), None, "seed {seed}: {:?}", script.lane);
    assert_eq!(format!("{:?}", script.lane), "{}", "seed {seed}");
    (ended, kinds)
}

#[test]
fn whatever_comes_every_command_ends_once() {
    let mut kinds = BTreeSet::new();
    let mut ended = 0;
    for seed in 0..60 {
        let (count, seen) = run(seed);
        ended += count;
        kinds.extend(seen);
    }
    assert!(ended > 5_000, "{ended}");
    let expected = [
        "0",
        "1",
        "Aborted",
        "AnswerLost",
        "DataLost",
        "NotArrived",
        "LoggedOut { may_modify: false }",
        "LoggedOut { may_modify: true }",
    ];
    for kind in expected {
        assert!(kinds.contains(kind), "no {kind} in {kinds:?}");
    }
}

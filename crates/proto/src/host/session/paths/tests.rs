use tyche_wire::{Accept, Connect, ConnectFlags, Content, Flags, Geometry, Kind, Name, ResetToken};

use super::*;
use crate::channel::batching::BatchPolicy;
use crate::host::session::{ExportId, TargetId};
use crate::rules::AllRules;

const NOW: Instant = Instant(1_000_000_000);
const TARGET: Uuid = Uuid::from_u128(7);
const AIM: ResolvedExport =
    ResolvedExport { target: TARGET, export: Uuid::from_u128(8), read_only: false };

fn mac(n: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, n])
}

/// Two channels for each pair.
fn config() -> SessionConfig {
    let (host, session) = (Uuid::from_u128(1), Uuid::from_u128(2));
    SessionConfig {
        queue_size: 8,
        damq_pages: 16_384,
        operations_max: 8,
        reconnect_delay: Duration::from_millis(20),
        batch: BatchPolicy::Natural,
        channels: 2,
        ..SessionConfig::new(host, Name::EMPTY, session, ExportId::Uuid(AIM.export))
    }
}

fn link() -> PortConfig {
    PortConfig {
        frame_len_max: 1294,
        rings: [256; 2],
        target: None,
        node: None,
        transport: 0,
        routed: false,
        checks_data: false,
    }
}

/// The third queue's paths over so many links, each of which hears the addresses of the target
/// with these numbers.
fn paired(heard: &[&[u8]]) -> Paths<AllRules> {
    let mut next = 0;
    let random = Box::new(move || {
        next += 1;
        // The last byte makes no pause shorter or longer.
        next << 32 | 128
    });
    let ports = vec![link(); heard.len()];
    let mut paths = Paths::new(NOW, (Uuid::from_u128(2), 2, 3), &ports, random, None);
    for (port, addresses) in heard.iter().enumerate() {
        hear(&mut paths, port, addresses);
    }
    paths.pair(NOW, AIM, &config());
    paths
}

fn hear(paths: &mut Paths<AllRules>, port: usize, addresses: &[u8]) {
    let link = paths.port_mut(port).expect("it is there");
    addresses.iter().for_each(|&n| link.hear(NOW, (mac(n), TARGET), false, 0));
}

/// Link and address of each path.
fn ends(paths: &Paths<AllRules>) -> Vec<(usize, Mac)> {
    paths.all().iter().map(|path| (path.port, path.peer)).collect()
}

/// The next frame on a link that belongs to no channel.
fn sent(paths: &mut Paths<AllRules>, port: usize) -> Option<(Mac, Control)> {
    let (mut out, search) =
        (Outgoing::new(), TargetSearch::new((TargetId::Any, config().export), None, None));
    while paths.poll_transmit(NOW, port, (config().host, &search), &mut out) {
        if let Content::Control(control) = out.content {
            return Some((out.destination, control));
        }
    }
    None
}

/// The target answers all Hellos and Connects on a link; returns the Connects.
fn answer(paths: &mut Paths<AllRules>, port: usize) -> Vec<Connect> {
    let (config, mut connects) = (config(), Vec::new());
    while let Some((peer, control)) = sent(paths, port) {
        let mut header = Header::new(control.kind());
        let answer = match control {
            Control::Hello(hello) => {
                header.flags = Flags::REPLY;
                Control::Hello(hello)
            }
            Control::Connect(connect) => {
                header = Header::new(Kind::Accept);
                let accept = accept(&connect);
                connects.push(connect);
                Control::Accept(accept)
            }
            other => panic!("{other:?} was sent"),
        };
        let params = ConnectParams { session: &config, resume: false };
        let taken = paths.handle_control(NOW, (port, peer), (&header, answer), params);
        assert!(taken.is_ok());
    }
    connects
}

fn accept(connect: &Connect) -> Accept {
    Accept {
        attempt: connect.attempt,
        target: TARGET,
        generation: Uuid::nil(),
        export: connect.export,
        geometry: Geometry::new(1 << 20, 512),
        cookie: connect.cookie,
        channel: connect.channel,
        queue_size: connect.queue_size,
        rings: connect.rings,
        frame_len: connect.frame_len,
        damq_pages: connect.damq_pages,
        checksum: false,
        stages: false,
        block_status: false,
        keep_alive_ms: connect.keep_alive_ms,
    }
}

fn lose(paths: &mut Paths<AllRules>, path: usize, problem: Problem) -> bool {
    paths.lose(NOW, path, problem, &config()).is_some()
}

#[test]
fn each_pair_gets_its_channels_in_the_range_of_the_queue() {
    let mut paths = paired(&[&[1], &[2]]);
    assert_eq!(ends(&paths), [(0, mac(1)), (1, mac(2)), (0, mac(1)), (1, mac(2))]);
    assert!(!paths.is_live() && paths.all().iter().all(Path::is_busy), "attempts have begun");
    let connects = [answer(&mut paths, 0), answer(&mut paths, 1)].concat();
    let mut channels: Vec<_> = connects.iter().map(|connect| connect.channel.0).collect();
    channels.sort_unstable();
    assert_eq!(channels, [128, 129, 130, 131]);
    assert!(connects.iter().all(|connect| connect.damq_pages == 16_384 / 4));
    let marks = connects.iter().map(|connect| connect.cookie.0 as u32);
    assert!(marks.eq([paths.mark; 4]), "links filter by the first half");
    assert!(connects.iter().all(|it| !it.flags.contains(ConnectFlags::RESUME)));
    assert!(paths.all().iter().all(|path| path.live().is_some()));
    assert_eq!(paths.index(ChannelId(131)), 3);
    assert!(paths.live_on(1, 3).is_some());
    assert!(paths.live_on(0, 3).is_none(), "another link's");
    assert!(paths.live_on(0, paths.index(ChannelId(127))).is_none(), "another queue's");
}

#[test]
fn small_parts_of_the_room_are_not_requested() {
    let mut paths = paired(&[&[1, 2, 3, 4, 5, 6]]);
    let connects = answer(&mut paths, 0);
    assert_eq!(connects.len(), 12);
    assert!(connects.iter().all(|connect| connect.damq_pages == DAMQ_PAGES_MIN));
}

#[test]
fn an_address_that_is_heard_later_gets_its_channels_and_the_others_stay() {
    let mut paths = paired(&[&[1]]);
    answer(&mut paths, 0);
    hear(&mut paths, 0, &[2]);
    paths.pair(NOW, AIM, &config());
    assert_eq!(ends(&paths)[2..], [(0, mac(2)), (0, mac(2))]);
    let live = paths.all().iter().map(|path| path.live().is_some());
    assert!(live.eq([true, true, false, false]));
}

#[test]
fn a_path_to_an_address_that_is_gone_is_spare() {
    let mut paths = paired(&[&[1]]);
    answer(&mut paths, 0);
    assert!(lose(&mut paths, 0, Problem::Silence));
    paths.forget();
    hear(&mut paths, 0, &[2]);
    paths.pair(NOW, AIM, &config());
    assert_eq!(ends(&paths), [1, 1, 2, 2].map(|n| (0, mac(n))), "the pair has a live channel");
    assert!(lose(&mut paths, 1, Problem::Silence));
    hear(&mut paths, 0, &[3]);
    paths.pair(NOW, AIM, &config());
    assert_eq!(ends(&paths), [3, 3, 2, 2].map(|n| (0, mac(n))), "their indexes are used again");
}

#[test]
fn a_queue_has_a_bound_of_paths() {
    let addresses: Vec<u8> = (1..=16).collect();
    let mut paths = paired(&[&addresses, &[17, 18, 19, 20, 21, 22, 23, 24, 25, 26], &[27, 28]]);
    assert_eq!(paths.all().len(), 56);
    let more = paths.add_port(NOW, link());
    hear(&mut paths, more, &[31, 32, 33, 34, 35]);
    paths.pair(NOW, AIM, &config());
    assert_eq!(paths.all().len(), PATHS_MAX);
}

#[test]
fn a_lost_channel_is_opened_again_after_a_pause() {
    let mut paths = paired(&[&[1]]);
    answer(&mut paths, 0);
    assert!(lose(&mut paths, 0, Problem::Silence), "it was live");
    assert!(!lose(&mut paths, 0, Problem::Silence), "it is lost already");
    let until = paths.all()[0].idle_until().expect("it is idle");
    assert!(until > NOW);
    paths.pair(NOW, AIM, &config());
    assert!(!paths.all()[0].is_busy());
    paths.pair(until, AIM, &config());
    assert!(paths.all()[0].is_busy());
}

#[test]
fn a_channel_that_flaps_waits_longer_while_another_is_live() {
    let mut paths = paired(&[&[1]]);
    answer(&mut paths, 0);
    let pause = config().reconnect_delay;
    lose(&mut paths, 0, Problem::Silence);
    assert_eq!(paths.all()[0].idle_until(), Some(NOW + pause * 2));
    lose(&mut paths, 1, Problem::Silence);
    assert_eq!(paths.all()[1].idle_until(), Some(NOW + pause), "no other is live");
}

#[test]
fn after_a_reset_there_is_no_pause() {
    for problem in [Problem::Reset, Problem::Outdated, Problem::Removed, Problem::Restored] {
        let mut paths = paired(&[&[1]]);
        answer(&mut paths, 0);
        lose(&mut paths, 0, problem);
        assert_eq!(paths.all()[0].idle_until(), Some(NOW), "{problem:?}");
    }
}

/// Link 0 takes frames of 9014 bytes from now on; returns the lengths of the probes that follow.
fn widen(paths: &mut Paths<AllRules>) -> Vec<u32> {
    paths.port_mut(0).expect("it is there").config.frame_len_max = 9014;
    paths.widen();
    let probes = std::iter::from_fn(|| match sent(paths, 0)? {
        (_, Control::Hello(hello)) => Some(hello.frame_len),
        other => panic!("{other:?} was sent"),
    });
    probes.collect()
}

/// Two live channels, and an attempt to replace the second, with index 2.
fn replacing() -> Paths<AllRules> {
    let mut paths = paired(&[&[1]]);
    answer(&mut paths, 0);
    let longer = [1452, 1514, 4210, 8952, 9014];
    assert_eq!(widen(&mut paths), [longer, longer].concat());
    paths.replace(NOW, 1, AIM);
    paths.replace(NOW, 0, AIM);
    assert_eq!(ends(&paths), [(0, mac(1)); 3], "one at a time");
    paths
}

#[test]
fn a_channel_is_replaced_when_one_with_longer_frames_is_live() {
    let mut paths = replacing();
    let connects = answer(&mut paths, 0);
    assert_eq!(connects[0].frame_len, 9014);
    assert!(paths.all().iter().all(|path| path.live().is_some()), "the old one lives on");
    assert_eq!(paths.take_replaced(2), Some(1));
    assert!(lose(&mut paths, 1, Problem::Replaced));
    paths.pair(NOW, AIM, &config());
    let live = paths.all().iter().map(|path| path.live().is_some());
    assert!(live.eq([true, false, true]), "it is not opened again");
    assert_eq!(paths.take_replaced(2), None);
    // The place of the old path is used again.
    paths.replace(NOW, 0, AIM);
    assert!(paths.all()[1].is_busy());
    assert_eq!(paths.all().len(), 3);
}

#[test]
fn a_replacement_that_fails_leaves_the_channel_alone() {
    let mut paths = replacing();
    assert!(!lose(&mut paths, 2, Problem::NoAccept), "it was an attempt");
    assert!(paths.all()[1].live().is_some());
    paths.pair(NOW, AIM, &config());
    assert!(paths.all()[2].is_retired());
    paths.replace(NOW, 0, AIM);
    assert!(paths.all()[2].is_busy(), "the next one takes its place");
}

#[test]
fn a_replacement_goes_on_if_the_channel_is_lost_meanwhile() {
    let mut paths = replacing();
    assert!(lose(&mut paths, 1, Problem::Silence));
    assert!(paths.all()[1].is_retired());
    answer(&mut paths, 0);
    assert_eq!(paths.take_replaced(2), None);
    assert!(paths.all()[2].live().is_some());
}

#[test]
fn a_replacement_with_frames_that_are_no_longer_is_given_up() {
    let mut paths = paired(&[&[1]]);
    answer(&mut paths, 0);
    paths.replace(NOW, 1, AIM);
    answer(&mut paths, 0);
    assert_eq!(paths.take_replaced(2), Some(2));
    assert!(lose(&mut paths, 2, Problem::Replaced));
    assert!(paths.all()[1].live().is_some() && paths.all()[2].is_retired());
}

#[test]
fn live_channels_are_known_by_what_the_target_calls_them() {
    let mut paths = paired(&[&[1]]);
    let connects = answer(&mut paths, 0);
    let (cookie, channel) = (connects[1].cookie, connects[1].channel);
    let reset = Reset { cookie, channel, token: ResetToken::default(), target: TARGET };
    assert!(paths.knows((cookie, channel)));
    assert_eq!(paths.reset_by(0, mac(1), &reset), Some(1));
    assert_eq!(paths.reset_by(1, mac(1), &reset), None, "on another link");
    assert_eq!(paths.reset_by(0, mac(2), &reset), None, "from another address");
    let other = Reset { target: Uuid::from_u128(9), ..reset };
    assert_eq!(paths.reset_by(0, mac(1), &other), None, "from another target");
    let lost = paths.lose(NOW, 1, Problem::Reset, &config()).expect("it was live");
    assert_eq!(lost.identity, (cookie, channel));
    assert!(!paths.knows((cookie, channel)));
}

#[test]
fn the_index_of_a_removed_port_is_used_again() {
    let mut paths = paired(&[&[1], &[2]]);
    paths.remove_port(0);
    assert!(sent(&mut paths, 0).is_none(), "its attempts are over");
    assert!(paths.port_mut(0).is_none());
    assert_eq!(paths.add_port(NOW, link()), 0);
    assert_eq!(paths.add_port(NOW, link()), 2);
}

#[test]
fn the_counters_of_lost_channels_stay() {
    let mut paths = paired(&[&[1]]);
    answer(&mut paths, 0);
    for path in 0..2 {
        let channel = &mut paths.live_mut(path).expect("it is live").channel;
        channel.stats.duplicates = 3;
    }
    lose(&mut paths, 0, Problem::Silence);
    assert_eq!(paths.stats().duplicates, 6);
    paths.close(NOW);
    assert_eq!(paths.stats().duplicates, 6);
    paths.pair(NOW + Duration::from_secs(3600), AIM, &config());
    assert!(!paths.all().iter().any(Path::is_busy), "closed for good");
}

#[test]
fn queues_have_parts_of_a_link_for_themselves_wherever_they_begin_to_count() {
    for begin in 0..=u8::MAX {
        let mut session = [7; 16];
        session[0] = begin;
        let first = |queue| mark(Uuid::from_bytes(session), queue, u64::MAX) & 0xff;
        for parts in 1..=QUEUES_MAX {
            let mut of: Vec<_> = (0..parts).map(|it| first(it) as usize % parts).collect();
            of.sort_unstable();
            assert!(of.into_iter().eq(0..parts), "{parts} parts, from {begin} on");
        }
    }
}

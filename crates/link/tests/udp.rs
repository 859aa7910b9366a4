//! Links over UDP, on the loopback interface and over virtual cables: delivery in trains, peers,
//! places that move, and networks that don't cut datagrams.

use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use crate::harness::{BROADCAST, Cable, NAMES, frame, receive_all, send_all, wait};
use tyche_link::fault::{FaultLink, FaultPlan, Side};
use tyche_link::ip::{ListenAddress, OpenError};
use tyche_link::udp::segment::{self, Search};
use tyche_link::udp::{FRAME_LEN_MAX, UdpClient, UdpOptions, UdpServer, datagram};
use tyche_link::{Except, HEAD, Link, Mac, RxBatch, Share, TxVectors};
use tyche_testkit::wait::{PATIENCE, wait_until};

const NOW: Duration = Duration::ZERO;
/// How long to listen for answers that come at once.
const SEARCH: Duration = Duration::from_secs(1);
const LOOPBACK: &str = "127.0.0.1:0";

fn batch(frames: usize) -> RxBatch {
    RxBatch::new(frames, FRAME_LEN_MAX - HEAD)
}

fn listen(address: &str) -> UdpServer {
    UdpServer::listen(&[address.parse().unwrap()], &UdpOptions::default()).unwrap()
}

fn connect(address: SocketAddr) -> UdpClient {
    let place = ListenAddress::parse(&format!("udp:{address}"), 1).unwrap().unwrap();
    UdpClient::connect(&place, &[address], &UdpOptions::default()).unwrap()
}

/// Introduces a client to the server; returns its address there.
fn introduce(client: &mut UdpClient, server: &mut UdpServer) -> Mac {
    send_all(client, &[frame(BROADCAST, client.mac(), HEAD, 1)]);
    receive_all(server, &mut batch(1), 1)[0][6..12].try_into().unwrap()
}

/// The frame as it arrives: with the addresses that the receiver assigns.
fn arrived(at: Mac, from: Mac, mut frame: Vec<u8>) -> Vec<u8> {
    frame[..6].copy_from_slice(&at);
    frame[6..12].copy_from_slice(&from);
    frame
}

fn counter(link: &impl Link, name: &str) -> u64 {
    link.counters().into_iter().find(|(it, _)| it.name == name).unwrap().1
}

/// Sends frames of these lengths, a few at a time, and expects all of them, in order.
fn exchange(from: &mut impl Link, to: &mut impl Link, (at, by): (Mac, Mac), lengths: &[usize]) {
    for (part, lengths) in lengths.chunks(20).enumerate() {
        let numbered = lengths.iter().zip(100 * part as u64..);
        // Whatever addresses they have themselves, those of the receiver's choice arrive.
        let frames: Vec<_> = numbered.map(|(&len, seed)| frame(at, [7; 6], len, seed)).collect();
        send_all(from, &frames);
        let came = receive_all(to, &mut batch(64), frames.len());
        let wanted: Vec<_> = frames.into_iter().map(|it| arrived(to.mac(), by, it)).collect();
        assert!(came == wanted, "part {part}");
    }
}

#[test]
fn frames_of_all_lengths_arrive_intact_and_in_order_both_ways() {
    for address in [LOOPBACK, "[::1]:0"] {
        let mut server = listen(address);
        let mut client = connect(server.address());
        let peer = introduce(&mut client, &mut server);
        let longest = client.frame_len_max();
        let mut lengths: Vec<_> = (HEAD..HEAD + 40).collect();
        lengths.extend((0..60).map(|n| longest - n * 1009));
        lengths.extend([1472; 60]);
        lengths.extend((0..120).map(|n| if n % 3 == 2 { HEAD } else { 8256 + n }));
        let (own, theirs) = (client.mac(), server.mac());
        exchange(&mut client, &mut server, (theirs, peer), &lengths);
        let by = client_peer(&mut client, &mut server, peer);
        assert_ne!(by, own);
        exchange(&mut server, &mut client, (peer, by), &lengths);
        assert_eq!(counter(&client, "udp_lost") + counter(&server, "udp_lost"), 0);
        assert_eq!(counter(&client, "malformed_short") + counter(&server, "malformed_short"), 0);
        assert_eq!((server.overruns(), client.overruns()), (0, 0));
    }
}

/// The address that stands for the server at the client.
fn client_peer(client: &mut UdpClient, server: &mut UdpServer, peer: Mac) -> Mac {
    send_all(server, &[frame(peer, server.mac(), HEAD, 2)]);
    receive_all(client, &mut batch(1), 1)[0][6..12].try_into().unwrap()
}

#[test]
fn frames_of_about_one_length_travel_as_one() {
    let mut server = listen(LOOPBACK);
    let mut client = connect(server.address());
    introduce(&mut client, &mut server);
    let sent = counter(&client, "udp_trains_sent");
    let frames: Vec<_> = (0..60).map(|n| frame(server.mac(), [7; 6], 1400 + n % 7, 9)).collect();
    send_all(&mut client, &frames[..40]);
    receive_all(&mut server, &mut batch(64), 40);
    assert_eq!(counter(&client, "udp_trains_sent") - sent, 1);
    assert_eq!(counter(&client, "udp_uncut"), 0);
    assert_eq!(counter(&server, "udp_trains_received"), 2, "the first frame, and a train");
    assert_eq!(counter(&server, "udp_train_frames_received"), 41);
}

#[test]
fn what_a_batch_has_no_room_for_is_received_next() {
    let mut server = listen(LOOPBACK);
    let mut client = connect(server.address());
    introduce(&mut client, &mut server);
    assert!(!wait(&server, NOW));
    let frames: Vec<_> = (0..7).map(|n| frame(server.mac(), [7; 6], 1000, n)).collect();
    send_all(&mut client, &frames);
    assert!(wait(&server, PATIENCE));
    let (mut few, mut other) = (batch(3), batch(3));
    assert_eq!(server.receive(&mut few).unwrap(), 3);
    assert_eq!(server.receive(&mut other).unwrap(), 0, "the first batch still has the memory");
    assert!(wait(&server, NOW), "four are left, of which the kernel knows nothing");
    few.clear();
    assert_eq!(server.receive(&mut other).unwrap(), 3);
    assert_eq!(server.receive(&mut other).unwrap(), 1);
    assert_eq!(other.frame(0).len(), 1000);
    assert_eq!(server.receive(&mut other).unwrap(), 0);
    assert!(!wait(&server, NOW));
}

#[test]
fn datagrams_that_are_no_frames_are_counted_and_dropped() {
    let mut server = listen(LOOPBACK);
    let stranger = UdpSocket::bind(LOOPBACK).unwrap();
    let mut long = [0; 200];
    long[12..14].copy_from_slice(&201u16.to_be_bytes());
    for datagram in [&[][..], &[1; HEAD - 1], &long] {
        stranger.send_to(datagram, server.address()).unwrap();
    }
    // A frame that names less than the head is none, either; one with padding behind it is one.
    let mut short = [0; HEAD];
    short[12..14].copy_from_slice(&(HEAD as u16 - 1).to_be_bytes());
    stranger.send_to(&short, server.address()).unwrap();
    let mut padded = [3; 120];
    padded[12..14].copy_from_slice(&100u16.to_be_bytes());
    stranger.send_to(&padded, server.address()).unwrap();
    let came = receive_all(&mut server, &mut batch(8), 1);
    assert_eq!((came.len(), came[0].len()), (1, 100));
    assert_eq!(counter(&server, "malformed_short"), 3, "an empty train has no datagram");
    assert_eq!(came[0][14..], [3; 86]);
}

#[test]
fn a_target_answers_each_of_its_peers_and_nobody_else() {
    let mut server = listen("[::]:0");
    let port = server.address().port();
    let v4 = connect(SocketAddr::new("127.0.0.1".parse().unwrap(), port));
    let v6 = connect(SocketAddr::new("::1".parse().unwrap(), port));
    let mut clients = [v4, v6];
    let peers = clients.each_mut().map(|client| introduce(client, &mut server));
    assert_ne!(peers[0], peers[1]);
    let mut frames = Vec::new();
    for seed in 0..30 {
        frames.push(frame(peers[seed % 2], server.mac(), 300, seed as u64));
    }
    frames.push(frame([0, 9, 9, 9, 9, 9], server.mac(), 300, 99));
    send_all(&mut server, &frames);
    for (index, client) in clients.iter_mut().enumerate() {
        let came = receive_all(client, &mut batch(64), 15);
        let contents: Vec<_> = came.iter().map(|it| &it[14..]).collect();
        let wanted: Vec<_> = frames[index..30].iter().step_by(2).map(|it| &it[14..]).collect();
        assert!(contents == wanted, "client {index}");
    }
    assert_eq!(counter(&server, "udp_lost"), 1, "nobody has that address");
}

#[test]
fn a_host_hears_its_target_only() {
    let mut server = listen(LOOPBACK);
    let mut client = connect(server.address());
    let peer = introduce(&mut client, &mut server);
    let [.., high, low] = peer;
    let address = ("127.0.0.1", u16::from_be_bytes([high, low]));
    let stranger = UdpSocket::bind(LOOPBACK).unwrap();
    stranger.send_to(&frame(peer, [7; 6], 100, 1), address).unwrap();
    send_all(&mut server, &[frame(peer, [7; 6], 100, 2)]);
    let came = receive_all(&mut client, &mut batch(8), 1);
    assert_eq!(came[0][14..], frame(peer, [7; 6], 100, 2)[14..]);
    assert_eq!(client.receive(&mut batch(8)).unwrap(), 0);
}

#[test]
fn a_port_is_taken_once_and_shared_by_the_threads_of_one_target() {
    let first = listen(LOOPBACK);
    let address = first.address();
    let again = UdpServer::listen(&[address], &UdpOptions::default());
    let Err(OpenError::Listen { source, .. }) = again else { panic!("{again:?}") };
    assert_eq!(source.kind(), ErrorKind::AddrInUse);
    let mut sockets = vec![first];
    for _ in 0..3 {
        let socket = sockets[0].beside(&UdpOptions::default()).unwrap();
        assert_eq!(socket.address(), address);
        sockets.push(socket);
    }
    // All frames of a host come to one of them, and its answers reach the host.
    for _ in 0..16 {
        let mut client = connect(address);
        let frames: Vec<_> = (0..20).map(|seed| frame(BROADCAST, [7; 6], 500, seed)).collect();
        send_all(&mut client, &frames);
        let mut heard = None;
        wait_until("one of the sockets is readable", || {
            heard = sockets.iter().position(|socket| wait(socket, NOW));
            heard.is_some()
        });
        let socket = &mut sockets[heard.unwrap()];
        let came = receive_all(socket, &mut batch(64), 20);
        let peer = came[0][6..12].try_into().unwrap();
        send_all(socket, &[frame(peer, socket.mac(), 400, 5)]);
        assert_eq!(receive_all(&mut client, &mut batch(1), 1)[0].len(), 400);
    }
    let again = UdpServer::listen(&[address], &UdpOptions::default());
    assert!(again.is_err(), "another target does not share it");
}

#[test]
fn threads_of_a_target_divide_frames_by_a_byte() {
    const OF: u8 = 3;
    const AT: usize = 40;
    const KIND: usize = 30;
    let first = listen(LOOPBACK);
    let address = first.address();
    let mut sockets = vec![first];
    for _ in 1..OF {
        sockets.push(sockets[0].beside(&UdpOptions::default()).unwrap());
    }
    let except = Some(Except { at: KIND, mask: u8::MAX, value: 9, by: Some(AT + 1) });
    let share = |index| Share { index, of: OF, at: AT, except };
    for (index, socket) in (0..).zip(&mut sockets) {
        assert!(socket.select(share(index)));
    }
    for number in 0..64 {
        let mut sent = frame(BROADCAST, [7; 6], 500, number.into());
        sent[KIND] = if number % 4 == 0 { 9 } else { number };
        (sent[AT], sent[AT + 1]) = (number, number / 2);
        // Each from another port: where it comes from is all the same.
        let mut client = connect(address);
        send_all(&mut client, std::slice::from_ref(&sent));
        let owner = (0..OF).find(|&index| share(index).has(&sent)).unwrap();
        let came = receive_all(&mut sockets[usize::from(owner)], &mut batch(64), 1);
        assert_eq!(came[0][14..], sent[14..]);
    }
}

#[test]
fn a_peer_has_one_address_for_all_threads_of_a_target() {
    let first = listen("[::1]:0");
    let mut second = first.beside(&UdpOptions::default()).unwrap();
    assert!(second.select(Share { index: 1, of: 2, at: 40, except: None }));
    let mut sockets = [first, second];
    let mut client = connect(sockets[0].address());
    let peers = [0, 1].map(|part| {
        let mut sent = frame(BROADCAST, [7; 6], 500, 3);
        sent[40] = part;
        send_all(&mut client, &[sent]);
        receive_all(&mut sockets[usize::from(part)], &mut batch(8), 1)[0][6..12].to_vec()
    });
    assert_eq!(peers[0], peers[1]);
}

/// Sends one frame of that length.
fn send(link: &mut impl Link, len: usize) -> std::io::Result<usize> {
    let mut vectors = TxVectors::new(1, 1);
    let frame = frame(BROADCAST, [7; 6], len, 1);
    let mut batch = vectors.batch();
    batch.push(&frame[..HEAD], [&frame[HEAD..]], &[]);
    link.send(&batch)
}

/// Sends four frames of 8000 bytes.
fn send_long(link: &mut impl Link) -> std::io::Result<usize> {
    let frames: Vec<_> = (0..4).map(|seed| frame(BROADCAST, [7; 6], 8000, seed)).collect();
    let mut vectors = TxVectors::new(4, 1);
    let mut batch = vectors.batch();
    frames.iter().for_each(|it| batch.push(&it[..HEAD], [&it[HEAD..]], &[]));
    link.send(&batch)
}

/// A cable with an address at each end, and a server at the first.
fn cable(mtu: usize) -> (Cable, UdpServer) {
    let cable = Cable::new(mtu);
    for side in [0, 1] {
        cable.ip(side, &["address", "add", &format!("10.9.0.{}/24", side + 1), "dev", NAMES[side]]);
    }
    let server = cable.inside(0, || listen("10.9.0.1:0"));
    (cable, server)
}

/// A client at the second end of a cable.
fn connect_through(cable: &Cable, server: &UdpServer) -> UdpClient {
    let address = server.address();
    cable.inside(1, move || connect(address))
}

#[test]
fn who_asks_everybody_hears_from_the_address_that_serves() {
    tyche_testkit::need_root!();
    let (cable, mut server) = cable(1500);
    let own = &mut server;
    let mut beacon = cable.inside(0, move || own.beacon()).unwrap().unwrap();
    assert_eq!(beacon.name(), server.name());
    let question = frame(BROADCAST, [7; 6], 200, 1);
    thread::scope(|scope| {
        let search = || {
            cable.inside(1, || {
                segment::search(&question, SEARCH, |answer| answer[HEAD..] == [9; 36]).unwrap()
            })
        };
        let searched = scope.spawn(search);
        let came = receive_all(&mut beacon, &mut batch(1), 1).remove(0);
        // What comes to everybody is not addressed to one.
        assert_eq!((&came[..6], &came[14..]), (&BROADCAST[..], &question[14..]));
        let peer: Mac = came[6..12].try_into().unwrap();
        let answer = |byte| [&frame(peer, [7; 6], HEAD, 2)[..], &[byte; 36][..]].concat();
        send_all(&mut beacon, &[answer(8), answer(9), answer(9)]);
        let Search { found, asked, .. } = searched.join().unwrap();
        assert_eq!((found, asked), (vec![server.address()], vec![NAMES[1].to_owned()]));
    });
}

/// As of a VLAN and its parent.
#[test]
fn of_two_interfaces_with_one_address_each_hears_its_own_questions() {
    tyche_testkit::need_root!();
    let cable = Cable::new(1500);
    cable.ip(0, &["link", "add", "near", "type", "veth", "peer", "name", "far"]);
    for (link, address) in [(NAMES[0], "fe80::1/64"), ("near", "fe80::1/64"), ("far", "fe80::2/64")]
    {
        cable.ip(0, &["link", "set", link, "up"]);
        cable.ip(0, &["address", "add", address, "dev", link, "nodad"]);
    }
    let resolve = |place| ListenAddress::parse(place, 0).unwrap().unwrap().resolve().unwrap();
    let question = frame(BROADCAST, [7; 6], 200, 1);
    let datagram = [&datagram::header(question.len())[..], &question[14..]].concat();
    let mut beacon = cable.inside(0, || {
        let server = UdpServer::listen(&resolve("udp:[fe80::1%near]:0"), &UdpOptions::default());
        let beacon = server.unwrap().beacon().unwrap().unwrap();
        let socket = UdpSocket::bind("[::]:0").unwrap();
        socket.send_to(&datagram, resolve("udp:[ff02::1%far]:8651")[0]).unwrap();
        beacon
    });
    let came = receive_all(&mut beacon, &mut batch(1), 1).remove(0);
    assert_eq!(came[14..], question[14..]);
}

#[test]
fn on_the_loopback_interface_there_is_nobody_to_ask() {
    assert!(listen(LOOPBACK).beacon().unwrap().is_none());
}

#[test]
fn frames_are_as_long_as_the_interface_takes_and_follow_its_mtu() {
    tyche_testkit::need_root!();
    let (cable, mut server) = cable(9000);
    let mut client = connect_through(&cable, &server);
    introduce(&mut client, &mut server);
    assert_eq!(client.frame_len_max(), 9000 - 28);
    cable.ip(1, &["link", "set", NAMES[1], "mtu", "1500"]);
    wait_until("the client knows the new MTU", || client.frame_len_max() == 1500 - 28);
    // A train of long frames is refused for its length, and so is one of them alone.
    let refused = send_long(&mut client).and_then(|_| send_long(&mut client)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");
    assert_eq!(send_long(&mut client).unwrap(), 0, "it is said once");
    let trains = counter(&client, "udp_trains_sent");
    let short: Vec<_> = (0..4).map(|seed| frame(BROADCAST, [7; 6], 1400, seed)).collect();
    send_all(&mut client, &short);
    receive_all(&mut server, &mut batch(8), 4);
    assert_eq!(counter(&client, "udp_trains_sent") - trains, 1, "trains are cut as before");
    assert_eq!(counter(&client, "udp_uncut"), 0);
}

#[test]
fn marks_of_the_network_arrive_with_the_frames() {
    tyche_testkit::need_root!();
    let (cable, mut server) = cable(1500);
    let mut client = connect_through(&cable, &server);
    let peer = introduce(&mut client, &mut server);
    cable.nft(
        0,
        "add table netdev m; add chain netdev m c { type filter hook ingress device tyl0 priority \
         0; }; add rule netdev m c udp dport 0-65535 ip ecn set ce",
    );
    let frames: Vec<_> = (0..5).map(|seed| frame(BROADCAST, [7; 6], 700, seed)).collect();
    send_all(&mut client, &frames);
    let mut came = batch(8);
    wait_until("frames come", || server.receive(&mut came).unwrap() > 0);
    assert!((0..came.len()).all(|index| came.is_congested(index)));
    send_all(&mut server, &[frame(peer, [7; 6], 700, 1)]);
    wait_until("a frame comes", || client.receive(&mut came).unwrap() > 0);
    assert!(!came.is_congested(0), "the other way is free");
}

#[test]
fn a_target_that_is_not_there_is_reported_until_it_is() {
    // Not of the range from which the kernel gives ports to the tests beside this one.
    let address: SocketAddr = "127.8.8.8:8650".parse().unwrap();
    let mut client = connect(address);
    assert_eq!(send(&mut client, HEAD).unwrap(), 1);
    let mut one = batch(1);
    let mut error = None;
    wait_until("the kernel says that nobody listens", || {
        error = client.receive(&mut one).err();
        error.is_some()
    });
    let error = error.unwrap();
    assert_eq!(error.kind(), ErrorKind::NetworkDown);
    assert!(error.to_string().contains("tyche serve --link udp:"), "{error}");
    let mut server = listen(&address.to_string());
    // The report of the last attempt may still come.
    wait_until("a frame is taken", || send(&mut client, HEAD).is_ok_and(|sent| sent == 1));
    let came = receive_all(&mut server, &mut batch(4), 1);
    let peer = came[0][6..12].try_into().unwrap();
    send_all(&mut server, &[frame(peer, [7; 6], 90, 1)]);
    receive_all(&mut client, &mut one, 1);
    assert_eq!(client.receive(&mut one).unwrap(), 0, "all is well");
}

#[test]
fn a_host_whose_address_changes_comes_from_the_new_one() {
    tyche_testkit::need_root!();
    let (cable, mut server) = cable(1500);
    let mut client = connect_through(&cable, &server);
    let former = introduce(&mut client, &mut server);
    cable.ip(1, &["address", "del", "10.9.0.2/24", "dev", NAMES[1]]);
    cable.ip(1, &["address", "add", "10.9.0.9/24", "dev", NAMES[1]]);
    let mut one = batch(1);
    let mut came = None;
    cable.inside(1, || {
        wait_until("it asks from another address", || {
            let _ = send(&mut client, HEAD);
            if server.receive(&mut one).unwrap() > 0 {
                came = Some(one.frame(0).head[6..12].to_vec());
            }
            came.as_ref().is_some_and(|it| *it != former)
        });
    });
    assert_eq!(came.unwrap()[..4], [10, 9, 0, 9]);
}

#[test]
fn a_target_that_moves_is_found_by_its_name() {
    let mut server = listen(LOOPBACK);
    let port = server.address().port();
    let place = ListenAddress::parse(&format!("udp:localhost:{port}"), 1).unwrap().unwrap();
    let former = SocketAddr::new("127.9.9.9".parse().unwrap(), port);
    let mut client = UdpClient::connect(&place, &[former], &UdpOptions::default()).unwrap();
    let mut one = batch(1);
    wait_until("the name is looked up, and its address tried", || {
        let _ = send(&mut client, HEAD);
        server.receive(&mut one).unwrap() > 0
    });
}

#[test]
fn a_wrapper_waits_for_the_socket_that_is_open() {
    let mut server = listen(LOOPBACK);
    let port = server.address().port();
    let place = ListenAddress::parse(&format!("udp:localhost:{port}"), 1).unwrap().unwrap();
    let former = SocketAddr::new("127.9.9.8".parse().unwrap(), port);
    let client = UdpClient::connect(&place, &[former], &UdpOptions::default()).unwrap();
    let plan = FaultPlan::new();
    plan.set_drop_ppm(1);
    let mut client = FaultLink::new(client, 42, Side::Receive, plan).unwrap();
    let mut one = batch(1);
    wait_until("the name is looked up, and its address tried", || {
        let _ = send(&mut client, HEAD);
        server.receive(&mut one).unwrap() > 0
    });
    let peer = one.frame(0).head[6..12].try_into().unwrap();
    send_all(&mut server, &[frame(peer, [7; 6], 90, 1)]);
    assert!(wait(&client, PATIENCE));
    receive_all(&mut client, &mut one, 1);
}

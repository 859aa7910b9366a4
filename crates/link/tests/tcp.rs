//! Links over TCP, on the loopback interface: delivery, and protection from bad peers.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use crate::harness::{BROADCAST, carry, contents, frame, from, receive_all, send_all, wait};
use tyche_link::connections::UNSERVED_PER_ADDRESS_MAX;
use tyche_link::ip::OpenError;
use tyche_link::tcp::{FRAME_LEN_MAX, OUTPUT_BYTES, TcpClient, TcpOptions, TcpServer};
use tyche_link::{HEAD, Link, Mac, RxBatch, TxVectors};
use tyche_testkit::wait::{PATIENCE, wait_until};

const NOW: Duration = Duration::ZERO;
const PREFIX: usize = 4;

fn batch(frames: usize) -> RxBatch {
    RxBatch::new(frames, FRAME_LEN_MAX - HEAD)
}

fn any_port() -> SocketAddr {
    "127.0.0.1:0".parse().unwrap()
}

fn server(options: &TcpOptions) -> TcpServer {
    TcpServer::listen(&[any_port()], options).unwrap()
}

fn client(server: &TcpServer) -> TcpClient {
    TcpClient::connect(&[server.address()], &TcpOptions::default()).unwrap()
}

/// Buffers of about two long frames: a batch is hardly ever written at once.
fn narrow() -> TcpOptions {
    TcpOptions { socket_buffer: 128 << 10, ..TcpOptions::default() }
}

/// Introduces a client to the server; returns its address there.
fn introduce(client: &mut TcpClient, server: &mut TcpServer) -> Mac {
    let hello = frame(BROADCAST, client.mac(), HEAD, 1);
    send_all(client, &[hello]);
    let came = receive_all(server, &mut batch(1), 1);
    came[0][6..12].try_into().unwrap()
}

/// A frame of a channel.
fn of_channel(to: Mac, from: Mac) -> Vec<u8> {
    let mut frame = frame(to, from, 100, 7);
    frame[15] = 0x13;
    frame
}

#[test]
fn frames_of_all_sizes_arrive_intact_and_in_order_both_ways() {
    for options in [TcpOptions::default(), narrow()] {
        let mut server = server(&options);
        let mut client = TcpClient::connect(&[server.address()], &options).unwrap();
        let mac = introduce(&mut client, &mut server);
        let lens = (HEAD..HEAD + 40).chain((0..60).map(|n| FRAME_LEN_MAX - n * 1009));
        let lens: Vec<_> = lens.chain(std::iter::repeat_n(HEAD, 500)).collect();
        let frames = |to: Mac, by: Mac| -> Vec<_> {
            lens.iter().enumerate().map(|(n, &len)| frame(to, by, len, n as u64)).collect()
        };
        let there = frames(server.mac(), [0x77; 6]);
        let came = carry(&mut client, &mut server, &there);
        let wanted: Vec<_> = there.into_iter().map(|it| from(mac, it)).collect();
        assert!(came == wanted, "what comes in is from the connection, whatever it says");
        let back = frames(mac, [0x77; 6]);
        let wanted: Vec<_> = back.iter().map(|it| from(server.mac(), it.clone())).collect();
        assert!(carry(&mut server, &mut client, &back) == wanted);
        assert_eq!(server.stats(), client.stats());
        assert_eq!(server.stats().lost, 0);
    }
}

#[test]
fn the_descriptor_is_readable_while_frames_wait_also_those_already_read() {
    let mut server = server(&TcpOptions::default());
    let mut client = client(&server);
    let mac = introduce(&mut client, &mut server);
    assert!(!wait(&server, NOW) && !wait(&client, NOW));
    let mut two = batch(2);
    let exchange = |to: &mut dyn Link, two: &mut RxBatch| {
        assert_eq!(to.receive(two).unwrap(), 2);
    };
    let three = |to: Mac| -> Vec<_> { (0..3).map(|n| frame(to, BROADCAST, 100, n)).collect() };
    send_all(&mut client, &three(server.mac()));
    assert!(wait(&server, PATIENCE));
    exchange(&mut server, &mut two);
    assert!(wait(&server, NOW), "one is left");
    assert_eq!(server.receive(&mut two).unwrap(), 1);
    assert!(!wait(&server, NOW));
    send_all(&mut server, &three(mac));
    assert!(wait(&client, PATIENCE));
    exchange(&mut client, &mut two);
    assert!(wait(&client, NOW), "one is left");
    assert_eq!(client.receive(&mut two).unwrap(), 1);
    assert!(!wait(&client, NOW));
    assert_eq!(client.receive(&mut two).unwrap(), 0);
}

/// All data of a raw connection, split into frames.
fn read_frames(stream: &mut TcpStream, count: usize) -> Vec<Vec<u8>> {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let read = |_| {
        let mut prefix = [0; PREFIX];
        stream.read_exact(&mut prefix).unwrap();
        let mut frame = vec![0; u32::from_le_bytes(prefix) as usize];
        stream.read_exact(&mut frame).unwrap();
        frame
    };
    (0..count).map(read).collect()
}

#[test]
fn what_is_taken_arrives_and_what_is_not_taken_does_not() {
    let listener = TcpListener::bind(any_port()).unwrap();
    let address = listener.local_addr().unwrap();
    let mut client = TcpClient::connect(&[address], &narrow()).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    let mut vectors = TxVectors::new(64, 1);
    let (mut taken, mut seed) = (Vec::new(), 0);
    // Until the peer's failure to read shows, and once more.
    for full in [false, true] {
        loop {
            let lens = (0..64u64).map(|n| 60_000 - (seed + n) as usize % 7 * 8000);
            let frames: Vec<_> =
                lens.zip(seed..).map(|(len, seed)| frame(BROADCAST, [0; 6], len, seed)).collect();
            let mut batch = vectors.batch();
            for frame in &frames {
                let (head, rest) = frame.split_first_chunk::<HEAD>().unwrap();
                batch.push(head, [rest], &[]);
            }
            seed += 64;
            let count = client.send(&batch).unwrap();
            taken.extend(frames.into_iter().take(count));
            assert!(!full || count < 64);
            if count < 64 {
                break;
            }
        }
    }
    let bytes: usize = taken.iter().map(|frame| PREFIX + frame.len()).sum();
    assert!(bytes > OUTPUT_BYTES - FRAME_LEN_MAX, "{bytes} bytes are less than was promised");
    let count = taken.len();
    let reader = std::thread::spawn(move || read_frames(&mut peer, count));
    let (mut nothing, deadline) = (batch(1), Instant::now() + PATIENCE);
    while !reader.is_finished() {
        assert!(Instant::now() < deadline);
        wait(&client, Duration::from_millis(10));
        // The peer closes when it has read everything.
        let _ = client.receive(&mut nothing);
    }
    assert!(reader.join().unwrap() == taken);
}

#[test]
fn a_slow_reader_loses_frames_and_nobody_else_does() {
    let mut server = server(&narrow());
    let (mut slow, mut quick) = (client(&server), client(&server));
    let macs = [introduce(&mut slow, &mut server), introduce(&mut quick, &mut server)];
    let mut vectors = TxVectors::new(2, 1);
    let (mut came, mut sent, mut inbox) = (Vec::new(), [Vec::new(), Vec::new()], batch(16));
    // Three times the capacity of the slow one's buffers.
    for seed in 0..(3 * OUTPUT_BYTES / 60_000) as u64 {
        let frames = macs.map(|mac| frame(mac, server.mac(), 60_000, seed));
        let mut batch = vectors.batch();
        for frame in &frames {
            let (head, rest) = frame.split_first_chunk::<HEAD>().unwrap();
            batch.push(head, [rest], &[]);
        }
        assert_eq!(server.send(&batch).unwrap(), 2, "the last one always finds room");
        for (sent, frame) in sent.iter_mut().zip(frames) {
            sent.push(frame);
        }
        while came.len() < sent[1].len() {
            server.receive(&mut inbox).unwrap();
            assert!(inbox.is_empty());
            quick.receive(&mut inbox).unwrap();
            came.extend(contents(&inbox));
        }
    }
    assert!(came == sent[1]);
    let lost = server.stats().lost as usize;
    assert!(lost > sent[0].len() / 3, "{lost} of {} frames lost", sent[0].len());
    // The buffered frames arrive when it reads at last, in order.
    let kept = sent[0].len() - lost;
    let (mut late, deadline) = (Vec::new(), Instant::now() + PATIENCE);
    while late.len() < kept {
        assert!(Instant::now() < deadline, "{} of {kept} frames came", late.len());
        server.receive(&mut inbox).unwrap();
        slow.receive(&mut inbox).unwrap();
        late.extend(contents(&inbox));
    }
    let mut rest = sent[0].iter();
    assert!(late.iter().all(|frame| rest.any(|sent| sent == frame)));
}

#[test]
fn impossible_lengths_end_their_connection_and_no_other() {
    let mut server = server(&TcpOptions::default());
    let mut good = client(&server);
    introduce(&mut good, &mut server);
    let lens = [0, HEAD - 1, FRAME_LEN_MAX + 1, u32::MAX as usize];
    for (index, len) in lens.into_iter().enumerate() {
        let mut hostile = TcpStream::connect(server.address()).unwrap();
        let valid = frame(BROADCAST, BROADCAST, 200, 3);
        hostile.write_all(&(valid.len() as u32).to_le_bytes()).unwrap();
        hostile.write_all(&valid).unwrap();
        hostile.write_all(&(len as u32).to_le_bytes()).unwrap();
        let came = receive_all(&mut server, &mut batch(8), 1);
        assert_eq!(came[0][12..], valid[12..], "what came before is good");
        let deadline = Instant::now() + PATIENCE;
        while server.stats().malformed <= index as u64 {
            assert!(wait(&server, deadline.saturating_duration_since(Instant::now())));
            assert_eq!(server.receive(&mut batch(8)).unwrap(), 0);
        }
        hostile.set_read_timeout(Some(PATIENCE)).unwrap();
        assert!(matches!(hostile.read(&mut [0]), Ok(0) | Err(_)), "it was let go");
        assert_eq!(server.connections(), 1);
    }
    introduce(&mut good, &mut server);
    // A host checks its target just as well.
    let listener = TcpListener::bind(any_port()).unwrap();
    let mut deceived =
        TcpClient::connect(&[listener.local_addr().unwrap()], &TcpOptions::default()).unwrap();
    listener.accept().unwrap().0.write_all(b"HTTP/1.1 400 Bad Request\r\n").unwrap();
    assert!(wait(&deceived, PATIENCE));
    let error = deceived.receive(&mut batch(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NetworkDown);
    assert!(error.to_string().contains("does not speak Tyche"), "{error}");
    assert_eq!(deceived.stats().malformed, 1);
}

/// Calls the link as a loop does, until it is connected again.
fn await_up(client: &mut TcpClient) {
    wait_until("the other side listens again", || {
        let down = client.receive(&mut batch(1)).err();
        assert!(down.as_ref().is_none_or(|it| it.kind() == ErrorKind::NetworkDown), "{down:?}");
        down.is_none()
    });
}

#[test]
fn a_client_connects_again_when_the_server_is_back() {
    let mut server = server(&TcpOptions::default());
    let address = server.address();
    let mut client = client(&server);
    for round in 0..3 {
        let mac = introduce(&mut client, &mut server);
        send_all(&mut server, &[frame(mac, [1; 6], 5000, round)]);
        // Frames in flight when the server ended still arrive.
        drop(server);
        assert_eq!(receive_all(&mut client, &mut batch(1), 1)[0].len(), 5000);
        assert!(wait(&client, PATIENCE));
        let error = client.receive(&mut batch(1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NetworkDown);
        assert!(error.to_string().contains(&address.to_string()), "{error}");
        let mut vectors = TxVectors::new(1, 0);
        let mut out = vectors.batch();
        out.push(&[0xff; HEAD], [], &[]);
        assert_eq!(client.send(&out).unwrap_err().kind(), ErrorKind::NetworkDown);
        server = TcpServer::listen(&[address], &TcpOptions::default()).unwrap();
        await_up(&mut client);
    }
}

#[test]
fn frames_go_to_whom_they_are_for_and_places_are_used_again() {
    let options = TcpOptions { connections_max: 5, ..TcpOptions::default() };
    let mut server = server(&options);
    let mut clients: Vec<_> = (0..5).map(|_| client(&server)).collect();
    let macs: Vec<_> = clients.iter_mut().map(|it| introduce(it, &mut server)).collect();
    assert!(macs.iter().all(|mac| mac[0] & 3 == 2), "locally administered, of one machine");
    let to_each = macs.iter().map(|&mac| of_channel(mac, server.mac()));
    let to_all = frame(BROADCAST, server.mac(), 300, 8);
    let to_nobody = frame([0x06, 0, 9, 9, 9, 9], server.mac(), 100, 9);
    let frames: Vec<_> = to_each.chain([to_all, to_nobody]).collect();
    send_all(&mut server, &frames);
    assert_eq!(server.stats().lost, 1);
    for (index, client) in clients.iter_mut().enumerate() {
        let came = receive_all(client, &mut batch(2), 2);
        let by = |frame: &Vec<u8>| from(server.mac(), frame.clone());
        assert_eq!(came, [by(&frames[index]), by(&frames[5])]);
        assert_eq!(client.receive(&mut batch(1)).unwrap(), 0, "and nothing else");
    }

    // One too many: accepted, then closed.
    let mut sixth = client(&server);
    assert!(wait(&server, PATIENCE));
    assert_eq!(server.receive(&mut batch(1)).unwrap(), 0);
    assert_eq!((server.stats().refused, server.connections()), (1, 5));
    assert!(wait(&sixth, PATIENCE));
    assert_eq!(sixth.receive(&mut batch(1)).unwrap_err().kind(), ErrorKind::NetworkDown);

    // When one leaves, the next gets its slot but not its address.
    drop(clients.remove(2));
    assert!(wait(&server, PATIENCE));
    assert_eq!(server.receive(&mut batch(1)).unwrap(), 0);
    assert_eq!(server.connections(), 4);
    await_up(&mut sixth);
    let mac = introduce(&mut sixth, &mut server);
    assert!(!macs.contains(&mac));
    let late = [frame(macs[2], server.mac(), 100, 1), frame(mac, server.mac(), 100, 2)];
    send_all(&mut server, &late);
    assert_eq!(receive_all(&mut sixth, &mut batch(2), 1), [from(server.mac(), late[1].clone())]);
    assert_eq!(server.stats().lost, 2);
}

/// Strangers connect and send a byte now and then: they displace each other, and nobody else.
#[test]
fn connections_without_a_channel_give_their_places() {
    let options = TcpOptions { connections_max: 5, ..TcpOptions::default() };
    let mut server = server(&options);
    let mut host = client(&server);
    let mac = introduce(&mut host, &mut server);
    let answer = of_channel(mac, server.mac());
    send_all(&mut server, std::slice::from_ref(&answer));
    assert_eq!(receive_all(&mut host, &mut batch(1), 1).len(), 1);
    let mut strangers: Vec<_> =
        (0..20).map(|_| TcpStream::connect(server.address()).unwrap()).collect();
    for stranger in &mut strangers {
        // It may have been displaced.
        let _ = stranger.write_all(&[1]);
    }
    wait_until("all are accepted", || {
        assert_eq!(server.receive(&mut batch(1)).unwrap(), 0);
        server.stats().displaced == 16
    });
    let mut newcomer = client(&server);
    let other = introduce(&mut newcomer, &mut server);
    let frames = [answer, of_channel(other, server.mac())];
    send_all(&mut server, &frames);
    for client in [&mut host, &mut newcomer] {
        assert_eq!(receive_all(client, &mut batch(1), 1).len(), 1);
    }
    assert_eq!((server.stats().displaced, server.stats().refused), (17, 0));
}

/// An address has its part, also where there is room.
#[test]
fn one_address_has_a_limited_number_of_connections_without_a_channel() {
    let mut server = server(&TcpOptions::default());
    let strangers: Vec<_> = (0..UNSERVED_PER_ADDRESS_MAX + 9)
        .map(|_| TcpStream::connect(server.address()).unwrap())
        .collect();
    wait_until("all are accepted", || {
        assert_eq!(server.receive(&mut batch(1)).unwrap(), 0);
        server.stats().displaced == 9
    });
    assert_eq!(server.connections(), UNSERVED_PER_ADDRESS_MAX);
    drop(strangers);
}

#[test]
fn frames_that_are_too_long_are_refused() {
    let mut server = server(&TcpOptions::default());
    let mut client = client(&server);
    introduce(&mut client, &mut server);
    let data = vec![1; FRAME_LEN_MAX];
    for lens in [&[10, 1 << 16][..], &[1 << 16]] {
        let mut vectors = TxVectors::new(2, 1);
        let mut out = vectors.batch();
        for len in lens {
            out.push(&[0xff; HEAD], [&data[..(*len).min(FRAME_LEN_MAX - HEAD + 1)]], &[]);
        }
        for link in [&mut client as &mut dyn Link, &mut server] {
            match link.send(&out) {
                Ok(count) => assert_eq!((count, lens.len()), (1, 2)),
                Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE)),
            }
        }
    }
}

#[test]
fn why_a_link_does_not_open_is_said() {
    let options = TcpOptions::default();
    let taken = server(&options);
    let error = TcpServer::listen(&[taken.address()], &options).unwrap_err();
    assert!(
        matches!(&error, OpenError::Listen { source, .. } if
        source.kind() == ErrorKind::AddrInUse),
        "{error}"
    );
    let elsewhere = "192.0.2.1:0".parse().unwrap();
    let error = TcpServer::listen(&[elsewhere], &options).unwrap_err();
    assert!(error.to_string().contains("0.0.0.0 means all"), "{error}");
    // The next address is tried.
    TcpServer::listen(&[taken.address(), any_port()], &options).unwrap();

    let address = taken.address();
    drop(taken);
    let error = TcpClient::connect(&[address], &options).unwrap_err();
    assert!(
        matches!(&error, OpenError::Connect { source, .. } if
        source.kind() == ErrorKind::ConnectionRefused),
        "{error}"
    );
    assert!(matches!(TcpClient::connect(&[], &options).unwrap_err(), OpenError::NoAddress));
    let other = server(&options);
    let client = TcpClient::connect(&[address, other.address()], &options).unwrap();
    assert_eq!(client.name(), format!("tcp:{}", other.address()));
}

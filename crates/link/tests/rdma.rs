//! Links over RDMA, between the ends of its double: delivery, and the end of connections.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use crate::harness::{BROADCAST, carry, frame, from, receive_all, send_all, wait};
use tyche_link::ip::OpenError;
use tyche_link::rdma::double::{DoubleClient, DoubleOptions, DoubleServer, Interrupts, Model};
use tyche_link::rdma::{FRAME_LEN_MAX, QueueKind, RdmaClient, RdmaOptions, RdmaServer};
use tyche_link::{HEAD, Link, Mac, RxBatch, TxVectors};
use tyche_testkit::wait::{PATIENCE, wait_until};

const NOW: Duration = Duration::ZERO;

pub(crate) fn batch(frames: usize) -> RxBatch {
    RxBatch::new(frames, FRAME_LEN_MAX - HEAD)
}

/// A place of its own for each test.
fn place() -> SocketAddr {
    static PLACES: AtomicU16 = AtomicU16::new(1);
    let [high, low] = (std::process::id() as u16).to_be_bytes();
    ([127, 1, high, low], PLACES.fetch_add(1, Ordering::Relaxed)).into()
}

/// Rings of about two of the longest frames: they are full soon, and end often.
fn narrow() -> DoubleOptions {
    DoubleOptions { rdma: RdmaOptions { units: 600, ..RdmaOptions::default() }, ..wide() }
}

fn wide() -> DoubleOptions {
    DoubleOptions::default()
}

/// As in the paper's base protocol, with its card.
fn base() -> DoubleOptions {
    let rdma = RdmaOptions { kind: QueueKind::Base, ..RdmaOptions::default() };
    DoubleOptions { rdma, interrupts: Interrupts::Each, model: Model::ICS_2006 }
}

pub(crate) fn ends(options: &DoubleOptions) -> (DoubleServer, DoubleClient) {
    let at = place();
    let server = DoubleServer::listen(&[at], options).unwrap();
    dial(server, at, options).unwrap()
}

/// Connects: the server accepts when it is called.
fn dial(
    mut server: DoubleServer,
    at: SocketAddr,
    options: &DoubleOptions,
) -> Result<(DoubleServer, DoubleClient), OpenError> {
    std::thread::scope(|scope| {
        let client = scope.spawn(|| DoubleClient::connect(&[at], options));
        while !client.is_finished() {
            server.receive(&mut batch(1)).unwrap();
        }
        client.join().unwrap().map(|client| (server, client))
    })
}

/// Introduces a client to the server; returns its address there.
pub(crate) fn introduce(client: &mut DoubleClient, server: &mut DoubleServer) -> Mac {
    send_all(client, &[frame(BROADCAST, client.mac(), HEAD, 1)]);
    let came = receive_all(server, &mut batch(1), 1);
    came[0][6..12].try_into().unwrap()
}

#[test]
fn frames_of_all_sizes_arrive_intact_and_in_order_both_ways() {
    for options in [wide(), narrow(), base()] {
        let (mut server, mut client) = ends(&options);
        let mac = introduce(&mut client, &mut server);
        let lens = (HEAD..HEAD + 140).chain((0..60).map(|n| FRAME_LEN_MAX - n * 101));
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
    }
}

#[test]
fn both_rings_may_be_full_at_once() {
    // In the others announcements, or writes, run out before the ring does.
    for options in [narrow(), wide(), base()] {
        let (mut server, mut client) = ends(&options);
        let mac = introduce(&mut client, &mut server);
        for _ in 0..20 {
            let server_mac = server.mac();
            let (there, back) = (fill(&mut client, server_mac), fill(&mut server, mac));
            assert!(there > 10 && back > 10, "{there} {back}");
            let came = receive_all(&mut server, &mut batch(7), there);
            let are_right = came
                .iter()
                .enumerate()
                .all(|(n, it)| it[64..] == frame(mac, mac, 1000, n as u64)[64..]);
            assert!(are_right);
            receive_all(&mut client, &mut batch(7), back);
        }
    }
}

/// Sends frames, each a batch of its own, until there is no room; returns how many.
fn fill(link: &mut dyn Link, to: Mac) -> usize {
    let mut count = 0;
    loop {
        let mut vectors = TxVectors::new(1, 1);
        let frame = frame(to, BROADCAST, 1000, count);
        let mut batch = vectors.batch();
        batch.push_whole(&frame, HEAD);
        if link.send(&batch).unwrap() == 0 {
            return count as usize;
        }
        count += 1;
    }
}

/// Each frame is a batch of its own, which interrupts; nothing goes the other way.
#[test]
fn small_batches_one_way_go_on_without_end() {
    let (mut server, mut client) = ends(&wide());
    introduce(&mut client, &mut server);
    let mut one = batch(1);
    for number in 0..1000 {
        let (frame, mut vectors) = (frame(BROADCAST, BROADCAST, 100, number), TxVectors::new(1, 1));
        let mut batch = vectors.batch();
        batch.push_whole(&frame, HEAD);
        assert_eq!(client.send(&batch).unwrap(), 1, "frame {number}");
        assert_eq!(server.receive(&mut one).unwrap(), 1, "frame {number}");
    }
}

#[test]
fn the_descriptor_is_readable_while_frames_wait_and_wakes_a_sleeper() {
    let (mut server, mut client) = ends(&wide());
    let mac = introduce(&mut client, &mut server);
    assert!(!wait(&server, NOW) && !wait(&client, NOW));
    let mut two = batch(2);
    send_all(&mut client, &[1, 2, 3].map(|n| frame(BROADCAST, BROADCAST, 100, n)));
    assert!(wait(&server, PATIENCE));
    assert_eq!(server.receive(&mut two).unwrap(), 2);
    assert!(wait(&server, NOW), "one is left");
    assert_eq!(server.receive(&mut two).unwrap(), 1);
    assert_eq!(server.receive(&mut two).unwrap(), 0);
    assert!(!wait(&server, NOW));
    // Armed before: the frame that comes now interrupts.
    send_all(&mut server, &[frame(mac, BROADCAST, 100, 1)]);
    assert!(wait(&client, PATIENCE));
    receive_all(&mut client, &mut two, 1);
    let waiting = std::thread::spawn(move || (wait(&client, PATIENCE), client));
    send_all(&mut server, &[frame(mac, BROADCAST, 100, 1)]);
    let (is_woken, _client) = waiting.join().unwrap();
    assert!(is_woken);
}

fn counter(link: &impl Link, name: &str) -> u64 {
    link.counters().iter().find(|(metric, _)| metric.name == name).expect("it is counted").1
}

#[test]
fn a_batch_is_one_write_and_an_interrupt_if_its_receiver_sleeps() {
    let (mut server, mut client) = ends(&wide());
    introduce(&mut client, &mut server);
    let mut many = batch(64);
    let before = counter(&server, "rdma_interrupts");
    for is_asleep in [true, false] {
        assert!(!is_asleep || !wait(&server, NOW));
        let written = counter(&client, "rdma_writes");
        send_all(&mut client, &[1, 2, 3, 4].map(|n| frame(BROADCAST, BROADCAST, 2000, n)));
        assert_eq!(counter(&client, "rdma_writes"), written + 1);
        receive_all(&mut server, &mut many, 4);
        assert_eq!(counter(&server, "rdma_interrupts"), before + 1, "of the first batch");
    }
    assert_eq!(counter(&client, "rdma_announcements"), 3);
    assert_eq!(counter(&client, "rdma_waited"), 0);
    drop(client);
    wait_until("it is gone", || {
        server.receive(&mut many).unwrap();
        server.connections() == 0
    });
    assert_eq!(counter(&server, "rdma_interrupts"), before + 1, "what has ended still counts");
}

/// An exchange of two frames takes as many writes as the paper counts for a queue of either kind
/// (section 3.1): the base protocol writes each tail, and each head.
#[test]
fn small_messages_are_eliminated() {
    for (options, writes, interrupts) in [(wide(), 2, 0), (base(), 6, 2)] {
        let (mut server, mut client) = ends(&options);
        let mac = introduce(&mut client, &mut server);
        let mut one = batch(1);
        let count = |server: &DoubleServer, client: &DoubleClient, name| {
            counter(server, name) + counter(client, name)
        };
        let before = |name| count(&server, &client, name);
        let (written, interrupted) = (before("rdma_writes"), before("rdma_interrupts"));
        send_all(&mut client, &[frame(BROADCAST, BROADCAST, 2000, 1)]);
        wait_until("the frame comes", || server.receive(&mut one).unwrap() == 1);
        send_all(&mut server, &[frame(mac, BROADCAST, 2000, 1)]);
        wait_until("the answer comes", || client.receive(&mut one).unwrap() == 1);
        assert_eq!(count(&server, &client, "rdma_writes") - written, writes);
        assert_eq!(count(&server, &client, "rdma_interrupts") - interrupted, interrupts);
    }
}

#[test]
fn a_client_notices_the_end_of_its_server_and_comes_back() {
    let at = place();
    let options = wide();
    let (mut server, mut client) =
        dial(DoubleServer::listen(&[at], &options).unwrap(), at, &options).unwrap();
    introduce(&mut client, &mut server);
    drop(server);
    let mut one = batch(1);
    wait_until("the end is noticed", || client.receive(&mut one).is_err());
    let error = client.receive(&mut one).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NetworkDown);
    let mut server = DoubleServer::listen(&[at], &options).unwrap();
    wait_until("it is back", || {
        server.receive(&mut one).unwrap();
        client.receive(&mut one).is_ok()
    });
    introduce(&mut client, &mut server);
}

#[test]
fn a_server_drops_the_connection_of_a_client_that_is_gone() {
    let (mut server, mut client) = ends(&wide());
    introduce(&mut client, &mut server);
    assert_eq!(server.connections(), 1);
    drop(client);
    let mut one = batch(1);
    wait_until("it is gone", || {
        server.receive(&mut one).unwrap();
        server.connections() == 0
    });
}

#[test]
fn without_libraries_or_a_device_the_error_says_what_to_do() {
    let at = place();
    for error in [
        RdmaServer::listen(&[at], &RdmaOptions::default()).unwrap_err(),
        RdmaClient::connect(&[at], &RdmaOptions::default()).unwrap_err(),
    ] {
        let message = error.to_string();
        let remedy = message.contains("librdmacm1") || message.contains("`rdma link`");
        assert!(remedy, "{message}");
    }
}

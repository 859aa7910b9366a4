//! The NBD server against a misbehaving client.

#![allow(missing_docs, clippy::unwrap_used)]

mod client;
#[allow(dead_code, reason = "other tests use the rest")]
mod disk;

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use client::*;
use disk::{MemoryDisk, pattern};
use tyche_attach::nbd::{Ending, NbdServer};
use tyche_attach::{Attachment, Stopped};
use tyche_block::{Errno, Operation};
use tyche_testkit::wait::PATIENCE;

#[test]
fn handshake_describes_the_export() {
    let served = serve(MemoryDisk::new(1 << 20, 512));
    let mut client = served.connect();
    client.greet(3);

    client.option(OPT_EXTENDED_HEADERS, &[]);
    assert_eq!(client.reply(OPT_EXTENDED_HEADERS), ERR_UNSUP);
    client.option(OPT_STARTTLS, &[]);
    assert_eq!(client.reply(OPT_STARTTLS), ERR_UNSUP);
    client.option(4711, b"something from the future");
    assert_eq!(client.reply(4711), ERR_UNSUP);

    client.option(OPT_LIST, &[]);
    let listed = [&8_u32.to_be_bytes()[..], NAME.as_bytes()].concat();
    assert_eq!(client.replies(OPT_LIST), [(REP_SERVER, listed), (REP_ACK, vec![])]);
    client.option(OPT_LIST, b"x");
    assert_eq!(client.reply(OPT_LIST), ERR_INVALID);

    client.go("another", OPT_GO);
    assert_eq!(client.reply(OPT_GO), ERR_UNKNOWN);
    client.option(OPT_GO, &[0, 0, 0, 9, b'x', 0, 0]);
    assert_eq!(client.reply(OPT_GO), ERR_INVALID);
    client.option(OPT_INFO, &vec![0; 100_000]);
    assert_eq!(client.reply(OPT_INFO), ERR_TOO_BIG);

    // The empty name is the default export; information leaves the handshake open.
    client.go("", OPT_INFO);
    let replies = client.replies(OPT_INFO);
    let export = [&[0, 0][..], &(1_u64 << 20).to_be_bytes(), &[0x01, 0x6d]].concat();
    let blocks = [
        &[0, 3][..],
        &512_u32.to_be_bytes(),
        &4096_u32.to_be_bytes(),
        &(4_u32 << 20).to_be_bytes(),
    ]
    .concat();
    let name = [&[0, 1][..], NAME.as_bytes()].concat();
    let expected = [(REP_INFO, export), (REP_INFO, blocks), (REP_INFO, name), (REP_ACK, vec![])];
    assert_eq!(replies, expected);
    client.go(NAME, OPT_GO);
    assert_eq!(client.replies(OPT_GO), expected);
    assert_eq!(client.call(0, FLUSH, 0, 0), 0);
    client.request(0, DISC, 0, 0, 0);
    client.expect_end();
    served.wait_ended(Ending::Disconnected, 1);
}

#[test]
fn export_name_starts_transmission_with_and_without_zeroes() {
    let served = serve(MemoryDisk::with(1 << 20, 4096, 1024, |geometry| {
        geometry.read_only = true;
        geometry.discard = false;
    }));
    for (flags, zeroes) in [(3, 0), (1, 124)] {
        let mut client = served.connect();
        client.greet(flags);
        client.option(OPT_EXPORT_NAME, NAME.as_bytes());
        assert_eq!(client.receive(), (1_u64 << 20).to_be_bytes());
        assert_eq!(client.receive(), [0x01, 0x0f], "read-only");
        let mut rest = vec![1; zeroes];
        client.stream.read_exact(&mut rest).unwrap();
        assert_eq!(rest, vec![0; zeroes]);
        assert_eq!(client.read(0, 4096).unwrap(), vec![0; 4096]);
        assert_eq!(client.write(0, 0, &[1; 4096]), 1, "EPERM");
        assert_eq!(client.call(0, WRITE_ZEROES, 0, 4096), 1, "EPERM");
    }
    let mut client = served.connect();
    client.greet(1);
    client.option(OPT_EXPORT_NAME, b"no such export");
    client.expect_end();
    served.wait_ended(Ending::UnknownExport, 1);
}

#[test]
fn commands_do_what_they_say() {
    let served = serve(MemoryDisk::new(1 << 20, 512));
    let mut client = served.client();
    let data = pattern(1, 100 * 512);
    assert_eq!(client.write(0, 512, &data), 0);
    assert_eq!(client.read(512, 100 * 512).unwrap(), data);
    assert_eq!(served.disk.read(512..101 * 512), data);
    assert_eq!(client.write(FUA, (1 << 20) - 512, &data[..512]), 0, "the last block");
    assert_eq!(client.call(0, FLUSH, 0, 0), 0);
    assert_eq!(client.call(0, WRITE_ZEROES, 1024, 512), 0);
    assert_eq!(client.call(FUA | NO_HOLE, WRITE_ZEROES, 2048, 1024), 0);
    assert_eq!(client.call(FUA, TRIM, 4096, 4096), 0);
    assert_eq!(
        served.disk.take_log(),
        [
            (Operation::Write { fua: false }, 512, 51200),
            (Operation::Read, 512, 51200),
            (Operation::Write { fua: true }, (1 << 20) - 512, 512),
            (Operation::Flush, 0, 0),
            (Operation::WriteZeroes { fua: false, may_unmap: true }, 1024, 512),
            (Operation::WriteZeroes { fua: true, may_unmap: false }, 2048, 1024),
            (Operation::Discard, 4096, 4096),
        ]
    );
    assert_eq!(client.read(1024, 512).unwrap(), [0; 512]);
}

#[test]
fn errors_reach_the_client_and_the_connection_survives() {
    let served = serve(MemoryDisk::new(1 << 20, 512));
    let mut client = served.client();
    served.disk.fail(8192..8704, Errno::IO);
    served.disk.fail(16384..16896, Errno(libc::EROFS));
    served.disk.fail_flushes(Some(Errno::IO));
    assert_eq!(client.read(8192, 512), Err(5));
    assert_eq!(client.write(0, 8192, &[1; 512]), 5);
    assert_eq!(client.write(0, 16384, &[1; 512]), 1);
    assert_eq!(client.call(0, FLUSH, 0, 0), 5);

    let end = 1 << 20;
    assert_eq!(client.read(100, 512), Err(22), "misaligned");
    assert_eq!(client.read(0, 100), Err(22));
    assert_eq!(client.read(0, 0), Err(22));
    assert_eq!(client.read(end, 512), Err(22), "past the end");
    assert_eq!(client.write(0, end - 512, &[1; 1024]), 28);
    assert_eq!(client.read(u64::MAX - 511, 512), Err(22), "wraps around");
    assert_eq!(client.call(0, TRIM, u64::MAX - 511, 512), 28);
    // The arena has 16 MiB, and a client is told of a quarter.
    assert_eq!(client.read(0, (16 << 20) + 512), Err(22), "longer than the arena");
    assert_eq!(client.write(0, 0, &vec![1; (16 << 20) + 512]), 22);
    assert_eq!(client.call(0, CACHE, 0, 512), 22, "never offered");
    assert_eq!(client.call(0, 99, 0, 512), 22);
    assert_eq!(client.call(1 << 9, READ, 0, 512), 22, "unknown flag");
    assert_eq!(client.call(FAST_ZERO, WRITE_ZEROES, 0, 512), 95);
    client.request(1 << 9, WRITE, 1, 0, 512);
    client.send(&[1; 512]);
    assert_eq!(client.result(), (1, 22), "the payload is skipped");

    assert_eq!(client.read(0, 512).unwrap(), [0; 512]);
    assert_eq!(served.server.counts().connected, 1);
    assert_eq!(served.server.counts().errors, 18);
}

#[test]
fn replies_come_as_requests_finish_and_reads_do_not_mix() {
    let served = serve(MemoryDisk::new(8 << 20, 512));
    let content = pattern(3, 8 << 20);
    served.disk.write(0, &content);
    let mut client = served.client();
    let lens: Vec<u32> = (0..128).map(|i| [512, 4096, 65536, 16384][i % 4]).collect();
    for round in 0..20 {
        for (cookie, &len) in (0_u64..).zip(&lens) {
            client.request(0, READ, cookie, cookie * 65536 + round * 512 % 1024, len - 512 + 512);
        }
        let mut seen = vec![false; lens.len()];
        for _ in &lens {
            let (cookie, error) = client.result();
            let index = cookie as usize;
            assert!(!std::mem::replace(&mut seen[index], true), "answered twice");
            let offset = cookie * 65536 + round * 512 % 1024;
            if offset + u64::from(lens[index]) > 8 << 20 {
                assert_eq!(error, 22);
                continue;
            }
            assert_eq!(error, 0);
            let mut data = vec![0; lens[index] as usize];
            client.stream.read_exact(&mut data).unwrap();
            let offset = offset as usize;
            assert!(data == content[offset..offset + data.len()], "cookie {cookie}");
        }
    }
    served.disk.wait_all_buffers_back();
}

#[test]
fn a_client_that_takes_no_replies_is_not_read_from_for_ever() {
    let served = serve(MemoryDisk::new(8 << 20, 4096));
    let client = served.client();
    // More requests than may be in flight, with more data than sockets hold: at some point the
    // server must stop reading, and the disk must stay usable for others.
    client.stream.set_nonblocking(true).unwrap();
    let mut request = 0x2560_9513_u32.to_be_bytes().to_vec();
    request.extend([0; 4 + 8 + 8]);
    request.extend((64_u32 << 10).to_be_bytes());
    let mut sent = 0;
    let mut stream = &client.stream;
    let deadline = Instant::now() + PATIENCE;
    let mut quiet = Instant::now();
    while quiet.elapsed() < Duration::from_millis(200) {
        assert!(Instant::now() < deadline, "the server reads without end");
        match stream.write(&request) {
            Ok(len) => {
                assert_eq!(len, request.len());
                sent += 1;
                quiet = Instant::now();
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    }
    assert!(sent > 128);
    let taken = served.server.counts().requests;
    assert!(taken < 200, "{taken} requests taken for {sent} sent");
    assert_eq!(served.client().read(0, 4096).unwrap(), [0; 4096]);
    drop(client);
    served.disk.wait_all_buffers_back();
}

#[test]
fn malformed_input_ends_the_connection_and_is_counted() {
    let served = serve(MemoryDisk::new(1 << 20, 512));

    let mut client = served.connect();
    client.greet(1 << 7);
    client.expect_end();
    served.wait_ended(Ending::BadFlags, 1);

    let mut client = served.connect();
    client.greet(3);
    client.send(b"GET / HTTP/1.0\r\n\r\n");
    client.expect_end();
    served.wait_ended(Ending::BadMagic, 1);

    let mut client = served.connect();
    client.greet(3);
    client.send(b"IHAVEOPT\0\0\0\x07\xff\xff\xff\xff");
    client.expect_end();
    served.wait_ended(Ending::OptionTooLong, 1);

    let mut client = served.connect();
    client.greet(3);
    client.option(OPT_ABORT, &[]);
    assert_eq!(client.reply(OPT_ABORT), REP_ACK);
    client.expect_end();
    served.wait_ended(Ending::Aborted, 1);

    let mut client = served.connect();
    client.greet(3);
    for _ in 0..64 {
        client.option(OPT_LIST, &[]);
        client.replies(OPT_LIST);
    }
    client.expect_end();
    served.wait_ended(Ending::TooManyOptions, 1);

    let mut client = served.connect();
    client.greet(3);
    client.send(b"IHAVE");
    drop(client);
    served.wait_ended(Ending::Truncated, 1);

    let mut client = served.client();
    client.send(&[0x25; 28]);
    client.expect_end();
    served.wait_ended(Ending::BadMagic, 2);

    let mut client = served.client();
    client.request(0, WRITE, 1, 0, 4096);
    client.send(&[1; 1000]);
    drop(client);
    served.wait_ended(Ending::Truncated, 2);

    let mut client = served.client();
    client.request(0, WRITE, 1, 0, u32::MAX);
    client.expect_end();
    served.wait_ended(Ending::WriteTooLong, 1);

    drop(served.client());
    served.wait_ended(Ending::HungUp, 1);
    assert_eq!(served.client().read(0, 512).unwrap(), [0; 512], "the server lives");
    assert_eq!(served.disk.take_log().len(), 1, "nothing of this reached the disk");
    served.disk.wait_all_buffers_back();
}

#[test]
fn work_in_flight_outlives_its_client() {
    let served = serve(MemoryDisk::new(1 << 20, 512));
    served.disk.hold();
    let mut leaves = served.client();
    leaves.request(0, WRITE, 1, 0, 512);
    leaves.send(&[7; 512]);
    leaves.request(0, READ, 2, 512, 512);
    served.disk.wait_held(2);
    drop(leaves);
    // A disconnect still gets the answers to earlier requests.
    let mut waits = served.client();
    waits.request(0, READ, 3, 1024, 512);
    waits.request(0, DISC, 0, 0, 0);
    served.disk.wait_held(3);
    served.disk.release();
    assert_eq!(waits.result(), (3, 0));
    assert_eq!(waits.receive(), [0; 512]);
    waits.expect_end();
    served.wait_ended(Ending::Disconnected, 1);
    served.disk.wait_all_buffers_back();
    assert_eq!(served.disk.read(0..512), [7; 512]);
}

#[test]
fn stop_ends_connections_whatever_they_do() {
    let mut served = serve(MemoryDisk::with(1 << 20, 512, 8, |_| {}));
    served.disk.hold();
    let mut idle = served.client();
    let mut shaking = served.connect();
    shaking.greet(3);
    // The arena has room for four of these, so the reader waits for a buffer.
    let mut busy = served.client();
    for cookie in 0..9 {
        busy.request(0, READ, cookie, 0, 8192);
    }
    served.disk.wait_held(4);
    assert_eq!(served.server.stop(false).unwrap(), Stopped::InUse, "clients are at work");
    let start = Instant::now();
    assert_eq!(served.server.stop(true).unwrap(), Stopped::Gone);
    assert!(start.elapsed() < PATIENCE / 6, "stopping took {:?}", start.elapsed());
    for client in [&mut idle, &mut shaking, &mut busy] {
        client.expect_end();
    }
    assert_eq!(served.server.ended(Ending::Stopped), 3);
    assert_eq!(served.server.counts().connected, 0);
    assert!(!served.path.exists());
    assert_eq!(served.server.stop(true).unwrap(), Stopped::Gone);
    served.disk.release();
    served.disk.wait_all_buffers_back();
}

#[test]
fn sockets_are_private_and_replaced_only_when_dead() {
    let served = serve(MemoryDisk::new(1 << 20, 512));
    assert_eq!(fs::metadata(&served.path).unwrap().permissions().mode() & 0o777, 0o600);
    let again = NbdServer::start(&served.path, NAME, &served.disk.dyn_disk());
    assert_eq!(again.unwrap_err().kind(), ErrorKind::AddrInUse);
    assert_eq!(served.client().read(0, 512).unwrap(), [0; 512]);

    let dead = served.path.with_extension("dead");
    drop(std::os::unix::net::UnixListener::bind(&dead).unwrap());
    drop(NbdServer::start(&dead, NAME, &served.disk.dyn_disk()).unwrap());
    assert!(!dead.exists());

    let file = served.path.with_extension("file");
    fs::write(&file, "precious").unwrap();
    NbdServer::start(&file, NAME, &served.disk.dyn_disk()).unwrap_err();
    assert_eq!(fs::read(&file).unwrap(), b"precious");
}

#[test]
fn only_so_many_clients_at_once() {
    let served = serve(MemoryDisk::new(1 << 20, 512));
    let mut clients: Vec<_> = (0..64).map(|_| served.client()).collect();
    let mut refused = served.connect();
    refused.greet(3);
    refused.option(OPT_STRUCTURED_REPLY, &[]);
    let why = b"64 clients are connected, and no more may be".to_vec();
    assert_eq!(refused.replies(OPT_STRUCTURED_REPLY), [(ERR_POLICY, why.clone())]);
    refused.go(NAME, OPT_GO);
    assert_eq!(refused.replies(OPT_GO), [(ERR_POLICY, why)]);
    assert_eq!(served.server.counts().connected, 64);
    drop(refused);
    served.wait_ended(Ending::TooMany, 1);
    // Those who wait for a word beyond a few get none.
    let mut waiting: Vec<_> = (0..8).map(|_| served.connect()).collect();
    waiting.iter_mut().for_each(|client| client.greet(3));
    served.connect().expect_end();
    drop(waiting);
    served.wait_ended(Ending::TooMany, 10);
    clients.pop();
    served.wait_ended(Ending::HungUp, 1);
    clients.push(served.client());
    for client in &mut clients {
        assert_eq!(client.call(0, FLUSH, 0, 0), 0);
    }
}

#[test]
fn a_client_that_is_one_too_many_holds_its_thread_for_a_bounded_time() {
    let served = serve(MemoryDisk::new(1 << 20, 512));
    let _clients: Vec<_> = (0..64).map(|_| served.client()).collect();
    let mut refused = served.connect();
    refused.greet(3);
    // An option as long as one may be, byte by byte.
    refused.send(b"IHAVEOPT\0\0\0\x07\0\x10\0\0");
    let begun = Instant::now();
    while refused.stream.write_all(&[0]).is_ok() {
        assert!(begun.elapsed() < PATIENCE, "it goes on");
        std::thread::sleep(Duration::from_millis(1));
    }
    served.wait_ended(Ending::TooMany, 1);
}

#[test]
fn a_grown_disk_is_seen_by_the_next_client() {
    let mut served = serve(MemoryDisk::new(1 << 20, 512));
    let mut old = served.client();
    served.disk.grow(2 << 20);
    served.server.resized().unwrap();
    // The kernel learns of the growth by other means than the handshake, and uses it at once. So a
    // client that is connected already may use it as well.
    assert_eq!(old.read(1 << 20, 512).unwrap(), [0; 512]);
    assert_eq!(old.read(2 << 20, 512), Err(22));
    assert_eq!(served.client().read((2 << 20) - 512, 512).unwrap(), [0; 512]);
}

//! The NBD server's structured replies, and the status of ranges.

#![allow(missing_docs, clippy::unwrap_used)]

mod client;
#[allow(dead_code, reason = "other tests use the rest")]
mod disk;

use client::*;
use disk::{MemoryDisk, pattern};
use tyche_block::Errno;

#[test]
fn structured_replies_have_one_chunk() {
    let served = serve(MemoryDisk::new(1 << 20, 512));
    let mut client = structured(&served);
    let data = pattern(1, 65536);
    served.disk.write(4096, &data);
    for flags in [0, DF, FUA | DF] {
        client.request(flags, READ, 3, 4096, 65536);
        let expected = [&4096_u64.to_be_bytes()[..], &data].concat();
        assert!(client.chunk(3) == (1, expected));
    }
    served.disk.fail(8192..8704, Errno::IO);
    client.request(0, READ, 4, 8192, 512);
    assert_eq!(client.chunk(4), (0x8001, vec![0, 0, 0, 5, 0, 0]));
    client.request(0, READ, 5, 1, 512);
    assert_eq!(client.chunk(5), (0x8001, vec![0, 0, 0, 22, 0, 0]));
    assert_eq!(client.write(0, 0, &data[..512]), 0, "a simple reply");
    let mut simple = served.client();
    assert_eq!(simple.call(DF, READ, 0, 512), 22, "not agreed");
    assert_eq!(simple.call(0, BLOCK_STATUS, 0, 512), 22, "not agreed");
}

#[test]
fn holes_of_the_disk_are_told_as_it_has_them_now() {
    let served = serve(MemoryDisk::new(1 << 20, 512));
    let mut client = structured(&served);
    assert_eq!(client.status(0, 0, 1 << 20), Ok(vec![(1 << 20, 3)]));
    served.disk.write(512, &[1; 1024]);
    assert_eq!(client.status(0, 0, 1 << 20), Ok(vec![(512, 3), (1024, 0), ((1 << 20) - 1536, 3)]));
    assert_eq!(client.status(REQ_ONE, 0, 1 << 20), Ok(vec![(512, 3)]));
    assert_eq!(client.status(0, 1024, 512), Ok(vec![(512, 0)]), "as far as was asked");
    assert_eq!(client.status(0, (1 << 20) - 512, 512), Ok(vec![(512, 3)]));
    for (offset, len) in [(0, 0), (1, 512), (0, 100), (1 << 20, 512), (512, 1 << 20)] {
        assert_eq!(client.status(0, offset, len), Err(22), "{len} at {offset}");
    }
    assert_eq!(client.status(DF, 0, 512), Err(22));
    let log = served.disk.take_log();
    let lens: Vec<u32> = log.iter().map(|&(_, _, len)| len).collect();
    assert_eq!(lens, [4096, 4096, 512, 4096, 512], "of the answers");
    // More parts than an answer has room for: the client asks for the rest.
    (0..600).for_each(|index| served.disk.write(index * 1024, &[1; 512]));
    assert_eq!(client.status(0, 0, 1 << 20).unwrap().len(), 512);
    assert_eq!(served.server.counts().errors, 6);
}

#[test]
fn a_disk_that_cannot_tell_has_data_everywhere() {
    let served = serve(MemoryDisk::new(1 << 20, 512));
    let mut client = structured(&served);
    served.disk.fail(0..4096, Errno::OPNOTSUPP);
    assert_eq!(client.status(0, 0, 8192), Ok(vec![(8192, 0)]));
    assert_eq!(client.status(REQ_ONE, 512, 512), Ok(vec![(512, 0)]));
    assert_eq!(served.server.counts().errors, 0);
    served.disk.fail(65536..69632, Errno::IO);
    assert_eq!(client.status(0, 65536, 512), Err(5));
    served.disk.lie_about_holes();
    assert_eq!(client.status(0, 1 << 17, 512), Err(5), "no list of runs");
    served.disk.wait_all_buffers_back();
}

#[test]
fn contexts_are_listed_and_selected_with_structured_replies_only() {
    let served = serve(MemoryDisk::new(1 << 20, 512));
    let mut client = served.connect();
    client.greet(3);
    for option in [OPT_LIST_META_CONTEXT, OPT_SET_META_CONTEXT] {
        client.contexts(option, &["base:allocation"]);
        assert_eq!(client.reply(option), ERR_INVALID);
    }
    client.option(OPT_STRUCTURED_REPLY, b"x");
    assert_eq!(client.reply(OPT_STRUCTURED_REPLY), ERR_INVALID);
    client.option(OPT_STRUCTURED_REPLY, &[]);
    assert_eq!(client.reply(OPT_STRUCTURED_REPLY), REP_ACK);
    let context = |id: u8| (REP_META_CONTEXT, [&[0, 0, 0, id][..], b"base:allocation"].concat());
    for (option, queries, id) in [
        (OPT_LIST_META_CONTEXT, &[][..], Some(0)),
        (OPT_LIST_META_CONTEXT, &["base:"], Some(0)),
        (OPT_LIST_META_CONTEXT, &["qemu:"], None),
        (OPT_SET_META_CONTEXT, &["x:y", "base:allocation"], Some(1)),
        (OPT_SET_META_CONTEXT, &["base:"], None),
        (OPT_SET_META_CONTEXT, &[], None),
    ] {
        client.contexts(option, queries);
        let expected: Vec<_> = id.map(context).into_iter().chain([(REP_ACK, vec![])]).collect();
        assert_eq!(client.replies(option), expected, "{queries:?}");
    }
    // The last selection counts, and it has none.
    client.go(NAME, OPT_GO);
    client.replies(OPT_GO);
    assert_eq!(client.status(0, 0, 512), Err(22));
}

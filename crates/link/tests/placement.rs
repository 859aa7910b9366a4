//! Data that the peer places in memory of the receiver, between the ends of the double of RDMA.

use std::sync::Arc;

use tyche_block::{Arena, PAGE};
use tyche_link::rdma::double::{DoubleClient, DoubleOptions, DoubleServer};
use tyche_link::rdma::{FRAME_LEN_MAX, REGIONS_MAX, RdmaOptions};
use tyche_link::{HEAD, Link, Mac, Placement, RxBatch, TxVectors};
use tyche_testkit::random::Random;

use crate::harness::{BROADCAST, frame};
use crate::rdma::{batch, ends, introduce};

const PAGES: usize = 16;
const REGION: u16 = 3;

/// A piece of data, and the first of its bytes in a region.
type Piece<'a> = (&'a [u8], usize);

/// Both ends of a connection. Each may have the other place data.
struct Ends {
    server: DoubleServer,
    client: DoubleClient,
    /// The client's address at the server.
    mac: Mac,
    batch: RxBatch,
}

impl Ends {
    fn new(options: &DoubleOptions) -> Self {
        let (mut server, mut client) = ends(options);
        let mac = introduce(&mut client, &mut server);
        Self { server, client, mac, batch: batch(4) }
    }

    fn placement(&self) -> Arc<dyn Placement> {
        self.server.placement().unwrap()
    }

    /// The server has the client place data in a region.
    fn expose(&mut self, region: u16) -> Arena {
        let memory = self.placement().expose(self.mac, region, Arena::new(PAGES)).unwrap();
        self.tell();
        memory
    }

    /// The server tells what the client has to know, and the client hears it.
    fn tell(&mut self) {
        assert_eq!(self.server.receive(&mut self.batch).unwrap(), 0);
        assert_eq!(self.client.receive(&mut self.batch).unwrap(), 0);
    }

    /// The client sends pieces of data that belong at those bytes of a region, in a frame.
    fn send(&mut self, region: u16, pieces: &[Piece<'_>]) {
        let front = frame(self.server.mac(), BROADCAST, HEAD, 1);
        let mut vectors = TxVectors::new(1, pieces.len());
        let mut frames = vectors.batch();
        frames.push(&front, pieces.iter().map(|it| it.0), b"tail");
        frames.place(region, pieces.iter().map(|it| it.1 as u32));
        assert_eq!(self.client.send(&frames).unwrap(), 1);
    }

    /// The server receives a frame; returns the bytes of its data that were placed, and its
    /// payload.
    fn receive(&mut self) -> (usize, Vec<u8>) {
        assert_eq!(self.server.receive(&mut self.batch).unwrap(), 1);
        (self.batch.placed(0), self.batch.frame(0).payload.to_vec())
    }
}

/// All of the memory.
fn content(memory: &Arena) -> Vec<u8> {
    memory.claim(0, PAGES * PAGE).unwrap().to_vec()
}

#[test]
fn data_are_where_they_belong_when_their_frame_comes() {
    let mut ends = Ends::new(&DoubleOptions::default());
    let memory = ends.expose(REGION);
    let (mut wanted, mut random) = (vec![0; PAGES * PAGE], Random(7));
    for round in 0..600 {
        let pieces: Vec<_> = (0..=round % 2)
            .map(|_| {
                let len = (PAGE + random.below(3) as usize * 64).min(FRAME_LEN_MAX / 2);
                let place = random.below((PAGES * PAGE - len) as u64 / 64) as usize * 64;
                (random.bytes(len), place)
            })
            .collect();
        for (piece, place) in &pieces {
            wanted[*place..][..piece.len()].copy_from_slice(piece);
        }
        let pieces: Vec<_> = pieces.iter().map(|(piece, place)| (&piece[..], *place)).collect();
        ends.send(REGION, &pieces);
        let placed = pieces.iter().map(|it| it.0.len()).sum();
        assert_eq!(ends.receive(), (placed, b"tail".to_vec()), "{round}");
        assert!(content(&memory) == wanted, "{round}");
    }
}

#[test]
fn data_without_a_place_come_in_their_frame() {
    let mut ends = Ends::new(&DoubleOptions::default());
    let memory = ends.expose(REGION);
    let data = Random(1).bytes(2 * PAGE);
    let (page, short) = (&data[..PAGE], &data[..PAGE - 64]);
    let end = PAGES * PAGE;
    let cases: [(u16, &[Piece<'_>]); 4] = [
        (REGION + 1, &[(page, 0)]),
        (REGION, &[(page, end - PAGE + 64)]),
        (REGION, &[(page, end)]),
        (REGION, &[(page, 0), (short, PAGE)]),
    ];
    for (number, (region, pieces)) in cases.into_iter().enumerate() {
        ends.send(region, pieces);
        let data: Vec<u8> = pieces.iter().flat_map(|it| it.0.to_vec()).collect();
        assert_eq!(ends.receive(), (0, [&data[..], b"tail"].concat()), "{number}");
    }
    assert!(content(&memory) == vec![0; end]);
}

/// The peer has not heard of it yet: what it places then is late.
#[test]
fn after_a_region_is_retracted_a_late_write_changes_nothing() {
    for is_retracted in [false, true] {
        let mut ends = Ends::new(&DoubleOptions::default());
        let (memory, data) = (ends.expose(REGION), [5; PAGE]);
        if is_retracted {
            ends.placement().retract(ends.mac, REGION);
        }
        let front = frame(ends.server.mac(), BROADCAST, HEAD, 1);
        let mut vectors = TxVectors::new(1, 1);
        let mut frames = vectors.batch();
        frames.push(&front, [&data[..]], &[]);
        frames.place(REGION, [0].into_iter());
        let sent = ends.client.send(&frames);
        // The test finds what it is for.
        let late = if is_retracted { 0 } else { 5 };
        assert_eq!(content(&memory)[..PAGE], [late; PAGE], "retracted: {is_retracted}");
        // As with a card, the connection ends.
        assert_eq!(sent.is_err(), is_retracted);
    }
}

#[test]
fn a_peer_that_hears_of_the_end_of_a_region_places_nothing_more() {
    let mut ends = Ends::new(&DoubleOptions::default());
    let memory = ends.expose(REGION);
    ends.placement().retract(ends.mac, REGION);
    ends.tell();
    let data = [5; PAGE];
    ends.send(REGION, &[(&data, 0)]);
    assert_eq!(ends.receive(), (0, [&data[..], b"tail"].concat()));
    assert!(content(&memory) == vec![0; PAGES * PAGE]);
    // The number is used again.
    let again = ends.expose(REGION);
    ends.send(REGION, &[(&data, PAGE)]);
    assert_eq!(ends.receive(), (PAGE, b"tail".to_vec()));
    assert_eq!(content(&again)[PAGE..2 * PAGE], data);
    assert!(content(&memory) == vec![0; PAGES * PAGE], "the former memory is nobody's");
}

/// What was on its way to a region when it ended is dropped: its data may be anywhere.
#[test]
fn a_frame_whose_region_ended_meanwhile_is_lost() {
    let mut ends = Ends::new(&DoubleOptions::default());
    ends.expose(REGION);
    ends.send(REGION, &[(&[5; PAGE], 0)]);
    ends.placement().retract(ends.mac, REGION);
    ends.send(REGION + 1, &[(&[6; PAGE], 0)]);
    assert_eq!(ends.receive().1[0], 6, "only what came after it");
}

#[test]
fn a_peer_of_an_earlier_version_is_told_nothing() {
    let rdma = RdmaOptions { places: false, ..RdmaOptions::default() };
    let mut ends = Ends::new(&DoubleOptions { rdma, ..DoubleOptions::default() });
    let memory = ends.expose(REGION);
    let data = [5; PAGE];
    ends.send(REGION, &[(&data, 0)]);
    assert_eq!(ends.receive(), (0, [&data[..], b"tail"].concat()));
    assert!(content(&memory) == vec![0; PAGES * PAGE]);
}

#[test]
fn a_peer_has_a_limited_number_of_regions() {
    let mut ends = Ends::new(&DoubleOptions::default());
    for number in 0..REGIONS_MAX as u16 + 10 {
        ends.placement().expose(ends.mac, number, Arena::new(PAGES)).unwrap();
    }
    ends.tell();
    let data = [5; PAGE];
    for (number, is_placed) in [(0, true), (REGIONS_MAX - 1, true), (REGIONS_MAX, false)] {
        ends.send(number as u16, &[(&data, 0)]);
        assert_eq!(ends.receive().0 > 0, is_placed, "{number}");
    }
    ends.placement().retract(ends.mac, 0);
    ends.placement().expose(ends.mac, 999, Arena::new(PAGES)).unwrap();
    ends.tell();
    ends.send(999, &[(&data, 0)]);
    assert_eq!(ends.receive().0, PAGE, "there is room for one again");
}

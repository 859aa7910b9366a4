//! The floor under a result: bare frames over the same links, with the same loops and spinning.
//!
//! A *round* is a number of frames out and a number of frames back, as echoes
//! (docs/protocol-annexes.md, "Echo frames"): no requests, no rings, no repair, no checksums of
//! data, no memory of requests and no store. Rounds are kept in flight as the bench keeps requests
//! in flight:
//!
//! | measured | out | back |
//! |---|---|---|
//! | round trip | one short frame | one frame of 4160 bytes |
//! | exchange of reads | the commands of several requests in one frame | their data, in full frames |
//! | exchange of writes | the data of several requests, in full frames | their completions in one |
//! | stream | as much as can be, in the direction of the data | only what keeps it going |
//!
//! Each is measured several times. The best is the floor: the most that the machine can do. A lost
//! round is begun anew after a timeout and is not counted.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tyche_cli::bench::{Random, Shape, Shared, check_notices};
use tyche_console::error::{Code, Error, Result};
use tyche_native::InlineHost;
use tyche_proto::wire::{ECHO_REPLIES_MAX, ENTRIES_MAX, ENTRY_LEN, Echo, HEAD_LEN, PAGE_LEN};

/// The answer of the round trip: a page and its entries.
const ROUND_TRIP_LEN: usize = HEAD_LEN + PAGE_LEN;
/// Maximum number of frames in flight: as many as every link holds.
const FRAMES_MAX: usize = 128;
/// Maximum number of frames of a round in one direction.
const ROUND_FRAMES_MAX: usize = ECHO_REPLIES_MAX as usize;
/// Timeout after which a round counts as lost. It exceeds the time that 128 frames of 9000 bytes
/// take at 1 Gbit/s; a lost round keeps its place for that long.
const LOST_AFTER: Duration = Duration::from_millis(50);
/// How long to wait for the first round, however short the measurement: the target may sleep.
const ANSWER_MAX: Duration = Duration::from_secs(3);
/// Bytes that a request adds to its data: two entries.
const PER_REQUEST: usize = 2 * ENTRY_LEN;

/// One kind of measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Probe {
    /// One round at a time.
    RoundTrip,
    /// The frames of the bench's own requests, with so many requests in a round.
    Exchange { requests: usize },
    /// Long frames in one direction.
    Stream,
}

impl Probe {
    /// The exchanges to try at a depth: larger rounds need fewer frames, smaller ones keep both
    /// sides busy.
    pub(super) fn exchanges(depth: u16) -> [Self; 3] {
        let requests = |part: u16| usize::from((depth / part).max(1)).min(ENTRIES_MAX);
        [2, 4, 8].map(|part| Self::Exchange { requests: requests(part) })
    }
}

/// The result of a measurement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    /// Useful bytes: of requests' data, or of the frames in a stream.
    pub(super) bytes: u64,
    pub(super) elapsed: Duration,
    pub(super) rounds: u64,
    /// Time that the rounds took, together.
    pub(super) busy: Duration,
}

/// Frames out and frames back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Round {
    /// Frames out; the last asks for the frames back.
    out: usize,
    out_len: usize,
    replies: usize,
    reply_len: usize,
    /// Useful bytes in each frame back.
    bytes_per_reply: u64,
}

impl Round {
    /// A round of full frames to the host, or to the target, with the short frame that asks for or
    /// acknowledges them.
    fn new(is_read: bool, full: (usize, usize), small_len: usize, bytes_per_frame: u64) -> Self {
        let (frames, len) = full;
        if is_read {
            let (out, out_len, replies, reply_len) = (1, small_len, frames, len);
            Self { out, out_len, replies, reply_len, bytes_per_reply: bytes_per_frame }
        } else {
            let (out, out_len, replies, reply_len) = (frames, len, 1, small_len);
            Self {
                out,
                out_len,
                replies,
                reply_len,
                bytes_per_reply: bytes_per_frame * frames as u64,
            }
        }
    }

    fn round_trip(frame_len: usize) -> Self {
        Self::new(true, (1, ROUND_TRIP_LEN.min(frame_len)), Echo::LEN_MIN, 1)
    }

    fn stream(is_read: bool, frame_len: usize) -> Self {
        Self::new(is_read, (ROUND_FRAMES_MAX, frame_len), Echo::LEN_MIN, frame_len as u64)
    }

    /// The data of up to `requests` requests of `len` bytes, or a part of the data of one.
    fn exchange(is_read: bool, frame_len: usize, len: usize, requests: usize) -> Self {
        let room = frame_len - HEAD_LEN;
        let small_len = |entries: usize| HEAD_LEN + entries.max(1) * ENTRY_LEN;
        let per_frame = (room / (len + PER_REQUEST)).min(ENTRIES_MAX / 2);
        if per_frame == 0 {
            // Data are cut as the protocol cuts them: whole pages where one fits, else 64 bytes.
            let unit = if room >= PAGE_LEN + PER_REQUEST { PAGE_LEN } else { 64 };
            let frames = len.div_ceil((room - ENTRY_LEN) / unit * unit);
            // All frames have the same length, so that the bytes are those of the request.
            let part = len / frames;
            let full = (frames.min(ROUND_FRAMES_MAX), HEAD_LEN + ENTRY_LEN + part);
            return Self::new(is_read, full, small_len(1), part as u64);
        }
        let frames = (requests / per_frame).clamp(1, ROUND_FRAMES_MAX);
        let in_frame = requests.min(per_frame);
        let full = (frames, HEAD_LEN + in_frame * (len + PER_REQUEST));
        Self::new(is_read, full, small_len(frames * in_frame), (in_frame * len) as u64)
    }

    fn bytes(&self) -> u64 {
        self.bytes_per_reply * self.replies as u64
    }

    /// Number of rounds that carry as much as `depth` requests of `len` bytes, within bounds.
    fn count(&self, depth: u16, len: u32) -> usize {
        let wanted = u64::from(depth) * u64::from(len) / self.bytes();
        let most = FRAMES_MAX / self.out.max(self.replies);
        (wanted as usize).clamp(1, most)
    }
}

/// A round in flight.
#[derive(Clone, Copy, Debug)]
struct RoundInFlight {
    /// Its sequence number, with the index of its place in the lowest bits.
    sequence: u64,
    round: Round,
    /// Frames that have not come back.
    missing: usize,
    begun: Instant,
}

/// Bits of a sequence number that hold the index of the place.
const PLACE_BITS: u32 = 8;
const _: () = assert!(FRAMES_MAX <= 1 << PLACE_BITS);

/// The rounds in flight.
struct Exchange<'a> {
    host: &'a mut InlineHost,
    reads: Round,
    writes: Round,
    reads_of_100: u64,
    random: Random,
    places: Vec<RoundInFlight>,
    number: u64,
}

/// Measures for `time`.
///
/// # Errors
/// If the target is lost, or answers no echo.
pub(super) fn measure(
    host: &mut InlineHost,
    probe: Probe,
    shape: Shape,
    time: Duration,
    shared: &Shared,
) -> Result<Measured> {
    let frame_len = host.report().links.iter().map(|it| it.frame_len).max().unwrap_or_default();
    let (len, mostly_reads) = (shape.len as usize, shape.reads_of_100 >= 50);
    let [reads, writes] = [true, false].map(|is_read| match probe {
        Probe::RoundTrip => Round::round_trip(frame_len),
        Probe::Exchange { requests } => Round::exchange(is_read, frame_len, len, requests),
        Probe::Stream => Round::stream(mostly_reads, frame_len),
    });
    let count = match probe {
        Probe::RoundTrip => 1,
        Probe::Exchange { .. } => reads.count(shape.depth, shape.len),
        Probe::Stream => FRAMES_MAX / ROUND_FRAMES_MAX,
    };
    let begun = Instant::now();
    let nothing = RoundInFlight { sequence: u64::MAX, round: reads, missing: 0, begun };
    let mut exchange = Exchange {
        host,
        reads,
        writes,
        reads_of_100: shape.reads_of_100,
        random: Random::new(count as u64),
        places: vec![nothing; count],
        number: start_of_numbers(),
    };
    exchange.run(time, shared)
}

impl Exchange<'_> {
    fn run(&mut self, time: Duration, shared: &Shared) -> Result<Measured> {
        let start = Instant::now();
        for place in 0..self.places.len() {
            self.begin(place, start)?;
        }
        let mut answers = Vec::with_capacity(FRAMES_MAX);
        let (mut bytes, mut rounds, mut busy) = (0, 0, Duration::ZERO);
        let (mut now, mut looked) = (start, start);
        let mut at_least = time.max(ANSWER_MAX);
        while now.duration_since(start) < at_least && !shared.is_stopped() {
            self.host.wait_echoes(&mut answers, LOST_AFTER);
            now = Instant::now();
            for echo in answers.drain(..) {
                let index = echo.sequence as usize % (1 << PLACE_BITS);
                let known = self.places.get_mut(index);
                let Some(place) = known.filter(|it| it.sequence == echo.sequence) else { continue };
                bytes += place.round.bytes_per_reply;
                place.missing -= 1;
                if place.missing == 0 {
                    (rounds, at_least) = (rounds + 1, time);
                    busy += now.duration_since(place.begun);
                    self.begin(index, now)?;
                }
            }
            if now.duration_since(looked) >= LOST_AFTER {
                looked = now;
                check_notices(self.host)?;
                self.replace_lost(now)?;
            }
        }
        let elapsed = now.duration_since(start);
        self.drain(&mut answers);
        if rounds == 0 {
            let message =
                "the target answers no echo of this path; is its `tyche` the same version?";
            return Err(Error::new(Code::Unreachable, message));
        }
        Ok(Measured { bytes, elapsed, rounds, busy })
    }

    /// Waits for the rounds in flight, so that the next measurement has the links for itself.
    fn drain(&mut self, answers: &mut Vec<Echo>) {
        let start = Instant::now();
        while self.places.iter().any(|place| place.missing > 0) && start.elapsed() < LOST_AFTER {
            self.host.wait_echoes(answers, LOST_AFTER);
            for echo in answers.drain(..) {
                let same = |place: &&mut RoundInFlight| place.sequence == echo.sequence;
                if let Some(place) = self.places.iter_mut().find(same) {
                    place.missing = place.missing.saturating_sub(1);
                }
            }
        }
    }

    fn begin(&mut self, index: usize, now: Instant) -> Result<()> {
        let is_read = self.random.percent(self.reads_of_100);
        let round = if is_read { self.reads } else { self.writes };
        self.number += 1;
        let sequence = self.number << PLACE_BITS | index as u64;
        self.places[index] = RoundInFlight { sequence, round, missing: round.replies, begun: now };
        let asking =
            Echo { sequence, replies: round.replies as u16, reply_len: round.reply_len as u32 };
        let silent = Echo { replies: 0, ..asking };
        for left in (0..round.out).rev() {
            let echo = if left == 0 { asking } else { silent };
            if !self.host.echo(echo, round.out_len) {
                check_notices(self.host)?;
                let message = "the session does not take an echo";
                return Err(Error::new(Code::Other, message));
            }
        }
        Ok(())
    }

    fn replace_lost(&mut self, now: Instant) -> Result<()> {
        for index in 0..self.places.len() {
            if now.duration_since(self.places[index].begun) >= LOST_AFTER {
                self.begin(index, now)?;
            }
        }
        Ok(())
    }
}

/// First sequence number of a measurement: above all earlier ones, so that late frames of those are
/// not taken for answers. No round is as short as a nanosecond.
fn start_of_numbers() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec.unsigned_abs() * 1_000_000_000 + now.tv_nsec.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    const JUMBO: usize = 9014;

    #[test]
    fn reads_at_depth_128_are_sixteen_commands_for_eight_frames_of_two_pages() {
        let round = Round::exchange(true, JUMBO, 4096, 16);
        assert_eq!((round.out, round.out_len), (1, 64 + 16 * 24));
        assert_eq!((round.replies, round.reply_len), (8, 64 + 2 * (4096 + 48)));
        assert_eq!((round.bytes(), round.count(128, 4096)), (16 * 4096, 8));
        assert_eq!(Round::exchange(true, JUMBO, 4096, 32), round, "no more than eight frames");
    }

    #[test]
    fn writes_are_the_same_the_other_way_round() {
        let (read, write) =
            (Round::exchange(true, JUMBO, 4096, 16), Round::exchange(false, JUMBO, 4096, 16));
        assert_eq!((write.out, write.out_len), (read.replies, read.reply_len));
        assert_eq!((write.replies, write.reply_len), (read.out, read.out_len));
        assert_eq!(write.bytes(), read.bytes());
    }

    #[test]
    fn a_single_request_is_one_frame_each_way() {
        for is_read in [true, false] {
            let round = Round::exchange(is_read, JUMBO, 4096, 1);
            assert_eq!((round.out, round.replies, round.bytes()), (1, 1, 4096));
            assert_eq!((round.count(1, 4096), round.count(3, 4096)), (1, 3));
        }
    }

    #[test]
    fn long_requests_are_cut_into_rounds_of_full_frames() {
        // 1 MiB in 128 frames of two pages, 8 in a round, 16 rounds at once.
        let round = Round::exchange(true, JUMBO, 1 << 20, 8);
        assert_eq!((round.replies, round.reply_len), (8, 64 + 24 + 8192));
        assert_eq!(round.count(16, 1 << 20), 16);
        // 4 KiB in three frames where one takes 1514 bytes.
        let round = Round::exchange(false, 1514, 4096, 1);
        assert_eq!((round.out, round.out_len), (3, 64 + 24 + 1365));
        // 64 KiB in two where one takes 15 pages.
        assert_eq!(Round::exchange(true, 65549, 64 << 10, 4).reply_len, 64 + 24 + (32 << 10));
    }

    #[test]
    fn rounds_of_several_sizes_are_tried() {
        let tried = |depth| {
            Probe::exchanges(depth).map(|probe| match probe {
                Probe::Exchange { requests } => requests,
                other => unreachable!("{other:?} is no exchange"),
            })
        };
        assert_eq!([1, 32, 128, 1024].map(tried), [[1; 3], [16, 8, 4], [32, 32, 16], [32; 3]]);
    }

    #[test]
    fn every_round_is_one_that_frames_carry() {
        for frame_len in [1294, 1514, 4210, JUMBO, 65549] {
            let lens = [1, 3, 8, 9, 64, 2048].map(|sectors| sectors * 512);
            for (len, requests) in
                lens.into_iter().flat_map(|len| [1, 2, 31, 32].map(|it| (len, it)))
            {
                for is_read in [true, false] {
                    let round = Round::exchange(is_read, frame_len, len, requests);
                    let longest = round.out_len.max(round.reply_len);
                    assert!(longest <= frame_len && round.out_len >= Echo::LEN_MIN, "{round:?}");
                    assert!(round.out.max(round.replies) <= ROUND_FRAMES_MAX, "{round:?}");
                }
            }
        }
    }
}

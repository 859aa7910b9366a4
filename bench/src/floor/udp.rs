//! Random reads of 4 KiB, and full frames in one direction, as nothing but trains of UDP
//! datagrams: what no protocol over UDP can beat.
//!
//! The heads are those of frames, though nobody reads but the count. Data are gathered from where
//! they lie, and copied where the reader wants them: a train arrives in one piece.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::socket::{count, head};
use super::train::{ROOM, TRAIN_MAX, TrainSocket};
use super::{COMMAND, Floor, HEAD, Kind, LOST, Outcome, PAGE, Pages, Random, WARM_UP};

/// Headers of IP and UDP.
const IP_UDP: usize = 20 + 8;
/// Most trains received before the answers go out.
const TRAINS: usize = 8;
/// Commands that a server answers before it looks for more.
const COMMANDS: u32 = 2048;
/// Memory that pages are copied to: larger than caches.
const READER: usize = 32 << 20;
/// Trains of a stream that may be under way, and those that a question asks for.
const WINDOW: u32 = 32;
const GRANT: u32 = 8;

/// The datagrams of a train.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    /// Bytes of data in each.
    data: usize,
    /// Datagrams of a page.
    parts: usize,
}

impl Shape {
    /// A page in each datagram of an exchange, which measured best, or as many pages as fit in a
    /// stream; an equal part of a page where none fits.
    fn new(floor: &Floor) -> Self {
        let room = floor.mtu as usize - IP_UDP - HEAD;
        let parts = PAGE.div_ceil(room);
        let pages = if floor.kind == Kind::UdpStream { (room / PAGE).max(1) } else { 1 };
        match parts {
            1 => Self { data: (pages * PAGE).min(TRAIN_MAX - HEAD), parts },
            _ if floor.kind == Kind::UdpStream => Self { data: room, parts },
            _ => Self { data: PAGE.div_ceil(parts), parts },
        }
    }

    /// Bytes of a datagram.
    fn segment(self) -> usize {
        HEAD + self.data
    }

    /// Datagrams in the longest train.
    fn train(self) -> usize {
        TRAIN_MAX / self.segment()
    }
}

/// Answers until ended.
pub(super) fn serve(socket: &TrainSocket, floor: &Floor, ready: impl FnOnce()) -> io::Result<()> {
    let mut answering = Answering::new(floor, Pages::disk());
    ready();
    while !socket.accept()? {}
    loop {
        answering.step(socket)?;
    }
}

/// The side that is asked.
struct Answering {
    shape: Shape,
    is_stream: bool,
    disk: Pages,
    random: Random,
    /// Where the next train of a stream begins.
    next: usize,
    room: Vec<u8>,
}

impl Answering {
    fn new(floor: &Floor, disk: Pages) -> Self {
        let is_stream = floor.kind == Kind::UdpStream;
        let (shape, random, room) = (Shape::new(floor), Random::new(), vec![0; ROOM]);
        Self { shape, is_stream, disk, random, next: 0, room }
    }

    /// Answers what has come.
    fn step(&mut self, socket: &TrainSocket) -> io::Result<()> {
        let mut asked = commands(socket, &mut self.room)?;
        while asked > 0 {
            let answered = if self.is_stream {
                self.stream(socket)?
            } else {
                self.pages(socket, asked as usize)?
            };
            asked -= answered as u32;
        }
        Ok(())
    }

    /// Sends a train of pages from anywhere; returns how many.
    fn pages(&mut self, socket: &TrainSocket, asked: usize) -> io::Result<usize> {
        // The last part of a page completes the command; it may be shorter than the others.
        let (part, last, padding) = (head(0), head(1), [0; PAGE]);
        let Shape { data: len, parts, .. } = self.shape;
        let count = (self.shape.train() / parts).min(asked);
        let mut pieces = Vec::with_capacity(3 * self.shape.train());
        for _ in 0..count {
            let start = (self.random.next() % (self.disk.len() / PAGE) as u64) as usize * PAGE;
            for (number, data) in (1..).zip(self.disk[start..start + PAGE].chunks(len)) {
                pieces.push(IoSlice::new(if number == parts { &last } else { &part }));
                pieces.push(IoSlice::new(data));
                if data.len() < len {
                    pieces.push(IoSlice::new(&padding[data.len()..len]));
                }
            }
        }
        socket.send(&pieces, self.shape.segment())?;
        Ok(count)
    }

    /// Sends a full train, from one end of the memory to the other; returns 1.
    fn stream(&mut self, socket: &TrainSocket) -> io::Result<usize> {
        let (head, len) = (head(1), self.shape.train() * self.shape.data);
        if self.next + len > self.disk.len() {
            self.next = 0;
        }
        let datagrams = self.disk[self.next..self.next + len].chunks(self.shape.data);
        let pieces = datagrams.flat_map(|data| [IoSlice::new(&head), IoSlice::new(data)]);
        socket.send(&pieces.collect::<Vec<_>>(), self.shape.segment())?;
        self.next += len;
        Ok(1)
    }
}

/// Commands that have come, from a few trains.
fn commands(socket: &TrainSocket, room: &mut [u8]) -> io::Result<u32> {
    let mut asked = 0;
    for _ in 0..TRAINS {
        let Some((bytes, segment)) = socket.receive(room)? else { break };
        asked += room[..bytes].chunks(segment).map(count_of).sum::<u32>();
        if asked >= COMMANDS {
            break;
        }
    }
    Ok(asked)
}

/// The count of a datagram; 0 if it is too short to have one.
fn count_of(datagram: &[u8]) -> u32 {
    datagram.first_chunk().map_or(0, count)
}

/// The answers of a run so far.
struct Inflow {
    room: Vec<u8>,
    /// Where pages end up.
    reader: Pages,
    at: usize,
    under_way: u32,
    heard: Instant,
    lost: u64,
}

impl Inflow {
    fn new(now: Instant) -> Self {
        let (room, reader) = (vec![0; ROOM], Pages::new(READER));
        Self { room, reader, at: 0, under_way: 0, heard: now, lost: 0 }
    }

    /// Notes that `came` of what is under way have come by `now`; gives the rest up after a
    /// silence.
    fn settle(&mut self, came: u32, now: Instant) {
        // Late ones that were given up still count, but are no longer awaited.
        self.under_way = self.under_way.saturating_sub(came);
        if came > 0 {
            self.heard = now;
        } else if self.under_way > 0 && now.duration_since(self.heard) > LOST {
            self.lost += u64::from(self.under_way);
            (self.under_way, self.heard) = (0, now);
        }
    }

    /// Copies the data of a received train to the reader; returns how many commands it completes.
    fn take(&mut self, bytes: usize, segment: usize) -> u32 {
        let mut done = 0;
        for datagram in self.room[..bytes].chunks(segment) {
            let Some(data) = datagram.get(HEAD..) else { continue };
            if self.at + data.len() > self.reader.len() {
                self.at = 0;
            }
            self.reader[self.at..self.at + data.len()].copy_from_slice(data);
            self.at += data.len();
            done += count_of(datagram);
        }
        done
    }
}

/// Asks for pages, or for a stream.
pub(super) fn ask(address: SocketAddr, floor: &Floor, time: Duration) -> io::Result<Outcome> {
    let socket = TrainSocket::connect(address)?;
    if floor.kind == Kind::UdpStream {
        return ask_stream(&socket, Shape::new(floor), time);
    }
    let in_a_datagram = u32::from(floor.commands());
    let depth = u32::from(floor.depth).max(in_a_datagram);
    let question = question(in_a_datagram, in_a_datagram as usize * COMMAND);
    let (mut answers, mut messages) = (0u64, 0u64);
    let start = Instant::now();
    let mut inflow = Inflow::new(start);
    let mut now = start;
    while now.duration_since(start) < time {
        while inflow.under_way + in_a_datagram <= depth {
            socket.send(&[IoSlice::new(&question)], question.len())?;
            inflow.under_way += in_a_datagram;
            messages += 1;
        }
        let mut came = 0;
        while let Some((bytes, segment)) = socket.receive(&mut inflow.room)? {
            messages += 1;
            came += inflow.take(bytes, segment);
        }
        answers += u64::from(came);
        now = Instant::now();
        inflow.settle(came, now);
    }
    Outcome::of_exchange(depth, (answers, messages), start, inflow.lost)
}

/// A datagram that asks, with room for the commands.
fn question(count: u32, commands: usize) -> Vec<u8> {
    let mut question = vec![1; HEAD + commands];
    question[..HEAD].copy_from_slice(&head(count));
    question
}

fn ask_stream(socket: &TrainSocket, shape: Shape, time: Duration) -> io::Result<Outcome> {
    let question = question(GRANT, 0);
    let (mut datagrams, mut payload) = (0u64, 0u64);
    let mut now = Instant::now();
    let begin = now + WARM_UP;
    let mut inflow = Inflow::new(now);
    let [granted, window] = [GRANT, WINDOW].map(|trains| trains * shape.train() as u32);
    while now < begin + time {
        while inflow.under_way + granted <= window {
            socket.send(&[IoSlice::new(&question)], question.len())?;
            inflow.under_way += granted;
        }
        let mut came = 0;
        while let Some((bytes, segment)) = socket.receive(&mut inflow.room)? {
            let heads = bytes.div_ceil(segment);
            came += heads as u32;
            if now >= begin {
                datagrams += heads as u64;
                payload += bytes.saturating_sub(heads * HEAD) as u64;
            }
        }
        now = Instant::now();
        inflow.settle(came, now);
    }
    Outcome::of_stream(time, (datagrams, payload), 1.0 / shape.train() as f64, inflow.lost)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_have_one_length_and_fit_the_link() {
        let shape = |kind, mtu| Shape::new(&Floor::new(kind, mtu));
        let exchange = [1500, 9000].map(|mtu| shape(Kind::UdpExchange, mtu));
        assert_eq!(exchange.map(|it| (it.data, it.parts)), [(1366, 3), (4096, 1)]);
        let stream = [1500, 9000].map(|mtu| shape(Kind::UdpStream, mtu));
        assert_eq!(stream.map(|it| it.data), [1408, 8192]);
        for shapes in [exchange, stream] {
            for (mtu, shape) in [1500, 9000].into_iter().zip(shapes) {
                assert!(shape.segment() + IP_UDP <= mtu && shape.train() > 1);
            }
        }
    }

    #[test]
    fn what_is_asked_for_comes() {
        let kinds = [(Kind::UdpExchange, 9000), (Kind::UdpExchange, 1500), (Kind::UdpStream, 9000)];
        for (kind, mtu) in kinds {
            let floor = Floor::new(kind, mtu);
            let server = TrainSocket::listen("127.0.0.1:0".parse().unwrap()).unwrap();
            let client = TrainSocket::connect(server.address()).unwrap();
            let mut answering = Answering::new(&floor, Pages::new(4 << 20));
            let asked = 40;
            let question = question(asked, 0);
            client.send(&[IoSlice::new(&question)], question.len()).unwrap();
            assert!(server.accept().unwrap());
            answering.step(&server).unwrap();
            let (mut inflow, mut answers) = (Inflow::new(Instant::now()), 0);
            while let Some((bytes, segment)) = client.receive(&mut inflow.room).unwrap() {
                answers += inflow.take(bytes, segment);
            }
            let in_train = if kind == Kind::UdpStream { answering.shape.train() as u32 } else { 1 };
            assert_eq!(answers, asked * in_train, "{kind:?} {mtu}");
            assert!(inflow.reader[..PAGE].iter().all(|&byte| byte == 0x5a));
        }
    }
}

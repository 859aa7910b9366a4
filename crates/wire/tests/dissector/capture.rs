//! Captures in the format of pcap: frames as they are, in datagrams, and in segments of a stream.

use tyche_wire::ETHERNET_LEN;

const IPV4: [u8; 2] = [0x08, 0x00];
const UDP: u8 = 17;
const TCP: u8 = 6;
/// The addresses of host and target.
const ADDRESSES: [[u8; 4]; 2] = [[192, 0, 2, 1], [192, 0, 2, 2]];

/// A capture; its packets are 10 µs apart.
#[derive(Debug)]
pub(super) struct Capture {
    bytes: Vec<u8>,
    packets: u32,
}

impl Capture {
    pub(super) fn new() -> Self {
        let mut bytes = Vec::new();
        bytes.extend(0xa1b2_c3d4_u32.to_le_bytes());
        bytes.extend([2, 0, 4, 0]);
        bytes.extend([0; 8]);
        // The longest packet, and the kind of link: Ethernet.
        bytes.extend([0, 0, 4, 0, 1, 0, 0, 0]);
        Self { bytes, packets: 0 }
    }

    /// A capture of these packets.
    pub(super) fn of<'a>(packets: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut capture = Self::new();
        for packet in packets {
            capture.add(packet, packet.len());
        }
        capture
    }

    /// Adds a packet of `len` bytes, of which `captured` were captured.
    pub(super) fn add(&mut self, captured: &[u8], len: usize) {
        let numbers = [1_700_000_000, self.packets * 10, captured.len() as u32, len as u32];
        for number in numbers {
            self.bytes.extend(number.to_le_bytes());
        }
        self.bytes.extend(captured);
        self.packets += 1;
    }

    /// Adds a frame in a datagram from or to `port` at the target, with padding behind it.
    pub(super) fn add_datagram(&mut self, frame: &[u8], port: u16, padding: usize) {
        self.add_train(&[frame], frame.len() + padding, port);
    }

    /// Adds frames of one direction in datagrams of `segment` bytes, which travel, and so
    /// are captured, as one.
    pub(super) fn add_train(&mut self, frames: &[&[u8]], segment: usize, port: u16) {
        let (ends, ports) = ends(frames[0], port);
        let mut train = Vec::new();
        for (index, frame) in frames.iter().enumerate() {
            train.extend([0; ETHERNET_LEN - 2]);
            train.extend((frame.len() as u16).to_be_bytes());
            train.extend(&frame[ETHERNET_LEN..]);
            train.resize((index + 1) * segment, 0);
        }
        let mut header = ports.concat();
        header.extend((train.len() as u16 + 8).to_be_bytes());
        header.extend([0, 0]);
        self.add_ip(UDP, ends, &[header, train].concat());
    }

    /// Adds the frames as two streams, one for each direction, in segments of `segment` bytes.
    pub(super) fn add_streams(&mut self, frames: &[Vec<u8>], port: u16, segment: usize) {
        for to_target in [true, false] {
            let mine = frames.iter().filter(|frame| is_to_target(frame) == to_target);
            let stream: Vec<u8> = mine
                .clone()
                .flat_map(|frame| [&(frame.len() as u32).to_le_bytes()[..], frame].concat())
                .collect();
            let Some(first) = mine.into_iter().next() else { continue };
            let (ends, ports) = ends(first, port);
            for (index, bytes) in stream.chunks(segment).enumerate() {
                let mut header = ports.concat();
                header.extend((1 + (index * segment) as u32).to_be_bytes());
                header.extend(1_u32.to_be_bytes());
                // Five words of header; the flag ACK; window; no checksum.
                header.extend([0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
                self.add_ip(TCP, ends, &[&header[..], bytes].concat());
            }
        }
    }

    fn add_ip(&mut self, protocol: u8, [from, to]: [[u8; 4]; 2], payload: &[u8]) {
        let mut packet = [2, 0, 0, 0, 0, from[3], 2, 0, 0, 0, 0, to[3]].to_vec();
        packet.extend(IPV4);
        packet.extend([0x45, 0]);
        packet.extend((payload.len() as u16 + 20).to_be_bytes());
        packet.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
        packet.extend([from, to].concat());
        packet.extend(payload);
        self.add(&packet, packet.len());
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Whether a golden frame goes to the target: the source is the host.
pub(super) fn is_to_target(frame: &[u8]) -> bool {
    frame[11] == 1
}

/// Source and destination: addresses, and ports.
fn ends(frame: &[u8], port: u16) -> ([[u8; 4]; 2], [[u8; 2]; 2]) {
    let (mut ends, mut ports) = (ADDRESSES, [40_000_u16.to_be_bytes(), port.to_be_bytes()]);
    if !is_to_target(frame) {
        ends.reverse();
        ports.reverse();
    }
    (ends, ports)
}

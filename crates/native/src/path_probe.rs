//! Probes of paths without a session: the longest frames that targets answer. A Hello is answered
//! by one of the same length, so a path carries in both directions what comes back.

use std::collections::VecDeque;
use std::time::Duration;

use tyche_engine::{Frames, Ports, Protocol, Received, now};
use tyche_link::Link;
use tyche_numa::NumaAffinity;
use tyche_proto::crypto::PublicKey;
use tyche_proto::wire::{
    Body, Control, FRAME_LEN_MIN, Flags, Frame, HEAD_LEN, Hello, Kind, Mac, Ticket, Uuid,
};
use tyche_proto::{Instant, Outgoing, Part, nonce_of_question};

use crate::composer::{Composer, head, open_port};
use crate::random::secrets;

/// Rounds of probes within the time: frames get lost.
const ROUNDS: u32 = 3;
/// Lengths that are probed below a link's own: the least, and those of the usual MTUs: 1280,
/// tunnels (1400, 1450), 1500, 4000, and jumbo (8900, 9000), each with the header of Ethernet. A
/// session tries fewer, because it must not wait for them.
const LENGTHS: [usize; 8] = [FRAME_LEN_MIN, 1294, 1414, 1464, 1514, 4014, 8914, 9014];

/// A path to a target: a link, and the target's address on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbedPath {
    /// Name of the link.
    pub link: String,
    /// The target's address.
    pub mac: Mac,
    /// The target's UUID.
    pub target: Uuid,
    /// The longest frame of the link in bytes; 0 until it is probed.
    pub frame_len_max: usize,
    /// The longest frame in bytes that was answered; 0: none was.
    pub frame_len: usize,
}

impl ProbedPath {
    /// A path that is to be probed.
    pub fn new(link: &str, mac: Mac, target: Uuid) -> Self {
        Self { link: link.to_owned(), mac, target, frame_len_max: 0, frame_len: 0 }
    }
}

/// Probes paths over these links for `time`, or until the longest frames of all are answered. Paths
/// over other links stay as they are. `key`: the target's, for one that is silent.
pub fn probe_paths(
    links: Vec<Box<dyn Link>>,
    ethertype: u16,
    key: Option<&PublicKey>,
    mut paths: Vec<ProbedPath>,
    time: Duration,
) -> Vec<ProbedPath> {
    let mut ports = Ports::new();
    let mut names = Vec::new();
    for (index, link) in links.into_iter().take(tyche_wake::SOURCES_MAX).enumerate() {
        for path in paths.iter_mut().filter(|path| path.link == link.name()) {
            path.frame_len_max = link.frame_len_max();
        }
        names.push(link.name().to_owned());
        ports.insert(index, open_port(link, NumaAffinity::default()));
    }
    let begun = now();
    let mut prober = Prober {
        nonce: nonce_of_question(key, Kind::Hello, secrets()()),
        ports: names,
        paths,
        begun,
        interval: time / ROUNDS,
        rounds: 0,
        outbox: VecDeque::new(),
        composer: Composer::new(ethertype),
    };
    let end = begun + time;
    loop {
        let time = now();
        if time >= end || prober.is_done() {
            return prober.paths;
        }
        ports.receive(time, &mut prober);
        ports.transmit(time, &mut prober);
        let next = prober.poll_timeout().map_or(end, |at| at.min(end));
        ports.wait([], Some(next));
    }
}

/// Sends probes, and takes the answers.
struct Prober {
    nonce: u64,
    /// Names of the links by port.
    ports: Vec<String>,
    paths: Vec<ProbedPath>,
    begun: Instant,
    /// The time between rounds.
    interval: Duration,
    rounds: u32,
    /// Probes to be sent: port, address, target, length.
    outbox: VecDeque<(usize, Mac, Uuid, usize)>,
    composer: Composer,
}

impl Prober {
    fn is_done(&self) -> bool {
        let mut open = self.paths.iter().filter(|path| self.ports.contains(&path.link));
        self.rounds > 0 && open.all(|path| path.frame_len == path.frame_len_max)
    }
}

/// The answer that a frame is to a probe with that nonce: the target, and the length.
fn answer(head: &[u8; HEAD_LEN], payload: &[u8], nonce: u64) -> Option<(Uuid, usize)> {
    let Ok(Frame { header, body: Body::Control(pdu) }) = Frame::parse(head, payload) else {
        return None;
    };
    match pdu.decode() {
        Control::Hello(hello) if hello.nonce == nonce && header.flags.contains(Flags::REPLY) => {
            Some((hello.target, hello.frame_len as usize))
        }
        _ => None,
    }
}

impl Protocol for Prober {
    fn handle_frame(&mut self, _: Instant, port: usize, frame: &Received<'_>) {
        let head = head(frame);
        let Some((target, len)) = answer(head, frame.payload, self.nonce) else { return };
        let (mac, link) = (Mac::source(head), &self.ports[port]);
        let is_it = |it: &&mut ProbedPath| it.link == *link && it.mac == mac && it.target == target;
        for path in self.paths.iter_mut().filter(is_it) {
            path.frame_len = path.frame_len.max(len);
        }
    }

    fn handle_timeout(&mut self, _: Instant) {
        self.rounds += 1;
        for path in &self.paths {
            let Some(port) = self.ports.iter().position(|name| *name == path.link) else {
                continue;
            };
            let own = path.frame_len_max;
            // Short ones first: long ones might displace them in a queue on the way.
            let lengths = LENGTHS.into_iter().filter(|&len| len < own).chain([own]);
            let missing = lengths.filter(|&len| len > path.frame_len);
            self.outbox.extend(missing.map(|len| (port, path.mac, path.target, len)));
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        (self.rounds < ROUNDS).then(|| self.begun + self.interval * self.rounds)
    }

    fn frames(&mut self, port: usize) -> impl Frames<'_> {
        let Self { outbox, composer, nonce, .. } = self;
        let nonce = *nonce;
        let poll = move |_, out: &mut Outgoing| {
            let next = outbox.iter().position(|probe| probe.0 == port);
            let Some((_, to, target, len)) = next.and_then(|next| outbox.remove(next)) else {
                return false;
            };
            let frame_len = len as u32;
            let hello = Hello { nonce, target, ticket: Ticket::NONE, frame_len };
            out.set_control(to, Control::Hello(hello));
            true
        };
        composer.frames(poll, |_: &Outgoing, _: &Part| unreachable!("probes carry no data"))
    }
}

#[cfg(test)]
mod tests {
    use tyche_link::memory;

    use super::*;

    #[test]
    fn paths_without_an_answer_or_a_link_have_no_length() {
        let (near, _far) = memory::pair(1514).unwrap();
        let link: Box<dyn Link> = Box::new(near);
        let name = link.name().to_owned();
        let paths = [&*name, "elsewhere"];
        let paths = paths.map(|link| ProbedPath::new(link, Mac([2; 6]), Uuid::from_u128(7)));
        let time = Duration::from_millis(3);
        let probed = probe_paths(vec![link], 0x88b5, None, paths.to_vec(), time);
        let lengths = probed.iter().map(|path| (path.frame_len_max, path.frame_len));
        assert_eq!(lengths.collect::<Vec<_>>(), [(1514, 0), (0, 0)]);
    }
}

//! Discovery: finds the targets on the links and their exports.

use std::time::Duration;

use tyche_link::Link;
use tyche_numa::Home;
use tyche_proto::Outgoing;
use tyche_proto::wire::{
    Body, Control, Discover, Frame, Greeting, Mac, Name, Offer, Uuid, Versions,
};

use crate::clock::now;
use crate::port::Port;
use crate::random::secrets;
use crate::wait::wait;

/// Questions sent within the timeout: frames get lost.
const ASKS: u32 = 3;

/// A target's answer.
#[derive(Clone, Debug)]
pub struct Found {
    /// Name of the link that it came in on.
    pub link: String,
    /// The target's address there.
    pub mac: Mac,
    /// Up to ten of its exports; a target with more answers several times.
    pub offer: Offer,
}

/// A target that speaks other versions of the protocol only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// Name of the link that it was heard on.
    pub link: String,
    /// Its address there.
    pub mac: Mac,
    /// The versions it speaks.
    pub versions: Versions,
}

/// The targets that answered.
#[derive(Clone, Debug, Default)]
pub struct Discovery {
    /// Answers, each once.
    pub found: Vec<Found>,
    /// Targets of other versions, each once.
    pub foreign: Vec<Foreign>,
}

/// Asks on every link for `export`, or for all exports if it is empty, and listens for `timeout`.
pub fn discover(
    links: Vec<Box<dyn Link>>,
    ethertype: u16,
    host: Uuid,
    export: Name,
    timeout: Duration,
) -> Discovery {
    let mut ports: Vec<_> =
        links.into_iter().map(|link| Port::new(link, ethertype, Home::default())).collect();
    let question = Discover {
        nonce: secrets()(),
        versions: Versions::OURS,
        first: 0,
        host,
        target: Uuid::nil(),
        uuid: Uuid::nil(),
        name: export,
    };
    let (start, mut asked, mut discovery) = (now(), 0, Discovery::default());
    loop {
        let time = now();
        if time >= start + timeout {
            return discovery;
        }
        let ask = asked < ASKS && time >= start + timeout / ASKS * asked;
        for port in &mut ports {
            if ask {
                post(port, Mac::BROADCAST, question.clone());
            }
            for (mac, rest) in discovery.hear(port, &question) {
                post(port, mac, rest);
            }
        }
        asked += u32::from(ask);
        let next = start + (timeout / ASKS * asked).min(timeout);
        wait(ports.iter().filter_map(Port::wait_fd), now(), Some(next));
    }
}

impl Discovery {
    /// Takes a port's received frames. Returns questions for exports that did not fit the answers.
    fn hear(&mut self, port: &mut Port, question: &Discover) -> Vec<(Mac, Discover)> {
        let link = port.link().name().to_owned();
        let mut rest = Vec::new();
        for index in 0..port.receive(now()) {
            let frame = port.rx.frame(index);
            let mac = Mac::source(frame.head);
            if let Some(greeting) = Greeting::parse(frame.head, frame.payload) {
                let foreign = Foreign { link: link.clone(), mac, versions: greeting.versions };
                if greeting.nonce == question.nonce && !self.foreign.contains(&foreign) {
                    self.foreign.push(foreign);
                }
                continue;
            }
            if let Ok(Frame { body: Body::Control(pdu), .. }) =
                Frame::parse(frame.head, frame.payload)
                && let Control::Offer(offer) = pdu.decode()
                && offer.nonce == question.nonce
            {
                if self.found.iter().any(|it| it.link == link && it.offer == offer) {
                    continue;
                }
                let first = offer.first + offer.exports.len() as u16;
                if first < offer.total && !offer.exports.is_empty() {
                    rest.push((mac, Discover { first, target: offer.target, ..question.clone() }));
                }
                self.found.push(Found { link: link.clone(), mac, offer });
            }
        }
        port.rx.clear();
        rest
    }
}

fn post(port: &mut Port, to: Mac, question: Discover) {
    let mut out = Outgoing::new();
    let mut question = Some(question);
    let poll = |out: &mut Outgoing| {
        let Some(question) = question.take() else { return false };
        out.set_control(to, Control::Discover(question));
        true
    };
    port.transmit(now(), &mut out, poll, |_, _| unreachable!("a question carries no data"));
}

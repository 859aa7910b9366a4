//! Asking around: which targets are there, and what do they export?

use std::time::Duration;

use tyche_link::Link;
use tyche_numa::Home;
use tyche_proto::Outgoing;
use tyche_proto::wire::{Body, Control, Discover, Frame, Header, Kind, Mac, Name, Offer, Uuid};

use crate::clock::now;
use crate::port::Port;
use crate::random::secrets;
use crate::wait::wait;

/// How often the question is sent within the time given: frames get lost.
const ASKS: u32 = 3;

/// A target's answer.
#[derive(Clone, Debug)]
pub struct Found {
    /// Name of the link that it came in on.
    pub link: String,
    /// The target's address there.
    pub mac: Mac,
    /// What it offers; a target with many exports sends several.
    pub offer: Offer,
}

/// Asks on every link for `export`, or for all exports if it is empty, and listens for
/// `timeout`. Each answer is reported once.
pub fn discover(
    links: Vec<Box<dyn Link>>,
    ethertype: u16,
    host: Uuid,
    export: Name,
    timeout: Duration,
) -> Vec<Found> {
    let mut ports: Vec<_> =
        links.into_iter().map(|link| Port::new(link, ethertype, Home::default())).collect();
    let nonce = secrets()();
    let (start, mut asked, mut found) = (now(), 0, Vec::<Found>::new());
    loop {
        let time = now();
        if time >= start + timeout {
            return found;
        }
        let ask = asked < ASKS && time >= start + timeout / ASKS * asked;
        for port in &mut ports {
            if ask {
                let question = Discover { nonce, host, export };
                post(port, Control::Discover(question));
            }
            let name = port.link().name().to_owned();
            for index in 0..port.receive(time) {
                let frame = port.rx.frame(index);
                if let Ok(Frame { body: Body::Control(pdu), .. }) =
                    Frame::parse(frame.head, frame.payload)
                    && let Control::Offer(offer) = pdu.decode()
                    && offer.nonce == nonce
                {
                    let mac = Mac::source(frame.head);
                    let known = found.iter().any(|it| it.link == name && it.offer == offer);
                    if !known {
                        found.push(Found { link: name.clone(), mac, offer });
                    }
                }
            }
            port.rx.clear();
        }
        asked += u32::from(ask);
        let next = start + (timeout / ASKS * asked).min(timeout);
        wait(ports.iter().filter_map(Port::wait_fd), now(), Some(next));
    }
}

fn post(port: &mut Port, control: Control) {
    let mut out = Outgoing::new();
    let mut control = Some(control);
    let poll = |out: &mut Outgoing| {
        out.destination = Mac::BROADCAST;
        out.header = Header::new(Kind::Discover);
        out.control = control.take();
        out.control.is_some()
    };
    port.transmit(now(), &mut out, poll, |_, _| unreachable!("a question carries no data"));
}

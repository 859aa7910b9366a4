//! Discovery: finds the targets on the links and their exports.

use std::collections::VecDeque;
use std::io;
use std::time::Duration;

use tyche_engine::{Frames, Ports, Protocol, Received, now};
use tyche_link::Link;
use tyche_link::udp::segment::{self, Search};
use tyche_numa::NumaAffinity;
use tyche_proto::crypto::PublicKey;
use tyche_proto::wire::{
    Body, Control, Discover, ExportInfo, Frame, Greeting, HEAD_LEN, Kind, Mac, Name, Offer,
    RECORDS_MAX, Uuid, Versions,
};
use tyche_proto::{Instant, Outgoing, Part, nonce_of_question};
use tyche_remote::LinkFault;

use crate::composer::{Composer, head, is_routed, open_port};
use crate::random::secrets;

/// Questions sent within the timeout: frames get lost.
const ASKS: u32 = 3;
/// The most links of a discovery, which waits for all of them at once.
const LINKS_MAX: usize = tyche_wake::SOURCES_MAX;

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
    /// Faults of links at the end, and links that were not asked.
    pub faults: Vec<LinkFault>,
}

/// The exports of one target, put together from its answers.
#[derive(Clone, Debug)]
pub struct Listing {
    /// UUID of the target.
    pub target: Uuid,
    /// Its name.
    pub name: Name,
    /// Those of its exports that were heard.
    pub exports: Vec<ExportInfo>,
    /// Number of exports that it has for this host.
    pub total: usize,
}

impl Listing {
    /// Number of exports that the target has, and that were not heard.
    pub fn missing(&self) -> usize {
        self.total.saturating_sub(self.exports.len())
    }
}

impl Discovery {
    /// The exports of each target that answered.
    pub fn listings(&self) -> Vec<Listing> {
        let mut listings: Vec<Listing> = Vec::new();
        for Found { offer, .. } in &self.found {
            let known = listings.iter().position(|it| it.target == offer.target);
            let index = known.unwrap_or_else(|| {
                let (target, name) = (offer.target, offer.name);
                listings.push(Listing { target, name, exports: Vec::new(), total: 0 });
                listings.len() - 1
            });
            let listing = &mut listings[index];
            listing.total = listing.total.max(offer.total.into());
            for export in &offer.exports {
                if listing.exports.iter().all(|it| it.uuid != export.uuid) {
                    listing.exports.push(export.clone());
                }
            }
        }
        listings
    }
}

/// Asks on every link for `export`, or for all exports if it is empty, and listens for `timeout`.
/// Links beyond the 64th are not asked. With `key`, the target with that public key answers also if
/// it is silent.
pub fn discover(
    mut links: Vec<Box<dyn Link>>,
    ethertype: u16,
    (host, key): (Uuid, Option<&PublicKey>),
    export: Name,
    timeout: Duration,
) -> Discovery {
    let left_out = links.split_off(links.len().min(LINKS_MAX));
    let faults = left_out.iter().map(|link| not_asked(link.name())).collect();
    let mut ports = Ports::new();
    let mut asker = Asker {
        question: Discover { name: export, ..Discover::any(nonce(key), host) },
        links: links.iter().map(|link| (link.name().to_owned(), is_routed(&**link))).collect(),
        begun: now(),
        interval: timeout / ASKS,
        asked: 0,
        outbox: VecDeque::new(),
        composer: Composer::new(ethertype),
        discovery: Discovery { faults, ..Discovery::default() },
    };
    for (index, link) in links.into_iter().enumerate() {
        ports.insert(index, open_port(link, NumaAffinity::default()));
    }
    let end = asker.begun + timeout;
    loop {
        let time = now();
        if time >= end {
            let Asker { links, mut discovery, .. } = asker;
            discovery.faults.extend(ports.iter().filter_map(|(index, port)| {
                let message = port.trouble()?.to_owned();
                Some(LinkFault { link: links[index].0.clone(), message })
            }));
            return discovery;
        }
        ports.receive(time, &mut asker);
        ports.transmit(time, &mut asker);
        let next = asker.poll_timeout().map_or(end, |at| at.min(end));
        ports.wait([], Some(next));
    }
}

/// The nonce of a question.
fn nonce(key: Option<&PublicKey>) -> u64 {
    nonce_of_question(key, Kind::Discover, secrets()())
}

fn not_asked(link: &str) -> LinkFault {
    let message = format!("{link} is not asked: {LINKS_MAX} links are the most; name those to ask");
    LinkFault { link: link.to_owned(), message }
}

/// Looks for targets over UDP on the segments of this machine, for that time: for their addresses,
/// at which to ask them for exports. `key`: as for [`discover`].
///
/// # Errors
/// The kernel does not list its interfaces.
pub fn search((host, key): (Uuid, Option<&PublicKey>), time: Duration) -> io::Result<Search> {
    let nonce = nonce(key);
    // Room for a refusal of another version, too.
    let question = Discover::any(nonce, host).with_room_for(1);
    let mut out = Outgoing::new();
    out.set_control(Mac::BROADCAST, Control::Discover(question));
    segment::search(&out.to_bytes(Mac([0; 6]), &[]), time, |frame| {
        let parts = frame.split_first_chunk();
        parts.is_some_and(|(head, payload)| answer(head, payload, nonce).is_some())
    })
}

/// The answer that a frame is to the question with that nonce: an Offer, or the versions of a
/// target that speaks others.
fn answer(head: &[u8; HEAD_LEN], payload: &[u8], nonce: u64) -> Option<Result<Offer, Versions>> {
    if let Some(greeting) = Greeting::parse(head, payload) {
        return (greeting.nonce == nonce).then_some(Err(greeting.versions));
    }
    let Ok(Frame { body: Body::Control(pdu), .. }) = Frame::parse(head, payload) else {
        return None;
    };
    match pdu.decode() {
        Control::Offer(offer) if offer.nonce == nonce => Some(Ok(offer)),
        _ => None,
    }
}

/// Asks, and collects the answers.
struct Asker {
    question: Discover,
    /// The names of the links by port, and whether they are routed.
    links: Vec<(String, bool)>,
    begun: Instant,
    /// The time between questions.
    interval: Duration,
    /// Questions asked on every link.
    asked: u32,
    /// Questions to be sent, each with its port.
    outbox: VecDeque<(usize, Mac, Discover)>,
    composer: Composer,
    discovery: Discovery,
}

impl Asker {
    /// Plans a question.
    fn ask(&mut self, port: usize, to: Mac, mut question: Discover) {
        if self.links[port].1 {
            let has_one = !question.name.is_empty();
            question = question.with_room_for(if has_one { 1 } else { RECORDS_MAX });
        }
        self.outbox.push_back((port, to, question));
    }

    fn hear_offer(&mut self, port: usize, mac: Mac, offer: Offer) {
        let (link, found) = (&self.links[port].0, &mut self.discovery.found);
        let (target, total) = (offer.target, offer.total);
        if !found.iter().any(|it| it.link == *link && it.offer == offer) {
            found.push(Found { link: link.clone(), mac, offer });
        }
        // Further exports did not fit the answer; or their answer is lost, and this one repeated.
        let pages = found.iter().filter(|it| it.link == *link && it.offer.target == target);
        let first = first_missing(&pages.map(|it| &it.offer));
        let is_asked = self.outbox.iter().any(|(to, at, _)| (*to, *at) == (port, mac));
        if first < total && !is_asked {
            self.ask(port, mac, Discover { first, target, ..self.question.clone() });
        }
    }
}

/// Index of the first export that no page of a target's list has.
fn first_missing<'a>(pages: &(impl Iterator<Item = &'a Offer> + Clone)) -> u16 {
    let mut first = 0;
    loop {
        let end = |offer: &Offer| offer.first.saturating_add(offer.exports.len() as u16);
        let mut here = pages.clone().filter(|offer| offer.first <= first && end(offer) > first);
        match here.next() {
            Some(offer) => first = end(offer),
            None => return first,
        }
    }
}

impl Protocol for Asker {
    fn handle_frame(&mut self, _: Instant, port: usize, frame: &Received<'_>) {
        let head = head(frame);
        let mac = Mac::source(head);
        match answer(head, frame.payload, self.question.nonce) {
            Some(Err(versions)) => {
                let foreign = Foreign { link: self.links[port].0.clone(), mac, versions };
                let known = &mut self.discovery.foreign;
                if !known.contains(&foreign) {
                    known.push(foreign);
                }
            }
            Some(Ok(offer)) => self.hear_offer(port, mac, offer),
            None => {}
        }
    }

    fn handle_timeout(&mut self, _: Instant) {
        for port in 0..self.links.len() {
            self.ask(port, Mac::BROADCAST, self.question.clone());
        }
        self.asked += 1;
    }

    fn poll_timeout(&self) -> Option<Instant> {
        (self.asked < ASKS).then(|| self.begun + self.interval * self.asked)
    }

    fn frames(&mut self, port: usize) -> impl Frames<'_> {
        let Self { outbox, composer, .. } = self;
        let poll = move |_, out: &mut Outgoing| {
            let next = outbox.iter().position(|question| question.0 == port);
            let Some((_, to, question)) = next.and_then(|next| outbox.remove(next)) else {
                return false;
            };
            out.set_control(to, Control::Discover(question));
            true
        };
        composer.frames(poll, |_: &Outgoing, _: &Part| unreachable!("questions carry no data"))
    }
}

#[cfg(test)]
mod tests {
    use tyche_link::memory;

    use super::*;

    #[test]
    fn more_links_than_one_wait_takes_are_not_asked() {
        let (near, _far): (Vec<_>, Vec<_>) =
            (0..=LINKS_MAX).map(|_| memory::pair(1514).unwrap()).unzip();
        let links = near.into_iter().map(|link| Box::new(link) as Box<dyn Link>).collect();
        let time = Duration::from_millis(10);
        let discovery = discover(links, 0x88b5, (Uuid::nil(), None), Name::EMPTY, time);
        let [fault] = &discovery.faults[..] else { panic!("{:?}", discovery.faults) };
        assert!(fault.message.contains("64 links are the most"), "{fault:?}");
    }

    fn page(target: u128, first: u16, count: u16, total: u16) -> Offer {
        let export = |index: u16| ExportInfo {
            uuid: Uuid::from_u128(index.into()),
            name: Name::new(&format!("d{index}")).unwrap(),
            geometry: tyche_block::Geometry::new(1 << 20, 512),
            shared: false,
            held: false,
        };
        Offer {
            nonce: 1,
            versions: Versions::OURS,
            target: Uuid::from_u128(target),
            name: Name::EMPTY,
            first,
            total,
            exports: (first..first + count).map(export).collect(),
            key: None,
        }
    }

    #[test]
    fn a_list_is_complete_when_all_its_pages_were_heard_on_whatever_link() {
        let found = |link: &str, offer| Found { link: link.into(), mac: Mac([2; 6]), offer };
        let pages = vec![found("a", page(7, 0, 10, 25)), found("a", page(7, 20, 5, 25))];
        let mut discovery = Discovery { found: pages, ..Discovery::default() };
        discovery.found.push(found("b", page(8, 0, 0, 0)));
        let missing = |discovery: &Discovery| {
            discovery.listings().iter().map(Listing::missing).collect::<Vec<_>>()
        };
        assert_eq!(missing(&discovery), [10, 0]);
        assert_eq!(first_missing(&discovery.found[..2].iter().map(|it| &it.offer)), 10);
        discovery.found.push(found("b", page(7, 10, 10, 25)));
        discovery.found.push(found("b", page(7, 0, 10, 25)));
        assert_eq!(missing(&discovery), [0, 0]);
    }

    #[test]
    fn a_page_that_is_lost_is_asked_for_again() {
        let mut asker = Asker {
            question: Discover::any(1, Uuid::nil()),
            links: vec![("a".into(), false)],
            begun: Instant(0),
            interval: Duration::from_secs(1),
            asked: 0,
            outbox: VecDeque::new(),
            composer: Composer::new(0x88b5),
            discovery: Discovery::default(),
        };
        let mut asked = |offer: &Offer| {
            asker.hear_offer(0, Mac([2; 6]), offer.clone());
            asker.outbox.pop_front().map(|(_, _, question)| question.first)
        };
        let pages = [page(7, 0, 10, 25), page(7, 10, 10, 25), page(7, 20, 5, 25)];
        assert_eq!(asked(&pages[0]), Some(10));
        assert_eq!(asked(&pages[0]), Some(10), "the answer was lost");
        assert_eq!(asked(&pages[1]), Some(20));
        assert_eq!(asked(&pages[2]), None);
        assert_eq!(asked(&pages[0]), None);
    }
}

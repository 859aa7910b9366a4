//! Tyche on a port: the sizes of its rings, and the composition of its frames.

use tyche_engine::{Batches, Composed, Fault, FrameSink, Frames, Port, Received, batch_frames};
use tyche_link::ip::Transport;
use tyche_link::{Link, Mac as LinkMac};
use tyche_numa::NumaAffinity;
use tyche_proto::wire::{
    BITMAP_WORDS_MAX, COOKIE_AT, Content, Control, ENTRIES_MAX, Encoder, HEAD_LEN, Mac,
};
use tyche_proto::{Favourite, Instant, Outgoing, Part, Problem, RawFrame, Written};

/// The most positions of a receive ring: a nack names each of them.
const RING_MAX: usize = BITMAP_WORDS_MAX * 64;

/// A port for frames of Tyche.
pub(crate) fn open_port(link: Box<dyn Link>, home: NumaAffinity) -> Port {
    let frames = batch_frames(link.frame_len_max());
    Port::new(link, home, Batches { frames, head_len: HEAD_LEN, pieces_max: ENTRIES_MAX })
}

/// The head of a frame that has come by such a port.
pub(crate) fn head<'a>(frame: &Received<'a>) -> &'a [u8; HEAD_LEN] {
    frame.head.try_into().expect("the port's heads have this length")
}

/// A frame that has come by such a port, for the protocol.
pub(crate) fn raw<'a>(frame: &Received<'a>) -> RawFrame<'a> {
    let Received { payload, is_congested, is_placed, .. } = *frame;
    RawFrame { head: head(frame), payload, is_congested, is_placed }
}

/// Entries of the two receive rings such that the link holds a full window of the longest frames of
/// both.
pub(crate) fn rings(link: &dyn Link) -> [u16; 2] {
    let frames = link.receive_capacity(link.frame_len_max()) / 2;
    let positions = frames.clamp(16, RING_MAX);
    let ring =
        if positions.is_power_of_two() { positions } else { positions.next_power_of_two() / 2 };
    [ring as u16; 2]
}

/// The transport's number; 0 for Ethernet.
pub(crate) fn transport(link: &dyn Link) -> u8 {
    link.transport().map_or(0, |it| it.number)
}

/// The links that a backlog takes, for a report.
pub(crate) fn favoured(favourite: Favourite) -> &'static str {
    match favourite {
        Favourite::Untried => "untried",
        Favourite::All => "all",
        Favourite::One(transport) => Transport::name(transport),
    }
}

/// Whether source addresses on this link can be forged.
pub(crate) fn is_routed(link: &dyn Link) -> bool {
    link.transport().is_some_and(|it| it.is_routed)
}

/// The problem of a path whose link has that fault.
pub(crate) fn problem(fault: Fault) -> Problem {
    match fault {
        Fault::Down => Problem::Down,
        // Shorter frames still get through; the next handshake finds their length.
        Fault::Narrowed(_) => Problem::Narrowed,
    }
}

/// Composes frames, one at a time.
pub(crate) struct Composer {
    out: Outgoing,
    encoder: Encoder,
    ethertype: u16,
}

impl Composer {
    pub(crate) fn new(ethertype: u16) -> Self {
        Self { out: Outgoing::new(), encoder: Encoder::new(), ethertype }
    }

    /// The frames that `poll` composes; `data` finds the bytes of a part of a frame's data.
    pub(crate) fn frames<'d, P, D>(&'d mut self, poll: P, data: D) -> Composing<'d, P, D>
    where
        P: FnMut(Instant, &mut Outgoing) -> bool,
        D: Fn(&Outgoing, &Part) -> &'d [u8],
    {
        Composing { composer: self, poll, data }
    }
}

/// Frames of [`Composer::frames`].
pub(crate) struct Composing<'d, P, D> {
    composer: &'d mut Composer,
    poll: P,
    data: D,
}

impl<'d, P, D> Frames<'d> for Composing<'d, P, D>
where
    P: FnMut(Instant, &mut Outgoing) -> bool,
    D: Fn(&Outgoing, &Part) -> &'d [u8],
{
    fn compose(&mut self, now: Instant) -> Option<Composed> {
        let out = &mut self.composer.out;
        if !(self.poll)(now, out) {
            return None;
        }
        Some(match &out.content {
            Content::Control(Control::Hello(_)) => Composed { probes: true, ..Composed::default() },
            // Frames that arrive on the channel carry it.
            Content::Control(Control::Connect(connect)) => {
                let narrows = Some((COOKIE_AT, connect.cookie.first_bytes()));
                Composed { narrows, ..Composed::default() }
            }
            Content::Control(Control::SealedConnect(_)) => {
                let narrows = Some((COOKIE_AT, out.header.cookie.first_bytes()));
                Composed { narrows, ..Composed::default() }
            }
            _ => Composed { burst: out.burst, ..Composed::default() },
        })
    }

    fn write(&mut self, source: LinkMac, sink: impl FrameSink<'d>) {
        let Composer { out, encoder, ethertype } = &mut *self.composer;
        let (out, data) = (&*out, &self.data);
        let take = |frame: &Written<'_, 'd>| match frame {
            Written::Clear(frame) => match out.places() {
                None => sink.gather(frame.front, frame.data, frame.entries),
                Some(places) => {
                    let places = (out.header.channel.0, places);
                    sink.gather_placed(frame.front, frame.data, frame.entries, places);
                }
            },
            Written::Sealed(frame) => {
                sink.fill(frame.head(), frame.payload_len(), |room| frame.seal(room));
            }
        };
        out.encode(encoder, (Mac(source), *ethertype), |part| data(out, part), take);
    }
}

//! Frames that the network has marked as congested (ECN, RFC 3168).

use tyche_wire::{HEAD_LEN, Header, Mac};

use super::Session;
use crate::channel::protection::Opened;
use crate::rules::Rules;
use crate::time::Instant;

impl<R: Rules> Session<R> {
    /// Takes a frame that the network has marked as congested, as
    /// [`handle_frame`](Self::handle_frame) does. If it is one of a channel and was not rejected,
    /// the target is told: marks of made-up frames must not slow anybody down.
    #[cold]
    pub fn handle_marked_frame<'p>(
        &mut self,
        now: Instant,
        port: usize,
        frame: (&[u8; HEAD_LEN], &'p [u8]),
        opened: &'p mut Opened,
    ) -> &'p [u8] {
        let rejects = self.rejects.total();
        let payload = self.handle_frame(now, port, frame, opened);
        if self.rejects.total() == rejects
            && let Ok(header) = Header::parse(frame.0)
            && header.kind.on_channel()
            && let Some((initiator, _)) = self.paths.live_on(port, self.paths.index(header.channel))
            && initiator.channel.check_origin(Mac::source(frame.0), &header).is_ok()
        {
            initiator.channel.note_congestion();
        }
        payload
    }
}

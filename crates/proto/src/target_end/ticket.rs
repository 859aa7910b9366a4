//! Tickets: they prove to a target that a Connect is fresh and comes from its source address,
//! before the target looks anything up or takes memory for it. PROTOCOL.md, "Tickets".
//!
//! A ticket is the time at which it was issued and a keyed hash over that time and the address that
//! it was issued to. The key is random, made when the link is opened, and known to the threads of
//! that link only. So a ticket is not valid on another link, at another target, or in the next run
//! of this one.

use std::time::Duration;

use tyche_crypto::digest;
use tyche_wire::{Mac, Reject, Ticket};

use crate::time::Instant;

/// How long a ticket is valid: longer than a host repeats a Connect (1.3 s). Higher: the target has
/// to remember more attempts. Lower: hosts on slow links are refused.
pub(crate) const LIFE: Duration = Duration::from_secs(5);

/// Bytes of the time, which is the first field of a ticket.
const TIME_LEN: usize = 8;

/// Issues and checks the tickets of a link.
pub(crate) struct Tickets {
    key: [u8; 16],
}

impl Tickets {
    pub(crate) fn new(key: u128) -> Self {
        Self { key: key.to_le_bytes() }
    }

    /// A ticket for the host at the address `to`.
    pub(crate) fn issue(&self, now: Instant, to: Mac) -> Ticket {
        let (mut ticket, time) = ([0; Ticket::LEN], now.0.to_le_bytes());
        ticket[..TIME_LEN].copy_from_slice(&time);
        ticket[TIME_LEN..].copy_from_slice(&self.hash(&time, to));
        Ticket(ticket)
    }

    /// Returns when a ticket was issued.
    ///
    /// # Errors
    /// `Ticket` if this link has not issued it to that address, or issued it more than [`LIFE`]
    /// ago.
    pub(crate) fn check(
        &self,
        now: Instant,
        from: Mac,
        ticket: &Ticket,
    ) -> Result<Instant, Reject> {
        let (time, hash) =
            ticket.0.split_first_chunk::<TIME_LEN>().expect("a ticket is longer than its time");
        let issued = Instant(u64::from_le_bytes(*time));
        let ours = self.hash(time, from) == hash;
        let fresh = issued <= now && now.since(issued) < LIFE;
        if ours && fresh { Ok(issued) } else { Err(Reject::Ticket) }
    }

    fn hash(&self, time: &[u8; TIME_LEN], mac: Mac) -> [u8; 16] {
        // All parts have one length, and half of the digest is kept: nobody can go on from it.
        let digest = digest(&[&self.key, time, &mac.0]);
        *digest.first_chunk().expect("longer than a hash")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: Mac = Mac([2, 0, 0, 0, 0, 1]);

    fn tickets(secret: u64) -> Tickets {
        Tickets::new(secret.into())
    }

    #[test]
    fn a_ticket_is_good_for_its_holder_and_for_a_while() {
        let (tickets, now) = (tickets(7), Instant(1_000_000_000));
        let ticket = tickets.issue(now, HOST);
        assert_eq!(tickets.check(now, HOST, &ticket), Ok(now));
        assert_eq!(tickets.check(now + (LIFE - Duration::from_nanos(1)), HOST, &ticket), Ok(now));
        assert_eq!(tickets.check(now + LIFE, HOST, &ticket), Err(Reject::Ticket));
        let before = Instant(now.0 - 1);
        assert_eq!(tickets.check(before, HOST, &ticket), Err(Reject::Ticket), "from the future");
        let other = Mac([2, 0, 0, 0, 0, 2]);
        assert_eq!(tickets.check(now, other, &ticket), Err(Reject::Ticket));
    }

    #[test]
    fn a_ticket_means_nothing_elsewhere_or_changed() {
        let now = Instant(1_000_000_000);
        let ticket = tickets(7).issue(now, HOST);
        assert_eq!(tickets(8).check(now, HOST, &ticket), Err(Reject::Ticket));
        for byte in 0..Ticket::LEN {
            let mut forged = ticket;
            forged.0[byte] ^= 1;
            assert_eq!(tickets(7).check(now, HOST, &forged), Err(Reject::Ticket), "byte {byte}");
        }
    }
}

//! Remembered attempts to connect, with the verdict on each. An attempt is decided once, however
//! often its Connect arrives. PROTOCOL.md, "Tickets".
//!
//! An attempt is remembered for as long as its ticket is valid; after that, the ticket is refused.
//! If there is no room, the attempt with the oldest ticket is forgotten, and tickets that are as
//! old are not valid any more: a flood shortens the life of tickets. A host that connects as soon
//! as it has its ticket is still admitted.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tyche_wire::{Control, Mac, Reject};

use crate::target_end::ticket::LIFE;
use crate::time::Instant;

/// How long an attempt is remembered, from the issue of its ticket: longer than the ticket is
/// valid, because a Connect may wait between the check of its ticket and the verdict.
const REMEMBERED: Duration = Duration::from_millis(LIFE.as_millis() as u64 + 1000);
/// Attempts that are remembered at once on a link. Fewer: tickets live shorter in a flood, 0.4 s
/// with 10,000 attempts a second. More: memory, about 250 bytes each.
const ATTEMPTS_MAX: usize = 4096;
/// Attempts that are remembered of one address, so that a single host cannot shorten the life of
/// all tickets.
const ATTEMPTS_PER_ADDRESS_MAX: usize = 256;

/// The verdict on an attempt.
pub(crate) enum Verdict {
    /// None yet: a channel has to be closed or to show a sign of life first, or the writer to be
    /// kept.
    Waiting,
    /// It was refused, with this answer.
    Refused(Box<Control>),
    /// A channel was opened for it.
    Granted,
}

struct Attempt {
    /// When its newest ticket was issued.
    issued: Instant,
    verdict: Verdict,
}

/// The table of attempts to connect of one link, with the verdict on each. It is bounded in total
/// and for each address. When it is full, the attempt with the oldest ticket is forgotten.
#[derive(Default)]
pub(crate) struct Attempts {
    /// By address and number of the attempt.
    known: BTreeMap<(Mac, u64), Attempt>,
    /// The same, by the age of their tickets.
    by_age: BTreeSet<(Instant, Mac, u64)>,
    /// When the newest ticket was issued whose attempt was forgotten early.
    forgotten: Option<Instant>,
}

impl Attempts {
    /// The verdict on an attempt, which is added if it is not known.
    ///
    /// # Errors
    /// `Ticket` if attempts with tickets as old were forgotten, or if that address has no room for
    /// another.
    pub(crate) fn verdict(
        &mut self,
        now: Instant,
        (src, number): (Mac, u64),
        issued: Instant,
    ) -> Result<&mut Verdict, Reject> {
        while self.by_age.first().is_some_and(|it| now.since(it.0) >= REMEMBERED) {
            self.forget_oldest();
        }
        if let Some(known) = self.known.get_mut(&(src, number)) {
            // A newer ticket: the attempt is remembered for as long as that one is valid.
            if known.issued < issued {
                self.by_age.remove(&(known.issued, src, number));
                self.by_age.insert((issued, src, number));
                known.issued = issued;
            }
        } else {
            let same = self.known.range((src, 0)..=(src, u64::MAX)).count();
            if self.forgotten >= Some(issued) || same >= ATTEMPTS_PER_ADDRESS_MAX {
                return Err(Reject::Ticket);
            }
            if self.known.len() == ATTEMPTS_MAX {
                let oldest = self.by_age.first().map(|it| it.0);
                // This attempt has the oldest ticket itself.
                if Some(issued) <= oldest {
                    return Err(Reject::Ticket);
                }
                self.forget_oldest();
                self.forgotten = self.forgotten.max(oldest);
            }
            self.by_age.insert((issued, src, number));
        }
        let verdict = Verdict::Waiting;
        let attempt = self.known.entry((src, number)).or_insert(Attempt { issued, verdict });
        Ok(&mut attempt.verdict)
    }

    fn forget_oldest(&mut self) {
        if let Some((_, src, number)) = self.by_age.pop_first() {
            self.known.remove(&(src, number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(1);

    fn mac(n: usize) -> Mac {
        Mac([2, 0, 0, 0, (n >> 8) as u8, n as u8])
    }

    fn is_refused(result: Result<&mut Verdict, Reject>) -> bool {
        result.err() == Some(Reject::Ticket)
    }

    #[test]
    fn an_attempt_is_remembered_for_as_long_as_its_ticket_is_good() {
        let (mut attempts, issued) = (Attempts::default(), Instant(10));
        let verdict = attempts.verdict(issued, (mac(1), 7), issued).expect("there is room");
        *verdict = Verdict::Granted;
        let later = issued + LIFE / 2;
        let verdict = attempts.verdict(later, (mac(1), 7), issued).expect("it is known");
        assert!(matches!(verdict, Verdict::Granted));
        let verdict = attempts.verdict(later, (mac(2), 7), issued).expect("there is room");
        assert!(matches!(verdict, Verdict::Waiting), "another host's");
    }

    #[test]
    fn one_address_has_its_part_of_the_room() {
        let (mut attempts, issued) = (Attempts::default(), Instant(10));
        for number in 0..ATTEMPTS_PER_ADDRESS_MAX as u64 {
            assert!(attempts.verdict(issued, (mac(0), number), issued).is_ok());
        }
        assert!(is_refused(attempts.verdict(issued, (mac(0), u64::MAX), issued)));
        assert!(attempts.verdict(issued, (mac(0), 0), issued).is_ok(), "known ones are answered");
        assert!(attempts.verdict(issued, (mac(1), 0), issued).is_ok());
        let later = issued + REMEMBERED;
        assert!(attempts.verdict(later, (mac(0), u64::MAX), later).is_ok());
    }

    #[test]
    fn a_flood_shortens_the_life_of_tickets() {
        let (mut attempts, began) = (Attempts::default(), Instant(10));
        for n in 0..ATTEMPTS_MAX {
            let issued = began + TICK / 8 * n as u32;
            let verdict = attempts.verdict(issued, (mac(n), 0), issued).expect("there is room");
            *verdict = Verdict::Granted;
        }
        let now = began + TICK / 8 * ATTEMPTS_MAX as u32;
        assert!(attempts.verdict(now, (mac(ATTEMPTS_MAX), 0), now).is_ok(), "a fresh one gets in");
        assert_eq!(attempts.known.len(), ATTEMPTS_MAX);
        assert_eq!(attempts.by_age.len(), ATTEMPTS_MAX);
        // The first was forgotten: it is not decided again, though its ticket is good.
        assert!(now.since(began) < LIFE);
        assert!(is_refused(attempts.verdict(now, (mac(0), 0), began)));
        let second = attempts.verdict(now, (mac(1), 0), began + TICK / 8).expect("it is known");
        assert!(matches!(second, Verdict::Granted));
        // A new one with a ticket older than all others would be forgotten at once.
        assert!(is_refused(attempts.verdict(now, (mac(9999), 1), began + TICK / 16)));
        // When the flood is over, the full life is back.
        let later = now + REMEMBERED;
        let fresh = later + LIFE;
        assert!(attempts.verdict(fresh, (mac(0), 1), later).is_ok());
        assert_eq!(attempts.known.len(), 1);
    }

    #[test]
    fn no_flood_has_an_attempt_decided_twice() {
        let (mut attempts, mut decided) = (Attempts::default(), 0);
        let issued = Instant(10) + TICK * 500;
        for n in 0..4 * ATTEMPTS_MAX {
            let now = Instant(10) + TICK / 4 * n as u32;
            let flood = attempts.verdict(now, (mac(n), n as u64), now);
            assert!(flood.is_ok(), "fresh tickets are good");
            if now < issued || now.since(issued) >= LIFE {
                continue;
            }
            // The network repeats the frame of two attempts all the while. The flood has had the
            // number of the second, with an older ticket.
            for number in [u64::MAX, 7] {
                let attempt = attempts.verdict(now, (mac(7), number), issued);
                if let Ok(verdict @ Verdict::Waiting) = attempt {
                    *verdict = Verdict::Granted;
                    decided += 1;
                }
            }
        }
        assert_eq!(decided, 2);
    }
}

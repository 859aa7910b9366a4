//! Attempts to connect, and what was decided about each: an attempt is decided once, however often
//! the network repeats its frame.
//!
//! An attempt is remembered for as long as its ticket is good; after that, the ticket keeps it out.
//! So nothing is forgotten early: if there is no room, new attempts are not taken.

use std::collections::VecDeque;

use tyche_wire::{Mac, Reject, Rejection};

use crate::ticket::LIFE;
use crate::time::Instant;

/// Attempts that are remembered at once on a link.
const ATTEMPTS_MAX: usize = 1024;
/// Attempts of one address among them: nobody takes the room of all others.
const ATTEMPTS_PER_ADDRESS_MAX: usize = 128;

/// What was decided about an attempt.
pub(crate) enum Verdict {
    /// Nothing yet: other channels have to be closed first.
    Waiting,
    /// It was refused.
    Refused(Box<Rejection>),
    /// A channel was opened for it.
    Granted,
}

struct Attempt {
    src: Mac,
    number: u64,
    /// When its ticket was handed out.
    issued: Instant,
    verdict: Verdict,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Attempts(VecDeque<Attempt>);

impl Attempts {
    /// What was decided about an attempt, which is new if it is not known.
    ///
    /// # Errors
    /// `Ticket` if there is no room for another one.
    pub(crate) fn verdict(
        &mut self,
        now: Instant,
        (src, number): (Mac, u64),
        issued: Instant,
    ) -> Result<&mut Verdict, Reject> {
        self.0.retain(|attempt| now.since(attempt.issued) < LIFE);
        let known = self.0.iter().position(|it| (it.src, it.number) == (src, number));
        let index = match known {
            Some(index) => index,
            None => {
                let same = self.0.iter().filter(|attempt| attempt.src == src).count();
                if self.0.len() >= ATTEMPTS_MAX || same >= ATTEMPTS_PER_ADDRESS_MAX {
                    return Err(Reject::Ticket);
                }
                let verdict = Verdict::Waiting;
                self.0.push_back(Attempt { src, number, issued, verdict });
                self.0.len() - 1
            }
        };
        Ok(&mut self.0[index].verdict)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mac(n: usize) -> Mac {
        Mac([2, 0, 0, 0, (n >> 8) as u8, n as u8])
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
    fn nothing_is_forgotten_to_make_room() {
        let (mut attempts, issued) = (Attempts::default(), Instant(10));
        let full = |result: Result<&mut Verdict, Reject>| result.err() == Some(Reject::Ticket);
        for number in 0..ATTEMPTS_PER_ADDRESS_MAX as u64 {
            assert!(attempts.verdict(issued, (mac(0), number), issued).is_ok());
        }
        assert!(full(attempts.verdict(issued, (mac(0), u64::MAX), issued)));
        for n in ATTEMPTS_PER_ADDRESS_MAX..ATTEMPTS_MAX {
            assert!(attempts.verdict(issued, (mac(n), 0), issued).is_ok());
        }
        assert!(full(attempts.verdict(issued, (mac(ATTEMPTS_MAX), 0), issued)));
        assert!(attempts.verdict(issued, (mac(0), 0), issued).is_ok(), "known ones are answered");
        let later = issued + LIFE;
        assert!(attempts.verdict(later, (mac(0), u64::MAX), later).is_ok());
    }
}

//! A contest: a session has to show that it lives, because another one of its host wants its place.
//! PROTOCOL.md, "Sessions, takeover and reconnect".

use std::time::Duration;

use crate::time::Instant;

/// How long a session has to show that it lives before another of its host takes its place.
const SIGN_OF_LIFE: Duration = Duration::from_millis(200);
/// How long a sign of life counts. After that, the session is asked anew.
const CONTEST_LIFE: Duration = Duration::from_secs(1);

/// A session that another one of its host wants to displace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contest {
    since: Instant,
    /// It has shown a sign of life since.
    lives: bool,
}

/// What is known of a session that another wants to displace.
pub(crate) enum Contested {
    Lives,
    /// It has been asked, and has time to answer.
    Asked,
    Silent,
}

impl Contest {
    /// Asks the session for a sign of life, or says what came of it.
    pub(crate) fn ask(contest: &mut Option<Self>, now: Instant) -> Contested {
        let known = contest.filter(|contest| now.since(contest.since) < CONTEST_LIFE);
        let contest = contest.insert(known.unwrap_or(Self { since: now, lives: false }));
        if contest.lives {
            Contested::Lives
        } else if now.since(contest.since) < SIGN_OF_LIFE {
            Contested::Asked
        } else {
            Contested::Silent
        }
    }

    /// The session was heard.
    pub(crate) fn note_life(&mut self, heard_at: Instant) {
        self.lives |= heard_at >= self.since;
    }
}

//! A contest: a session has to show a sign of life, because another session of the same host wants
//! to write the export. PROTOCOL.md, "Sessions, takeover and reconnect".

use std::time::Duration;

use crate::time::Instant;

/// Time for the session to show a sign of life. After that, the other session displaces it.
const SIGN_OF_LIFE: Duration = Duration::from_millis(200);
/// How long the result of a contest counts, from its begin. After that, the session is asked again.
const CONTEST_LIFE: Duration = Duration::from_secs(1);

/// A contest in progress or decided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contest {
    since: Instant,
    /// The session has shown a sign of life since then.
    lives: bool,
}

/// The state of a contest.
pub(crate) enum Contested {
    Lives,
    /// It has been asked, and has time to answer.
    Asked,
    Silent,
}

impl Contest {
    /// Begins a contest unless there is one that counts, and returns its state.
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

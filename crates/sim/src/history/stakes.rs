//! The stakes of sessions: volatile modifications that have ended, and that no flush has covered or
//! told of.

use std::collections::BTreeMap;

use super::Step;

/// A modification that is at stake.
struct Stake {
    began: Step,
    ended: Step,
    writer: Writer,
}

/// Whose it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Writer {
    Own,
    /// Of the former session.
    Former,
    /// The same, after a flush has failed that may be older than it.
    FormerAgain,
}

/// The volatile modifications of each session that a loss of the cache would concern. A flush of
/// the session may fail only if one of them began before the last loss was noticed.
#[derive(Default)]
pub(super) struct Stakes {
    /// By session.
    sessions: BTreeMap<u64, Vec<Stake>>,
    /// When sessions have last learned that writes are lost. The next flush tells of those of their
    /// former sessions.
    learned: BTreeMap<u64, Step>,
    /// When the last loss was noticed.
    noticed: Step,
}

impl Stakes {
    /// A modification of a session has ended.
    pub(super) fn add(&mut self, session: u64, began: Step, ended: Step) {
        let stake = Stake { began, ended, writer: Writer::Own };
        self.sessions.entry(session).or_default().push(stake);
    }

    /// A loss is noticed.
    pub(super) fn notice(&mut self, now: Step) {
        self.noticed = now;
    }

    /// A session has learned that writes of its own are lost.
    pub(super) fn learn(&mut self, session: u64, now: Step) {
        self.learned.insert(session, now);
    }

    /// When the oldest modification of a session that is at stake has begun.
    pub(super) fn oldest(&self, session: u64) -> Option<Step> {
        self.sessions.get(&session)?.iter().map(|stake| stake.began).min()
    }

    /// A session takes the place of another: it must assume that there was something at stake.
    pub(super) fn succeed(&mut self, former: u64, session: u64, now: Step) {
        let left = self.sessions.remove(&former).unwrap_or_default();
        let stakes = self.sessions.entry(session).or_default();
        stakes.extend(left);
        stakes.push(Stake { began: 0, ended: now, writer: Writer::Former });
    }

    /// A session is over.
    pub(super) fn vanish(&mut self, session: u64) {
        self.sessions.remove(&session);
    }

    /// A flush has covered what had ended before it began.
    pub(super) fn cover(&mut self, session: u64, before: Step) {
        if let Some(open) = self.sessions.get_mut(&session) {
            open.retain(|stake| stake.ended >= before);
        }
    }

    /// Takes the failure of a flush of a session, which tells of what it covers. If it covers what
    /// a former session has left, that stays once more, unless its loss was learned of: the flush
    /// may be the former session's, too. `now`: after all of that; `stake`: the
    /// [oldest](Self::oldest) when the flush began. Returns before when modifications have ended
    /// that the session is told of, at most.
    ///
    /// # Errors
    /// If there is nothing to tell.
    pub(super) fn tell(
        &mut self,
        (session, now): (u64, Step),
        began: Step,
        stake: Option<Step>,
    ) -> Result<Step, String> {
        let oldest = [stake, self.oldest(session)].into_iter().flatten().min();
        match oldest {
            Some(began) if began < self.noticed => {}
            Some(_) => {
                return Err(format!("a flush failed for session {session}, and nothing was lost"));
            }
            None => {
                return Err(format!(
                    "a flush failed for session {session}, which has lost nothing"
                ));
            }
        }
        let learned = self.learned.get(&session).copied().unwrap_or_default();
        let open = self.sessions.entry(session).or_default();
        let mut told = began;
        for stake in open.iter_mut().filter(|stake| stake.writer == Writer::Former) {
            if learned < stake.ended {
                (stake.writer, stake.ended) = (Writer::FormerAgain, now);
            } else {
                told = told.max(learned);
            }
        }
        open.retain(|stake| match stake.writer {
            Writer::Former => stake.ended >= told,
            Writer::Own | Writer::FormerAgain => stake.ended >= began,
        });
        Ok(told)
    }
}

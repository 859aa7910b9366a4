//! Who has data at stake: the volatile modifications of each session that have ended, and that no
//! flush has covered or told of.

use std::collections::BTreeMap;

use super::Step;

/// See the module.
#[derive(Default)]
pub(super) struct Stakes {
    /// By session: when each modification has begun and ended.
    sessions: BTreeMap<u64, Vec<(Step, Step)>>,
    /// When the last loss was noticed.
    noticed: Step,
}

impl Stakes {
    /// A modification of a session has ended.
    pub(super) fn add(&mut self, session: u64, began: Step, ended: Step) {
        self.sessions.entry(session).or_default().push((began, ended));
    }

    /// A loss is noticed.
    pub(super) fn notice(&mut self, now: Step) {
        self.noticed = now;
    }

    /// When the oldest modification of a session that is at stake has begun.
    pub(super) fn oldest(&self, session: u64) -> Option<Step> {
        self.sessions.get(&session)?.iter().map(|(began, _)| *began).min()
    }

    /// A session takes the place of another: it must assume that there was something at stake.
    pub(super) fn succeed(&mut self, former: u64, session: u64, now: Step) {
        let left = self.sessions.remove(&former).unwrap_or_default();
        self.sessions.entry(session).or_default().extend(left);
        self.add(session, 0, now);
    }

    /// A session is over.
    pub(super) fn vanish(&mut self, session: u64) {
        self.sessions.remove(&session);
    }

    /// A flush has covered, or told of, what had ended before.
    pub(super) fn settle(&mut self, session: u64, before: Step) {
        if let Some(open) = self.sessions.get_mut(&session) {
            open.retain(|(_, ended)| *ended >= before);
        }
    }

    /// Checks that a failed flush of a session has something to tell. `stake`: the
    /// [oldest](Self::oldest) when it began.
    pub(super) fn check_failed(&self, session: u64, stake: Option<Step>) -> Result<(), String> {
        let oldest = [stake, self.oldest(session)].into_iter().flatten().min();
        match oldest {
            Some(began) if began < self.noticed => Ok(()),
            Some(_) => Err(format!("a flush failed for session {session}, and nothing was lost")),
            None => Err(format!("a flush failed for session {session}, which has lost nothing")),
        }
    }
}

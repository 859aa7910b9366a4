//! The stakes of sessions: volatile modifications that have ended, and that no flush has covered or
//! told of.

use std::collections::BTreeMap;

use super::Step;

/// A modification that is at stake.
struct Stake {
    began: Step,
    ended: Step,
    queue: Queue,
}

/// Whose it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Queue {
    Own(usize),
    /// Of the former session, which is any queue's to learn of.
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
    /// When queues of sessions have last learned that writes of theirs are lost. The next flush of
    /// the session tells of those that had ended by then.
    learned: BTreeMap<(u64, usize), Step>,
    /// When the last loss was noticed.
    noticed: Step,
}

impl Stakes {
    /// A modification of a session's queue has ended.
    pub(super) fn add(&mut self, session: u64, queue: usize, began: Step, ended: Step) {
        self.sessions.entry(session).or_default().push(Stake {
            began,
            ended,
            queue: Queue::Own(queue),
        });
    }

    /// A loss is noticed.
    pub(super) fn notice(&mut self, now: Step) {
        self.noticed = now;
    }

    /// A queue of a session has learned that writes of its own are lost.
    pub(super) fn learn(&mut self, session: u64, queue: usize, now: Step) {
        self.learned.insert((session, queue), now);
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
        stakes.push(Stake { began: 0, ended: now, queue: Queue::Former });
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

    /// Takes the failure of a flush of a session, which tells of what it covers, and of what its
    /// session had learned of. If it covers what a former session has left, that stays once more:
    /// the flush may be the former session's, too. `now`: after all of that; `stake`: the
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
        let all = self.learned.range((session, 0)..=(session, usize::MAX)).map(|(_, at)| *at);
        let any = all.max().unwrap_or_default();
        let learned = |queue| match queue {
            Queue::Own(queue) => self.learned.get(&(session, queue)).copied().unwrap_or_default(),
            Queue::Former | Queue::FormerAgain => any,
        };
        if let Some(open) = self.sessions.get_mut(&session) {
            for stake in open.iter_mut().filter(|stake| stake.queue == Queue::Former) {
                if learned(Queue::Former) < stake.ended {
                    (stake.queue, stake.ended) = (Queue::FormerAgain, now);
                }
            }
            open.retain(|stake| stake.ended >= began.max(learned(stake.queue)));
        }
        Ok(began.max(any))
    }
}

//! Credit: the pages of a channel's `damq` that its host may use, from the first one on.
//!
//! ```text
//!              the host uses the upper half,
//!             or the channel is idle: news                 pool
//!  [ agreed ] ---------------------------------------->  divides  ---+
//!      ^                                                             | tell
//!      |       the host has the answer: news          the host       v
//!      +--------------------------------------------- [ told ] <-- [ next ]
//! ```
//!
//! One number is with the host at a time, so that no answer can be taken for that to another. Until
//! it has answered, its requests may use what it was told before as well as what it is told now.

use tyche_wire::{CREDIT_MIN, Reject};

use super::{Action, Slot, State, TargetChannel};
use crate::channel::damq::Owners;
use crate::rules::Rules;

/// News of a channel for the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CreditNews {
    /// It could use so many pages.
    Wants(u32),
    /// Its host uses no more than so many.
    Settled(u32),
    /// It is idle.
    Rests,
}

/// A channel gets so many times the pages that it has, as far as there are some: in five steps what
/// a host asks for by default.
const GROWTH: u32 = 4;

/// A channel that has asked for more asks again after so many requests that could use it.
const ASK_AGAIN: u32 = 4096;

/// The credit of a channel.
pub(super) struct Credit {
    /// Pages of the `damq`.
    most: u32,
    /// The number that the host has agreed to last.
    agreed: u32,
    /// The number that it was told, until it has answered.
    told: Option<u32>,
    /// The number that it is told next.
    next: Option<u32>,
    /// When a request uses more pages than these, the channel wants more.
    enough: u32,
    /// Such requests until it says so again.
    patience: u32,
    /// Whether it was idle while the host was being told a number.
    rests: bool,
    /// A number that the pool does not know to be agreed to.
    settled: Option<u32>,
    /// Other news for the pool.
    news: Option<CreditNews>,
}

impl Credit {
    pub(super) fn new(most: u32) -> Self {
        let agreed = CREDIT_MIN.min(most);
        let (told, next, settled, news) = (None, None, None, None);
        let (enough, patience, rests) = (agreed / 2, 0, false);
        Self { most, agreed, told, next, enough, patience, rests, settled, news }
    }

    /// Pages that requests of the host may use.
    pub(super) fn limit(&self) -> u32 {
        self.agreed.max(self.told.unwrap_or(0))
    }

    /// The number that the host has agreed to; `None` while it is told another.
    fn settled(&self) -> Option<u32> {
        let is_settled = self.told.is_none() && self.next.is_none();
        is_settled.then_some(self.agreed)
    }

    /// Notes that a request uses pages up to `end`.
    #[inline]
    pub(super) fn used(&mut self, end: u32) {
        if end > self.enough {
            self.want();
        }
    }

    #[cold]
    fn want(&mut self) {
        if self.patience > 0 {
            self.patience -= 1;
        } else if self.told.is_none() && self.next.is_none() {
            self.patience = ASK_AGAIN;
            self.news = Some(CreditNews::Wants((self.agreed * GROWTH).min(self.most)));
        }
    }

    /// The channel is idle.
    pub(super) fn rest(&mut self) {
        self.rests = true;
        self.rest_if_settled();
    }

    fn rest_if_settled(&mut self) {
        let is_settled = self.told.is_none() && self.next.is_none() && self.settled.is_none();
        if is_settled && std::mem::take(&mut self.rests) {
            self.news = Some(CreditNews::Rests);
            self.patience = 0;
        }
    }

    /// Takes the next news for the pool.
    pub(super) fn take_news(&mut self) -> Option<CreditNews> {
        let settled = self.settled.take().map(CreditNews::Settled);
        settled.or_else(|| self.news.take())
    }

    /// Whether there is news for the pool.
    pub(super) fn has_news(&self) -> bool {
        self.settled.is_some() || self.news.is_some()
    }

    /// Has the host told a number.
    pub(super) fn tell(&mut self, pages: u32) {
        self.next = Some(pages.min(self.most));
    }

    /// Whether a number is to be sent to the host.
    pub(super) fn is_due(&self) -> bool {
        self.told.is_none() && self.next.is_some()
    }

    /// Takes the number that is to be sent.
    pub(super) fn take_due(&mut self) -> Option<u32> {
        if self.told.is_none() {
            self.told = self.next.take();
            self.told
        } else {
            None
        }
    }

    /// Checks the host's answer.
    ///
    /// # Errors
    /// `Unexpected` if it is not that to the number that the host was told.
    pub(super) fn check(&self, pages: u32) -> Result<(), Reject> {
        if self.told == Some(pages) { Ok(()) } else { Err(Reject::Unexpected) }
    }

    /// Takes the host's answer. Returns whether it may use fewer pages than before.
    pub(super) fn agree(&mut self, pages: u32) -> bool {
        let is_less = pages < self.agreed;
        (self.agreed, self.told) = (pages, None);
        self.enough = if pages < self.most { pages / 2 } else { u32::MAX };
        self.patience = 0;
        // What was wanted before is answered by that number.
        self.news = None;
        if self.next.is_none() {
            self.settled = Some(pages);
        }
        if std::mem::take(&mut self.rests) && pages > CREDIT_MIN {
            self.news = Some(CreditNews::Rests);
        }
        is_less
    }
}

impl<R: Rules> TargetChannel<R> {
    /// Takes the host's answer to a number of pages.
    pub(super) fn take_credit(&mut self, pages: u32, act: &mut impl FnMut(Action)) {
        if self.credit.agree(pages) {
            self.owners.set_limit(pages);
            for index in 0..self.slots.len() {
                let Slot { state, page, held, .. } = self.slots[index];
                if state == State::Done && Owners::run(page, held).end > pages {
                    self.release(index as u16, act);
                }
            }
        }
        act(Action::Credit { pages });
    }

    /// Has the host told how many pages it may use.
    pub(crate) fn tell_credit(&mut self, pages: u32) {
        self.credit.tell(pages);
    }

    /// Whether there is news for the pool.
    pub(crate) fn has_credit_news(&self) -> bool {
        self.credit.has_news()
    }

    /// Takes the news for the pool.
    pub(crate) fn take_credit_news(&mut self) -> Option<CreditNews> {
        self.credit.take_news()
    }

    /// Pages that the host may use; `None` while it is told another number.
    pub(crate) fn settled_credit(&self) -> Option<u32> {
        self.credit.settled()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A channel that has a credit of so many pages, of 8192.
    fn with(pages: u32) -> Credit {
        let mut credit = Credit::new(8192);
        credit.tell(pages);
        assert_eq!(credit.take_due(), Some(pages));
        credit.agree(pages);
        assert_eq!(credit.take_news(), Some(CreditNews::Settled(pages)));
        credit
    }

    #[test]
    fn a_channel_whose_upper_half_is_used_wants_more_once() {
        let mut credit = Credit::new(8192);
        credit.used(CREDIT_MIN / 2);
        assert!(!credit.has_news());
        credit.used(CREDIT_MIN / 2 + 1);
        assert_eq!(credit.take_news(), Some(CreditNews::Wants(CREDIT_MIN * GROWTH)));
        credit.used(CREDIT_MIN);
        assert!(!credit.has_news(), "it has said so");
        let mut full = with(8192);
        full.used(8192);
        assert!(!full.has_news(), "it has all");
    }

    #[test]
    fn until_the_host_has_answered_the_greater_number_counts() {
        let mut credit = with(1024);
        credit.tell(256);
        assert_eq!((credit.limit(), credit.take_due(), credit.limit()), (1024, Some(256), 1024));
        credit.tell(512);
        assert_eq!((credit.is_due(), credit.take_due()), (false, None), "one at a time");
        assert_eq!(credit.check(512), Err(Reject::Unexpected));
        assert_eq!((credit.check(256), credit.agree(256), credit.limit()), (Ok(()), true, 256));
        assert!(!credit.has_news(), "another number is next");
        assert_eq!((credit.take_due(), credit.limit()), (Some(512), 512));
        assert!(!credit.agree(512));
        assert_eq!(credit.take_news(), Some(CreditNews::Settled(512)));
        assert_eq!(credit.check(512), Err(Reject::Unexpected), "it was not asked");
    }

    #[test]
    fn a_channel_that_gets_nothing_asks_again() {
        let mut credit = with(64);
        for _ in 0..=ASK_AGAIN {
            credit.used(64);
        }
        assert_eq!(credit.take_news(), Some(CreditNews::Wants(256)));
        credit.used(64);
        assert_eq!(credit.take_news(), Some(CreditNews::Wants(256)));
    }

    #[test]
    fn what_is_settled_is_said_before_more_is_wanted() {
        let mut credit = with(1024);
        credit.tell(64);
        assert_eq!(credit.take_due(), Some(64));
        credit.used(1024);
        assert!(!credit.has_news(), "another number comes");
        credit.agree(64);
        credit.used(64);
        let news = [credit.take_news(), credit.take_news(), credit.take_news()];
        assert_eq!(news, [Some(CreditNews::Settled(64)), Some(CreditNews::Wants(256)), None]);
    }

    #[test]
    fn an_idle_channel_says_so_also_if_it_is_told_a_number_meanwhile() {
        let mut credit = with(64);
        credit.rest();
        assert_eq!(credit.take_news(), Some(CreditNews::Rests));
        credit.tell(1024);
        credit.take_due();
        credit.rest();
        assert!(!credit.has_news());
        credit.agree(1024);
        let news = [credit.take_news(), credit.take_news()];
        assert_eq!(news, [Some(CreditNews::Settled(1024)), Some(CreditNews::Rests)]);
    }
}

//! Unit attentions: what has happened to a logical unit, told to each initiator once, in place of
//! the answer to a command (SAM-5, 5.14).

use uuid::Uuid;

use crate::listed::listed;
use crate::sense::{Code, Sense, SenseKey};

/// A unit attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    /// 29/00, 29/01, 29/04: the logical unit was powered on, or has reset itself. The content of
    /// its volatile cache may be lost.
    PowerOn,
    /// The rest of 29: the target has forgotten commands of this initiator, because another has
    /// asked for a reset or a nexus was lost, but no data.
    NexusLoss,
    /// 2A/09: the size has changed.
    CapacityChanged,
    /// 3F/03: pages of INQUIRY have changed. A disk of ours has this generation now.
    InquiryChanged(Option<Uuid>),
    /// 3F/0E: the target has other logical units.
    LunsChanged,
    /// A deferred error: a write that had ended well is lost.
    LostWrite,
    /// Anything else.
    Other(Code),
}

impl Attention {
    /// The attention that sense data tell of, if they do.
    pub fn of(sense: &Sense) -> Option<Self> {
        match (sense.key, sense.code) {
            (SenseKey::UnitAttention, code) => Some(match code {
                Code(0x29, 0x00 | 0x01 | 0x04) => Self::PowerOn,
                Code(0x29, _) => Self::NexusLoss,
                Code::CAPACITY_CHANGED => Self::CapacityChanged,
                Code::INQUIRY_CHANGED => Self::InquiryChanged(sense.generation),
                Code::LUNS_CHANGED => Self::LunsChanged,
                code => Self::Other(code),
            }),
            (SenseKey::NoSense | SenseKey::RecoveredError, code) if sense.deferred => {
                Some(Self::Other(code))
            }
            _ => sense.deferred.then_some(Self::LostWrite),
        }
    }

    /// Whether writes that were done since the last flush may be gone.
    pub fn may_lose_writes(self) -> bool {
        matches!(self, Self::PowerOn | Self::LostWrite)
    }
}

listed! {
    /// An attention that our device server can have pending, most urgent first.
    pub(crate) enum Pending {
        PowerOn,
        DeviceReset,
        NexusLoss,
        InquiryChanged,
        CapacityChanged,
        LunsChanged,
    }
}

impl Pending {
    fn sense(self) -> Sense {
        let code = match self {
            Self::PowerOn => Code::POWER_ON_OR_RESET,
            Self::DeviceReset => Code::BUS_DEVICE_RESET,
            Self::NexusLoss => Code::NEXUS_LOSS,
            Self::InquiryChanged => Code::INQUIRY_CHANGED,
            Self::CapacityChanged => Code::CAPACITY_CHANGED,
            Self::LunsChanged => Code::LUNS_CHANGED,
        };
        Sense::new(SenseKey::UnitAttention, code)
    }
}

/// How often an initiator is told of an attention that it does not confirm: more often than it has
/// commands whose answers are lost at the same time.
const TELLINGS_MAX: u16 = 256;

/// The attentions of one logical unit that one initiator was not told of, or has not confirmed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attentions {
    pending: u8,
    /// How often the initiator was told of the most urgent one.
    tellings: u16,
    /// How many have been added, to tell a later one from one that is confirmed.
    added: u16,
}

/// An attention of which an initiator was told in the answer to a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Telling {
    attention: Pending,
    added: u16,
}

impl Attentions {
    pub(crate) fn add(&mut self, attention: Pending) {
        self.pending |= 1 << attention as u8;
        (self.tellings, self.added) = (0, self.added.wrapping_add(1));
    }

    pub(crate) fn remove(&mut self, attention: Pending) {
        self.pending &= !(1 << attention as u8);
        self.tellings = 0;
    }

    /// Whether the initiator has been told of all.
    pub(crate) fn is_empty(self) -> bool {
        self.pending == 0
    }

    fn next(self) -> Option<Pending> {
        Pending::ALL.into_iter().find(|next| self.pending >> *next as u8 & 1 != 0)
    }

    /// Takes the most urgent one.
    pub(crate) fn take(&mut self) -> Option<Sense> {
        let next = self.next()?;
        self.remove(next);
        Some(next.sense())
    }

    /// Tells of the most urgent one, which stays until that is confirmed.
    pub(crate) fn tell(&mut self) -> Option<(Sense, Telling)> {
        let next = self.next()?;
        let telling = Telling { attention: next, added: self.added };
        self.tellings += 1;
        if self.tellings == TELLINGS_MAX {
            self.remove(next);
        }
        Some((next.sense(), telling))
    }

    /// The initiator is not told after all: it is as if [`tell`](Self::tell) had not been called.
    pub(crate) fn untell(&mut self, telling: Telling) {
        if telling.added == self.added {
            let former = self.tellings.checked_sub(1).unwrap_or(TELLINGS_MAX - 1);
            self.pending |= 1 << telling.attention as u8;
            self.tellings = former;
        }
    }

    /// The initiator has been told.
    pub(crate) fn confirm(&mut self, telling: Telling) {
        if telling.added == self.added {
            self.remove(telling.attention);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attention_that_is_to_be_confirmed_is_told_until_it_is() {
        let mut attentions = Attentions::default();
        attentions.add(Pending::CapacityChanged);
        let (first, telling) = attentions.tell().unwrap();
        assert_eq!(first.code, Code::CAPACITY_CHANGED);
        assert_eq!(attentions.tell(), Some((first, telling)));
        attentions.confirm(telling);
        assert_eq!(attentions.tell(), None);

        attentions.add(Pending::CapacityChanged);
        let (_, telling) = attentions.tell().unwrap();
        attentions.add(Pending::CapacityChanged);
        attentions.confirm(telling);
        let (_, telling) = attentions.tell().expect("it has changed again since");
        attentions.confirm(telling);
        assert_eq!(attentions.tell(), None);

        // One that is not told after all does not count.
        attentions.add(Pending::CapacityChanged);
        for _ in 0..2 * TELLINGS_MAX {
            let (_, telling) = attentions.tell().unwrap();
            attentions.untell(telling);
        }
        let (_, telling) = attentions.tell().unwrap();
        attentions.confirm(telling);
        assert!(attentions.is_empty());

        attentions.add(Pending::PowerOn);
        attentions.add(Pending::LunsChanged);
        let told = core::iter::from_fn(|| attentions.tell()).map(|(sense, _)| sense.code);
        let told: alloc::vec::Vec<_> = told.collect();
        assert_eq!(told.len(), 2 * usize::from(TELLINGS_MAX), "it may never be confirmed");
        assert_eq!(told.last(), Some(&Code::LUNS_CHANGED));
    }

    #[test]
    fn attentions_are_told_once_and_the_most_urgent_first() {
        let mut attentions = Attentions::default();
        for attention in [Pending::LunsChanged, Pending::PowerOn, Pending::CapacityChanged] {
            attentions.add(attention);
            attentions.add(attention);
        }
        attentions.remove(Pending::CapacityChanged);
        let told = core::iter::from_fn(|| attentions.take()).map(|sense| sense.code);
        assert!(told.eq([Code::POWER_ON_OR_RESET, Code::LUNS_CHANGED]));
    }

    #[test]
    fn those_after_which_a_cache_may_be_lost_are_told_apart() {
        let attention = |code| Attention::of(&Sense::new(SenseKey::UnitAttention, code));
        for qualifier in [0, 1, 4] {
            assert_eq!(attention(Code(0x29, qualifier)), Some(Attention::PowerOn));
        }
        for qualifier in [2, 3, 5, 6, 7] {
            assert_eq!(attention(Code(0x29, qualifier)), Some(Attention::NexusLoss));
        }
        assert_eq!(attention(Code::INQUIRY_CHANGED), Some(Attention::InquiryChanged(None)));
        assert_eq!(attention(Code(0x3f, 0x05)), Some(Attention::Other(Code(0x3f, 0x05))));
        let error = Sense::new(SenseKey::MediumError, Code::WRITE_ERROR);
        assert_eq!(Attention::of(&error), None);
        let deferred = Attention::of(&Sense { deferred: true, ..error });
        assert_eq!(deferred, Some(Attention::LostWrite));
        assert!(deferred.is_some_and(Attention::may_lose_writes));
        assert!(!Attention::NexusLoss.may_lose_writes());
    }
}

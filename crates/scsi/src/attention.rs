//! Unit attentions: what has happened to a logical unit, told to each initiator once, in place of
//! the answer to a command (SAM-5, 5.14).

use crate::sense::{Code, Sense, SenseKey};

/// A unit attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    /// 29/00, and all of 29 that is no loss of a nexus: the logical unit was powered on or reset.
    /// The content of its volatile cache may be lost.
    PowerOn,
    /// 29/05 to 29/07: the target has forgotten commands of this initiator, but no data.
    NexusLoss,
    /// 2A/09: the size has changed.
    CapacityChanged,
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
                Code(0x29, 0x05..=0x07) => Self::NexusLoss,
                Code(0x29, _) => Self::PowerOn,
                Code::CAPACITY_CHANGED => Self::CapacityChanged,
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

/// An attention that our device server can have pending, most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pending {
    PowerOn,
    DeviceReset,
    NexusLoss,
    CapacityChanged,
    LunsChanged,
}

impl Pending {
    const ALL: [Self; 5] = [
        Self::PowerOn,
        Self::DeviceReset,
        Self::NexusLoss,
        Self::CapacityChanged,
        Self::LunsChanged,
    ];

    fn sense(self) -> Sense {
        let code = match self {
            Self::PowerOn => Code::POWER_ON_OR_RESET,
            Self::DeviceReset => Code::BUS_DEVICE_RESET,
            Self::NexusLoss => Code::NEXUS_LOSS,
            Self::CapacityChanged => Code::CAPACITY_CHANGED,
            Self::LunsChanged => Code::LUNS_CHANGED,
        };
        Sense::new(SenseKey::UnitAttention, code)
    }
}

/// The attentions of one logical unit that one initiator has not been told of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attentions(u8);

impl Attentions {
    pub(crate) fn add(&mut self, attention: Pending) {
        self.0 |= 1 << attention as u8;
    }

    pub(crate) fn remove(&mut self, attention: Pending) {
        self.0 &= !(1 << attention as u8);
    }

    /// Takes the most urgent one.
    pub(crate) fn take(&mut self) -> Option<Sense> {
        let next = Pending::ALL.into_iter().find(|next| self.0 >> *next as u8 & 1 != 0)?;
        self.remove(next);
        Some(next.sense())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        for qualifier in 0..=4 {
            assert_eq!(attention(Code(0x29, qualifier)), Some(Attention::PowerOn));
        }
        assert_eq!(attention(Code::NEXUS_LOSS), Some(Attention::NexusLoss));
        assert_eq!(attention(Code(0x3f, 0x03)), Some(Attention::Other(Code(0x3f, 0x03))));
        let error = Sense::new(SenseKey::MediumError, Code::WRITE_ERROR);
        assert_eq!(Attention::of(&error), None);
        let deferred = Attention::of(&Sense { deferred: true, ..error });
        assert_eq!(deferred, Some(Attention::LostWrite));
        assert!(deferred.is_some_and(Attention::may_lose_writes));
        assert!(!Attention::NexusLoss.may_lose_writes());
    }
}

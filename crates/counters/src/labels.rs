//! Counters of one thing by label, such as dropped frames by reason.

use core::marker::PhantomData;
use core::ops::AddAssign;

/// Labels of counters: an enumeration that [`labels!`](crate::labels!) has made.
pub trait Label: Copy + 'static {
    /// All of them, in the order of their numbers.
    const ALL: &'static [Self];

    /// Its number, which begins at 0.
    fn index(self) -> usize;

    /// Its name in reports.
    fn name(self) -> &'static str;
}

/// A counter for each of `N` labels, which are all that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountsBy<L, const N: usize> {
    counts: [u64; N],
    label: PhantomData<L>,
}

impl<L: Label, const N: usize> CountsBy<L, N> {
    /// Counts one more.
    pub fn add(&mut self, label: L) {
        self.counts[label.index()] += 1;
    }

    /// The counter of that label.
    pub fn of(&self, label: L) -> u64 {
        self.counts[label.index()]
    }

    /// All counters.
    pub fn all(&self) -> impl Iterator<Item = (L, u64)> {
        L::ALL.iter().copied().zip(self.counts)
    }

    /// The counters that are not 0.
    pub fn iter(&self) -> impl Iterator<Item = (L, u64)> {
        self.all().filter(|(_, count)| *count > 0)
    }

    /// The sum.
    pub fn total(&self) -> u64 {
        self.counts.iter().sum()
    }
}

impl<L, const N: usize> Default for CountsBy<L, N> {
    fn default() -> Self {
        Self { counts: [0; N], label: PhantomData }
    }
}

impl<L: Label, const N: usize> FromIterator<L> for CountsBy<L, N> {
    fn from_iter<I: IntoIterator<Item = L>>(labels: I) -> Self {
        let mut counts = Self::default();
        labels.into_iter().for_each(|label| counts.add(label));
        counts
    }
}

impl<L, const N: usize> AddAssign for CountsBy<L, N> {
    fn add_assign(&mut self, other: Self) {
        self.counts.iter_mut().zip(other.counts).for_each(|(mine, theirs)| *mine += theirs);
    }
}

/// Defines an enumeration of [labels](Label) with their names in reports, which are their text as
/// well.
#[macro_export]
macro_rules! labels {
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $labels:ident {
            $( $(#[$doc:meta])* $label:ident = $name:literal ),+ $(,)?
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        $visibility enum $labels {
            $( $(#[$doc])* $label, )+
        }

        impl $labels {
            /// All of them, in the order of their discriminants.
            $visibility const ALL: &[Self] = &[$( Self::$label ),+];

            /// Its name in reports.
            $visibility const fn name(self) -> &'static str {
                match self {
                    $( Self::$label => $name, )+
                }
            }
        }

        impl $crate::Label for $labels {
            const ALL: &'static [Self] = Self::ALL;

            fn index(self) -> usize {
                self as usize
            }

            fn name(self) -> &'static str {
                self.name()
            }
        }

        impl ::core::fmt::Display for $labels {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    labels! {
        /// Labels.
        enum Reason {
            /// One.
            Short = "short",
            /// Another.
            Long = "too_long",
        }
    }

    #[test]
    fn each_label_has_its_counter() {
        let mut counts: CountsBy<Reason, { Reason::ALL.len() }> =
            [Reason::Long].into_iter().collect();
        counts += counts;
        assert!(counts.all().eq([(Reason::Short, 0), (Reason::Long, 2)]));
        assert!(counts.iter().eq([(Reason::Long, 2)]));
        assert_eq!(
            (counts.of(Reason::Long), counts.total(), Reason::Long.name()),
            (2, 2, "too_long")
        );
    }
}

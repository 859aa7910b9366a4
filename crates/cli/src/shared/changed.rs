//! Changes of a session while it runs, for the next daemon of its device.
//!
//! The next daemon is started with the arguments of this one. These changes count for it as well,
//! unless its own arguments say something else.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Changes since a session began, for the next daemon of its device.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub(crate) struct Changed {
    /// Whether requests fail because the target was away for too long: those of the next daemon
    /// fail until it is back.
    pub(crate) fails: bool,
    /// The names of the links, if links were added or removed.
    pub(crate) links: Option<Replaced<Vec<String>>>,
    /// The key that the target is known by, if it has changed it.
    pub(crate) target_key: Option<Replaced<String>>,
}

/// A value that was replaced while the session ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Replaced<T> {
    /// The value by the arguments, and what they refer to.
    pub(crate) given: T,
    /// The value in its place.
    pub(crate) now: T,
}

impl<T: Clone + PartialEq> Replaced<T> {
    /// The value in the place of that one; `None` if that is another than was given.
    pub(crate) fn of(&self, value: &T) -> Option<T> {
        (self.given == *value).then(|| self.now.clone())
    }

    /// Notes another value for `given`, or for what it was replaced by `before`.
    pub(crate) fn again(before: Option<Self>, given: T, now: T) -> Option<Self> {
        let given = before.map_or(given, |before| before.given);
        (given != now).then_some(Self { given, now })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_replaced_counts_for_those_who_say_the_same_as_before() {
        let first = Replaced::again(None, 1, 2);
        let second = Replaced::again(first, 2, 3);
        assert_eq!(second, Some(Replaced { given: 1, now: 3 }), "of what was given at first");
        let second = second.unwrap();
        assert_eq!((second.of(&1), second.of(&2), second.of(&4)), (Some(3), None, None));
        assert_eq!(Replaced::again(Some(second), 3, 1), None, "it is as it was given");
    }

    #[test]
    fn records_of_earlier_versions_have_none() {
        let changed: Changed = serde_json::from_str("{\"fails\":true}").unwrap();
        assert!(changed.fails && changed.links.is_none() && changed.target_key.is_none());
    }
}

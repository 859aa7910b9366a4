//! Groups of counters, each defined by one table: [`counters!`] makes of it a struct with a `u64`
//! for each counter, and their descriptions ([`Metric`]).
//!
//! Counting code adds to a field. Reporting code goes through the table ([`CounterGroup`]), and
//! names no counter: a new one is a line of its table, and is in every report. Where one thing is
//! counted by reason or kind, [`labels!`] makes the reasons, and [`CountsBy`] counts.
//!
//! ```
//! use tyche_counters::{CounterGroup, Kind, Unit, counters};
//!
//! counters! {
//!     /// Traffic of a port; its counters begin with `port_` in reports.
//!     pub struct Traffic as "port_" {
//!         /// Frames sent.
//!         sent: Counter in Frames,
//!         /// Frames that wait in the queue.
//!         queued: Gauge in Frames,
//!     }
//! }
//!
//! let mut traffic = Traffic::default();
//! traffic.sent += 2;
//! let (metric, value) = traffic.iter().next().unwrap();
//! assert_eq!((metric.name, metric.help, value), ("port_sent", "Frames sent.", 2));
//! assert_eq!((metric.kind, metric.unit), (Kind::Counter, Unit::Frames));
//! assert_eq!(traffic.named("port_queued"), Some(0));
//! ```

#![no_std]
#![forbid(unsafe_code)]

mod labels;

use core::ops::AddAssign;

pub use labels::{CountsBy, Label};

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number that only grows.
    Counter,
    /// A number that grows and shrinks.
    Gauge,
    /// Numbers of values by their size.
    Histogram,
}

/// The unit of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Connections of TCP.
    Connections,
    /// Entries of frames: requests, answers and data.
    Entries,
    /// Events of the kind that the metric is about.
    Events,
    /// Frames.
    Frames,
    /// Nanoseconds.
    Nanoseconds,
    /// Requests of a disk, or commands.
    Requests,
    /// Trains of frames over UDP.
    Trains,
}

/// The description of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its name in reports.
    pub name: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// Its kind.
    pub kind: Kind,
    /// Its description, in a sentence.
    pub help: &'static str,
}

/// A counter's description and its value.
pub type Reading = (&'static Metric, u64);

/// A group of counters that [`counters!`] has made.
pub trait CounterGroup: Copy + Default + AddAssign + 'static {
    /// The table, in the order of the fields.
    const METRICS: &'static [Metric];
    /// The names in it.
    const NAMES: &'static [&'static str];

    /// The values, in the order of the table.
    fn values(&self) -> impl Iterator<Item = u64>;

    /// The values to be set, in the order of the table.
    fn values_mut(&mut self) -> impl Iterator<Item = &mut u64>;

    /// The counters with their descriptions.
    fn iter(&self) -> impl Iterator<Item = Reading> {
        Self::METRICS.iter().zip(self.values())
    }

    /// The counter of that name in reports, if it is in the group.
    fn named(&self, name: &str) -> Option<u64> {
        self.iter().find(|(metric, _)| metric.name == name).map(|(_, value)| value)
    }
}

/// Defines a [group of counters](CounterGroup), whose names in reports begin with what follows
/// `as`. Their doc comments are their help.
#[macro_export]
macro_rules! counters {
    ($(#[$attribute:meta])* $visibility:vis struct $group:ident { $($table:tt)* }) => {
        $crate::counters! { $(#[$attribute])* $visibility struct $group as "" { $($table)* } }
    };
    (
        $(#[$attribute:meta])*
        $visibility:vis struct $group:ident as $prefix:literal {
            $( $(#[doc = $help:literal])+ $field:ident: $kind:ident in $unit:ident ),* $(,)?
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        $visibility struct $group {
            $( $(#[doc = $help])+ $visibility $field: u64, )*
        }

        impl ::core::ops::AddAssign for $group {
            fn add_assign(&mut self, other: Self) {
                let Self { $( $field ),* } = other;
                $( self.$field += $field; )*
            }
        }

        impl $crate::CounterGroup for $group {
            const METRICS: &'static [$crate::Metric] = &[$( $crate::Metric {
                name: concat!($prefix, stringify!($field)),
                unit: $crate::Unit::$unit,
                kind: $crate::Kind::$kind,
                help: concat!($($help),+).trim_ascii(),
            } ),*];
            const NAMES: &'static [&'static str] = &[$( concat!($prefix, stringify!($field)) ),*];

            fn values(&self) -> impl Iterator<Item = u64> {
                [$( self.$field ),*].into_iter()
            }

            fn values_mut(&mut self) -> impl Iterator<Item = &mut u64> {
                [$( &mut self.$field ),*].into_iter()
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    counters! {
        /// A group.
        struct Group {
            /// Frames that
            /// were lost.
            lost: Counter in Frames,
            /// Bytes in the queue.
            queued: Gauge in Bytes,
        }
    }

    #[test]
    fn a_group_is_what_its_table_says() {
        let [lost, queued] = Group::METRICS else { panic!("two of them") };
        assert_eq!(lost.help, "Frames that were lost.");
        assert_eq!((queued.name, queued.kind, queued.unit), ("queued", Kind::Gauge, Unit::Bytes));
        assert_eq!(Group::NAMES, ["lost", "queued"]);
    }

    #[test]
    fn values_are_read_set_and_added_in_the_order_of_the_table() {
        let mut group = Group { lost: 1, queued: 2 };
        group += group;
        assert!(
            group
                .iter()
                .map(|(metric, value)| (metric.name, value))
                .eq([("lost", 2), ("queued", 4)])
        );
        group.values_mut().for_each(|value| *value += 1);
        assert_eq!((group.lost, group.named("queued"), group.named("other")), (3, Some(5), None));
    }
}

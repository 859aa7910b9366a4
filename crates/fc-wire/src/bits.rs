//! Definitions of flags and of codes, once for code and documents.

/// Flags as on the wire: a newtype with a constant for each bit that has a name.
macro_rules! bits {
    (
        $(#[$doc:meta])* $name:ident($int:ty) {
            $($(#[$bit_doc:meta])* $bit:ident = $value:literal;)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name($int);

        impl $name {
            $($(#[$bit_doc])* pub const $bit: Self = Self($value);)*
            /// No bit.
            pub const EMPTY: Self = Self(0);
            /// The bits and their names.
            pub const TABLE: &[($int, &str)] = &[$(($value, stringify!($bit)),)*];

            /// The bits that have a name; the others are reserved, and ignored.
            pub const fn from_wire(bits: $int) -> Self {
                Self(bits & (0 $(| $value)*))
            }

            /// The bits as on the wire.
            pub const fn to_wire(self) -> $int {
                self.0
            }

            /// Whether all bits of `wanted` are set.
            pub const fn has(self, wanted: Self) -> bool {
                self.0 & wanted.0 == wanted.0
            }

            /// These bits and those of `more`.
            #[must_use]
            pub const fn with(self, more: Self) -> Self {
                Self(self.0 | more.0)
            }
        }
    };
}

/// Codes as on the wire: an enum of those that are known.
macro_rules! codes {
    (
        $(#[$doc:meta])* $name:ident($int:ty) {
            $($(#[$code_doc:meta])* $variant:ident = $code:literal;)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$code_doc])* $variant = $code,)*
        }

        impl $name {
            /// All codes that are known, in the order of the table in FC.md.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The meaning of a code from the wire; `None` if it is unknown.
            pub const fn from_wire(code: $int) -> Option<Self> {
                match code {
                    $($code => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// The code on the wire.
            pub const fn to_wire(self) -> $int {
                self as $int
            }
        }
    };
}

pub(crate) use {bits, codes};

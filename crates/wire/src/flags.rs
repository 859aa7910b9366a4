//! The common code of flags in headers, commands and bodies.

/// A set of flags as on the wire: a newtype of its bits with a constant for each flag.
macro_rules! flags {
    (
        $(#[$doc:meta])* $name:ident($bits:ty):
        $($(#[$flag_doc:meta])* $flag:ident = $bit:literal,)*
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name(pub $bits);

        impl $name {
            /// No flag.
            pub const NONE: Self = Self(0);
            /// All flags.
            pub const ALL: Self = Self(0 $(| $bit)*);
            $($(#[$flag_doc])* pub const $flag: Self = Self($bit);)*

            /// Whether all flags of `other` are set.
            pub fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Sets `flag` if it is `wanted`.
            pub fn set(&mut self, flag: Self, wanted: bool) {
                self.0 |= if wanted { flag.0 } else { 0 };
            }
        }

        impl core::ops::BitOr for $name {
            type Output = Self;

            fn bitor(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }
        }
    };
}

pub(crate) use flags;

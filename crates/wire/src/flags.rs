//! What the flag fields of bodies have in common.

/// A set of flags as it travels in a body: a newtype with a constant for each flag.
macro_rules! flags {
    ($(#[$doc:meta])* $name:ident: $($(#[$flag_doc:meta])* $flag:ident = $bit:literal,)*) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name(pub u32);

        impl $name {
            $($(#[$flag_doc])* pub const $flag: Self = Self($bit);)*

            /// Whether all of `other` are set.
            pub fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Sets `flag` if it is `wanted`.
            pub fn set(&mut self, flag: Self, wanted: bool) {
                self.0 |= if wanted { flag.0 } else { 0 };
            }

            /// Refuses flags that do not exist.
            pub(crate) fn check(self) -> Result<(), $crate::Reject> {
                let all = Self(0 $(| $bit)*);
                if all.contains(self) { Ok(()) } else { Err($crate::Reject::Flags) }
            }
        }
    };
}

pub(crate) use flags;

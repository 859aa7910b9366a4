//! Enumerations with a list of all of their variants.

/// An enumeration, and the array of its variants in their order.
macro_rules! listed {
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $name:ident {
            $($(#[$doc:meta])* $variant:ident $(= $value:literal)?,)*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        $visibility enum $name {
            $($(#[$doc])* $variant $(= $value)?,)*
        }

        impl $name {
            /// All of them, in order.
            $visibility const ALL: [Self; [$(stringify!($variant)),*].len()] =
                [$(Self::$variant),*];
        }
    };
}

pub(crate) use listed;

//! The common code of enumerations in headers, entries and bodies.

/// An enumeration as on the wire, with the list of all that are known.
macro_rules! codes {
    (
        $(#[$doc:meta])* $name:ident($int:ident) {
            $($(#[$code_doc:meta])* $variant:ident = $code:literal,)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, zerocopy::TryFromBytes)]
        #[repr($int)]
        pub enum $name {
            $($(#[$code_doc])* $variant = $code,)*
        }

        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];
        }
    };
}

pub(crate) use codes;

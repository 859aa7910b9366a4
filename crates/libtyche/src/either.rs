//! Enums whose variants have values with the same methods.

/// Does the same with the value of whichever variant it is.
macro_rules! either {
    ($of:expr, $of_enum:ident::{$($variant:ident),+}, $it:ident => $call:expr) => {
        match $of {
            $($of_enum::$variant($it) => $call,)+
        }
    };
}

pub(crate) use either;

//! Set-up of a session, for the program and the library: its links, its options and its keys.

#![forbid(unsafe_code)]

mod connecting;
pub mod fcoe;
mod keys;
mod known;
mod links;
mod next_key;
mod options;
mod runtime;

pub use connecting::wait_connected;
pub use keys::{KEY_FILE, KeyFileError, make_key, read_key};
pub use known::{KnownTarget, KnownTargets, KnownTargetsError};
pub use links::{LinkError, LinkOptions, Opened, log_warnings, open_usable};
pub use next_key::keep_next_key;
pub use options::{
    CHANNELS_MAX, InvalidOption, KEEP_ALIVE, MEMORY, NativeOptions, OPERATIONS_MAX, TIMEOUT, check,
    host_name, wanted,
};
pub use runtime::{RUNTIME_DIR_VARIABLE, runtime_dir, set};
pub use tyche_link::ip::End;

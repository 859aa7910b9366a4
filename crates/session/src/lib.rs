//! Set-up of a session, for the program and the library: its links and its options.

#![forbid(unsafe_code)]

pub mod fcoe;
mod links;
mod options;
mod remote;
mod runtime;

pub use links::{End, LinkError, LinkOptions, Opened, log_warnings, open_usable};
pub use options::{
    CHANNELS_MAX, InvalidOption, KEEP_ALIVE, OPERATIONS_MAX, QUEUE_SIZE_MAX, SessionOptions,
    defaults, host_name, wanted,
};
pub use remote::{Control, Remote};
pub use runtime::{RUNTIME_DIR_VARIABLE, runtime_dir};

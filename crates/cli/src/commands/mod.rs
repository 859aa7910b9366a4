//! The commands that end by themselves.

pub mod bench;
pub(crate) mod connect_all;
pub(crate) mod disconnect;
pub(crate) mod discover;
pub(crate) mod doctor;
pub(crate) mod export;
pub(crate) mod host;
pub(crate) mod hosts;
pub(crate) mod key;
pub(crate) mod link;
pub(crate) mod link_command;
pub(crate) mod list;
pub(crate) mod manual;
pub(crate) mod reload;
pub(crate) mod stats;
pub(crate) mod top;
pub(crate) mod unit;
pub(crate) mod units;

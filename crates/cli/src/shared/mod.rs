//! Used by several commands: sessions and what is kept of them, devices, links, reports, logs.

pub(crate) mod attach;
pub(crate) mod block_device;
pub(crate) mod complete;
pub(crate) mod control;
pub(crate) mod device_name;
pub(crate) mod error;
pub(crate) mod export;
pub(crate) mod fcoe;
pub(crate) mod health;
pub(crate) mod identity;
pub(crate) mod keys;
pub(crate) mod leftovers;
pub(crate) mod limits;
pub(crate) mod links;
pub(crate) mod log;
pub(crate) mod panics;
pub(crate) mod placement;
pub(crate) mod rates;
pub(crate) mod readers;
pub mod report;
pub(crate) mod runtime;
pub(crate) mod seconds;
pub(crate) mod sessions;
pub(crate) mod state;
pub(crate) mod tab;
pub(crate) mod wrap;

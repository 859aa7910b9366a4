//! The target's end: who gets in, and the requests of channels.
//!
//! | | |
//! |---|---|
//! | [`listener`] | the protocol on one link: handshakes, channels, answers to strangers |
//! | [`registry`] | all exports, shared by the links |
//! | [`export`] | an export, its sessions and its last writer |
//! | [`admission`], [`contest`], [`takeovers`] | which session an export is given to |
//! | [`access`] | which hosts may connect |
//! | [`attempts`], [`ticket`] | what is remembered of a Connect, and what has to come before it |
//! | [`pool`] | the pages that channels may use, divided among hosts |
//! | [`requests`] | the requests of a channel |

pub(crate) mod access;
pub(crate) mod admission;
pub(crate) mod attempts;
pub(crate) mod contest;
pub(crate) mod export;
pub(crate) mod generation;
pub(crate) mod listener;
pub(crate) mod pool;
pub(crate) mod registry;
pub(crate) mod requests;
pub(crate) mod takeovers;
pub(crate) mod ticket;
pub(crate) mod visits;

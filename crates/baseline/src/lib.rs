//! Baselines of the papers, for the laboratory: the hand-overs between threads of the first Tyche,
//! and disks that turn.
//!
//! | wrapper | around |
//! |---|---|
//! | [`HandOverLink`] | a link whose frames another thread receives |
//! | [`HandOverStore`] | a store that another thread drives |
//! | [`HandOverDisk`] | a disk whose answers another thread delivers |
//! | [`DiskArrayStore`] | a store that takes the time of hard disks |

#![forbid(unsafe_code)]

mod complete;
mod disks;
mod receive;
mod store;

pub use complete::HandOverDisk;
pub use disks::{DiskArray, DiskArrayStore};
pub use receive::{BATCHES, HandOverLink, hand_over};
pub use store::HandOverStore;

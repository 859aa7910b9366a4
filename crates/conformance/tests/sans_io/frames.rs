//! Addresses and lengths of frames, for both ends.

use tyche_proto::wire::Mac;

pub(crate) const FRAME_LEN: usize = 9014;
pub(crate) const PLAYED: Mac = Mac([2, 0, 0, 0, 0, 1]);
pub(crate) const SUBJECT: Mac = Mac([2, 0, 0, 0, 0, 2]);

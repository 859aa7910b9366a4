//! Counters of frames that are dropped, by reason.

use tyche_counters::CountsBy;
use tyche_fc::wire::Reject;

/// The number of dropped frames for each reason to reject one.
pub type Rejects = CountsBy<Reject, { Reject::ALL.len() }>;

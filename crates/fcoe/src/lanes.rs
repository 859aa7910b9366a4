//! The numbers of exchanges by lane, and the frames that come to each.
//!
//! The lowest bits of the number of an exchange (OX_ID) name the lane that has begun it, so that
//! the kernel can sort the frames of the other end for the sockets of the lanes. The first lane has
//! the port: the exchanges of logins, and those that the other end begins, are its.
//!
//! A target divides commands among its threads by the same bits, whoever has chosen the number. So
//! all frames of an exchange come to one thread, and those of two lanes to different ones if there
//! are as many threads. Link services come to the first thread, which has the port.

use tyche_fc::exchange::Xids;
use tyche_link::{Except, Share};

/// Bits that name a lane, at most.
const BITS_MAX: u32 = 4;
/// The most lanes.
pub const LANES_MAX: usize = 1 << BITS_MAX;

/// The first and last number of the exchanges of logins.
const LOGINS: (u16, u16) = (0xc000, 0xefff);
/// The same of those with a fabric.
const FABRIC: (u16, u16) = (0xf000, 0xfffe);

/// Offsets in a frame: R_CTL, the first byte of F_CTL, and the second of OX_ID.
#[cfg(feature = "target")]
const R_CTL_AT: usize = 28;
const F_CTL_AT: usize = 37;
const OX_ID_AT: usize = 45;
/// In that byte of F_CTL: the frame is one of the responder (EX_CTX).
const EX_CTX: u8 = 0x80;
/// In R_CTL: the frame is one of a link service, extended or of FC-4.
#[cfg(feature = "target")]
const LINK_SERVICE: u8 = 0x20;

/// Bits that name one of so many lanes.
fn bits(lanes: usize) -> u32 {
    lanes.next_power_of_two().trailing_zeros()
}

/// The numbers of a lane's exchanges within a range.
pub(crate) fn xids(range: (u16, u16), lane: usize, lanes: usize) -> Xids {
    Xids::new(range, lane as u16, bits(lanes))
}

/// The numbers of the exchanges of logins.
pub(crate) fn login_xids() -> Xids {
    Xids::new(LOGINS, 0, BITS_MAX)
}

/// The numbers of the exchanges with a fabric.
pub(crate) fn fabric_xids() -> Xids {
    Xids::new(FABRIC, 0, BITS_MAX)
}

/// The first and last number of the exchanges of commands, which all lanes divide. The more there
/// are, the later a frame must be to find another exchange with its number.
pub(crate) const COMMANDS: (u16, u16) = (0, LOGINS.0 - 1);

/// The frames that come to a lane.
pub fn share(lane: usize, lanes: usize) -> Share {
    Share {
        index: lane as u8,
        of: 1 << bits(lanes),
        at: OX_ID_AT,
        except: Some(Except { at: F_CTL_AT, mask: EX_CTX, value: 0, by: None }),
    }
}

/// The most threads of a target's port that this many divide by the bits of a number.
#[cfg(feature = "target")]
pub fn threads_within(wanted: usize) -> usize {
    let most = wanted.clamp(1, LANES_MAX);
    1 << most.ilog2()
}

/// The thread of a target's port that the exchange of a command belongs to.
#[cfg(feature = "target")]
pub(crate) fn thread_of(ox_id: tyche_fc::wire::Xid, threads: usize) -> usize {
    usize::from(ox_id.0) % threads
}

/// The frames that come to a thread of a target's port, of so many: a power of two.
#[cfg(feature = "target")]
pub fn share_of_thread(thread: usize, threads: usize) -> Share {
    debug_assert_eq!(threads, threads_within(threads));
    let services = Except { at: R_CTL_AT, mask: LINK_SERVICE, value: LINK_SERVICE, by: None };
    Share { index: thread as u8, of: threads as u8, at: OX_ID_AT, except: Some(services) }
}

#[cfg(test)]
mod tests {
    use tyche_fc::wire::{Ethernet, FCtl, HEAD_LEN, Header, Kind, Mac, PortId, Xid, head};

    use super::*;

    fn frame(kind: Kind, f_ctl: FCtl, ox_id: Xid) -> [u8; HEAD_LEN] {
        let ethernet = Ethernet { destination: Mac([2; 6]), source: Mac([3; 6]) };
        let ids = [1, 2].map(PortId::new);
        let header = Header { f_ctl, ..Header::request(kind, ids[0], ids[1], ox_id) };
        head(ethernet, &header, 0)
    }

    #[test]
    fn frames_of_the_other_end_find_the_lane_that_has_begun_the_exchange() {
        for lanes in [1, 2, 3, 16] {
            let owners = |frame: &[u8]| {
                (0..lanes).filter(|lane| share(*lane, lanes).has(frame)).collect::<Vec<_>>()
            };
            for lane in 0..lanes {
                let xids = xids(COMMANDS, lane, lanes);
                for ox_id in tyche_fc::exchange::Table::<()>::new(xids).xids().take(40) {
                    for f_ctl in [FCtl::RESPONSE, FCtl::REPLY, FCtl::READ_DATA, FCtl::XFER_RDY] {
                        assert_eq!(owners(&frame(Kind::FcpRsp, f_ctl, ox_id)), [lane]);
                    }
                }
            }
            // What the other end begins, and what it answers to logins, is for the first.
            for ox_id in 0..u16::MAX {
                assert_eq!(owners(&frame(Kind::ElsRequest, FCtl::REQUEST, Xid(ox_id))), [0]);
            }
            for xids in [login_xids(), fabric_xids()] {
                for ox_id in tyche_fc::exchange::Table::<()>::new(xids).xids() {
                    assert_eq!(owners(&frame(Kind::ElsReply, FCtl::REPLY, ox_id)), [0]);
                    assert_eq!(owners(&frame(Kind::CtReply, FCtl::REPLY, ox_id)), [0]);
                }
            }
        }
    }

    #[cfg(feature = "target")]
    #[test]
    fn frames_of_a_command_find_one_thread_of_a_target_and_those_of_lanes_different_ones() {
        for threads in (1..=LANES_MAX).filter(|it| it.is_power_of_two()) {
            let owners = |frame: &[u8]| {
                let has = |thread: &usize| share_of_thread(*thread, threads).has(frame);
                (0..threads).filter(has).collect::<Vec<_>>()
            };
            for ox_id in (0..=u16::MAX).step_by(7).map(Xid) {
                let thread = [thread_of(ox_id, threads)];
                for kind in [Kind::FcpCmnd, Kind::FcpData, Kind::FcpConf, Kind::Abts] {
                    assert_eq!(owners(&frame(kind, FCtl::REQUEST, ox_id)), thread, "{kind:?}");
                }
                for kind in [Kind::ElsRequest, Kind::Fc4Request, Kind::ElsReply] {
                    assert_eq!(owners(&frame(kind, FCtl::REQUEST, ox_id)), [0], "{kind:?}");
                }
            }
            // What a fabric answers, and what is said of exchanges of logins.
            for xids in [login_xids(), fabric_xids()] {
                for ox_id in tyche_fc::exchange::Table::<()>::new(xids).xids() {
                    for kind in [Kind::ElsReply, Kind::CtReply, Kind::BaAcc, Kind::BaRjt] {
                        assert_eq!(owners(&frame(kind, FCtl::REPLY, ox_id)), [0], "{kind:?}");
                    }
                }
            }
            // Lanes of initiators, up to as many.
            for lanes in (1..=threads).filter(|it| it.is_power_of_two()) {
                let mut taken = vec![None; threads];
                for lane in 0..lanes {
                    let xids = xids(COMMANDS, lane, lanes);
                    for ox_id in tyche_fc::exchange::Table::<()>::new(xids).xids().take(64) {
                        let other = taken[thread_of(ox_id, threads)].replace(lane);
                        assert!(other.is_none_or(|it| it == lane), "{lanes} lanes");
                    }
                }
                assert!(taken.iter().all(Option::is_some), "no thread is idle");
            }
        }
        let within = [0, 1, 2, 3, 5, 16, 64].map(threads_within);
        assert_eq!(within, [1, 1, 2, 2, 4, 16, 16]);
    }

    #[test]
    fn each_lane_has_some_thousand_exchanges() {
        for lanes in 1..=LANES_MAX {
            let counts = (0..lanes).map(|lane| {
                let xids = xids(COMMANDS, lane, lanes);
                tyche_fc::exchange::Table::<()>::new(xids).capacity()
            });
            assert!(counts.min() >= Some(3000), "{lanes} lanes");
        }
    }
}

//! The socket filter: selects a link's frames in the kernel (classic BPF).
//!
//! A socket bound to an interface and an EtherType gets every frame that came in there, even for
//! another interface (`__netif_receive_skb_core` in the kernel). For a frame that comes in on eth1:
//!
//! | the frame is for | sockets that get it | its device | its type |
//! |---|---|---|---|
//! | eth1: no VLAN tag, or one with a priority only | eth1 | eth1 | |
//! | eth1.10, a VLAN on eth1 | eth1 and eth1.10 | eth1.10 | |
//! | a VLAN that this machine is not on | eth1 | eth1 | for others |
//! | macvlan0 on eth1 | eth1 and macvlan0 | macvlan0 | |
//! | everybody | eth1; a copy: macvlan0 | eth1; macvlan0 | broadcast |
//! | a group | eth1; a copy: macvlan0 | eth1; macvlan0 | multicast |
//! | another address than eth1's | eth1 | eth1 | for others |
//! | bond0, of which eth1 is an active member | eth1 and bond0 | bond0 | |
//! | bond0, of which eth1 is an inactive member | eth1 | eth1 | |
//! | br0, of which eth1 is a member | br0 | br0 | |
//!
//! So a frame is the interface's own if its device is the interface, and its type is not "for
//! others". A VLAN tag can't be tested for: the kernel strips it when it has found the device.
//!
//! Frames to *members*, which are groups and addresses besides the interface's, pass by their
//! destination. A frame to a group must also be of the type multicast, so it is not one of a
//! foreign VLAN. One to a single address is "for others" with and without a foreign VLAN: both
//! pass, if the network card takes frames of that VLAN at all.

use crate::bpf::{self, jump, load, load_half, verdict};
use crate::{Mac, Share, is_group};

/// The filter's result for a frame that passes: the number of bytes to keep.
const WHOLE_FRAME: u32 = u32::MAX;

/// The most members: the filter skips the tests for them in one step, by a byte.
pub(super) const MEMBERS_MAX: usize = 32;

/// Steps of the test for one member.
const MEMBER_STEPS: usize = 6;

/// A filter for the frames of one interface.
#[derive(Debug)]
pub(super) struct Filter {
    /// The number of the interface.
    pub(super) interface: i32,
    /// Bytes that a frame must have at an offset, or zeroes.
    pub(super) mark: Option<(usize, [u8; 4])>,
    /// The share of the interface's frames, if several links divide them.
    pub(super) share: Option<Share>,
    /// Addresses besides the interface's own, up to [`MEMBERS_MAX`].
    pub(super) members: Vec<Mac>,
}

impl Filter {
    /// A filter for all frames of an interface.
    pub(super) fn new(interface: i32) -> Self {
        Self { interface, mark: None, share: None, members: Vec::new() }
    }

    /// The program that the kernel runs for each frame. Only frames to this machine's own address,
    /// to members, and broadcasts pass: otherwise a bridge or a capture on the same interface would
    /// fill the ring with the traffic of others.
    pub(super) fn program(&self) -> Vec<libc::sock_filter> {
        let tests = self.members.len() * MEMBER_STEPS;
        // PACKET_HOST is 0 and PACKET_BROADCAST 1; multicast and others are greater.
        let for_us = [
            load(ancillary(libc::SKF_AD_PKTTYPE)),
            jump(libc::BPF_JGT, 0, steps_within_byte(tests + 1), libc::PACKET_BROADCAST.into()),
        ];
        let for_members = (1..).zip(&self.members).flat_map(|(nth, member)| {
            let &[a, b, c, d, e, f] = member;
            let kind =
                if is_group(member) { libc::PACKET_MULTICAST } else { libc::PACKET_OTHERHOST };
            let last = u16::from_be_bytes([e, f]);
            [
                load(ancillary(libc::SKF_AD_PKTTYPE)),
                jump(libc::BPF_JEQ, 0, 4, kind.into()),
                load(0),
                jump(libc::BPF_JEQ, 0, 2, u32::from_be_bytes([a, b, c, d])),
                load_half(4),
                jump(
                    libc::BPF_JEQ,
                    steps_within_byte(tests - nth * MEMBER_STEPS + 1),
                    0,
                    last.into(),
                ),
            ]
        });
        let own = [
            load(ancillary(libc::SKF_AD_IFINDEX)),
            jump(libc::BPF_JEQ, 1, 0, self.interface.cast_unsigned()),
            verdict(0),
        ];
        let marked = self.mark.map(|(at, bytes)| {
            [
                load(at as u32),
                jump(libc::BPF_JEQ, 2, 0, 0),
                jump(libc::BPF_JEQ, 1, 0, u32::from_be_bytes(bytes)),
                verdict(0),
            ]
        });
        let shared = self.share.map(|share| {
            let own = [jump(libc::BPF_JEQ, 1, 0, share.index.into()), verdict(0)];
            bpf::remainder(&share).into_iter().chain(own)
        });
        let addressed = for_us.into_iter().chain(for_members).chain([verdict(0)]);
        let steps = addressed.chain(own).chain(marked.into_iter().flatten());
        let steps = steps.chain(shared.into_iter().flatten());
        steps.chain([verdict(WHOLE_FRAME)]).collect()
    }
}

/// The offset of a frame's metadata in the kernel.
fn ancillary(what: i32) -> u32 {
    (libc::SKF_AD_OFF + what).cast_unsigned()
}

/// A number of steps to skip.
fn steps_within_byte(steps: usize) -> u8 {
    steps.try_into().expect("members are bounded")
}

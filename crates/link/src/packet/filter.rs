//! The socket filter: the frames that a link takes, decided by the kernel (classic BPF).
//!
//! A socket that is bound to an interface and an EtherType is handed each frame that came in there,
//! whichever interface it turns out to be for (`__netif_receive_skb_core` in the kernel). For a
//! frame that comes in on eth1:
//!
//! | the frame is for | sockets that get it | its device | its type |
//! |---|---|---|---|
//! | eth1: no VLAN tag, or one with a priority only | eth1 | eth1 | |
//! | eth1.10, a VLAN on eth1 | eth1 and eth1.10 | eth1.10 | |
//! | a VLAN that this machine is not on | eth1 | eth1 | for others |
//! | macvlan0 on eth1 | eth1 and macvlan0 | macvlan0 | |
//! | everybody | eth1; a copy: macvlan0 | eth1; macvlan0 | |
//! | bond0, of which eth1 is an active member | eth1 and bond0 | bond0 | |
//! | bond0, of which eth1 is an inactive member | eth1 | eth1 | |
//! | br0, of which eth1 is a member | br0 | br0 | |
//!
//! So a frame is the interface's own if its device is the interface, and it is not for others. By
//! then there is no VLAN tag left to ask for: the kernel takes it off when it has found the device.

/// What a filter returns for a frame that passes: how many bytes of it to keep.
const WHOLE_FRAME: u32 = u32::MAX;

/// A filter for the frames of one interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Filter {
    /// The number of the interface.
    pub(super) interface: i32,
    /// Bytes that a frame must have at a place, or zeroes.
    pub(super) mark: Option<(usize, [u8; 4])>,
}

impl Filter {
    /// The steps that the kernel runs for each frame. They let only frames to this machine's own
    /// address and to everybody pass: a bridge or a capture on the same interface would otherwise
    /// fill the ring with the traffic of others.
    pub(super) fn program(&self) -> Vec<libc::sock_filter> {
        // PACKET_HOST is 0 and PACKET_BROADCAST 1; multicast and others are greater.
        let for_us = [
            load(ancillary(libc::SKF_AD_PKTTYPE)),
            jump(libc::BPF_JGT, 0, 1, libc::PACKET_BROADCAST.into()),
            verdict(0),
        ];
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
        let steps = for_us.into_iter().chain(own).chain(marked.into_iter().flatten());
        steps.chain([verdict(WHOLE_FRAME)]).collect()
    }
}

/// Where the kernel shows something that it knows of a frame.
fn ancillary(what: i32) -> u32 {
    (libc::SKF_AD_OFF + what).cast_unsigned()
}

/// Loads the word at a place of the frame.
fn load(at: u32) -> libc::sock_filter {
    step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, at)
}

/// Compares what was loaded, and skips that many steps if so, or if not.
fn jump(how: u32, if_so: u8, if_not: u8, with: u32) -> libc::sock_filter {
    step(libc::BPF_JMP | how | libc::BPF_K, if_so, if_not, with)
}

/// Ends with so many bytes of the frame; with none, it is dropped.
fn verdict(bytes: u32) -> libc::sock_filter {
    step(libc::BPF_RET | libc::BPF_K, 0, 0, bytes)
}

fn step(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

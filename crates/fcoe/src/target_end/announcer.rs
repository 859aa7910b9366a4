//! FIP VLAN discovery, the side that knows: machines that ask on an interface are told on which
//! VLANs FCoE is spoken. FC.md, "VLANs".
//!
//! The interface is the one beneath those of the VLANs. Nothing else is served on it, so it has a
//! thread of its own, which sleeps until somebody asks.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use tyche_engine::{Batches, EventLoop, Frames, Port, Ports, Protocol, Received, Service};
use tyche_fc::wire::fip::{
    self, ALL_VN2VN_ENODE_MACS, Flags, Message, VLANS_MAX, VlanNotification,
};
use tyche_fc::wire::{ETHERNET_LEN, Ethernet, FRAME_LEN_MAX, Mac};
use tyche_link::Link;
use tyche_numa::NumaAffinity;
use tyche_time::Instant;
use tyche_wake::{Doorbell, Spin};

use crate::n_port::join;
use crate::outbox::Outbox;

/// Frames that are received at once, so also the most answers that wait to be sent.
const BATCH: usize = 16;

/// The running thread. Dropping it ends it.
pub struct VlanAnnouncer {
    over: Arc<AtomicBool>,
    doorbell: Arc<Doorbell>,
    thread: Option<JoinHandle<()>>,
}

impl VlanAnnouncer {
    /// The most VLANs that an answer tells.
    pub const VLANS_MAX: usize = VLANS_MAX;

    /// Starts to answer on a [link for FIP](crate::Interface::open_fip) with these VLANs, of which
    /// the first [`VLANS_MAX`](Self::VLANS_MAX) are told.
    ///
    /// # Errors
    /// The system's error when the interface cannot get the frames of a group, or when a thread or
    /// an eventfd cannot be created.
    pub fn start(link: Box<dyn Link>, vids: &[u16]) -> io::Result<Self> {
        let over = Arc::new(AtomicBool::new(false));
        let doorbell = Arc::new(Doorbell::new()?);
        let name = format!("vlan-{}", link.name());
        let announcing = Announcing {
            vlans: notification(Mac(link.mac()), vids),
            outbox: Outbox::default(),
            over: Arc::clone(&over),
            doorbell: Arc::clone(&doorbell),
        };
        let batches = Batches { frames: BATCH, head_len: ETHERNET_LEN, pieces_max: 1 };
        let mut port = Port::new(link, NumaAffinity::default(), batches);
        port.join(ALL_VN2VN_ENODE_MACS.0)?;
        let thread = std::thread::Builder::new().name(name).spawn(move || {
            let mut ports = Ports::new();
            ports.insert(0, port);
            EventLoop::new(announcing, ports, Spin::new(Duration::ZERO)).run();
        })?;
        Ok(Self { over, doorbell, thread: Some(thread) })
    }
}

impl Drop for VlanAnnouncer {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Release);
        self.doorbell.ring();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that announces VLANs panicked");
        }
    }
}

/// The notification of these VLANs, from that address.
fn notification(mac: Mac, vids: &[u16]) -> VlanNotification {
    VlanNotification { mac, vids: vids.iter().copied().take(VLANS_MAX).collect() }
}

/// The answer to a frame, if it asks for VLANs of a network without a fabric. Who asks in another's
/// name gets none.
fn answer(vlans: &VlanNotification, frame: &fip::Frame<'_>) -> Option<fip::Frame<'static>> {
    let Ethernet { destination, source } = frame.ethernet;
    let Message::VlanRequest(request) = &frame.message else { return None };
    let is_for_us = destination == ALL_VN2VN_ENODE_MACS || destination == vlans.mac;
    if !is_for_us || request.mac != source {
        return None;
    }
    let ethernet = Ethernet { destination: source, source: vlans.mac };
    let message = Message::Vn2vnVlanNotification(vlans.clone());
    Some(fip::Frame::new(ethernet, Flags::EMPTY, message))
}

/// The protocol of the loop, and its service.
struct Announcing {
    vlans: VlanNotification,
    outbox: Outbox,
    over: Arc<AtomicBool>,
    doorbell: Arc<Doorbell>,
}

impl Protocol for Announcing {
    fn handle_frame(&mut self, _: Instant, _: usize, frame: &Received<'_>) {
        let mut buffer = [0; FRAME_LEN_MAX];
        let Ok(bytes) = join(frame, &mut buffer) else { return };
        let frame = fip::Frame::parse(bytes).ok();
        if let Some(answer) = frame.and_then(|frame| answer(&self.vlans, &frame)) {
            let mut buffer = [0; FRAME_LEN_MAX];
            let len = answer.emit(&mut buffer);
            self.outbox.push(&buffer[..len]);
            tracing::debug!(to = %answer.ethernet.destination, "VLANs announced");
        }
    }

    fn handle_timeout(&mut self, _: Instant) {}

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn frames(&mut self, _: usize) -> impl Frames<'_> {
        &mut self.outbox
    }
}

impl Service for Announcing {
    fn protocol(&mut self) -> &mut impl Protocol {
        self
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    fn may_sleep(&mut self) -> bool {
        self.doorbell.announce();
        !self.is_over()
    }

    fn awake(&mut self) {
        self.doorbell.awake();
    }

    fn wait_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        [self.doorbell.wait_fd()].into_iter()
    }
}

#[cfg(test)]
mod tests {
    use tyche_fc::wire::fip::{ALL_FCF_MACS, VlanRequest};

    use super::*;

    const OURS: Mac = Mac([2, 0, 0, 0, 0, 1]);
    const THEIRS: Mac = Mac([2, 0, 0, 0, 0, 2]);

    fn ask(destination: Mac, mac: Mac) -> Option<fip::Frame<'static>> {
        let ethernet = Ethernet { destination, source: THEIRS };
        let request = Message::VlanRequest(VlanRequest { mac, name: None });
        let frame = fip::Frame::new(ethernet, Flags::EMPTY, request);
        answer(&notification(OURS, &[100, 200]), &frame)
    }

    #[test]
    fn who_asks_is_told_the_vlans() {
        for destination in [ALL_VN2VN_ENODE_MACS, OURS] {
            let answer = ask(destination, THEIRS).unwrap();
            assert_eq!(answer.ethernet, Ethernet { destination: THEIRS, source: OURS });
            let vids = [100, 200].into_iter().collect();
            let notification = VlanNotification { mac: OURS, vids };
            assert_eq!(answer.message, Message::Vn2vnVlanNotification(notification));
        }
    }

    #[test]
    fn others_are_not_answered() {
        assert_eq!(ask(ALL_FCF_MACS, THEIRS), None, "forwarders are asked");
        assert_eq!(ask(Mac([2, 0, 0, 0, 0, 3]), THEIRS), None, "another is asked");
        assert_eq!(ask(ALL_VN2VN_ENODE_MACS, OURS), None, "in another's name");
        let ethernet = Ethernet { destination: OURS, source: THEIRS };
        let vids = [100].into_iter().collect();
        let theirs = Message::Vn2vnVlanNotification(VlanNotification { mac: THEIRS, vids });
        let frame = fip::Frame::new(ethernet, Flags::EMPTY, theirs);
        assert_eq!(answer(&notification(OURS, &[100]), &frame), None, "an answer");
    }

    #[test]
    fn as_many_vlans_are_told_as_a_frame_has() {
        let vids: Vec<_> = (1..=VLANS_MAX as u16 + 1).collect();
        assert_eq!(notification(OURS, &vids).vids.len(), VLANS_MAX);
    }
}

//! Ports over links in memory, in loops of their own.

#![allow(clippy::unwrap_used, reason = "a test that cannot set its stage has failed")]

mod nobody;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tyche_engine::{EventLoop, Ports, Protocol, Service};
use tyche_fcoe::fc::neighbour::{Event, Functions};
use tyche_fcoe::fc::wire::{ETHERNET_LEN, Wwn};
use tyche_fcoe::{Interface, MTU_FULL, NPort, Notice, PortConfig, discover};
use tyche_link::memory;
use tyche_numa::NumaAffinity;
use tyche_testkit::wait::PATIENCE;
use tyche_time::Instant;
use tyche_wake::Spin;

use nobody::Nobody;

/// A loop that does nothing but to have a port.
struct Alone {
    port: NPort<Nobody>,
    notices: Sender<Notice>,
    over: Arc<AtomicBool>,
}

impl Service for Alone {
    fn protocol(&mut self) -> &mut impl Protocol {
        &mut self.port
    }

    fn handle_commands(&mut self, now: Instant, ports: &mut Ports) -> bool {
        self.port.attend(now, ports)
    }

    fn work(&mut self, _: Instant) -> bool {
        while let Some(notice) = self.port.poll_notice() {
            // The test may have ended.
            let _ = self.notices.send(notice);
        }
        false
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }
}

/// A running loop.
struct Running {
    wwpn: Wwn,
    notices: Receiver<Notice>,
    over: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Running {
    /// A port of a target.
    fn start(interface: Interface) -> Self {
        let mac = interface.mac();
        let config = PortConfig::new(
            (Wwn::of_port(mac), Wwn::of_node(mac)),
            Functions { initiator: false, target: true },
            Duration::from_secs(2),
        );
        let (notices, heard) = channel();
        let over = Arc::new(AtomicBool::new(false));
        let port = NPort::new(config, Nobody::default());
        let alone = Alone { port, notices, over: Arc::clone(&over) };
        let ports = interface.into_ports(&NumaAffinity::default());
        let thread = thread::spawn(move || {
            EventLoop::new(alone, ports, Spin::new(Duration::ZERO)).run();
        });
        Self { wwpn: config.wwpn, notices: heard, over, thread }
    }

    /// Waits for a notice.
    fn expect<T>(&self, mut wanted: impl FnMut(Notice) -> Option<T>) -> T {
        loop {
            if let Some(found) = wanted(self.notices.recv_timeout(PATIENCE).unwrap()) {
                return found;
            }
        }
    }

    fn end(self) {
        self.over.store(true, Ordering::Relaxed);
        // The other end of the cable is gone, which wakes it.
        self.thread.join().unwrap();
    }
}

/// Two interfaces joined by a cable.
fn cable() -> (Interface, Interface) {
    let len = ETHERNET_LEN + MTU_FULL;
    let ((fip, far_fip), (fcoe, far_fcoe)) =
        (memory::pair(len).unwrap(), memory::pair(len).unwrap());
    let interface = |fip, fcoe| Interface { fip: Box::new(fip), fcoe: Box::new(fcoe) };
    (interface(fip, fcoe), interface(far_fip, far_fcoe))
}

#[test]
fn a_port_is_found_by_one_that_asks_and_does_not_take_that_for_a_neighbour() {
    let (near, far) = cable();
    let running = Running::start(far);
    let (id, address) = running.expect(|notice| match notice {
        Notice::Neighbour(Event::Claimed(address)) => Some((address.id, address.mac)),
        _ => None,
    });
    assert_eq!(address.port_id(), id);
    let (mac, number) = (near.mac(), 0xf00);
    let discovery = discover(vec![(near.fip, number)], Duration::from_millis(100));
    let [found] = &discovery.neighbours[..] else { panic!("{discovery:?}") };
    assert_eq!((found.neighbour.wwpn, found.neighbour.id), (running.wwpn, id));
    assert_eq!(found.neighbour.functions, Functions { initiator: false, target: true });
    assert_eq!(usize::from(found.neighbour.fcoe_len_max), MTU_FULL);
    assert!(discovery.faults.is_empty() && discovery.vlans.is_empty(), "{discovery:?}");
    assert!(discovery.rejects.total() == 0, "{discovery:?}");
    let own = Wwn::of_further_port(mac, number);
    let present = running
        .notices
        .try_iter()
        .any(|notice| matches!(notice, Notice::Neighbour(Event::Appeared(it)) if it.wwpn == own));
    assert!(!present, "it has sent no beacon");
    drop(near.fcoe);
    running.end();
}

#[test]
fn short_interfaces_are_warned_of() {
    let (near, _far) = cable();
    assert_eq!(near.warning(), None);
    let short = |mtu| memory::pair(ETHERNET_LEN + mtu).unwrap().0;
    let interface = Interface { fip: Box::new(short(1500)), fcoe: Box::new(short(1500)) };
    let warning = interface.warning().unwrap();
    for part in ["MTU of 1500", "1452 bytes", "mtu 2500"] {
        assert!(warning.contains(part), "{warning}");
    }
}

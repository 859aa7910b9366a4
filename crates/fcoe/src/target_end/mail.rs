//! Messages between the threads of one port of a target.
//!
//! The first thread has the port. Before the answer to a login leaves, the others are told of it;
//! each looks for that with every frame, so no command comes before it. Frames about exchanges go
//! to the thread that has the exchange: link services come to the first, which sends them on, and
//! a command is aborted where it is at work.
//!
//! A thread that does not have its turn has a bounded number of messages: of each login the last,
//! and some frames, which are lost beyond, as they may be on the network.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use tyche_fc::port::Login;
use tyche_fc::wire::{Ethernet, Frame, Header, Mac, PortId};
use tyche_scsi::NexusId;

/// The most frames that wait for a thread.
const FRAMES_MAX: usize = 64;

/// A message for another thread of the port.
#[derive(Clone)]
pub(super) enum Mail {
    /// The port has this address.
    Address((PortId, Mac)),
    /// An initiator is let in, or there is something new of its login.
    LoggedIn(Box<Admission>),
    /// A frame that is for the thread.
    Frame(SentOn),
}

/// The login of an initiator that is let in.
#[derive(Clone)]
pub(super) struct Admission {
    /// The address of the port.
    pub(super) own: (PortId, Mac),
    pub(super) login: Login,
    /// Its place at the device server.
    pub(super) id: NexusId,
    /// Whether it confirms that it was told of a loss.
    pub(super) confirms: bool,
}

/// A frame without data of a command, which has come to another thread.
#[derive(Clone)]
pub struct SentOn {
    ethernet: Ethernet,
    header: Header,
    payload: Box<[u8]>,
}

impl SentOn {
    pub(super) fn new(frame: &Frame<'_>) -> Self {
        let Frame { ethernet, header, payload } = *frame;
        Self { ethernet, header, payload: payload.into() }
    }

    /// The frame.
    pub fn frame(&self) -> Frame<'_> {
        Frame { ethernet: self.ethernet, header: self.header, payload: &self.payload }
    }
}

/// The messages for one thread. It looks at a flag with each frame, on a cache line that others
/// write to only if they have something new.
#[derive(Default)]
pub(super) struct Letterbox {
    is_full: AtomicBool,
    mail: Mutex<Vec<Mail>>,
}

impl Letterbox {
    /// Adds a message; false if it is a frame for which there is no room.
    pub(super) fn put(&self, mail: Mail) -> bool {
        let mut waiting = self.mail.lock().unwrap_or_else(PoisonError::into_inner);
        match &mail {
            Mail::Address(_) => waiting.retain(|it| !matches!(it, Mail::Address(_))),
            Mail::LoggedIn(new) => waiting.retain(
                |it| !matches!(it, Mail::LoggedIn(known) if known.login.wwpn == new.login.wwpn),
            ),
            Mail::Frame(_) => {
                let frames = waiting.iter().filter(|it| matches!(it, Mail::Frame(_)));
                if frames.count() >= FRAMES_MAX {
                    return false;
                }
            }
        }
        waiting.push(mail);
        self.is_full.store(true, Ordering::Release);
        true
    }

    /// Whether there is a message.
    pub(super) fn has_mail(&self) -> bool {
        self.is_full.load(Ordering::Acquire)
    }

    /// Takes the messages, in order.
    pub(super) fn take(&self) -> Vec<Mail> {
        let mut waiting = self.mail.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_full.store(false, Ordering::Relaxed);
        std::mem::take(&mut *waiting)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tyche_fc::neighbour::Functions;
    use tyche_fc::wire::{Kind, Wwn, Xid};
    use tyche_scsi::vpd::TargetPort;
    use tyche_scsi::{LunSet, Server};

    use super::*;

    const OURS: (PortId, Mac) = (PortId::new(1), Mac([2; 6]));

    fn logged_in(server: &mut Server, wwpn: u64, payload_max: usize) -> Mail {
        let port = TargetPort { name: 1, number: 1 };
        let login = Login {
            wwpn: Wwn(wwpn),
            id: PortId::new(2),
            mac: Mac([4; 6]),
            functions: Functions { initiator: true, target: false },
            payload_max,
            retries: false,
            confirms: true,
            e_d_tov: Duration::from_secs(2),
            r_a_tov: Duration::from_secs(10),
        };
        let id = server.login(wwpn, port, LunSet::NONE).expect("there is room");
        Mail::LoggedIn(Box::new(Admission { own: OURS, login, id, confirms: true }))
    }

    #[test]
    fn a_thread_that_does_not_look_has_bounded_mail() {
        let (letters, mut server) = (Letterbox::default(), Server::new(8));
        assert!(!letters.has_mail());
        for payload_max in 0..1000 {
            assert!(letters.put(Mail::Address(OURS)));
            assert!(letters.put(logged_in(&mut server, 7, payload_max)));
            assert!(letters.put(logged_in(&mut server, 8, payload_max)));
        }
        let ethernet = Ethernet { destination: Mac([2; 6]), source: Mac([4; 6]) };
        let header = Header::request(Kind::Abts, OURS.0, PortId::new(2), Xid(3));
        let frame = SentOn::new(&Frame { ethernet, header, payload: &[1, 2, 3] });
        let taken = (0..1000).filter(|_| letters.put(Mail::Frame(frame.clone()))).count();
        assert_eq!(taken, FRAMES_MAX);
        assert!(letters.has_mail());
        let mail = letters.take();
        assert!(!letters.has_mail() && letters.take().is_empty());
        assert_eq!(mail.len(), 3 + FRAMES_MAX);
        let [_, Mail::LoggedIn(one), Mail::LoggedIn(other), Mail::Frame(frame), ..] = &mail[..]
        else {
            panic!("in order");
        };
        assert_eq!((one.login.wwpn, one.login.payload_max), (Wwn(7), 999));
        assert_eq!((other.login.wwpn, other.login.payload_max), (Wwn(8), 999));
        assert_eq!(frame.frame().payload, [1, 2, 3]);
    }
}

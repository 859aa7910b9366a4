//! Somebody between an admin and a target, who changes what they send.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

/// Changes to the bytes of a direction, which are numbered from 0.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    /// Changes these bits of a byte.
    pub(crate) flip: Option<(usize, u8)>,
    /// Sends these bytes a second time.
    pub(crate) repeat: Option<Range<usize>>,
    /// Sends no more than so many bytes, and ends the connection.
    pub(crate) cut: Option<usize>,
}

/// Forwards one connection.
pub(crate) struct Middle {
    pub(crate) address: SocketAddr,
    thread: Option<JoinHandle<()>>,
    heard: Arc<Mutex<Vec<u8>>>,
}

impl Middle {
    /// Between a guest, whose bytes have the first plan, and a target.
    pub(crate) fn new(target: SocketAddr, plans: [Plan; 2]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let [ours, theirs] = plans;
        let of_guest = Arc::clone(&heard);
        let thread = thread::spawn(move || {
            let (guest, _) = listener.accept().unwrap();
            let there = TcpStream::connect(target).unwrap();
            thread::scope(|scope| {
                scope.spawn(|| forward(&there, &guest, &theirs, &Mutex::default()));
                forward(&guest, &there, &ours, &of_guest);
            });
        });
        Self { address, thread: Some(thread), heard }
    }

    /// Waits until the connection has ended; returns what the guest has sent.
    pub(crate) fn heard(mut self) -> Vec<u8> {
        self.thread.take().unwrap().join().unwrap();
        self.heard.lock().unwrap().clone()
    }
}

fn forward(mut from: &TcpStream, mut to: &TcpStream, plan: &Plan, heard: &Mutex<Vec<u8>>) {
    let mut buffer = [0; 4096];
    let mut all = Vec::new();
    while let Ok(len @ 1..) = from.read(&mut buffer) {
        let begin = all.len();
        all.extend_from_slice(&buffer[..len]);
        heard.lock().unwrap().extend_from_slice(&buffer[..len]);
        let mut passed = all[begin..].to_vec();
        if let Some((at, bits)) = plan.flip
            && let Some(byte) = at.checked_sub(begin).and_then(|at| passed.get_mut(at))
        {
            *byte ^= bits;
        }
        if let Some(range) = &plan.repeat
            && (begin..all.len()).contains(&(range.end - 1))
        {
            assert_eq!(range.end, all.len(), "the range ends with a message");
            passed.extend_from_slice(&all[range.clone()]);
        }
        if let Some(cut) = plan.cut {
            passed.truncate(cut.saturating_sub(begin));
        }
        let is_cut = plan.cut.is_some_and(|cut| all.len() >= cut);
        if to.write_all(&passed).is_err() || is_cut {
            break;
        }
    }
    // They may be closed already.
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

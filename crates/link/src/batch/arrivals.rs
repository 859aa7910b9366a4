//! When frames arrived, as the kernel says in a control message beside each.
//!
//! The kernel's stamp is one of the system's real-time clock, which may be set at any moment. So
//! it does not leave this file: what counts is how long a frame lay in the socket until it was
//! received, and that is taken at once.

use std::ptr;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// The only control message there is: `SCM_TIMESTAMPNS`.
#[derive(Clone, Copy)]
#[repr(C)]
struct Control {
    header: libc::cmsghdr,
    time: libc::timespec,
}

// The time begins where `CMSG_DATA` says.
const _: () = assert!(size_of::<libc::cmsghdr>().is_multiple_of(size_of::<usize>()));
const _: () = assert!(size_of::<Control>() == size_of::<libc::cmsghdr>() + STAMP);
const STAMP: usize = size_of::<libc::timespec>();

/// Room for the stamps of a batch, and what they said.
pub(super) struct Arrivals {
    controls: Box<[Control]>,
    /// By slot. `None`: the kernel has not said.
    waited: Box<[Option<Duration>]>,
}

impl Arrivals {
    pub(super) fn new(slots: usize) -> Self {
        let header = libc::cmsghdr { cmsg_len: 0, cmsg_level: 0, cmsg_type: 0 };
        let time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        Self {
            controls: vec![Control { header, time }; slots].into(),
            waited: vec![None; slots].into(),
        }
    }

    /// Lets the messages ask for a stamp each.
    pub(super) fn lend(&mut self, messages: &mut [libc::mmsghdr]) {
        for (message, control) in messages.iter_mut().zip(&mut self.controls) {
            message.msg_hdr.msg_control = ptr::from_mut(control).cast();
            message.msg_hdr.msg_controllen = size_of::<Control>() as _;
        }
    }

    /// Lets the messages ask for nothing any more.
    pub(super) fn take_back(messages: &mut [libc::mmsghdr]) {
        for message in messages {
            message.msg_hdr.msg_control = ptr::null_mut();
            message.msg_hdr.msg_controllen = 0;
        }
    }

    /// Reads the stamps of the messages that have just been received.
    pub(super) fn take(&mut self, messages: &[libc::mmsghdr]) {
        let now = clock_gettime(ClockId::Realtime);
        let now = Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32);
        for (slot, message) in messages.iter().enumerate() {
            let arrived = self.controls[slot].time(message.msg_hdr.msg_controllen);
            // A clock that was set back makes it nothing.
            self.waited[slot] = arrived.map(|arrived| now.saturating_sub(arrived));
        }
    }

    pub(super) fn waited(&self, slot: usize) -> Option<Duration> {
        self.waited[slot]
    }

    /// Forgets what the slot's frame waited.
    pub(super) fn forget(&mut self, slot: usize) {
        self.waited[slot] = None;
    }
}

impl Control {
    /// The stamp, since the epoch, if the `len` bytes that the kernel has written are one.
    fn time(&self, len: usize) -> Option<Duration> {
        let libc::cmsghdr { cmsg_len, cmsg_level, cmsg_type, .. } = self.header;
        let kind = (cmsg_level, cmsg_type);
        if len < size_of::<Self>()
            || cmsg_len != size_of::<Self>()
            || kind != (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS)
        {
            return None;
        }
        let seconds = u64::try_from(self.time.tv_sec).ok()?;
        let nanoseconds = u32::try_from(self.time.tv_nsec).ok()?;
        (nanoseconds < 1_000_000_000).then(|| Duration::new(seconds, nanoseconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(cmsg_type: i32, tv_sec: i64, tv_nsec: i64) -> Control {
        let cmsg_len = size_of::<Control>() as _;
        let header = libc::cmsghdr { cmsg_len, cmsg_level: libc::SOL_SOCKET, cmsg_type };
        Control { header, time: libc::timespec { tv_sec, tv_nsec } }
    }

    #[test]
    fn a_stamp_is_a_time() {
        let stamp = control(libc::SCM_TIMESTAMPNS, 5, 999_999_999);
        assert_eq!(stamp.time(size_of::<Control>()), Some(Duration::new(5, 999_999_999)));
    }

    #[test]
    fn anything_else_is_none() {
        let whole = size_of::<Control>();
        let good = control(libc::SCM_TIMESTAMPNS, 5, 6);
        for len in [0, 1, whole - 1] {
            assert_eq!(good.time(len), None, "{len} bytes");
        }
        assert_eq!(control(libc::SCM_TIMESTAMP, 5, 6).time(whole), None);
        assert_eq!(control(libc::SCM_TIMESTAMPNS, -1, 0).time(whole), None);
        assert_eq!(control(libc::SCM_TIMESTAMPNS, 0, -1).time(whole), None);
        assert_eq!(control(libc::SCM_TIMESTAMPNS, 0, 1_000_000_000).time(whole), None);
        let mut short = good;
        short.header.cmsg_len -= 1;
        assert_eq!(short.time(whole), None);
    }
}

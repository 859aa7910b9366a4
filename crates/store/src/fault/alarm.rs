//! A descriptor that is readable when another one is, or when a timer has expired.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::event::epoll;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};

/// An epoll instance over a timer and, if there is one, the wrapped queue's own descriptor.
pub struct Alarm {
    epoll: OwnedFd,
    timer: OwnedFd,
    armed: Option<Instant>,
}

const NEVER: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

impl Alarm {
    /// An alarm that is not set.
    ///
    /// # Errors
    /// The system's error.
    pub fn new(other: Option<BorrowedFd<'_>>) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let data = epoll::EventData::new_u64(0);
        epoll::add(&epoll, &timer, data, epoll::EventFlags::IN)?;
        if let Some(other) = other {
            epoll::add(&epoll, other, data, epoll::EventFlags::IN)?;
        }
        Ok(Self { epoll, timer, armed: None })
    }

    /// Sets the timer to `due`; if that has passed, it expires at once. `None` disarms it.
    ///
    /// # Errors
    /// The system's error.
    pub fn set(&mut self, due: Option<Instant>) -> io::Result<()> {
        if due == self.armed {
            return Ok(());
        }
        let it_value = due.map_or(NEVER, |due| {
            let left = due.saturating_duration_since(Instant::now());
            Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                // Zero would disarm the timer.
                tv_nsec: i64::from(left.subsec_nanos().max(1)),
            }
        });
        let setting = Itimerspec { it_interval: NEVER, it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &setting)?;
        self.armed = due;
        Ok(())
    }

    /// The descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

//! Control commands, which make, start, take over, stop and remove devices. They go to
//! `/dev/ublk-control` through a ring.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::mem::{self, size_of};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use super::abi::{
    ANY_DEVICE, CMD_ADD_DEV, CMD_DEL_DEV, CMD_DEL_DEV_ASYNC, CMD_END_USER_RECOVERY,
    CMD_GET_DEV_INFO, CMD_GET_FEATURES, CMD_GET_PARAMS, CMD_SET_PARAMS, CMD_START_DEV,
    CMD_START_USER_RECOVERY, CMD_STOP_DEV, CMD_UPDATE_SIZE, ControlCommand, DeviceInfo, NO_QUEUE,
    PARAMS_LEN, Params,
};
use crate::{Error, module};

const PATH: &str = "/dev/ublk-control";

/// The longest wait for a command. The longest command is a stop, which waits for the requests in
/// flight, within the session's own limits.
const TIMEOUT: Duration = Duration::from_secs(600);

type Ring = IoUring<squeue::Entry128, cqueue::Entry>;

/// The connection to the driver.
pub(super) struct Control {
    /// `None` once a command has timed out: it may still run and use the memory of the ring.
    ring: Option<Ring>,
    file: File,
}

/// A command's buffer: room for the longest.
type Payload = [u64; 8];

impl Control {
    /// Opens the driver, loading it if need be.
    pub(super) fn open() -> Result<Self, Error> {
        let file = open(Path::new(PATH)).or_else(|error| match error.kind() {
            ErrorKind::NotFound => {
                module::load("ublk_drv");
                open(Path::new(PATH))
            }
            _ => Err(error),
        });
        let file = file.map_err(|error| {
            let (kind, error) = (error.kind(), Error::new(format!("open {PATH}"), error));
            match kind {
                ErrorKind::PermissionDenied => error.remedy("run as root"),
                ErrorKind::NotFound => error.remedy(
                    "ublk needs the kernel module ublk_drv of Linux 6.5 or later (modprobe \
                     ublk_drv)",
                ),
                _ => error,
            }
        })?;
        let ring = Ring::builder().build(4).map_err(|error| {
            Error::new("io_uring for ublk", error)
                .remedy("io_uring must not be disabled (sysctl kernel.io_uring_disabled=0)")
        })?;
        Ok(Self { ring: Some(ring), file })
    }

    /// The driver's features, as flags.
    pub(super) fn features(&mut self) -> io::Result<u64> {
        let mut features = 0u64;
        self.exchange(CMD_GET_FEATURES, ANY_DEVICE, &mut features)?;
        Ok(features)
    }

    /// Makes a device. The answer has its number and the granted options.
    pub(super) fn add(&mut self, mut info: DeviceInfo) -> io::Result<DeviceInfo> {
        self.exchange(CMD_ADD_DEV, info.device, &mut info)?;
        Ok(info)
    }

    pub(super) fn info(&mut self, device: u32) -> io::Result<DeviceInfo> {
        let mut info = DeviceInfo::default();
        self.exchange(CMD_GET_DEV_INFO, device, &mut info)?;
        Ok(info)
    }

    pub(super) fn set_params(&mut self, device: u32, mut params: Params) -> io::Result<()> {
        self.exchange(CMD_SET_PARAMS, device, &mut params)
    }

    pub(super) fn params(&mut self, device: u32) -> io::Result<Params> {
        let mut params = Params { len: PARAMS_LEN, ..Params::default() };
        self.exchange(CMD_GET_PARAMS, device, &mut params)?;
        Ok(params)
    }

    /// Makes the block device appear, and waits until all queues are served. Before Linux 6.19 this
    /// includes the kernel's scan for partitions.
    pub(super) fn start(&mut self, device: u32) -> io::Result<()> {
        self.command(CMD_START_DEV, device, u64::from(std::process::id()))
    }

    /// Begins to take a device over. `ResourceBusy` until the kernel has noticed that the server is
    /// gone.
    pub(super) fn start_recovery(&mut self, device: u32) -> io::Result<()> {
        self.command(CMD_START_USER_RECOVERY, device, 0)
    }

    /// Ends the recovery: requests come from now on, those in flight at the server's death first.
    pub(super) fn end_recovery(&mut self, device: u32) -> io::Result<()> {
        self.command(CMD_END_USER_RECOVERY, device, u64::from(std::process::id()))
    }

    /// Removes the block device. Waits for requests in flight; later ones fail.
    pub(super) fn stop(&mut self, device: u32) -> io::Result<()> {
        self.command(CMD_STOP_DEV, device, 0)
    }

    /// Removes a device, without waiting for its last close.
    pub(super) fn delete(&mut self, device: u32) -> io::Result<()> {
        match self.command(CMD_DEL_DEV_ASYNC, device, 0) {
            // Before Linux 6.9.
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                self.command(CMD_DEL_DEV, device, 0)
            }
            result => result,
        }
    }

    /// Changes the size, in sectors.
    pub(super) fn update_size(&mut self, device: u32, sectors: u64) -> io::Result<()> {
        self.command(CMD_UPDATE_SIZE, device, sectors)
    }

    /// Executes a command whose argument is a number.
    fn command(&mut self, command: u32, device: u32, data: u64) -> io::Result<()> {
        self.submit(command, ControlCommand { device, queue: NO_QUEUE, data, ..Default::default() })
    }

    /// Executes a command whose argument is a structure that the kernel reads, writes, or both.
    fn exchange<T>(&mut self, command: u32, device: u32, value: &mut T) -> io::Result<()>
    where
        T: IntoBytes + FromBytes + Immutable,
    {
        let len = value.as_bytes().len();
        let mut payload = Box::<Payload>::default();
        payload.as_mut_bytes()[..len].copy_from_slice(value.as_bytes());
        let payload = Box::into_raw(payload);
        let result = self.submit(
            command,
            ControlCommand {
                device,
                queue: NO_QUEUE,
                len: len as u16,
                address: payload as u64,
                ..Default::default()
            },
        );
        if self.ring.is_none() {
            // The kernel may write there at any time: the memory is leaked.
            return result;
        }
        // SAFETY: the box was made above, and the kernel, which has answered, is done with it.
        let payload = unsafe { Box::from_raw(payload) };
        *value = T::read_from_bytes(&payload.as_bytes()[..len]).expect("as long as it was");
        result
    }

    fn submit(&mut self, number: u32, command: ControlCommand) -> io::Result<()> {
        let Some(mut ring) = self.ring.take() else { return Err(ErrorKind::TimedOut.into()) };
        let mut bytes = [0; 80];
        bytes[..size_of::<ControlCommand>()].copy_from_slice(command.as_bytes());
        let entry = opcode::UringCmd80::new(Fd(self.file.as_raw_fd()), number).cmd(bytes).build();
        // SAFETY: the command's buffer, if any, lives until it is answered; see `exchange`.
        unsafe { ring.submission().push(&entry) }.expect("one command at a time");
        let Some(answer) = answer(&mut ring)? else {
            // Closing the ring would wait for the command.
            mem::forget(ring);
            return Err(ErrorKind::TimedOut.into());
        };
        let result = answer.result();
        self.ring = Some(ring);
        if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(()) }
    }
}

/// Submits the command, and waits for the answer; `None` on timeout.
fn answer(ring: &mut Ring) -> io::Result<Option<cqueue::Entry>> {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let timeout = Timespec::from(deadline.saturating_duration_since(Instant::now()));
        let waited = ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&timeout));
        // The call that submits succeeds even if its wait was interrupted.
        let answer = ring.completion().next();
        if answer.is_some() || Instant::now() >= deadline {
            return Ok(answer);
        }
        match waited {
            Err(error)
                if error.kind() != ErrorKind::Interrupted
                    && error.raw_os_error() != Some(libc::ETIME) =>
            {
                return Err(error);
            }
            _ => {}
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

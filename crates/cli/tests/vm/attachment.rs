//! The attachments under test, the kernels that have them, and the limits of each.

use std::path::PathBuf;

/// A Debian kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    V6_1,
    V6_12,
    V7,
}

impl Kernel {
    /// The image directory that `cargo xtask vm` has made for it.
    pub(crate) fn image(self) -> PathBuf {
        let version = match self {
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
            Self::V7 => "7",
        };
        let images = std::env::var_os("TYCHE_VM").map(PathBuf::from);
        images.expect("this is to be run by `cargo xtask vm`").join(version)
    }

    /// Emulation of the two processors: in parallel, unless the emulator cannot do that reliably.
    /// With Linux 7 it may execute a breakpoint that the kernel has put in place of an instruction
    /// for a moment, and has removed again (`Oops: int3`, once in 25 boots).
    pub(crate) fn accelerator(self) -> &'static str {
        match self {
            Self::V6_1 | Self::V6_12 => "tcg,thread=multi",
            Self::V7 => "tcg,thread=single",
        }
    }

    /// Why the kernel is not available for tests, if it is not: not every Debian release has it.
    pub(crate) fn why_absent(self) -> Option<&'static str> {
        match self {
            Self::V7 if !self.image().exists() => Some("apt knows no kernel of that series"),
            Self::V6_1 | Self::V6_12 | Self::V7 => None,
        }
    }
}

/// A kind of block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attachment {
    Loop,
    Nbd,
    Ublk,
    /// ublk with four queues, each served by a thread of the session.
    Queues,
    /// ublk, with a growable device on top.
    Growable,
    /// ublk of a kernel whose devices grow by themselves (Linux 6.16), and that scans for
    /// partitions after the device has appeared (6.19).
    Ublk7,
}

impl Attachment {
    /// The value for `--as`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Loop => "loop",
            Self::Nbd => "nbd",
            Self::Ublk | Self::Queues | Self::Growable | Self::Ublk7 => "ublk",
        }
    }

    /// Further options of `connect`.
    pub(crate) fn option(self) -> &'static str {
        match self {
            Self::Growable => "--growable",
            Self::Queues => "--queues=4",
            Self::Loop | Self::Nbd | Self::Ublk | Self::Ublk7 => "",
        }
    }

    /// Queues of the device and of the session.
    pub(crate) fn queues(self) -> u16 {
        if self == Self::Queues { 4 } else { 1 }
    }

    /// The kernel for its tests.
    pub(crate) fn kernel(self) -> Kernel {
        match self {
            Self::Loop | Self::Nbd => Kernel::V6_1,
            Self::Ublk | Self::Queues | Self::Growable => Kernel::V6_12,
            Self::Ublk7 => Kernel::V7,
        }
    }

    /// The words in which `connect` explains that better kinds are not available.
    pub(crate) fn why_not_better(self) -> &'static str {
        match self {
            Self::Loop => "a loop device over FUSE is used",
            Self::Nbd => "an nbd device is used; ublk would be better",
            Self::Ublk | Self::Queues | Self::Growable | Self::Ublk7 => "",
        }
    }

    /// The file that exists as long as a device of that name is in use.
    pub(crate) fn presence(self, device: &str) -> String {
        match self {
            Self::Loop => format!("/sys/block/{device}/loop/backing_file"),
            Self::Nbd => format!("/sys/block/{device}/pid"),
            Self::Ublk | Self::Queues | Self::Growable | Self::Ublk7 => {
                format!("/sys/block/{device}")
            }
        }
    }

    /// Why the device cannot outlive the daemon that serves it, if so.
    pub(crate) fn why_mortal(self) -> Option<&'static str> {
        match self {
            Self::Loop => Some("a loop device fails all I/O once its daemon is dead"),
            Self::Nbd | Self::Ublk | Self::Queues | Self::Growable | Self::Ublk7 => None,
        }
    }

    /// The daemon's message if the device cannot grow with its export.
    pub(crate) fn why_rigid(self) -> Option<&'static str> {
        match self {
            Self::Loop | Self::Nbd | Self::Growable | Self::Ublk7 => None,
            Self::Ublk | Self::Queues => {
                Some("Linux changes the size of ublk devices from 6.16 on")
            }
        }
    }

    /// Whether the process that makes the device waits for the kernel's partition scan. If not, the
    /// device is in use during the scan.
    pub(crate) fn is_scanned_early(self) -> bool {
        matches!(self, Self::Ublk | Self::Queues | Self::Growable)
    }

    /// Why a starting daemon can't be killed at any moment, if so.
    ///
    /// Before Linux 6.19, a daemon that starts a ublk device can't be killed during the partition
    /// scan: the scan's reads wait for another server, and the daemon waits for the scan.
    pub(crate) fn why_immortal_at_start(self) -> Option<&'static str> {
        match self {
            Self::Loop | Self::Nbd | Self::Growable | Self::Ublk7 => None,
            Self::Ublk | Self::Queues => {
                Some("a daemon that starts a ublk device can't be killed at any moment")
            }
        }
    }

    /// Why the kernel always takes its disk for non-rotational, if so.
    pub(crate) fn why_never_turning(self) -> Option<&'static str> {
        match self {
            Self::Nbd => Some("Linux takes that flag from nbd servers from 6.12 on"),
            Self::Loop | Self::Ublk | Self::Queues | Self::Growable | Self::Ublk7 => None,
        }
    }

    /// Why the device has no partitions, if so.
    pub(crate) fn why_whole(self) -> Option<&'static str> {
        match self {
            Self::Loop | Self::Nbd | Self::Ublk | Self::Queues | Self::Ublk7 => None,
            Self::Growable => Some("the kernel looks for none on devices of the device mapper"),
        }
    }
}

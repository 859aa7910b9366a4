//! What is tested: attachments, the kernels that have them, and what each cannot do.

use std::path::PathBuf;

/// A kernel of Debian's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kernel {
    V6_1,
    V6_12,
    V7,
}

impl Kernel {
    /// The directory with what `cargo xtask vm` has made of it.
    pub(crate) fn image(self) -> PathBuf {
        let version = match self {
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
            Self::V7 => "7",
        };
        let images = std::env::var_os("TYCHE_VM").map(PathBuf::from);
        images.expect("this is to be run by `cargo xtask vm`").join(version)
    }

    /// How the emulator runs its two processors: side by side, unless that is too much for it. With
    /// Linux 7 it may execute a breakpoint that the kernel has put in place of an instruction for a
    /// moment, and has taken away again (`Oops: int3`, once in 25 boots).
    pub(crate) fn accelerator(self) -> &'static str {
        match self {
            Self::V6_1 | Self::V6_12 => "tcg,thread=multi",
            Self::V7 => "tcg,thread=single",
        }
    }

    /// Why nothing can be tested on it here, if so: not every release of Debian has it.
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
    /// The same, with a device over it that can grow.
    Growable,
    /// Of a kernel whose devices grow by themselves (Linux 6.16), and that looks for partitions
    /// when they are there already (6.19).
    Ublk7,
}

impl Attachment {
    /// As `--as` knows it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Loop => "loop",
            Self::Nbd => "nbd",
            Self::Ublk | Self::Growable | Self::Ublk7 => "ublk",
        }
    }

    /// What `connect` is told beside that.
    pub(crate) fn option(self) -> &'static str {
        match self {
            Self::Growable => "--growable",
            Self::Loop | Self::Nbd | Self::Ublk | Self::Ublk7 => "",
        }
    }

    /// The kernel that it is tested on.
    pub(crate) fn kernel(self) -> Kernel {
        match self {
            Self::Loop | Self::Nbd => Kernel::V6_1,
            Self::Ublk | Self::Growable => Kernel::V6_12,
            Self::Ublk7 => Kernel::V7,
        }
    }

    /// What `connect` says when it takes this one because the better ones are not to be had.
    pub(crate) fn why_not_better(self) -> &'static str {
        match self {
            Self::Loop => "a loop device over FUSE is used",
            Self::Nbd => "an nbd device is used; ublk would be better",
            Self::Ublk | Self::Growable | Self::Ublk7 => "",
        }
    }

    /// The file that exists as long as a device of that name is in use.
    pub(crate) fn presence(self, device: &str) -> String {
        match self {
            Self::Loop => format!("/sys/block/{device}/loop/backing_file"),
            Self::Nbd => format!("/sys/block/{device}/pid"),
            Self::Ublk | Self::Growable | Self::Ublk7 => format!("/sys/block/{device}"),
        }
    }

    /// Why the device cannot outlive the daemon that serves it, if so.
    pub(crate) fn why_mortal(self) -> Option<&'static str> {
        match self {
            Self::Loop => Some("a loop device fails all I/O once its daemon is dead"),
            Self::Nbd | Self::Ublk | Self::Growable | Self::Ublk7 => None,
        }
    }

    /// What its daemon says when the export has another size and the device cannot follow, if so.
    pub(crate) fn why_rigid(self) -> Option<&'static str> {
        match self {
            Self::Loop | Self::Nbd | Self::Growable | Self::Ublk7 => None,
            Self::Ublk => Some("Linux changes the size of ublk devices from 6.16 on"),
        }
    }

    /// Whether whoever makes the device waits while the kernel looks for partitions on it. If not,
    /// the device is in use meanwhile.
    pub(crate) fn is_scanned_early(self) -> bool {
        matches!(self, Self::Ublk | Self::Growable)
    }

    /// Why a daemon that starts can't be killed at any moment, if so.
    ///
    /// While the kernel looks for partitions of a ublk device, before Linux 6.19, whoever started
    /// it can't be killed: its reads wait for another server, and it waits for them.
    pub(crate) fn why_immortal_at_start(self) -> Option<&'static str> {
        match self {
            Self::Loop | Self::Nbd | Self::Growable | Self::Ublk7 => None,
            Self::Ublk => Some("a daemon that starts a ublk device can't be killed at any moment"),
        }
    }

    /// Why the kernel takes its disk for one that does not turn, if so.
    pub(crate) fn why_never_turning(self) -> Option<&'static str> {
        match self {
            Self::Nbd => Some("Linux hears of that from nbd servers from 6.12 on"),
            Self::Loop | Self::Ublk | Self::Growable | Self::Ublk7 => None,
        }
    }

    /// Why there are no partitions on it, if so.
    pub(crate) fn why_whole(self) -> Option<&'static str> {
        match self {
            Self::Loop | Self::Nbd | Self::Ublk | Self::Ublk7 => None,
            Self::Growable => Some("the kernel looks for none on devices of the device mapper"),
        }
    }
}

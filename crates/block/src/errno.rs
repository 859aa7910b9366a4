//! Error numbers of failed requests.

use core::fmt;

use tyche_geometry::Misfit;

/// A Linux error number, as block devices report failure (`EIO`, `EROFS`, ...).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

impl Errno {
    /// Operation not permitted.
    pub const PERM: Self = Self(1);
    /// Input/output error: any failure that has no error number of its own.
    pub const IO: Self = Self(5);
    /// Out of memory.
    pub const NOMEM: Self = Self(12);
    /// Invalid request: misaligned, or past the end of the disk.
    pub const INVAL: Self = Self(22);
    /// No space left in the export's store.
    pub const NOSPC: Self = Self(28);
    /// The export is read-only.
    pub const ROFS: Self = Self(30);
    /// The operation is not supported here.
    pub const OPNOTSUPP: Self = Self(95);
    /// The disk is gone.
    pub const SHUTDOWN: Self = Self(108);

    /// The error number of an `io::Error`, [`Errno::IO`] if it has none.
    pub fn from_io(error: &std::io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(Self::IO.0))
    }
}

impl From<Misfit> for Errno {
    fn from(misfit: Misfit) -> Self {
        match misfit {
            Misfit::ReadOnly => Self::ROFS,
            Misfit::NoSpace => Self::NOSPC,
            Misfit::Invalid => Self::INVAL,
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Errno({}: {self})", self.0)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

impl From<Errno> for std::io::Error {
    fn from(errno: Errno) -> Self {
        Self::from_raw_os_error(errno.0)
    }
}

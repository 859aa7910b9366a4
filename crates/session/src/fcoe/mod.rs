//! Set-up of a session over Fibre Channel over Ethernet: its interface, the names of its port and
//! of its disk, and the error when the disk can't be used.

mod disk;
mod error;
mod mode;
mod name;
mod unreached;

pub use disk::parse_disk;
pub use error::FcoeError;
pub use mode::parse_mode;
pub use name::{Numbers, PortName, parse_wwpn, ports_dir};
pub use unreached::{Unreached, explain};

use std::time::Duration;

use tyche_fcoe::Interface;
use tyche_link::Link;
use tyche_link::ip::ListenAddress;

/// The default E_D_TOV.
pub const E_D_TOV: Duration = Duration::from_secs(2);
/// The valid times for it.
pub const E_D_TOVS: std::ops::RangeInclusive<Duration> =
    Duration::from_millis(50)..=Duration::from_secs(60);

/// Opens an interface. With `qdisc` frames pass its queueing discipline.
///
/// # Errors
/// There is none of that name, or it can't be used.
pub fn open_interface(name: &str, qdisc: bool) -> Result<Interface, FcoeError> {
    check_interface(name)?;
    Ok(Interface::open(name, qdisc)?)
}

/// Opens the link of an interface for FIP alone.
///
/// # Errors
/// As [`open_interface`].
pub fn open_fip(name: &str, qdisc: bool) -> Result<Box<dyn Link>, FcoeError> {
    check_interface(name)?;
    Ok(Interface::open_fip(name, qdisc)?)
}

/// Refuses the name of an address: FCoE needs an interface.
fn check_interface(name: &str) -> Result<(), FcoeError> {
    if ListenAddress::is_named_by(name) {
        return Err(FcoeError::NoInterface(name.to_owned()));
    }
    Ok(())
}

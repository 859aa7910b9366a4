//! The name of a disk: `WWPN` or `WWPN:LUN`.

use tyche_fcoe::fc::wire::Wwn;
use tyche_fcoe::scsi::Lun;

use super::error::FcoeError;
use super::name::parse_wwpn;

/// Parses `WWPN` or `WWPN:LUN`; without a LUN it is 0.
///
/// # Errors
/// A text that says how it is written.
pub fn parse_disk(text: &str) -> Result<(Wwn, Lun), FcoeError> {
    if let Ok(wwpn) = parse_wwpn(text) {
        return Ok((wwpn, Lun::ZERO));
    }
    let Some((port, lun)) = text.rsplit_once(':') else {
        return Err(FcoeError::Name(parse_wwpn(text).err().unwrap_or_default()));
    };
    let number = lun.parse().map_err(|_| {
        let message = format!("`{text}`: write WWPN:LUN, such as 20:00:02:00:5e:10:00:01:0");
        FcoeError::Name(message)
    });
    let wwpn = parse_wwpn(port).map_err(FcoeError::Name)?;
    Ok((wwpn, Lun::peripheral(number?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_a_port_and_perhaps_a_lun() {
        let port = Wwn(0x2000_0200_5e10_0001);
        for (text, lun) in [
            ("20:00:02:00:5e:10:00:01", 0),
            ("20:00:02:00:5e:10:00:01:7", 7),
            ("0x200002005e100001", 0),
            ("200002005e100001:255", 255),
        ] {
            assert_eq!(parse_disk(text).unwrap(), (port, Lun::peripheral(lun)), "{text}");
        }
        for (text, part) in [
            ("disk", "16 hexadecimal digits"),
            ("20:00:02:00:5e:10:00", "16 hexadecimal digits"),
            ("20:00:02:00:5e:10:00:01:256", "WWPN:LUN"),
            ("20:00:02:00:5e:10:00:01:", "WWPN:LUN"),
        ] {
            let error = parse_disk(text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}

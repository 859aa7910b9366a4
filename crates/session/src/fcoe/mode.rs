//! The kind of a network, as users name it.

use tyche_fcoe::fc::network::Mode;

/// Parses `vn2vn` or `fabric`, as the tools of Linux call them.
///
/// # Errors
/// A text that says which there are.
pub fn parse_mode(text: &str) -> Result<Mode, String> {
    match text {
        "vn2vn" => Ok(Mode::Vn2vn),
        "fabric" => Ok(Mode::Fabric),
        _ => Err(format!("`{text}`: the mode is vn2vn or fabric")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_two_modes() {
        assert_eq!(parse_mode("vn2vn"), Ok(Mode::Vn2vn));
        assert_eq!(parse_mode("fabric"), Ok(Mode::Fabric));
        assert!(parse_mode("Fabric").is_err_and(|error| error.contains("vn2vn or fabric")));
    }
}

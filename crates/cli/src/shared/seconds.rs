//! Times on the command line, in seconds.

/// Parses a time longer than zero.
pub(crate) fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(number) if number > 0.0 && number < 1e9 => Ok(number),
        _ => Err("a number of seconds greater than 0".into()),
    }
}

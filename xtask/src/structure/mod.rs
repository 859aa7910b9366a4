//! The arrows of ARCHITECTURE.md: between crates they point down, and inside a crate files form no
//! circles.

mod circles;
mod layers;
mod source;

use crate::Result;

/// All violations, one a line.
pub(crate) fn check() -> Result<Vec<String>> {
    let mut findings = circles::check()?;
    findings.extend(layers::check()?);
    Ok(findings)
}

//! The reasons for which a test can't run on a machine.

use std::path::Path;

/// The reason why a test cannot run here that needs root and these files; none if it can.
pub fn missing(files: &[&str]) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("it needs root".to_owned());
    }
    let file = files.iter().find(|file| !Path::new(file).exists())?;
    Some(format!("no {file}"))
}

/// Ends the test, with a message, where it does not run as root or one of these files is missing.
#[macro_export]
macro_rules! need_root {
    ($($file:expr),*) => {
        if let Some(reason) = $crate::needs::missing(&[$($file),*]) {
            println!("SKIPPED: {reason}");
            return;
        }
    };
}

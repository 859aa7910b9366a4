//! Secrets from the kernel.

/// A source of unpredictable numbers, for cookies and nonces.
pub(crate) fn secrets() -> Box<dyn FnMut() -> u64 + Send> {
    Box::new(|| getrandom::u64().expect("the kernel's random numbers are always there"))
}

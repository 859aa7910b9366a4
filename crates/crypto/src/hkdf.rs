//! Secrets that follow from others: HKDF-Expand (RFC 5869) with SHA-256.

use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk};

/// Bytes of a secret or a key.
pub(crate) const LEN: usize = 32;

/// Length of an output of HKDF.
struct Len(usize);

impl KeyType for Len {
    fn len(&self) -> usize {
        self.0
    }
}

/// HKDF-Expand (RFC 5869).
pub(crate) fn expand(secret: &[u8; LEN], label: &[u8], out: &mut [u8]) {
    let prk = Prk::new_less_safe(HKDF_SHA256, secret);
    let expanded = prk.expand(&[label], Len(out.len())).and_then(|okm| okm.fill(out));
    expanded.expect("short outputs are possible");
}

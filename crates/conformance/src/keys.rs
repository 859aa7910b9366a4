//! The keys by which the ends of the suite know each other.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use tyche_crypto::{SecretKey, digest};

use crate::Result;

/// Keys by their names: `keys` in `frames.json`.
pub(crate) struct Keyring(BTreeMap<String, SecretKey>);

impl Keyring {
    /// The keys of these bytes.
    ///
    /// # Errors
    /// If one has not 32 bytes.
    pub(crate) fn new(keys: impl Iterator<Item = Result<(String, Vec<u8>)>>) -> Result<Self> {
        let key = |named: Result<(String, Vec<u8>)>| {
            let (name, bytes) = named?;
            let bytes = bytes.try_into().map_err(|_| format!("the key {name:?} has not 32 bytes"));
            Ok((name, SecretKey::from_random(bytes?)))
        };
        Ok(Self(keys.map(key).collect::<Result<_>>()?))
    }

    /// The key that a step names by `field`, or the one called `default`.
    ///
    /// # Errors
    /// If no key has that name.
    pub(crate) fn named(
        &self,
        spec: &Map<String, Value>,
        field: &str,
        default: &str,
    ) -> Result<&SecretKey> {
        self.get(spec.get(field).and_then(Value::as_str).unwrap_or(default))
    }

    fn get(&self, name: &str) -> Result<&SecretKey> {
        self.0.get(name).ok_or_else(|| format!("no key is called {name:?}"))
    }

    /// The public parts, as `NAME_key`.
    pub(crate) fn bindings(&self) -> impl Iterator<Item = (String, Vec<u8>)> {
        let public = |key: &SecretKey| key.public().as_bytes().to_vec();
        self.0.iter().map(move |(name, key)| (format!("{name}_key"), public(key)))
    }

    /// The nonce of a Discover or Hello by somebody who knows a public key: "Silent targets".
    ///
    /// # Errors
    /// If no key has that name.
    pub(crate) fn nonce(&self, name: &str, kind: u8, salt: [u8; 2]) -> Result<Vec<u8>> {
        let key = self.get(name)?.public();
        let digest = digest(&[b"tyche question", key.as_bytes(), &[kind], &salt]);
        Ok([&salt[..], &digest[..6]].concat())
    }
}

//! The admins of a target: who may ask it from elsewhere, by their keys.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tyche_control::{Admin, Port};
use tyche_proto::crypto::PublicKey;

use super::checked_name;
use super::complaints::Complaints;
use super::config::{self, Config};
use super::own_keys::OwnKeys;
use crate::shared::error::{Code, Error, Result};

/// Checks the admins of a configuration. `own`: the keys of the target, if it has any.
///
/// # Errors
/// `Config` if they contradict each other or the hosts, or need a key that the target does not
/// have.
pub(super) fn check(config: &Config, own: &[PublicKey]) -> Result<()> {
    let wrong = |message: String| Err(Error::new(Code::Config, message));
    if config.control.is_some() && own.is_empty() {
        let message = "`control` is for admins with keys, but this target has no key: make one \
                       with `tyche key generate`, and name its file with --key or `key`";
        return wrong(message.to_owned());
    }
    let mut names = BTreeMap::new();
    for admin in &config.admin {
        let name = &admin.name;
        checked_name(name).map_err(|error| Error::new(Code::Config, error.message))?;
        for key in &admin.key {
            let other = "give another one, which `tyche key generate FILE` makes for this admin";
            if own.contains(key) {
                return wrong(format!("admin {name} has the key of this target: {other}"));
            }
            if let Some(host) = config.host.iter().find(|host| host.key.contains(key)) {
                let what = format!("admin {name} and host {} have the same key {key}", host.name);
                return wrong(format!("{what}: {other}"));
            }
            if let Some(first) = names.insert(*key, name).filter(|first| *first != name) {
                return wrong(format!("admins {first} and {name} have the same key {key}"));
            }
        }
    }
    Ok(())
}

/// The admins of a running target, and the port at which they ask.
pub(super) struct Admins {
    list: Mutex<BTreeMap<PublicKey, Admin>>,
    /// Lines of the log about what they ask for in vain.
    pub(super) complaints: Arc<Complaints>,
    /// Set once it is open; never if the target has none.
    pub(super) port: OnceLock<Port>,
}

impl Admins {
    pub(super) fn new(configured: &[config::Admin]) -> Self {
        let complaints = Arc::new(Complaints::new());
        Self { list: Mutex::new(by_key(configured)), complaints, port: OnceLock::new() }
    }

    fn list(&self) -> MutexGuard<'_, BTreeMap<PublicKey, Admin>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The admin with that key.
    pub(super) fn find(&self, key: &PublicKey) -> Option<Admin> {
        self.list().get(key).cloned()
    }

    /// Takes another list, and the target's keys. The connections of those who are no admins any
    /// more end at once.
    pub(super) fn replace(&self, configured: &[config::Admin], own: &OwnKeys) {
        *self.list() = by_key(configured);
        if let Some(port) = self.port.get() {
            port.set_keys(own.all());
            port.close_former();
        }
        self.complaints.retain(|key| self.find(key).is_some());
    }

    /// Takes from those who are admins what another list does not give them, before it is taken:
    /// that may have to wait for their own requests.
    pub(super) fn withdraw(&self, configured: &[config::Admin]) {
        let wanted = by_key(configured);
        self.list().retain(|key, admin| match wanted.get(key) {
            Some(wanted) => {
                admin.read_only |= wanted.read_only;
                true
            }
            None => false,
        });
        if let Some(port) = self.port.get() {
            port.close_former();
        }
    }
}

fn by_key(configured: &[config::Admin]) -> BTreeMap<PublicKey, Admin> {
    let each = configured.iter().flat_map(|config::Admin { name, key, read_only }| {
        let admin = Admin { name: name.clone(), read_only: *read_only };
        key.iter().map(move |key| (*key, admin.clone()))
    });
    each.collect()
}

#[cfg(test)]
mod tests {
    use tyche_proto::crypto::SecretKey;

    use super::super::config::Host;
    use super::*;

    #[test]
    fn an_admins_key_is_nobody_elses() {
        let [own, admin, host] = [1, 2, 3].map(|it| SecretKey::from_random([it; 32]).public());
        let of = |name: &str, key| config::Admin {
            name: name.to_owned(),
            key: vec![key],
            read_only: false,
        };
        let listening = Some("127.0.0.1:1".parse().unwrap());
        let config = |admins: Vec<config::Admin>| Config {
            control: listening,
            admin: admins,
            host: vec![Host::parse(&format!("alpha={host}")).unwrap()],
            ..Config::default()
        };
        check(&config(vec![of("ops", admin)]), &[own]).unwrap();
        check(&config(vec![of("ops", admin), of("ops", admin)]), &[own]).unwrap();
        for (admins, own, said) in [
            (vec![], &[][..], "this target has no key"),
            (vec![of("ops", own)], &[own], "admin ops has the key of this target"),
            (vec![of("ops", host)], &[own], "admin ops and host alpha have the same key"),
            (vec![of("a", admin), of("b", admin)], &[own], "admins a and b have the same key"),
            (vec![of("", admin)], &[own], "1 to 63 bytes"),
        ] {
            let error = check(&config(admins), own).unwrap_err();
            assert_eq!(error.code, Code::Config);
            assert!(error.message.contains(said), "{error}");
        }
    }

    #[test]
    fn admins_are_those_of_the_last_list() {
        let [one, other] = [2, 3].map(|it| SecretKey::from_random([it; 32]).public());
        let of = |key, read_only| [config::Admin { name: "ops".into(), key: vec![key], read_only }];
        let admins = Admins::new(&of(one, false));
        let known = Admin { name: "ops".into(), read_only: true };
        admins.replace(&of(other, true), &OwnKeys::default());
        assert_eq!((admins.find(&one), admins.find(&other)), (None, Some(known)));
    }
}

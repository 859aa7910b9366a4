//! The target's key, and the hosts that may connect, as configured.

use std::collections::BTreeMap;

use tyche_engine::Target;
use tyche_proto::Access;
use tyche_proto::crypto::{PublicKey, SecretKey};
use tyche_proto::wire::Name;

use super::checked_name;
use super::config::{Auth, Config, Export};
use crate::error::{Code, CodedResult, Error, Result};

/// See the module.
pub(super) struct Keys {
    /// The target's key, if it has one.
    pub(super) secret: Option<SecretKey>,
    pub(super) access: Access,
    /// The exports, and the names of the hosts that may have each; `None`: all.
    pub(super) allowed: Vec<(String, Option<Vec<Name>>)>,
}

impl Keys {
    /// The keys of a configuration.
    ///
    /// # Errors
    /// They contradict each other, or the target's can't be read.
    pub(super) fn of(config: &Config) -> Result<Self> {
        let wrong = |message: String| Err(Error::new(Code::Config, message));
        let secret = config.key.as_deref().map(tyche_session::read_key).transpose().coded()?;
        if secret.is_none() {
            let asks = !config.host.is_empty() || config.auth == Some(Auth::Required);
            let asks = asks || config.export.iter().any(|export| export.allow.is_some());
            if asks {
                return wrong(
                    "hosts are to prove who they are, but this target has no key: make one with \
                     `tyche key generate`, and name its file with --key or `key`"
                        .into(),
                );
            }
        }
        let mut hosts = BTreeMap::<PublicKey, Name>::new();
        for host in &config.host {
            let name = checked_name(&host.name)?;
            for key in &host.key {
                if let Some(other) = hosts.insert(*key, name).filter(|other| *other != name) {
                    return wrong(format!("hosts {other} and {name} have the same key {key}"));
                }
            }
        }
        let known = |name: &String| {
            let known = hosts.values().find(|known| known.as_str() == name);
            known.copied().ok_or_else(|| {
                Error::new(Code::Config, format!("`allow`: there is no [[host]] `{name}`"))
            })
        };
        let of_export = |export: &Export| {
            let allow = export.allow.as_ref();
            let allowed = allow.map(|names| names.iter().map(known).collect()).transpose()?;
            Ok((export.name.clone(), allowed))
        };
        let allowed = config.export.iter().map(of_export).collect::<Result<_>>()?;
        let required = secret.is_some() && config.auth != Some(Auth::Optional);
        Ok(Self { secret, access: Access { required, hosts }, allowed })
    }

    /// Changes who may connect to a running target. Its own key stays. Sessions of hosts that may
    /// not connect any more end.
    pub(super) fn apply(self, target: &Target, exports: &[Export]) {
        let mut ended = target.set_access(self.access);
        // The target serves the exports that it had at its start.
        for (name, allowed) in self.allowed {
            if let Some(index) = exports.iter().position(|export| export.name == name) {
                ended.extend(target.set_allowed(index, allowed));
            }
        }
        for session in ended {
            tracing::warn!(host = %session.host_name, session = %session.session,
                "the host may not connect any more: its session ends");
        }
    }
}

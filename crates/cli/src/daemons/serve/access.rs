//! Access to exports: the hosts of the configuration, and the decisions of commands since.
//!
//! A decision is about one host at one export, and wins over the configuration. It is kept until it
//! is taken back, or until the configuration lets the host in that it lets in.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use tyche_fcoe::fc::wire::Wwn;
use tyche_fcoe::{Departure, VisibleTo};
use tyche_proto::crypto::PublicKey;
use tyche_proto::wire::Name;
use tyche_proto::{Access, Allowed, HostId, SessionInfo};
use tyche_session::fcoe::parse_wwpn;
use uuid::Uuid;

use super::config::{Auth, Config, DefinedAt, Export};
use super::names::few_of;
use super::state::{Decision, Decisions};
use crate::shared::error::{Code, Error, Result};
use crate::shared::report::MayConnect;

use super::{Served, admins, checked_name, fcoe};

/// A host or a port that is let in to an export, or kept out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// A host.
    Host(HostId),
    /// A port, over FCoE.
    Initiator(Wwn),
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(host) => host.fmt(f),
            Self::Initiator(wwpn) => wwpn.fmt(f),
        }
    }
}

/// Checks that a target can be silent.
///
/// # Errors
/// `Config` if it has no key, or is to answer others.
fn check_silence(config: &Config, has_key: bool) -> Result<()> {
    let remedy = if !has_key {
        "only those are answered who know its key: make one with `tyche key generate`, and name \
         its file with --key or `key`"
    } else if config.auth == Some(Auth::Optional) {
        "hosts without a key would get no answer: leave out `auth = \"optional\"`"
    } else if !config.fcoe.is_empty() {
        "ports of FCoE answer everybody: serve them by a target of their own"
    } else {
        return Ok(());
    };
    Err(Error::new(Code::Config, format!("`silent`: {remedy}")))
}

/// The hosts of a configuration, by their keys. `own`: the keys of the target.
///
/// # Errors
/// `Config` if a key is the target's, or that of two hosts; `Usage` if a name is none.
fn configured_hosts(config: &Config, own: &[PublicKey]) -> Result<BTreeMap<PublicKey, Name>> {
    let wrong = |message: String| Err(Error::new(Code::Config, message));
    let mut hosts = BTreeMap::<PublicKey, Name>::new();
    for host in &config.host {
        let name = checked_name(&host.name)?;
        for key in &host.key {
            if own.contains(key) {
                return wrong(format!(
                    "host {name} has the key of this target: give the one that `tyche key show` \
                     prints at the host"
                ));
            }
            if let Some(other) = hosts.insert(*key, name).filter(|other| *other != name) {
                return wrong(format!("hosts {other} and {name} have the same key {key}"));
            }
        }
    }
    Ok(hosts)
}

/// The hosts that an export is for. `known`: those that it may name.
///
/// # Errors
/// `Config` if it names another.
fn allowed_by(export: &Export, known: &BTreeSet<Name>) -> Result<Allowed> {
    let known = |name: &String| {
        Name::new(name).filter(|name| known.contains(name)).ok_or_else(|| {
            let what = match export.place {
                DefinedAt::Command => {
                    format!("there is no host `{name}`: add it, `tyche host add`")
                }
                _ => format!(
                    "there is no [[host]] `{name}`; one that was added by command is let in by \
                     `tyche export allow`"
                ),
            };
            Error::new(Code::Config, format!("export `{}`: `allow`: {what}", export.name))
        })
    };
    let names = export.allow.as_ref();
    let names = names.map(|names| names.iter().map(known).collect()).transpose()?;
    let uuids = (!export.hosts.is_empty()).then(|| export.hosts.iter().copied().collect());
    Ok(Allowed { names, uuids, ..Allowed::default() })
}

/// The hosts that may connect, as configured and as added by command.
pub(super) struct Configured {
    access: Access,
    /// The hosts that may have each export, by its name.
    allowed: BTreeMap<String, Allowed>,
    /// The same for ports over FCoE; empty: all.
    initiators: BTreeMap<String, Vec<Wwn>>,
    /// Whether there are such ports.
    has_fcoe: bool,
}

impl Configured {
    /// The hosts of a configuration. `own`: the keys of the target, if it has any.
    ///
    /// # Errors
    /// They contradict each other, or need a key that the target does not have.
    pub(super) fn of(config: &Config, own: &[PublicKey]) -> Result<Self> {
        let has_key = !own.is_empty();
        let wrong = |message: String| Err(Error::new(Code::Config, message));
        if !has_key {
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
        if config.is_silent {
            check_silence(config, has_key)?;
        }
        fcoe::refuse_ways_around(config, has_key)?;
        admins::check(config, own)?;
        let mut hosts = configured_hosts(config, own)?;
        let configured: BTreeSet<_> = hosts.values().copied().collect();
        let mut only_named = BTreeSet::new();
        for host in &config.added_hosts {
            let name = checked_name(&host.name)?;
            only_named.insert(name);
            hosts.insert(host.key, name);
        }
        let idle = config.idle_hosts.iter().filter_map(|(host, _)| Name::new(&host.name));
        let all: BTreeSet<_> = hosts.values().copied().chain(idle).collect();
        let of_export = |export: &Export| {
            // The file is valid or not whatever commands have added.
            let known = if export.place == DefinedAt::Command { &all } else { &configured };
            Ok((export.name.clone(), allowed_by(export, known)?))
        };
        let allowed = config.export.iter().map(of_export).collect::<Result<_>>()?;
        let required = has_key && config.auth != Some(Auth::Optional);
        if required && hosts.is_empty() && config.fcoe.is_empty() {
            tracing::warn!(
                "no host may connect so far: there is no --host, and no [[host]]; `tyche host add` \
                 adds one"
            );
        }
        let initiators = |export: &Export| (export.name.clone(), export.initiators.wwpns());
        let initiators = config.export.iter().map(initiators).collect();
        let has_fcoe = !config.fcoe.is_empty();
        let access = Access { required, hosts, only_named };
        Ok(Self { access, allowed, initiators, has_fcoe })
    }

    /// The one that a text stands for: the name of a host with a key, or else a UUID or a WWPN.
    /// `None` if it is none of these.
    fn who(&self, text: &str) -> Option<Who> {
        let known = self.access.hosts.values().find(|name| name.as_str() == text);
        let host = known.copied().map(HostId::Name);
        let host = host.or_else(|| Uuid::parse_str(text).ok().map(HostId::Uuid));
        host.map(Who::Host).or_else(|| parse_wwpn(text).ok().map(Who::Initiator))
    }

    /// The one that a decision is about. A denied host stays denied if it is not configured any
    /// more: it has no key then, and where none is needed, it could come as anybody.
    fn decided(&self, text: &str, decision: Decision) -> Option<Who> {
        let former = || Name::new(text).filter(|_| decision == Decision::Denied);
        self.who(text).or_else(|| former().map(|name| Who::Host(HostId::Name(name))))
    }

    /// Whether the configuration lets one have an export.
    fn lists(&self, export: &str, who: Who) -> bool {
        match who {
            Who::Initiator(wwpn) => {
                let initiators = self.initiators.get(export);
                initiators.is_some_and(|it| it.is_empty() || it.contains(&wwpn))
            }
            Who::Host(host) => self.allowed.get(export).is_some_and(|allowed| match host {
                HostId::Name(name) => {
                    let is_for_all = allowed.names.is_none();
                    is_for_all && !self.access.only_named.contains(&name)
                        || allowed.names_host(&name)
                }
                HostId::Uuid(uuid) => allowed.uuids.as_ref().is_none_or(|it| it.contains(&uuid)),
            }),
        }
    }
}

/// The effect of a command.
pub(super) struct Changed {
    /// The one that it is about, unless it is about all.
    pub(super) who: Option<Who>,
    /// The sessions that end.
    pub(super) ended: Vec<SessionInfo>,
    /// The departure of ports that may not have the export any more.
    pub(super) left: Departure,
    /// Why the change is not kept, if it is not. It holds until the target ends.
    pub(super) not_kept: Option<Error>,
}

/// The access rights at a target: configuration and decisions together. It changes the rights of
/// running exports, and ends the sessions and commands that they no longer cover.
pub(super) struct Rights {
    /// The target's name.
    target: String,
    configured: Configured,
    decisions: Decisions,
}

impl Rights {
    pub(super) fn new(target: &str, configured: Configured, decisions: Decisions) -> Self {
        let mut rights = Self { target: target.to_owned(), configured, decisions };
        rights.forget_granted();
        rights
    }

    /// The hosts that the target lets in.
    pub(super) fn access(&self) -> Access {
        self.configured.access.clone()
    }

    /// The ports that may have an export.
    pub(super) fn visible_at(&self, export: &str) -> VisibleTo {
        let only = self.configured.initiators.get(export).cloned().unwrap_or_default();
        let mut visible = VisibleTo { only, except: Vec::new() };
        for (text, decision) in self.decisions.of(export) {
            let Some(Who::Initiator(wwpn)) = self.configured.who(text) else { continue };
            match decision {
                Decision::Denied => visible.except.push(wwpn),
                // It is one of all.
                Decision::Allowed if visible.only.is_empty() => {}
                Decision::Allowed => visible.only.push(wwpn),
            }
        }
        visible
    }

    /// The hosts that may have an export.
    pub(super) fn allowed_at(&self, export: &str) -> Allowed {
        let mut allowed = self.configured.allowed.get(export).cloned().unwrap_or_default();
        for (host, decision) in self.decisions.of(export) {
            let Some(Who::Host(host)) = self.configured.decided(host, decision) else { continue };
            match (decision, host) {
                (Decision::Denied, host) => allowed.denied.extend([host]),
                (Decision::Allowed, HostId::Name(name)) => match &mut allowed.names {
                    Some(names) => _ = names.insert(name),
                    None if self.configured.access.only_named.contains(&name) => {
                        allowed.also.insert(name);
                    }
                    None => {}
                },
                (Decision::Allowed, HostId::Uuid(uuid)) => {
                    allowed.uuids.iter_mut().for_each(|uuids| uuids.extend([uuid]));
                }
            }
        }
        allowed
    }

    /// The hosts that may connect an export, for people.
    pub(super) fn may_connect(&self, export: &str) -> MayConnect {
        let Allowed { names, also, uuids, denied } = self.allowed_at(export);
        let also = also.into_iter().map(HostId::Name).filter(|it| !denied.contains(it));
        let is_limited = names.is_some() || uuids.is_some();
        let names = names.into_iter().flatten().map(HostId::Name);
        let listed = names.chain(uuids.into_iter().flatten().map(HostId::Uuid));
        let listed = listed.filter(|it| !denied.contains(it)).map(|it| it.to_string());
        let listed: Vec<_> = listed.collect();
        let VisibleTo { only, except } = self.visible_at(export);
        let shown = only.iter().filter(|it| !except.contains(it)).map(Wwn::to_string).collect();
        let has_all_ports = only.is_empty() && self.configured.has_fcoe;
        MayConnect {
            except: denied.iter().filter(|_| !is_limited).map(HostId::to_string).collect(),
            hosts: is_limited.then_some(listed),
            also: also.map(|it| it.to_string()).collect(),
            ports_except: except.iter().filter(|_| has_all_ports).map(Wwn::to_string).collect(),
            ports: (!has_all_ports).then_some(shown),
        }
    }

    /// The fingerprints of the keys of a host, if it has any.
    pub(super) fn fingerprint(&self, who: Who) -> Option<String> {
        let Who::Host(HostId::Name(name)) = who else { return None };
        let keys = self.configured.access.hosts.iter().filter(|(_, it)| **it == name);
        let keys: Vec<_> = keys.map(|(key, _)| key.fingerprint()).collect();
        (!keys.is_empty()).then(|| keys.join(" "))
    }

    /// The hosts of an export with that decision.
    pub(super) fn decided(&self, export: &str, decision: Decision) -> Vec<String> {
        let hosts = self.decisions.of(export).filter(|(_, it)| *it == decision);
        hosts.map(|(host, _)| host.to_owned()).collect()
    }

    /// Has the decisions about an export hold for one that is to be cloned from it as well. Returns
    /// those that this takes the place of.
    ///
    /// # Errors
    /// `Other` if they can't be kept. Nothing has changed then.
    pub(super) fn inherit(
        &mut self,
        clone: &str,
        export: &str,
    ) -> Result<BTreeMap<String, Decision>> {
        let (all, before) = (self.decisions.clone(), self.decisions.all_of(clone));
        let kept = self.decisions.put(clone, self.decisions.all_of(export));
        kept.inspect_err(|_| self.decisions = all).map(|()| before)
    }

    /// Has the decisions about an export that is not cloned be those of before.
    pub(super) fn disinherit(&mut self, clone: &str, before: BTreeMap<String, Decision>) {
        if let Err(error) = self.decisions.put(clone, before) {
            tracing::warn!("{error}; what was decided for {clone} counts after a restart");
        }
    }

    /// Forgets the configured rights at an export that is not served, or not any more.
    pub(super) fn forget_configured(&mut self, export: &str) {
        self.configured.allowed.remove(export);
        self.configured.initiators.remove(export);
    }

    /// Forgets the rights at an export that is gone for good: another of its name is to begin with
    /// none.
    pub(super) fn forget(&mut self, export: &str) {
        self.forget_configured(export);
        if let Err(error) = self.decisions.retain(|of, _, _| of != export) {
            tracing::warn!("{error}; what was decided about {export} counts after a restart");
        }
    }

    /// Forgets the exports that a host was let in to by command. Where it was kept out, it stays
    /// so.
    ///
    /// # Errors
    /// `Other` if that can't be kept. Nothing has changed then.
    pub(super) fn forget_allowed(&mut self, host: &str) -> Result<()> {
        let before = self.decisions.clone();
        let kept =
            self.decisions.retain(|_, of, decision| of != host || decision == Decision::Denied);
        kept.inspect_err(|_| self.decisions = before)
    }

    /// Whether anything is decided about an export of that name.
    pub(super) fn has_decided(&self, export: &str) -> bool {
        self.decisions.of(export).next().is_some()
    }

    /// Has the rights at an export be those under its other name, which is kept. Sessions and
    /// ports have them already.
    pub(super) fn rename(&mut self, from: &str, to: &str) {
        let Configured { allowed, initiators, .. } = &mut self.configured;
        if let Some(hosts) = allowed.remove(from) {
            allowed.insert(to.to_owned(), hosts);
        }
        if let Some(ports) = initiators.remove(from) {
            initiators.insert(to.to_owned(), ports);
        }
    }

    /// The decisions of commands, to be moved with what is kept of a renamed export.
    pub(super) fn decisions(&mut self) -> &mut Decisions {
        &mut self.decisions
    }

    /// Takes another configuration. Its exports that the target does not serve mean nothing, and
    /// one that it lacks stays as it was. Sessions of hosts that may not connect any more end, and
    /// commands of ports that may not have an export any more. Returns how many sessions end.
    pub(super) fn reconfigure(&mut self, configured: Configured, served: &Served) -> usize {
        let before = std::mem::replace(&mut self.configured, configured);
        for (export, allowed) in before.allowed {
            self.configured.allowed.entry(export).or_insert(allowed);
        }
        for (export, initiators) in before.initiators {
            self.configured.initiators.entry(export).or_insert(initiators);
        }
        self.forget_granted();
        let ended = served.exports.set_access(self);
        log_ended(&ended);
        ended.len()
    }

    /// Forgets who was let in by command, and is by the configuration now: from now on the
    /// configuration counts.
    fn forget_granted(&mut self) {
        let Self { configured, decisions, .. } = self;
        let is_granted = |export: &str, host: &str| {
            configured.who(host).is_some_and(|who| configured.lists(export, who))
        };
        if let Err(error) = decisions.retain(|export, host, decision| {
            decision == Decision::Denied || !is_granted(export, host)
        }) {
            tracing::warn!("{error}");
        }
    }

    /// Lets a host or a port have an export.
    ///
    /// # Errors
    /// `NotFound` if there is no such export or host; `Usage` if it could not connect all the same;
    /// `Other` if the decision can't be kept. Nothing has changed then.
    pub(super) fn allow(&mut self, served: &Served, export: &str, who: &str) -> Result<Changed> {
        let who = self.resolve(served, export, who)?;
        let is_granted = self.configured.lists(export, who);
        let decision = (!is_granted).then_some(Decision::Allowed);
        let before = self.decisions.clone();
        if let Err(error) = self.decisions.set(export, &who.to_string(), decision) {
            self.decisions = before;
            return Err(error);
        }
        Ok(self.apply(served, export, Some(who)))
    }

    /// Keeps a host or a port from an export: its sessions end, or its commands. If that can't be
    /// kept over a restart, it is done all the same.
    ///
    /// # Errors
    /// `NotFound` if there is no such export or host; `Usage` if those of that kind are not let in.
    pub(super) fn deny(&mut self, served: &Served, export: &str, who: &str) -> Result<Changed> {
        let who = self.resolve(served, export, who)?;
        let kept = self.decisions.set(export, &who.to_string(), Some(Decision::Denied));
        let changed = self.apply(served, export, Some(who));
        Ok(Changed { not_kept: kept.err(), ..changed })
    }

    /// Takes back the decisions about a host at an export, or about all: the configuration counts
    /// again.
    ///
    /// # Errors
    /// `NotFound` if there is no such export or host; `Other` if that can't be kept. Nothing has
    /// changed then.
    pub(super) fn revert(
        &mut self,
        served: &Served,
        export: &str,
        host: Option<&str>,
    ) -> Result<Changed> {
        let is_decided = |host: &str| self.decisions.of(export).any(|(about, _)| about == host);
        served.exports.check(export)?;
        let host = match host {
            // Its [[host]] may be gone.
            Some(host) if is_decided(host) => Some(host.to_owned()),
            Some(host) => Some(self.resolve(served, export, host)?.to_string()),
            None => None,
        };
        let before = self.decisions.clone();
        let is_other = |of: &str, about: &str, _| {
            of != export || host.as_ref().is_some_and(|host| host != about)
        };
        if let Err(error) = self.decisions.retain(is_other) {
            self.decisions = before;
            return Err(error);
        }
        Ok(self.apply(served, export, None))
    }

    fn apply(&self, served: &Served, export: &str, who: Option<Who>) -> Changed {
        let (ended, left) = served.exports.set_allowed(export, self);
        log_ended(&ended);
        Changed { who, ended, left, not_kept: None }
    }

    /// Whom a command about an export is about.
    fn resolve(&self, served: &Served, export: &str, text: &str) -> Result<Who> {
        served.exports.check(export)?;
        let Access { required, hosts, .. } = &self.configured.access;
        let host = match self.configured.who(text) {
            Some(Who::Host(host)) => Some(host),
            Some(who) if self.configured.has_fcoe => return Ok(who),
            Some(who) => {
                let what = format!("{who} is a port of FCoE, and target `{}`", self.target);
                return Err(Error::new(Code::Usage, format!("{what} is not served over FCoE")));
            }
            None => None,
        };
        let for_keys = *required || self.allowed_at(export).names.is_some();
        if let Some(host) = host.filter(|host| !for_keys || matches!(host, HostId::Name(_))) {
            return Ok(Who::Host(host));
        }
        let names = few_of(&hosts.values().map(Name::to_string).collect());
        let (code, message) = match host {
            Some(_) => {
                let what = "is for hosts with a key: give the name of one";
                (Code::Usage, format!("`{export}` {what}, of: {names}"))
            }
            None if for_keys => {
                let what = format!("target `{}` has no host `{text}`", self.target);
                let names = if names.is_empty() { "none".to_owned() } else { names };
                (Code::NotFound, format!("{what}; it has: {names}"))
            }
            None => {
                let what = format!("target `{}` has no host `{text}`", self.target);
                let remedy = "a host without a key is named by its UUID, as `tyche list -o json` \
                              shows it at the target";
                (Code::NotFound, format!("{what}; {remedy}"))
            }
        };
        Err(Error::new(code, message))
    }
}

fn log_ended(ended: &[SessionInfo]) {
    for session in ended {
        let key = session.key.map(|key| key.fingerprint());
        tracing::warn!(host = %session.host_name, key, session = %session.session,
            "the host may not connect any more: its session ends");
    }
}

#[cfg(test)]
mod tests;

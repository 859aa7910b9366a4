//! Answers on the network: machines that are copies of another, and with `--target` whether
//! that one is heard, and the longest frames that the paths to it carry.

use std::time::Duration;

use tyche_engine::identity;
use tyche_link::Link;
use tyche_link::ip::{End, ListenAddress};
use tyche_native::{Discovery, Found, ProbedPath, discover, probe_paths};
use tyche_numa::Placement;
use tyche_proto::TargetId;
use tyche_proto::crypto::PublicKey;
use tyche_proto::wire::{ETHERTYPE, Name};
use tyche_session::{KnownTargets, LinkOptions, open_usable};
use uuid::Uuid;

use crate::shared::error::Code;
use crate::shared::links::mtu;
use crate::shared::report::{DoctorPath, Finding};

use super::machine::Machine;

/// Time for targets to answer, and for probes.
const LISTEN: Duration = Duration::from_millis(600);

/// The target that a user names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// By its name or UUID, on all interfaces and at the addresses that tychetab has for it.
    Target(TargetId),
    /// At an address: `udp:HOST:PORT` and the like.
    At(String),
}

impl Wanted {
    /// Parses an argument.
    ///
    /// # Errors
    /// It is neither a name nor an address.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if ListenAddress::is_named_by(text) {
            return Ok(Self::At(text.to_owned()));
        }
        if let Some(uuid) = Uuid::parse_str(text).ok().filter(|_| text.len() == 36) {
            return Ok(Self::Target(TargetId::Uuid(uuid)));
        }
        let name = Name::new(text).filter(|name| !name.is_empty() && !text.contains('/'));
        let name = name.ok_or("write a target's name or UUID, or udp:, tcp: or rdma:HOST:PORT")?;
        Ok(Self::Target(TargetId::Name(name)))
    }

    fn is(&self, found: &Found) -> bool {
        match self {
            Self::Target(TargetId::Name(name)) => found.offer.name == *name,
            Self::Target(TargetId::Uuid(uuid)) => found.offer.target == *uuid,
            Self::Target(TargetId::Any) => true,
            // Nobody else was asked.
            Self::At(_) => true,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Target(TargetId::Name(name)) => name.to_string(),
            Self::Target(TargetId::Uuid(uuid)) => uuid.to_string(),
            Self::Target(TargetId::Any) => "any target".to_owned(),
            Self::At(link) => link.clone(),
        }
    }

    /// Its key, if this machine knows it: it may be silent.
    fn key(&self) -> Option<PublicKey> {
        let Self::Target(target) = self else { return None };
        let known = KnownTargets::read().ok()?;
        known.find(target).ok()?.map(|it| it.key)
    }

    /// The links on which to ask for it, and why one that is named does not open.
    fn links(&self, machine: &Machine) -> (Vec<Box<dyn Link>>, Option<String>) {
        let named: Vec<_> = match self {
            Self::At(link) => vec![link.clone()],
            Self::Target(_) => {
                let prefix = format!("{}/", self.text());
                let lines = machine.entries().filter(|(line, _)| line.export.starts_with(&prefix));
                let links = lines.flat_map(|(_, entry)| entry.connect.session.common.links);
                links.filter(|link| ListenAddress::is_named_by(link)).collect()
            }
        };
        let placement = Placement::default();
        let options = LinkOptions { ethertype: ETHERTYPE, qdisc: false, placement: &placement };
        let mut links = match self {
            Self::At(_) => Vec::new(),
            Self::Target(_) => open_usable(),
        };
        if !named.is_empty() {
            match options.open_available(&named, End::Host) {
                Ok(opened) => links.extend(opened.links),
                Err(error) => return (links, Some(error.to_string())),
            }
        }
        (links, None)
    }
}

/// The findings, and the paths to the target that was named.
pub(super) fn check(machine: &Machine, wanted: Option<&Wanted>) -> (Vec<Finding>, Vec<DoctorPath>) {
    let Ok(host) = identity::host() else { return (Vec::new(), Vec::new()) };
    let key = wanted.and_then(Wanted::key);
    let links = || match wanted {
        Some(wanted) => wanted.links(machine),
        None => (open_usable(), None),
    };
    let (opened, obstacle) = links();
    let discovery = match opened.is_empty() {
        true => Discovery::default(),
        false => discover(opened, ETHERTYPE, (host, key.as_ref()), Name::EMPTY, LISTEN),
    };
    let mut findings = copies(machine, &discovery.found);
    findings.extend(hosts(machine));
    let Some(wanted) = wanted else { return (findings, Vec::new()) };
    let mut paths = Vec::<ProbedPath>::new();
    for found in discovery.found.iter().filter(|found| wanted.is(found)) {
        let path = ProbedPath::new(&found.link, found.mac, found.offer.target);
        if !paths.contains(&path) {
            paths.push(path);
        }
    }
    if paths.is_empty() {
        findings.push(unheard(wanted, &discovery, obstacle));
        return (findings, Vec::new());
    }
    let probed = probe_paths(links().0, ETHERTYPE, key.as_ref(), paths, LISTEN);
    findings.extend(probed.iter().filter_map(|path| narrow(wanted, path)));
    let report = |path: &ProbedPath| DoctorPath {
        link: path.link.clone(),
        mac: path.mac.to_string(),
        frame_len: path.frame_len as u64,
        frame_len_max: path.frame_len_max as u64,
    };
    (findings, probed.iter().map(report).collect())
}

/// The finding that a target was not heard.
fn unheard(wanted: &Wanted, discovery: &Discovery, obstacle: Option<String>) -> Finding {
    let target = wanted.text();
    if let Some(foreign) = discovery.foreign.first() {
        let what = format!(
            "{target} was not heard, but one on {} that speaks versions {} of the protocol",
            foreign.link, foreign.versions
        );
        let found = Finding::error("target-version", Code::Unreachable, what);
        return found.remedy("install the same release on both");
    }
    let mut heard: Vec<_> = discovery.found.iter().map(|it| it.offer.name.to_string()).collect();
    heard.sort();
    heard.dedup();
    let heard = if heard.is_empty() { "nobody".to_owned() } else { heard.join(", ") };
    let obstacle = obstacle.map_or_else(String::new, |it| format!(" ({it})"));
    let what = format!("target {target} is not heard{obstacle}; heard: {heard}");
    let remedy = "check that `tyche serve` runs there, cables, VLANs and firewalls; a silent \
                  target answers only a host that knows its key";
    Finding::error("target-unheard", Code::Unreachable, what).remedy(remedy)
}

/// The finding on a path that carries only shorter frames than its link.
fn narrow(wanted: &Wanted, path: &ProbedPath) -> Option<Finding> {
    let target = wanted.text();
    let ProbedPath { link, mac, frame_len, frame_len_max, .. } = path;
    if *frame_len == 0 {
        let what =
            format!("{target} is heard on {link} ({mac}), and answers no probe of any length");
        let found = Finding::error("mtu-on-the-way", Code::Link, what);
        return Some(found.remedy("raise the MTU of everything on the way to 1500"));
    }
    (frame_len < frame_len_max).then(|| {
        let [found, own] = [frame_len, frame_len_max].map(|len| mtu(*len as u64));
        let what = format!(
            "to {target} over {link} ({mac}) frames for an MTU of {found} get through, and none \
             for the interface's own of {own}"
        );
        Finding::warning("mtu-on-the-way", what)
            .remedy("raise the MTU of the switch, or of the target's interface")
    })
}

/// Targets that are copies: of this machine, or of each other.
fn copies(machine: &Machine, found: &[Found]) -> Vec<Finding> {
    let (own, mut findings) = (own_targets(), Vec::new());
    let (mut seen, mut copied) = (Vec::<&Found>::new(), Vec::new());
    for it in found.iter().filter(|it| !ListenAddress::is_named_by(&it.link)) {
        let mac = it.mac.to_string();
        let name = &it.offer.name;
        let is_here = machine.interfaces.iter().any(|interface| interface.mac == mac);
        // It may be heard on several interfaces.
        let is_new = copied.iter().all(|target| *target != it.offer.target);
        if own.contains(&it.offer.target) && !is_here && is_new {
            copied.push(it.offer.target);
            let what = format!(
                "another machine ({mac}) serves as target {name} with the identity that this one \
                 has kept: one is a copy of the other"
            );
            findings.push(copy(what));
        }
        match seen.iter().find(|other| other.offer.target == it.offer.target) {
            Some(other) if other.offer.name != *name => {
                findings.push(twins(&other.offer.name, name, &mac));
            }
            Some(_) => {}
            None => seen.push(it),
        }
    }
    findings
}

/// UUIDs of the targets that this machine has served.
fn own_targets() -> Vec<Uuid> {
    /// A target's record, as far as it is looked at.
    #[derive(serde::Deserialize)]
    struct Kept {
        uuid: Uuid,
    }
    let records = std::fs::read_dir(identity::state_dir().join("targets"));
    let files = records.into_iter().flatten().flatten().map(|it| it.path().join("target.json"));
    let texts = files.filter_map(|file| std::fs::read_to_string(file).ok());
    texts.filter_map(|text| Some(serde_json::from_str::<Kept>(&text).ok()?.uuid)).collect()
}

fn twins(one: &Name, other: &Name, mac: &str) -> Finding {
    let what =
        format!("targets {one} and {other} ({mac}) have one UUID: a host takes them for one");
    let found = Finding::error("duplicate-target", Code::Config, what);
    found.remedy("give the copy an identity of its own: an empty state directory, and a machine-id")
}

fn copy(what: String) -> Finding {
    let remedy = "on the copy: `rm /etc/machine-id; systemd-machine-id-setup`, an empty state \
                  directory, and a restart";
    Finding::error("duplicate-machine-id", Code::Config, what).remedy(remedy)
}

/// Hosts of this machine's targets that are copies of each other, as far as they say their names.
fn hosts(machine: &Machine) -> Vec<Finding> {
    let exports = machine.targets.iter().flat_map(|target| &target.exports);
    let sessions: Vec<_> = exports.flat_map(|export| &export.sessions).collect();
    let mut findings = Vec::new();
    for (index, session) in sessions.iter().enumerate() {
        let before = &sessions[..index];
        // With a key they are told apart by that.
        let is_twin = |it: &&&crate::shared::report::ExportSession| {
            it.key.is_none() && it.host == session.host && it.host_name != session.host_name
        };
        if session.key.is_none()
            && let Some(other) = before.iter().find(is_twin)
        {
            let what = format!(
                "hosts {} and {} have the same machine-id: one is a copy of the other",
                other.host_name, session.host_name
            );
            findings.push(copy(what));
        }
    }
    findings.dedup();
    findings
}

#[cfg(test)]
mod tests {
    use tyche_proto::wire::{Mac, Offer, Versions};

    use super::*;

    fn found(target: u128, name: &str, mac: u8) -> Found {
        let offer = Offer {
            nonce: 1,
            versions: Versions::OURS,
            target: Uuid::from_u128(target),
            name: Name::new(name).unwrap(),
            first: 0,
            total: 0,
            exports: Default::default(),
            key: None,
        };
        Found { link: "eth1".to_owned(), mac: Mac([2, 0, 0, 0, 0, mac]), offer }
    }

    #[test]
    fn two_targets_or_hosts_with_one_identity_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let mut machine = Machine::of_files(dir.path());
        // One target on two interfaces is no twin of itself.
        let one = [found(7, "store1", 1), found(7, "store1", 2), found(8, "store2", 3)];
        assert_eq!(copies(&machine, &one), []);
        let twins = copies(&machine, &[found(7, "store1", 1), found(7, "store2", 2)]);
        assert_eq!(twins[0].id, "duplicate-target");
        let session = |host: u128, name: &str| {
            let host = Uuid::from_u128(host);
            serde_json::json!({ "host": host, "host_name": name })
        };
        let target = serde_json::json!({ "name": "store1", "exports": [{
            "export": "vm1",
            "sessions": [session(1, "a"), session(2, "b"), session(1, "a"), session(1, "c")],
        }] });
        machine.targets = vec![serde_json::from_value(target).unwrap()];
        let found = hosts(&machine);
        assert_eq!((found.len(), &*found[0].id), (1, "duplicate-machine-id"), "{found:?}");
        assert!(found[0].what.contains("hosts a and c"), "{found:?}");
    }

    #[test]
    fn a_target_is_named_by_name_uuid_or_address() {
        let named = |text: &str| Wanted::parse(text).unwrap();
        assert_eq!(named("store1").text(), "store1");
        let uuid = Uuid::from_u128(7);
        assert_eq!(named(&uuid.to_string()), Wanted::Target(TargetId::Uuid(uuid)));
        assert_eq!(named("udp:10.0.0.1:8650"), Wanted::At("udp:10.0.0.1:8650".to_owned()));
        assert!(Wanted::parse("store1/vm1").is_err());
        assert!(Wanted::parse("").is_err());
    }
}

//! Hosts that were added by command, beside those of the configuration, which wins.

use std::collections::{BTreeMap, BTreeSet};

use tyche_proto::crypto::PublicKey;

use super::config::Config;
use crate::shared::host::AddedHost;

/// The owners of the keys that a configuration names, in words. `own`: the keys of the target.
pub(super) fn owners(config: &Config, own: &[PublicKey]) -> BTreeMap<PublicKey, String> {
    let mut owners = BTreeMap::new();
    for host in &config.host {
        owners.extend(host.key.iter().map(|key| (*key, format!("[[host]] {}", host.name))));
    }
    for admin in &config.admin {
        owners.extend(admin.key.iter().map(|key| (*key, format!("admin {}", admin.name))));
    }
    owners.extend(own.iter().map(|key| (*key, "this target".to_owned())));
    owners
}

/// Adds hosts to a configuration. One whose name is that of a `[[host]]` is left out, and one whose
/// key is somebody else's is kept idle; returns the reasons. `own`: the keys of the target.
pub(super) fn join(config: &mut Config, added: Vec<AddedHost>, own: &[PublicKey]) -> Vec<String> {
    let owners = owners(config, own);
    let names: BTreeSet<_> = config.host.iter().map(|it| it.name.as_str()).collect();
    let (mut joined, mut idle, mut left_out) = (Vec::new(), Vec::new(), Vec::new());
    for host in added {
        let name = &host.name;
        if names.contains(name.as_str()) {
            left_out.push(format!("[[host]] {name} counts instead of the host of that name"));
            continue;
        }
        let owner = owners.get(&host.key).map(|owner| format!("its key is that of {owner}"));
        let why = if own.is_empty() { Some("this target has no key".to_owned()) } else { owner };
        match why {
            None => joined.push(host),
            Some(why) => {
                left_out.push(format!("host {name} is not let in: {why}"));
                idle.push((host, why));
            }
        }
    }
    (config.added_hosts, config.idle_hosts) = (joined, idle);
    left_out
}

/// The hosts that were added by command, also those that are not let in.
pub(super) fn added(config: &Config) -> Vec<AddedHost> {
    let idle = config.idle_hosts.iter().map(|(host, _)| host);
    config.added_hosts.iter().chain(idle).cloned().collect()
}

#[cfg(test)]
mod tests {
    use tyche_proto::crypto::SecretKey;

    use super::super::config::{Admin, Host};
    use super::*;

    #[test]
    fn the_configuration_wins_over_hosts_of_its_names_and_keys() {
        let keys = [1, 2, 3, 4].map(|it| SecretKey::from_random([it; 32]).public());
        let [own, admin, host, node] = keys;
        let of = |name: &str, key| AddedHost {
            name: name.to_owned(),
            key,
            iops: None,
            bytes_per_second: None,
        };
        let config = Config {
            host: vec![Host::parse(&format!("alpha={host}")).unwrap()],
            admin: vec![Admin { name: "ops".into(), key: vec![admin], read_only: true }],
            ..Config::default()
        };
        let added = vec![of("node", node), of("a", own), of("b", admin), of("c", host)];
        let all = [&added[..], &[of("alpha", node)]].concat();
        let mut joined = config.clone();
        let left_out = join(&mut joined, all, &[own]);
        let expected = [
            "host a is not let in: its key is that of this target",
            "host b is not let in: its key is that of admin ops",
            "host c is not let in: its key is that of [[host]] alpha",
            "[[host]] alpha counts instead of the host of that name",
        ];
        assert_eq!(left_out, expected);
        assert_eq!(joined.added_hosts, added[..1]);
        assert_eq!(super::added(&joined), added, "the others are kept");
        // They are let in when the configuration does not name them any more.
        let mut next = Config::default();
        assert_eq!(join(&mut next, super::added(&joined), &[keys[3], own]).len(), 2);
        assert_eq!(next.added_hosts, added[2..]);
        let mut without = Config::default();
        let left_out = join(&mut without, added, &[]);
        assert!(left_out.len() == 4 && left_out[0].ends_with("this target has no key"));
        assert_eq!(without.added_hosts, []);
    }
}

//! The report on a configuration that is read again: what has changed, and what takes a restart.

use super::config::{Config, Export};

/// Logs the changes of a configuration that take a restart, each with what is served meanwhile.
/// Returns whether there were any.
pub(super) fn log_pending(served: &Config, now: &Config) -> bool {
    let pending = pending(served, now);
    for change in &pending {
        tracing::warn!("{change}: that takes a restart");
    }
    !pending.is_empty()
}

/// The changes that take a restart, in words.
fn pending(served: &Config, now: &Config) -> Vec<String> {
    let mut changes = Vec::new();
    let named = |config: &Config, name: &str| {
        config.export.iter().find(|export| export.name == name).cloned()
    };
    for export in &now.export {
        match named(served, &export.name) {
            Some(before) if properties(&before) != properties(export) => {
                changes.push(format!("export {} has other properties", export.name));
            }
            _ => {}
        }
    }
    let links = |config: &Config| {
        let ports = config.fcoe.iter().map(|port| format!("{} (FCoE)", port.link));
        config.link.iter().cloned().chain(ports).collect::<Vec<_>>()
    };
    let (before, after) = (links(served), links(now));
    // Others are served at once, unless all interfaces were.
    let waits = |link: &&String| served.link.is_empty() || link.ends_with("(FCoE)");
    for link in after.iter().filter(|link| !before.contains(link)).filter(waits) {
        changes.push(format!("link {link} is new"));
    }
    for link in before.iter().filter(|link| !after.contains(link)) {
        changes.push(format!("link {link} is removed"));
    }
    let others = [
        ("name", served.name != now.name),
        ("threads", served.threads != now.threads),
        ("limits", served.limits != now.limits),
        ("key", served.key != now.key),
        ("silent", served.is_silent != now.is_silent),
        ("udp_discovery", served.is_hidden != now.is_hidden),
        ("control", served.control != now.control),
        ("fcoe_vlan", served.fcoe_vlan != now.fcoe_vlan),
    ];
    let others = others.into_iter().filter(|(_, differs)| *differs);
    changes.extend(others.map(|(key, _)| format!("`{key}` has changed")));
    changes
}

/// The properties of an export that are read at the start only: not its name, the place that
/// defines it, and who may have it.
fn properties(export: &Export) -> impl PartialEq {
    let &Export {
        ref path,
        uuid,
        read_only,
        write_back,
        block_size,
        shared,
        name: _,
        place: _,
        hosts: _,
        allow: _,
        initiators: _,
    } = export;
    (path.clone(), uuid, [read_only, write_back, shared], block_size)
}

#[cfg(test)]
mod tests {
    use super::super::config::Initiators;
    use super::*;

    #[test]
    fn changes_that_take_a_restart_are_named_one_by_one() {
        let export = |text: &str| Export::parse(text).unwrap();
        let link = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let served = Config {
            export: vec![export("a=mem:1M"), export("b=mem:1M"), export("c=mem:1M")],
            link: link(&["eth0", "eth1"]),
            ..Config::default()
        };
        let mut now = served.clone();
        assert_eq!(pending(&served, &now), [""; 0]);
        now.export[0].initiators = Initiators::Any;
        assert_eq!(pending(&served, &now), [""; 0], "who may connect is taken at once");
        now.export = vec![export("a=mem:1M"), export("b=mem:2M"), export("d=mem:1M")];
        now.link = link(&["eth1", "eth2"]);
        now.limits.channels = 7;
        assert_eq!(
            pending(&served, &now),
            ["export b has other properties", "link eth0 is removed", "`limits` has changed",]
        );
    }
}

//! Shell completion: the names of the exports, sessions, targets and interfaces of this moment.
//!
//! A shell's script calls the program itself, with [`VARIABLE`] set. Nothing here fails: a user
//! without privileges gets no candidates.

use std::path::Path;
use std::time::Duration;

use clap::Command;
use clap_complete::env::CompleteEnv;
use clap_complete::{ArgValueCandidates, CompletionCandidate};
use tyche_link::packet::usable_interfaces;
use tyche_proto::wire::{ETHERTYPE, Name};
use tyche_session::{KnownTargets, open_usable};

use crate::output::bytes;
use crate::shared::identity;
use crate::shared::report::SessionReport;
use crate::shared::sessions;
use crate::shared::setting::Setting;
use crate::shared::state::State;
use crate::shared::tab::{self, Tab};

/// Environment variable that names the shell.
pub(crate) const VARIABLE: &str = "TYCHE_COMPLETE";
/// Time for targets to answer: the user waits after each keystroke.
const DISCOVER_FOR: Duration = Duration::from_millis(150);

/// Answers a completing shell and ends the program; returns if there is none.
pub(crate) fn answer_shell(command: fn() -> Command) {
    CompleteEnv::with_factory(command).var(VARIABLE).complete();
}

/// The exports that could be connected: those of tychetab, and those that targets offer.
pub(crate) fn exports() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let listed = Tab::read(Path::new(tab::PATH)).map(Tab::into_lines).unwrap_or_default();
        let mut exports: Vec<_> = listed.iter().filter_map(|it| named(&it.export, "")).collect();
        let Ok(host) = identity::host() else { return exports };
        let found = tyche_native::discover(
            open_usable(),
            ETHERTYPE,
            (host, None),
            Name::EMPTY,
            DISCOVER_FOR,
        );
        for found in &found.found {
            for export in &found.offer.exports {
                let about = format!("{} of {}", bytes(export.geometry.size), found.offer.name);
                exports.extend(named(export.name.as_str(), &about));
            }
        }
        exports.sort_by(|a, b| a.get_value().cmp(b.get_value()));
        exports.dedup_by(|a, b| a.get_value() == b.get_value());
        exports
    })
}

/// The exports of the targets on this machine.
pub(crate) fn served_exports() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let targets = sessions::targets().unwrap_or_default();
        let exports = targets.iter().flat_map(|(_, report)| &report.exports);
        exports.filter_map(|it| named(&it.export, "")).collect()
    })
}

/// The properties of an export that can be changed; their values follow.
pub(crate) fn settings() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let offer = |(key, about): (&str, &str)| {
            CompletionCandidate::new(format!("{key}=")).help(Some(about.to_owned().into()))
        };
        Setting::KEYS.map(offer).into()
    })
}

/// The targets whose keys this machine knows, and those that tychetab names.
pub(crate) fn known_targets() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let known = KnownTargets::read().map(|it| it.targets().to_vec()).unwrap_or_default();
        let mut names: Vec<_> = known.iter().map(|it| it.name.to_string()).collect();
        let listed = Tab::read(Path::new(tab::PATH)).map(Tab::into_lines).unwrap_or_default();
        let targets = listed.iter().filter_map(|line| line.export.split_once('/'));
        names.extend(targets.map(|it| it.0.to_owned()));
        names.sort();
        names.dedup();
        names.iter().filter_map(|name| named(name, "")).collect()
    })
}

/// The targets on this machine.
pub(crate) fn served_targets() -> ArgValueCandidates {
    ArgValueCandidates::new(targets)
}

/// The links of the session or target that the command line names so far; of all sessions if it
/// names none.
pub(crate) fn used_links() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let sessions = sessions::named_sessions(None).unwrap_or_default();
        let words: Vec<_> = std::env::args().collect();
        let targets = sessions::targets().unwrap_or_default();
        let of_target = targets.iter().filter(|(_, target)| words.contains(&target.name));
        let of_target = of_target.flat_map(|(_, target)| &target.links);
        let is_named =
            |session: &&SessionReport| words.iter().any(|word| session.record.is_named(word));
        let mut of: Vec<_> = sessions.iter().filter(is_named).collect();
        let of_target: Vec<_> = of_target.map(|link| &link.interface).collect();
        if of.is_empty() && of_target.is_empty() {
            of = sessions.iter().collect();
        }
        let links = of.iter().flat_map(|session| session.links()).map(|link| &link.interface);
        links.chain(of_target).filter_map(|link| named(link, "")).collect()
    })
}

/// The sessions of this machine.
pub(crate) fn connected() -> ArgValueCandidates {
    ArgValueCandidates::new(session_names)
}

/// The sessions and targets of this machine.
pub(crate) fn connected_or_served() -> ArgValueCandidates {
    ArgValueCandidates::new(|| session_names().into_iter().chain(targets()).collect())
}

/// The Ethernet interfaces of this machine.
pub(crate) fn interfaces() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let interfaces = usable_interfaces().unwrap_or_default();
        interfaces.iter().filter_map(|it| named(&it.name, &format!("MTU {}", it.mtu))).collect()
    })
}

fn targets() -> Vec<CompletionCandidate> {
    let targets = sessions::targets().unwrap_or_default();
    targets.iter().filter_map(|(_, report)| named(&report.name, "target")).collect()
}

/// Sessions by export and by device.
fn session_names() -> Vec<CompletionCandidate> {
    let states = State::all().unwrap_or_default();
    let names = states.iter().flat_map(|(_, State { export, device, .. })| {
        let device = device.to_str().unwrap_or_default();
        [named(export, device), named(device, export)]
    });
    names.flatten().collect()
}

/// A completion candidate. `None` if the name has characters that a shell may interpret: it may
/// come from the network.
fn named(name: &str, about: &str) -> Option<CompletionCandidate> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-+:@/".contains(&byte);
    let is_name = !name.is_empty() && !name.starts_with('-') && name.bytes().all(is_plain);
    let about = (!about.is_empty()).then(|| about.to_owned().into());
    is_name.then(|| CompletionCandidate::new(name).help(about))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_would_run_is_not_offered() {
        for name in ["vm1", "vg0/vm-1", "tcp:[::1]", "a b", "$(reboot)", "`x`", "-f", "a;b", ""] {
            let plain = matches!(name, "vm1" | "vg0/vm-1");
            assert_eq!(named(name, "").is_some(), plain, "{name:?}");
        }
    }
}

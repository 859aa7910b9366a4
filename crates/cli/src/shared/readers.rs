//! The group whose members may ask the daemons of this machine for reports, and for nothing else:
//! for `tyche exporter`, which needs no privilege then.
//!
//! The kernel keeps others away from a daemon's directory and its socket. Who gets through and is
//! not root may only look: see [`control`](crate::shared::control). Without such a group everything
//! is root's.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{Gid, Mode, chmod, chown};
use rustix::io;
use rustix::process::getegid;
use tyche_session::set;

/// The group's name.
const GROUP: &str = "tyche";
/// Environment variable that names another one.
const GROUP_VARIABLE: &str = "TYCHE_GROUP";
/// The groups of this machine. Those that a network has are not looked at: it may be down.
const GROUPS: &str = "/etc/group";

/// Gives a file or directory of this process to the group, with these rights beside those of its
/// owner.
pub(crate) fn admit(path: &Path, rights: Mode) {
    let Some(group) = group() else { return };
    if let Err(error) = give(path, group, rights) {
        tracing::debug!(%error, path = %path.display(), "the group can't have it");
    }
}

fn give(path: &Path, group: Gid, rights: Mode) -> io::Result<()> {
    let now = fs::metadata(path).map_err(|_| io::Errno::NOENT)?;
    let (mode, gid) = (Mode::from_raw_mode(now.mode()), Gid::from_raw(now.gid()));
    if gid != group && gid != getegid() {
        // An administrator has given it to others.
        return Err(io::Errno::PERM);
    }
    if gid != group {
        // First: no other group gets the rights.
        chown(path, None, Some(group))?;
    }
    chmod(path, mode.difference(Mode::RWXG) | rights)
}

/// The group, if this machine has it.
fn group() -> Option<Gid> {
    let name = set(GROUP_VARIABLE);
    let name = name.as_ref().map_or(Some(GROUP), |name| name.to_str())?;
    number(&fs::read_to_string(GROUPS).ok()?, name).map(Gid::from_raw)
}

/// The number of a group in a file such as /etc/group.
fn number(groups: &str, name: &str) -> Option<u32> {
    let mut lines = groups.lines().map(|line| line.split(':'));
    lines.find_map(|mut fields| (fields.next()? == name).then(|| fields.nth(1)?.parse().ok())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_found_by_its_whole_name() {
        let groups = "root:x:0:\ntyche2:x:7:\nbad\ntyche:x:113:prometheus,eve\n";
        assert_eq!(number(groups, "tyche"), Some(113));
        assert_eq!(number(groups, "tych"), None);
        assert_eq!(number("tyche:x:many:\n", "tyche"), None);
    }
}

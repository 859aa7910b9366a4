//! Other users of the disks: LVM, md, multipath, mounts.

use std::path::{Path, PathBuf};

use crate::shared::error::Code;
use crate::shared::report::Finding;

use super::machine::Machine;

const LVM: &str = "/etc/lvm/lvm.conf";
const LVM_DEVICES: &str = "/etc/lvm/devices/system.devices";
const MULTIPATH: &str = "/etc/multipath.conf";
/// Paths of mdadm.conf, on Debian and elsewhere.
const MDADM: [&str; 2] = ["/etc/mdadm/mdadm.conf", "/etc/mdadm.conf"];

pub(super) fn check(machine: &Machine) -> Vec<Finding> {
    let mut findings = Vec::new();
    let exported = exported(machine);
    for disk in &exported {
        findings.extend(taken(machine, disk));
    }
    // Logical volumes are not looked into by default.
    let whole: Vec<_> = exported.iter().filter(|disk| !disk.is_mapped()).collect();
    findings.extend(whole.iter().filter_map(|disk| scanned(machine, disk)));
    if let Some(disk) = whole.first() {
        findings.extend(assembled(machine, disk));
    }
    findings.extend(multipath(machine));
    findings
}

/// A block device that a target of this machine exports.
struct Exported {
    export: String,
    /// As it is configured.
    path: String,
    /// The name of its directory in `/sys/block`, or of its partition's.
    name: String,
}

impl Exported {
    fn is_mapped(&self) -> bool {
        self.name.starts_with("dm-")
    }
}

/// The block devices that targets export, or will.
fn exported(machine: &Machine) -> Vec<Exported> {
    let configured = machine.good_config().into_iter().flat_map(|config| &config.export);
    let configured = configured.map(|export| (&export.name, &export.path));
    let served = machine.targets.iter().flat_map(|target| &target.exports);
    let served = served.map(|export| (&export.export, &export.path));
    let mut found = Vec::<Exported>::new();
    for (export, path) in configured.chain(served) {
        let Some(name) = block_name(machine, path) else { continue };
        if found.iter().all(|disk| disk.name != name) {
            found.push(Exported { export: export.clone(), path: path.clone(), name });
        }
    }
    found
}

/// The kernel's name of the block device at a path below `/dev`.
fn block_name(machine: &Machine, path: &str) -> Option<String> {
    let below = Path::new(path).strip_prefix("/dev").ok()?;
    let place = machine.path("/dev").join(below);
    let real = place.canonicalize().unwrap_or(place);
    Some(real.file_name()?.to_str()?.to_owned())
}

/// The directory of a block device, or of a partition, in sysfs.
fn directory(machine: &Machine, name: &str) -> Option<String> {
    let direct = format!("/sys/block/{name}");
    if machine.has(&direct) {
        return Some(direct);
    }
    let disks = machine.names("/sys/block").into_iter();
    let mut places = disks.map(|disk| format!("/sys/block/{disk}/{name}"));
    places.find(|place| machine.has(place))
}

/// A disk on which something of this machine lies already.
fn taken(machine: &Machine, disk: &Exported) -> Option<Finding> {
    let Exported { export, path, name } = disk;
    let directory = directory(machine, name)?;
    let parts =
        machine.names(&directory).into_iter().filter(|part| part.starts_with(name.as_str()));
    let places = parts.map(|part| format!("{directory}/{part}")).chain([directory.clone()]);
    let holders: Vec<_> =
        places.flat_map(|place| machine.names(&format!("{place}/holders"))).collect();
    if !holders.is_empty() {
        let what = format!(
            "{path}, which is exported as {export}, is used on this machine by {}",
            holders.join(", ")
        );
        let found = Finding::error("export-in-use", Code::Device, what);
        let remedy = "take it apart here (`vgchange -an`, `mdadm --stop`, `multipath -f`): hosts \
                      write to it";
        return Some(found.remedy(remedy));
    }
    let mounts = machine.read("/proc/self/mounts").unwrap_or_default();
    let is_its = |device: &str| {
        block_name(machine, device).is_some_and(|it| is_part(&it, name)) || device == path
    };
    let mut fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let mounted = fields.find(|fields| fields.first().is_some_and(|device| is_its(device)))?;
    let what = format!(
        "{path}, which is exported as {export}, is mounted on this machine, at {}",
        mounted.get(1).unwrap_or(&"?")
    );
    let found = Finding::error("export-mounted", Code::Device, what);
    Some(found.remedy("unmount it here: two kernels that write to one file system destroy it"))
}

/// Whether a name is that of a disk, or of a partition of it.
fn is_part(name: &str, disk: &str) -> bool {
    let rest = name.strip_prefix(disk).map(|rest| rest.trim_start_matches('p'));
    rest.is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The finding if LVM of this machine would look for volume groups of hosts on a disk.
fn scanned(machine: &Machine, disk: &Exported) -> Option<Finding> {
    let config = machine.read(LVM)?;
    let Exported { export, path, name } = disk;
    if machine.has(LVM_DEVICES) && value(&config, "use_devicesfile").as_deref() != Some("0") {
        let listed = machine.read(LVM_DEVICES).unwrap_or_default();
        let is_listed = listed
            .lines()
            .filter(|line| !line.trim_start().starts_with('#'))
            .any(|line| line.contains(path.as_str()) || line.contains(&format!("/dev/{name} ")));
        if !is_listed {
            return None;
        }
    } else {
        let device = format!("/dev/{name}");
        let is_refused =
            |filter: &str| value(&config, filter).is_some_and(|it| rejects(&it, &[path, &device]));
        if is_refused("global_filter") || is_refused("filter") {
            return None;
        }
    }
    let what = format!(
        "LVM of this machine looks for volumes on {path}, which is exported as {export}: it would \
         activate those of hosts"
    );
    let remedy = format!("global_filter = [ \"r|^{path}$|\" ] in {LVM}, or `lvmdevices --deldev`");
    Some(Finding::warning("lvm-scans-export", what).remedy(remedy))
}

/// The value of a setting in lvm.conf: what is in brackets, or the word.
fn value(config: &str, key: &str) -> Option<String> {
    let lines = config.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    let text = lines.collect::<Vec<_>>().join("\n");
    let begin = text.split('\n').position(|line| {
        line.strip_prefix(key).is_some_and(|rest| rest.trim_start().starts_with('='))
    })?;
    let rest: Vec<_> = text.split('\n').skip(begin).collect();
    let rest = rest.join(" ");
    let rest = rest.split_once('=')?.1.trim().to_owned();
    match rest.strip_prefix('[') {
        Some(list) => Some(list.split(']').next()?.trim().to_owned()),
        None => Some(rest.split_whitespace().next()?.to_owned()),
    }
}

/// Whether a filter refuses a device that has these names: its first pattern that fits one of them
/// decides. Of regular expressions the usual are known: `^`, `$` and `.*`.
fn rejects(filter: &str, names: &[&str]) -> bool {
    let patterns = filter.split('"').skip(1).step_by(2);
    for pattern in patterns {
        let Some(action) = pattern.chars().next() else { continue };
        let Some(delimiter) = pattern.chars().nth(1) else { continue };
        let inner = pattern[1 + delimiter.len_utf8()..].trim_end_matches(delimiter);
        if names.iter().any(|name| fits(inner, name)) {
            return action == 'r';
        }
    }
    false
}

fn fits(pattern: &str, name: &str) -> bool {
    let (from_start, pattern) = match pattern.strip_prefix('^') {
        Some(rest) => (true, rest),
        None => (false, pattern),
    };
    let (to_end, pattern) = match pattern.strip_suffix('$') {
        Some(rest) => (true, rest),
        None => (false, pattern),
    };
    let parts: Vec<_> = pattern.split(".*").collect();
    let mut rest = name;
    for (index, part) in parts.iter().enumerate() {
        let Some(at) = rest.find(part) else { return false };
        if index == 0 && from_start && at > 0 {
            return false;
        }
        rest = &rest[at + part.len()..];
    }
    // Nothing is behind the last part, unless that was `.*`.
    !to_end || rest.is_empty() || parts.last().is_some_and(|last| last.is_empty())
}

/// The finding if mdadm of this machine would assemble arrays of hosts.
fn assembled(machine: &Machine, disk: &Exported) -> Option<Finding> {
    let config = MDADM.into_iter().find_map(|path| Some((path, machine.read(path)?)));
    let (file, config) = config?;
    let is_off = |line: &str| line.trim_start().to_ascii_uppercase().starts_with("AUTO -ALL");
    if config.lines().any(is_off) {
        return None;
    }
    let what = format!("mdadm of this machine assembles arrays that it finds on {}", disk.path);
    let remedy = format!("`AUTO -all` in {file}, and an ARRAY line for each array of this machine");
    Some(Finding::note("md-scans-export", what).remedy(remedy))
}

/// The finding if multipathd would take devices of sessions, which it ignores by default.
fn multipath(machine: &Machine) -> Option<Finding> {
    let config = machine.read(MULTIPATH)?;
    let mut sections = Vec::new();
    for line in config.lines().map(|line| line.split('#').next().unwrap_or_default().trim()) {
        let words: Vec<_> = line.split_whitespace().collect();
        if let [name, .., "{"] = words[..] {
            sections.push(name.to_owned());
        }
        let is_exception = sections.last().is_some_and(|it| it == "blacklist_exceptions");
        let pattern = line.strip_prefix("devnode").map(|rest| rest.trim().trim_matches('"'));
        if let Some(pattern) = pattern.filter(|_| is_exception)
            && let Some(device) =
                ["ublkb0", "nbd0", "loop0"].into_iter().find(|it| loose(pattern, it))
        {
            let what = format!("multipathd takes devices such as {device}, which sessions make");
            let found = Finding::warning("multipath-takes-devices", what);
            let remedy = format!(
                "take `devnode \"{pattern}\"` out of blacklist_exceptions in {MULTIPATH}: a \
                 session has all of its links by itself"
            );
            return Some(found.remedy(remedy));
        }
        if line.ends_with('}') {
            sections.pop();
        }
    }
    None
}

/// Whether a pattern of multipath.conf, such as `^(ublk|nbd).*` or `^nbd[0-9]`, fits a name, as far
/// as its first letters say.
fn loose(pattern: &str, name: &str) -> bool {
    let pattern = pattern.trim_start_matches('^');
    if pattern.is_empty() || pattern.starts_with('.') {
        return true;
    }
    let alternatives = pattern.trim_start_matches('(').split(['|', ')']);
    let words = alternatives.map(|part| part.split(|it: char| !it.is_ascii_alphabetic()).next());
    words.flatten().any(|word| !word.is_empty() && name.starts_with(word))
}

/// The devices that sessions have, for checks of what uses them.
pub(super) fn of_sessions(machine: &Machine) -> Vec<PathBuf> {
    machine.sessions.iter().map(|session| session.record.device.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_of_lvm_are_decided_by_their_first_pattern_that_fits() {
        let sdb = ["/dev/disk/by-id/ata-1", "/dev/sdb"];
        for (filter, is_rejected) in [
            (r#""r|^/dev/sdb$|""#, true),
            (r#""r|/dev/sdb|", "a|.*|""#, true),
            (r#""a|.*|", "r|^/dev/sdb$|""#, false),
            (r#""a|^/dev/sda$|", "r|.*|""#, true),
            (r#""r|^/dev/sd.*|""#, true),
            (r#""r/by-id\/ata/""#, false),
            (r#""r|^/dev/sdbc$|""#, false),
            ("", false),
        ] {
            assert_eq!(rejects(filter, &sdb), is_rejected, "{filter}");
        }
        let config = "devices {\n  # filter = [ \"r|x|\" ]\n  global_filter = [ \"a|y|\",\n \
                      \"r|.*|\" ]\n  use_devicesfile=0 # no\n}";
        assert_eq!(value(config, "global_filter").unwrap(), "\"a|y|\", \"r|.*|\"");
        assert_eq!(value(config, "use_devicesfile").unwrap(), "0");
        assert_eq!(value(config, "filter"), None);
    }

    #[test]
    fn patterns_of_multipath_are_known_by_their_letters() {
        for pattern in ["^ublk", "ublkb[0-9]*", "^(sd|ublk|nbd)", ".*"] {
            assert!(loose(pattern, "ublkb0"), "{pattern}");
        }
        for pattern in ["^sd[a-z]", "^(sd|nbd)", "^dasd"] {
            assert!(!loose(pattern, "ublkb0"), "{pattern}");
        }
    }
}

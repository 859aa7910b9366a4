//! Files of this machine: tychetab, target.toml, keys, known targets, and where daemons write.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, StatVfsMountFlags, access, statvfs};
use tyche_proto::TargetId;
use tyche_session::{KEY_FILE, KnownTargets, KnownTargetsError, set};

use crate::daemons::serve::pool::Pool;
use crate::shared::error::{Code, Coded};
use crate::shared::keys::read_key;
use crate::shared::report::Finding;

use super::machine::{Machine, TARGET_CONFIG};

const KNOWN: &str = "/etc/tyche/known-targets";
const MACHINE_ID: &str = "/etc/machine-id";
const HOST_ID: &str = "/etc/tyche/host-id";
/// Free bytes below which a directory counts as full.
const FREE_MIN: u64 = 16 << 20;

pub(super) fn check(machine: &Machine) -> Vec<Finding> {
    let mut findings = tab(machine);
    findings.extend(target_config(machine));
    findings.extend(keys(machine));
    findings.extend(known(machine));
    findings.extend(identity(machine));
    findings.extend(machine.directories.iter().filter_map(|it| directory(it)));
    findings
}

/// Lines of tychetab that are wrong, or not connected.
fn tab(machine: &Machine) -> Vec<Finding> {
    let lines = match &machine.tab {
        Ok(lines) => lines,
        Err(error) => {
            let found = Finding::error("tychetab-unreadable", Code::Config, &*error.message);
            return vec![found.remedy("its format is in tychetab(5)")];
        }
    };
    let is_there = |export: &str| machine.sessions.iter().any(|it| it.record.export == export);
    let mut findings = Vec::new();
    for line in lines {
        match crate::daemons::connect::Entry::of(line) {
            Err(error) => {
                let found = Finding::error("tychetab-line", Code::Config, error.message);
                findings.push(found.remedy("mend the line; its format is in tychetab(5)"));
            }
            Ok(entry) if entry.auto && !is_there(&line.export) => {
                let export = &line.export;
                let what = format!("{export} is in tychetab, and is not connected");
                let remedy = format!(
                    "`systemctl start tyche@{export}` or `tyche connect-all`; `systemctl status \
                     tyche@{export}` says what it waits for"
                );
                findings.push(Finding::warning("tychetab-not-connected", what).remedy(remedy));
            }
            Ok(_) => {}
        }
    }
    findings
}

/// The configuration of the target's unit.
fn target_config(machine: &Machine) -> Vec<Finding> {
    let mut findings = Vec::new();
    match &machine.config {
        None => {}
        Some(Err(error)) => {
            let found = Finding::error("target-toml", Code::Config, &*error.message);
            findings.push(found.remedy("mend the line; the keys are in tyche-serve(8)"));
        }
        Some(Ok(config)) => {
            let mut names: Vec<_> = config.export.iter().map(|export| &export.name).collect();
            names.sort();
            for name in names.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]) {
                let what = format!("{TARGET_CONFIG} has two exports of the name {name}");
                let found = Finding::error("target-toml", Code::Config, what);
                findings.push(found.remedy("give one of them another name"));
            }
            findings.extend(lvm(machine, &config.pool));
            if machine.targets.is_empty() {
                let what = format!("{TARGET_CONFIG} is there, and no target runs");
                let remedy = "`systemctl enable --now tyche-target`; `systemctl status \
                              tyche-target` says why it ended";
                findings.push(Finding::warning("target-not-running", what).remedy(remedy));
            }
        }
    }
    findings
}

/// Programs that pools of LVM need: LVM's own, and the one by which it checks a pool's metadata.
fn lvm(machine: &Machine, pools: &[Pool]) -> Option<Finding> {
    let pool = pools.iter().find(|pool| pool.has_volumes())?;
    let is_there = |program: &str| {
        ["/usr/sbin", "/sbin"].iter().any(|dir| machine.has(&format!("{dir}/{program}")))
    };
    let packages = [("lvcreate", "lvm2"), ("thin_check", "thin-provisioning-tools")];
    let missing: Vec<_> = packages.into_iter().filter(|(it, _)| !is_there(it)).collect();
    if missing.is_empty() {
        return None;
    }
    let (programs, packages): (Vec<_>, Vec<_>) = missing.into_iter().unzip();
    let (programs, packages) = (programs.join(", "), packages.join(", "));
    let what = format!("pool {} ({}) needs {programs}", pool.name, pool.path());
    let found = Finding::error("lvm-missing", Code::Device, what);
    Some(found.remedy(format!("install {packages}")))
}

/// Files with secret keys: this machine's, and those that lines and target.toml name.
fn keys(machine: &Machine) -> Vec<Finding> {
    let mut files: Vec<PathBuf> = Vec::new();
    let own = machine.path(KEY_FILE);
    files.extend(Some(own).filter(|own| own.exists()));
    let of_lines = machine.entries().filter_map(|(_, entry)| entry.connect.session.native.key);
    let of_target = machine.good_config().into_iter().flat_map(|config| config.key.clone());
    let named = of_lines.chain(of_target);
    files.extend(named.map(|path| machine.path(&path.to_string_lossy())));
    files.sort();
    files.dedup();
    let errors = files.iter().filter_map(|file| read_key(file).err());
    let findings = errors.map(|error| {
        // The message has the remedy.
        let (what, remedy) = match error.message.split_once("; ") {
            Some((what, remedy)) => (what.to_owned(), remedy.to_owned()),
            None => (error.message, "`tyche key generate` makes one".to_owned()),
        };
        Finding::error("key-file", error.code, what).remedy(remedy)
    });
    findings.collect()
}

/// Lines of known-targets that make no sense.
fn known(machine: &Machine) -> Vec<Finding> {
    let finding = |error: &KnownTargetsError| {
        let found = Finding::error("known-targets", error.code(), error.to_string());
        found.remedy("`tyche key forget TARGET`, then `tyche connect --target-key ask`")
    };
    let is_here = machine.root == Path::new("/");
    let named = set("TYCHE_KNOWN_TARGETS").filter(|_| is_here).map(PathBuf::from);
    let known = match KnownTargets::of(named.unwrap_or_else(|| machine.path(KNOWN))) {
        Ok(known) => known,
        Err(error) => return vec![finding(&error)],
    };
    let mut findings: Vec<_> = known.mistakes().map(|error| finding(&error)).collect();
    let mut seen = Vec::new();
    for target in known.targets().iter().filter(|target| {
        let is_first = !seen.contains(&target.uuid);
        seen.push(target.uuid);
        is_first
    }) {
        let found = known.find(&TargetId::Uuid(target.uuid));
        if let Err(error @ KnownTargetsError::Twins { .. }) = &found {
            findings.push(finding(error));
        }
    }
    findings
}

/// The identity that this machine has as a host.
fn identity(machine: &Machine) -> Option<Finding> {
    let is_uuid = |text: String| tyche_engine::identity::parse_host(&text).is_some();
    if let Some(own) = machine.read(HOST_ID) {
        let found = || {
            let what = format!("{HOST_ID} holds no UUID");
            Finding::error("host-id", Code::Config, what)
        };
        let remedy = format!("`uuidgen >{HOST_ID}`, or remove it");
        return (!is_uuid(own)).then(|| found().remedy(remedy));
    }
    let has_one = machine.read(MACHINE_ID).is_some_and(is_uuid);
    (!has_one).then(|| {
        let what = format!("{MACHINE_ID} holds no identity: one of the state directory is used");
        Finding::note("machine-id", what).remedy("`systemd-machine-id-setup`")
    })
}

/// A directory in which daemons can't write, or will not for long.
fn directory(path: &Path) -> Option<Finding> {
    // It is made when it is needed.
    let place = path.ancestors().find(|it| it.exists())?;
    let shown = path.display();
    let error = |what: String| Finding::error("directory", Code::Permission, what);
    if !place.is_dir() {
        let found = error(format!("{shown}: {} is no directory", place.display()));
        return Some(found.remedy(format!("remove it, or name another: {VARIABLES}")));
    }
    let file_system = statvfs(place).ok()?;
    if file_system.f_flag.contains(StatVfsMountFlags::RDONLY) {
        let found = error(format!("{shown} is on a file system that is mounted read-only"));
        return Some(found.remedy(format!("`mount -o remount,rw`, or name another: {VARIABLES}")));
    }
    if let Err(error_number) = access(place, Access::WRITE_OK) {
        let found = error(format!("{shown} can't be written to: {error_number}"));
        return Some(found.remedy(format!("run as root, or name another: {VARIABLES}")));
    }
    let free = file_system.f_bavail * file_system.f_frsize;
    (free < FREE_MIN).then(|| {
        let what = format!("{shown} is on a file system with {} KiB left", free >> 10);
        Finding::warning("directory-full", what).remedy("make room: daemons keep their state there")
    })
}

/// The environment variables that name directories.
const VARIABLES: &str = "TYCHE_STATE_DIR, TYCHE_RUNTIME_DIR, TYCHE_LOG_DIR";

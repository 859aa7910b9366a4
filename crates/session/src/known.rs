//! The targets whose keys this machine knows, as ssh knows hosts: a file with a line for each.
//!
//! ```text
//! # key of the target                              UUID of the target                   its name
//! tyche_8vSBDFmLmrAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA 7a26e711-2233-4455-a677-8899aabbccdd store1
//! ```
//!
//! The name is what users call the target, to the end of the line. The UUID is the one that the
//! owner of the key has said, so the target is known by either. A session with a target of the list
//! is sealed, or none at all. A line that makes no sense is an error only for a target that may be
//! meant by it, which must not be taken for one that is not known.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use thiserror::Error;
use tyche_proto::crypto::PublicKey;
use tyche_proto::wire::Name;
use tyche_proto::{NextKey, TargetId};
use uuid::Uuid;

use crate::runtime::set;

/// The file, unless the environment names another.
const FILE: &str = "/etc/tyche/known-targets";
/// Environment variable that names another file.
const VARIABLE: &str = "TYCHE_KNOWN_TARGETS";
/// A longer file is refused: 1 MiB, about 9,000 targets.
const LEN_MAX: u64 = 1 << 20;
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// A target whose key is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownTarget {
    /// Its key.
    pub key: PublicKey,
    /// Its UUID.
    pub uuid: Uuid,
    /// Its name.
    pub name: Name,
    /// The line of the file, from 1 on.
    pub line: usize,
}

/// The list of known targets, as it was read from its file. A change locks the file, reads it again
/// and replaces it as a whole.
#[derive(Clone, Debug)]
pub struct KnownTargets {
    path: PathBuf,
    text: Vec<u8>,
    targets: Vec<KnownTarget>,
    mistakes: Vec<Mistake>,
}

/// A line that makes no sense.
#[derive(Clone, Debug)]
struct Mistake {
    line: usize,
    why: String,
    /// The UUID and the name in it, as far as they can be told.
    about: Option<(Uuid, Option<Name>)>,
}

impl Mistake {
    /// Whether it is about that target, for certain.
    fn names(&self, uuid: Option<Uuid>, name: Option<Name>) -> bool {
        let about =
            |it: &(Uuid, Option<Name>)| uuid == Some(it.0) || name.is_some() && name == it.1;
        self.about.as_ref().is_some_and(about)
    }

    /// Whether it may be about that target.
    fn may_name(&self, wanted: &TargetId) -> bool {
        match (wanted, self.about) {
            (TargetId::Any, _) => false,
            (_, None) => true,
            (TargetId::Uuid(uuid), Some((other, _))) => *uuid == other,
            (TargetId::Name(name), Some((_, other))) => other.is_none_or(|other| *name == other),
        }
    }
}

/// Why the list cannot be used or changed.
#[derive(Debug, Error)]
pub enum KnownTargetsError {
    /// The file cannot be read or written.
    #[error("{}: {error}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// Others than root and its user may change the file.
    #[error(
        "{path}: others can change which keys targets have; run `chown root {path}` and `chmod 644 \
         {path}`, and compare the keys in it",
        path = .0.display()
    )]
    Open(PathBuf),
    /// A line makes no sense.
    #[error("{}: line {line}: {why}", path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The number of the line, from 1 on.
        line: usize,
        /// The mistake.
        why: String,
    },
    /// Any target is wanted.
    #[error(
        "name the target, TARGET/EXPORT: this machine knows keys of targets ({}), and anybody \
         could offer it another disk of that name",
        .0.display()
    )]
    Unnamed(PathBuf),
    /// Two targets have one UUID, which is what a session finds its target by.
    #[error(
        "{}: `{}` (line {}) and `{}` (line {}) are listed with one UUID, {uuid}, which two targets \
         can't have: run `tyche key forget` for the one that is gone",
        path.display(), targets[0].0, targets[0].1, targets[1].0, targets[1].1
    )]
    Twins {
        /// The file.
        path: PathBuf,
        /// The UUID.
        uuid: Uuid,
        /// Their names and lines; the line that one would have that is not listed yet.
        targets: Box<[(Name, usize); 2]>,
    },
    /// No target of that name is in the file.
    #[error("{}: no target `{target}`; `tyche key known` lists those that are", path.display())]
    Unknown {
        /// The file.
        path: PathBuf,
        /// The name or UUID that was looked for.
        target: String,
    },
}

impl KnownTargets {
    /// Reads the list of this machine; without the file it is empty.
    ///
    /// # Errors
    /// `Io` or `Open`.
    pub fn read() -> Result<Self, KnownTargetsError> {
        Self::of(set(VARIABLE).map_or_else(|| FILE.into(), PathBuf::from))
    }

    /// Reads the list in that file; without the file it is empty.
    ///
    /// # Errors
    /// `Io` or `Open`.
    pub fn of(path: PathBuf) -> Result<Self, KnownTargetsError> {
        let mut file = match File::open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => {
                return Ok(Self::parse(path, Vec::new()));
            }
            Err(error) => return Err(KnownTargetsError::Io { path, error }),
            Ok(file) => file,
        };
        match read(&mut file) {
            Ok(Some(text)) => Ok(Self::parse(path, text)),
            Ok(None) => Err(KnownTargetsError::Open(path)),
            Err(error) => Err(KnownTargetsError::Io { path, error }),
        }
    }

    fn parse(path: PathBuf, text: Vec<u8>) -> Self {
        let (mut targets, mut mistakes) = (Vec::<KnownTarget>::new(), Vec::new());
        // Some editors begin a file with the mark.
        let lines = text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(&text).split(|it| *it == b'\n');
        for (line, fields) in (1..).zip(lines) {
            let fields = String::from_utf8_lossy(fields);
            let fields = fields.strip_suffix('\r').unwrap_or(&fields);
            if fields.trim().is_empty() || fields.trim_start().starts_with('#') {
                continue;
            }
            let listed = |target: &KnownTarget| targets.iter().find(|it| it.name == target.name);
            let parsed =
                KnownTarget::parse(line, fields).and_then(|target| match listed(&target) {
                    Some(KnownTarget { name, line, .. }) => {
                        Err(format!("`{name}` is in line {line} already"))
                    }
                    None => Ok(target),
                });
            match parsed {
                Ok(target) => targets.push(target),
                Err(why) => mistakes.push(Mistake { line, why, about: about(fields) }),
            }
        }
        Self { path, text, targets, mistakes }
    }

    /// The lines that make no sense.
    pub fn mistakes(&self) -> impl Iterator<Item = KnownTargetsError> {
        self.mistakes.iter().map(|it| self.wrong(it.line, it.why.clone()))
    }

    fn wrong(&self, line: usize, why: String) -> KnownTargetsError {
        KnownTargetsError::Line { path: self.path.clone(), line, why }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All of them, as they are listed.
    pub fn targets(&self) -> &[KnownTarget] {
        &self.targets
    }

    /// The target that is wanted, if it is known; `None` also for any target.
    ///
    /// # Errors
    /// `Twins`: it has the UUID of another one that is known. `Line`: it may be meant by a line
    /// that makes no sense.
    pub fn find(&self, wanted: &TargetId) -> Result<Option<&KnownTarget>, KnownTargetsError> {
        let found = self.targets.iter().find(|it| match wanted {
            TargetId::Any => false,
            TargetId::Name(name) => it.name == *name,
            TargetId::Uuid(uuid) => it.uuid == *uuid,
        });
        let mut mistakes = self.mistakes.iter();
        let mistake = match found {
            Some(it) => mistakes.find(|wrong| wrong.names(Some(it.uuid), Some(it.name))),
            None => mistakes.find(|wrong| wrong.may_name(wanted)),
        };
        if let Some(Mistake { line, why, .. }) = mistake {
            return Err(self.wrong(*line, why.clone()));
        }
        found.map_or(Ok(()), |it| self.check_alone(it.name, it.uuid, it.line))?;
        Ok(found)
    }

    /// Checks that no other target is known by that UUID.
    fn check_alone(&self, name: Name, uuid: Uuid, line: usize) -> Result<(), KnownTargetsError> {
        let mut others = self.targets.iter().filter(|it| it.uuid == uuid && it.name != name);
        others.next().map_or(Ok(()), |other| {
            let mut targets = Box::new([(name, line), (other.name, other.line)]);
            let path = self.path.clone();
            targets.sort_unstable_by_key(|target| target.1);
            Err(KnownTargetsError::Twins { path, uuid, targets })
        })
    }

    /// The known target that is wanted; `None`: it is not known, and may be connected in the clear.
    ///
    /// # Errors
    /// `Unnamed`: any target is wanted, and some are known; or as [`find`](Self::find).
    pub fn look_up(&self, wanted: &TargetId) -> Result<Option<&KnownTarget>, KnownTargetsError> {
        let is_empty = self.targets.is_empty() && self.mistakes.is_empty();
        if *wanted == TargetId::Any && !is_empty {
            return Err(KnownTargetsError::Unnamed(self.path.clone()));
        }
        self.find(wanted)
    }

    /// Adds a target that has proved that it owns the key, unless its name is known.
    ///
    /// # Errors
    /// As [`read`](Self::read); `Line` if the name has another key or UUID now, or is in a line
    /// that makes no sense; `Twins` if another name has the UUID.
    pub fn remember(
        &mut self,
        key: PublicKey,
        uuid: Uuid,
        name: Name,
    ) -> Result<(), KnownTargetsError> {
        self.change(|now| {
            let is_ended = now.text.last().is_none_or(|it| *it == b'\n');
            let lines = now.text.iter().filter(|it| **it == b'\n').count() + usize::from(!is_ended);
            now.check_alone(name, uuid, lines + 1)?;
            if let Some(other) = now.targets.iter().find(|it| it.name == name) {
                let wrong = now.wrong(other.line, format!("`{name}` has a key and a UUID already"));
                return if (other.key, other.uuid) == (key, uuid) { Ok(None) } else { Err(wrong) };
            }
            if let Some(it) = now.mistakes.iter().find(|it| it.names(Some(uuid), Some(name))) {
                return Err(now.wrong(it.line, it.why.clone()));
            }
            let end = if is_ended { "" } else { "\n" };
            let line = format!("{end}{key} {uuid} {name}\n");
            Ok(Some([&now.text[..], line.as_bytes()].concat()))
        })
    }

    /// Gives a target its next key. False if no target of that UUID has the former one any more.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn renew(&mut self, said: &NextKey) -> Result<bool, KnownTargetsError> {
        let &NextKey { target: uuid, former, next } = said;
        let mut is_renewed = false;
        self.change(|now| {
            let is_meant = |it: &&KnownTarget| (it.uuid, it.key) == (uuid, former);
            let Some(known) = now.targets.iter().find(is_meant) else { return Ok(None) };
            is_renewed = true;
            let lines = (1..).zip(now.text.split_inclusive(|it| *it == b'\n'));
            let text = lines.flat_map(|(line, text)| match line == known.line {
                true => format!("{next} {uuid} {}\n", known.name).into_bytes(),
                false => text.to_vec(),
            });
            Ok(Some(text.collect()))
        })?;
        Ok(is_renewed)
    }

    /// Removes the target of that name or UUID; returns the targets that were removed, which may be
    /// several of one UUID.
    ///
    /// # Errors
    /// As [`read`](Self::read); `Unknown` if there is none.
    pub fn forget(&mut self, target: &str) -> Result<Vec<KnownTarget>, KnownTargetsError> {
        let is_meant = |it: &&KnownTarget| {
            it.name.as_str() == target || it.uuid.to_string().eq_ignore_ascii_case(target)
        };
        let mut gone = Vec::new();
        self.change(|now| {
            gone = now.targets.iter().filter(is_meant).copied().collect();
            if gone.is_empty() {
                let (path, target) = (now.path.clone(), target.to_owned());
                return Err(KnownTargetsError::Unknown { path, target });
            }
            let lines = (1..).zip(now.text.split_inclusive(|it| *it == b'\n'));
            let kept = lines.filter(|(line, _)| !gone.iter().any(|it| it.line == *line));
            Ok(Some(kept.flat_map(|(_, text)| text).copied().collect()))
        })?;
        Ok(gone)
    }

    /// Has `edit` make a new text of the list as it is now, while nobody else changes it.
    fn change(
        &mut self,
        edit: impl FnOnce(&Self) -> Result<Option<Vec<u8>>, KnownTargetsError>,
    ) -> Result<(), KnownTargetsError> {
        let io = |error| KnownTargetsError::Io { path: self.path.clone(), error };
        let dir = self.path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let dir = dir.unwrap_or(Path::new("."));
        fs::create_dir_all(dir).map_err(io)?;
        let dir = File::open(dir).map_err(io)?;
        // Held until `dir` is closed.
        flock(&dir, FlockOperation::LockExclusive).map_err(|error| io(error.into()))?;
        let now = Self::of(self.path.clone())?;
        if let Some(text) = edit(&now)? {
            let written = write(&self.path, &text).and_then(|()| dir.sync_all());
            written.map_err(io)?;
        }
        *self = Self::of(self.path.clone())?;
        Ok(())
    }
}

impl KnownTarget {
    fn parse(line: usize, fields: &str) -> Result<Self, String> {
        let mut fields = fields.splitn(3, ' ');
        let mut next =
            || fields.next().ok_or("a line has the key of a target, its UUID and its name");
        let (key, uuid, name) = (next()?, next()?, next()?);
        let key = key.parse().map_err(|error| format!("{error}"))?;
        let uuid = Uuid::parse_str(uuid).map_err(|error| error.to_string())?;
        let name = name_of(name).ok_or("a name has 1 to 63 bytes without control characters")?;
        Ok(Self { key, uuid, name, line })
    }
}

/// The name of a target; `None` if bytes of it are lost, or if it is none.
fn name_of(text: &str) -> Option<Name> {
    let is_whole = !text.contains(char::REPLACEMENT_CHARACTER);
    Name::new(text).filter(|name| is_whole && !name.is_empty())
}

/// The target that a line without sense is about, if its UUID is where it has to be. The name is
/// then what comes after it.
fn about(fields: &str) -> Option<(Uuid, Option<Name>)> {
    let mut fields = fields.splitn(3, ' ').skip(1);
    Some((Uuid::parse_str(fields.next()?).ok()?, fields.next().and_then(name_of)))
}

/// The text of the file; `None` if others may write to it.
fn read(file: &mut File) -> io::Result<Option<Vec<u8>>> {
    let metadata = file.metadata()?;
    let ours = [0, rustix::process::geteuid().as_raw()].contains(&metadata.uid());
    if !ours || metadata.mode() & 0o022 != 0 {
        return Ok(None);
    }
    if metadata.len() > LEN_MAX {
        return Err(io::Error::new(ErrorKind::FileTooLarge, "more than 1 MiB"));
    }
    let mut text = Vec::new();
    file.take(LEN_MAX).read_to_end(&mut text)?;
    Ok(Some(text))
}

/// Replaces the file: all of it, or nothing. Everybody may read it.
fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".new");
    let aside = PathBuf::from(aside);
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(&aside)?;
    file.write_all(text)?;
    file.set_permissions(Permissions::from_mode(0o644))?;
    file.sync_all()?;
    fs::rename(&aside, path)
}

#[cfg(test)]
mod tests {
    use tyche_proto::crypto::SecretKey;

    use super::*;

    fn key(number: u8) -> PublicKey {
        SecretKey::from_random([number; 32]).public()
    }

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn by_name(text: &str) -> TargetId {
        TargetId::Name(name(text))
    }

    #[test]
    fn a_key_is_renewed_in_its_place_and_only_the_one_that_was_proved() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("known-targets");
        let [one, two] = [1, 2].map(Uuid::from_u128);
        fs::write(&path, format!("# mine\n{} {one} store1\n{} {two} store2\n", key(1), key(1)))
            .unwrap();
        let mut known = KnownTargets::of(path.clone()).unwrap();
        let said = |next| NextKey { target: two, former: key(1), next: key(next) };
        assert!(known.renew(&said(3)).unwrap());
        assert!(!known.renew(&said(4)).unwrap(), "it has another by now");
        let expected = format!("# mine\n{} {one} store1\n{} {two} store2\n", key(1), key(3));
        assert_eq!(fs::read_to_string(&path).unwrap(), expected);
    }

    #[test]
    fn a_target_is_known_by_its_name_and_uuid_until_it_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/known-targets");
        let mut known = KnownTargets::of(path.clone()).unwrap();
        assert_eq!(known.targets(), []);
        assert!(matches!(known.look_up(&TargetId::Any), Ok(None)));
        let [one, two] = [1, 2].map(Uuid::from_u128);
        known.remember(key(1), one, name("store1")).unwrap();
        let mut other = KnownTargets::of(path.clone()).unwrap();
        other.remember(key(2), two, name("my store # 2")).unwrap();
        // The list may have been changed meanwhile.
        known.remember(key(1), one, name("store1")).unwrap();
        let error = known.remember(key(3), two, name("my store # 2")).unwrap_err().to_string();
        assert!(error.contains("line 2: `my store # 2` has a key"), "{error}");
        assert!(
            known.remember(key(1), two, name("store1")).is_err(),
            "it is known with another UUID"
        );
        let read = KnownTargets::of(path.clone()).unwrap();
        assert_eq!(read.targets(), known.targets());
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o644);
        for wanted in [by_name("my store # 2"), TargetId::Uuid(two)] {
            let found = read.find(&wanted).unwrap().unwrap();
            assert_eq!((found.key, found.uuid, found.line), (key(2), two, 2));
        }
        assert!(matches!(read.look_up(&TargetId::Any), Err(KnownTargetsError::Unnamed(_))));
        for unknown in [TargetId::Any, by_name("store3"), TargetId::Uuid(Uuid::from_u128(3))] {
            assert_eq!(read.find(&unknown).unwrap(), None);
        }
        let gone = known.forget("store1").unwrap();
        assert_eq!(gone.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["store1"]);
        assert!(matches!(known.forget("store1"), Err(KnownTargetsError::Unknown { .. })));
        assert_eq!(known.forget(&two.to_string()).unwrap().len(), 1);
        assert_eq!(KnownTargets::of(path).unwrap().targets(), []);
    }

    /// A session finds its target by the UUID: two of one are one to it.
    #[test]
    fn two_targets_of_one_uuid_are_refused_until_one_is_forgotten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("known-targets");
        let [one, two] = [1, 2].map(Uuid::from_u128);
        let line = |number, uuid, text| format!("{} {uuid} {text}\n", key(number));
        let lines = [line(1, one, "store1"), line(1, two, "store2"), line(1, one, "store3")];
        fs::write(&path, lines.concat()).unwrap();
        let mut known = KnownTargets::of(path.clone()).unwrap();
        for wanted in [by_name("store1"), by_name("store3"), TargetId::Uuid(one)] {
            let error = known.look_up(&wanted).unwrap_err().to_string();
            let said = "`store1` (line 1) and `store3` (line 3) are listed with one UUID";
            assert!(error.contains(said) && error.contains("tyche key forget"), "{error}");
        }
        assert!(known.look_up(&by_name("store2")).unwrap().is_some(), "the others are known");
        known.forget("store3").unwrap();
        assert_eq!(known.look_up(&by_name("store1")).unwrap().unwrap().uuid, one);
        let error = known.remember(key(4), two, name("store4")).unwrap_err().to_string();
        assert!(error.contains("`store2` (line 2) and `store4` (line 3)"), "{error}");
        assert_eq!(KnownTargets::of(path).unwrap().targets().len(), 2);
    }

    #[test]
    fn comments_stay_and_mistakes_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("known-targets");
        let line = format!("{} {} store1", key(1), Uuid::from_u128(1));
        fs::write(&path, format!("# by hand\n\n{line}")).unwrap();
        let mut known = KnownTargets::of(path.clone()).unwrap();
        assert_eq!(known.targets()[0].line, 3);
        known.remember(key(2), Uuid::from_u128(2), name("store2")).unwrap();
        known.forget("store1").unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("# by hand\n\ntyche_") && text.ends_with(" store2\n"), "{text}");
        let wanted = by_name("store1");
        for (wrong, said) in [
            ("store1", "its UUID and its name"),
            (&line[1..], "43 letters"),
            (&line[..49], "its UUID and its name"),
            (&line[..86], "its UUID and its name"),
            (&format!("{} nobody store1", key(1)), "line 1"),
            (&format!("{line}{}", "x".repeat(64)), "1 to 63 bytes"),
            (&format!("{line}\n{line}"), "line 2: `store1` is in line 1 already"),
        ] {
            fs::write(&path, wrong).unwrap();
            let known = KnownTargets::of(path.clone()).unwrap();
            let error = known.find(&wanted).unwrap_err().to_string();
            assert!(error.contains(said), "{wrong}: {error}");
            let named: Vec<_> = known.mistakes().map(|it| it.to_string()).collect();
            assert_eq!(named, [error]);
            assert!(known.look_up(&TargetId::Any).is_err());
        }
    }

    #[test]
    fn a_line_without_sense_is_an_error_for_those_who_may_be_meant_by_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("known-targets");
        let [one, two, three] = [1, 2, 3].map(Uuid::from_u128);
        let good = format!("\u{feff}  # by hand\r\n{} {one} store1\r\n", key(1));
        let read = |bad: &[u8]| {
            fs::write(&path, [good.as_bytes(), bad, b"\n"].concat()).unwrap();
            KnownTargets::of(path.clone()).unwrap()
        };
        let is_found =
            |known: &KnownTargets| known.find(&by_name("store1")).unwrap().unwrap().line == 2;
        // Its key has suffered: it is that of store2, and of nobody else.
        let known = read(format!("tyche_x {two} store2").as_bytes());
        assert!(is_found(&known));
        assert!(
            known.find(&by_name("store2")).is_err() && known.find(&TargetId::Uuid(two)).is_err()
        );
        assert_eq!(known.find(&by_name("store3")).unwrap(), None);
        assert_eq!(known.find(&TargetId::Uuid(three)).unwrap(), None);
        // A byte of its name is lost: anybody of another UUID who is not listed may be meant.
        let known = read(&[format!("{} {two} store", key(2)).as_bytes(), &[0xff]].concat());
        assert!(is_found(&known));
        assert!(
            known.find(&by_name("store2")).is_err() && known.find(&TargetId::Uuid(two)).is_err()
        );
        assert_eq!(known.find(&TargetId::Uuid(three)).unwrap(), None);
        // Nothing can be told.
        let mut known = read(b"\xff\xfe?");
        assert!(is_found(&known));
        for unknown in [by_name("store2"), TargetId::Uuid(two)] {
            assert!(known.find(&unknown).unwrap_err().to_string().contains("line 3"));
        }
        // It stays when others come and go.
        known.remember(key(3), three, name("store3")).unwrap();
        known.forget("store1").unwrap();
        let text = fs::read(&path).unwrap();
        assert!(text.windows(4).any(|it| it == b"\xff\xfe?\n"), "{text:?}");
        assert!(known.find(&by_name("store3")).unwrap().is_some());
        // One that is listed, once more.
        let known = read(format!("{} {one} store1", key(2)).as_bytes());
        assert!(known.find(&by_name("store1")).is_err());
    }

    #[test]
    fn a_list_that_others_may_change_is_not_trusted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("known-targets");
        fs::write(&path, "").unwrap();
        for mode in [0o664, 0o646, 0o622] {
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            let error = KnownTargets::of(path.clone()).unwrap_err().to_string();
            assert!(error.contains("chmod 644"), "{error}");
        }
        fs::set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
        assert!(KnownTargets::of(path.clone()).is_ok());
        fs::write(&path, vec![b'#'; LEN_MAX as usize + 1]).unwrap();
        assert!(KnownTargets::of(path).unwrap_err().to_string().contains("1 MiB"));
    }
}

//! A thin pool of LVM, whose volumes are disks.
//!
//! A volume has a tag with a UUID of its own from the moment at which it is there. That says that a
//! target has made it; what has none is not cloned, renamed, enlarged or deleted. A target that was
//! killed finds by it what it has left over, under whatever name.
//!
//! A snapshot is of one moment, which needs no pause of the target: LVM suspends the original,
//! which waits for the requests that are under way and holds the others back, has the pool share
//! its blocks, and resumes it.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{major, minor};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::super::names::volume_name;
use super::lvm::{self, Row, Turn};
use crate::output::bytes;
use crate::shared::error::{Code, Error, Result};

/// The beginning of the tag of a volume that a target has made; its UUID follows.
const TAG: &str = "tyche-";
/// The directory in which LVM has those of volume groups.
const DEVICES: &str = "/dev";
/// How LVM calls the health of a full pool.
const FULL: &str = "out_of_data";
/// How LVM calls a pool that holds writes back when it is full, for a minute.
const QUEUES: &str = "queue";

/// See the [module](self).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ThinPool {
    group: String,
    pool: String,
}

/// A volume that a target has made, whatever its name is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct VolumeId {
    group: String,
    uuid: Uuid,
}

/// Such a volume as it is.
pub(super) struct Volume {
    pub(super) id: VolumeId,
    name: String,
    /// Bytes of which its size is a multiple.
    extent: u64,
}

/// A volume that is to be made.
pub(in super::super) struct NewVolume {
    pool: ThinPool,
    name: String,
    id: VolumeId,
    content: Content,
}

/// The content of a new volume.
enum Content {
    /// Zeroes, of that many bytes.
    Zeroes(u64),
    /// The content of the volume of that name.
    Clone(String),
}

/// How full a pool is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct ThinUsage {
    /// Bytes that it has, and those that are used; none if the pool is not active.
    pub(in super::super) data: (u64, Option<u64>),
    /// The same of what keeps track of them.
    pub(in super::super) metadata: (u64, Option<u64>),
    /// The bytes of its volumes that are allocated, by their names: of those that a target has
    /// made.
    pub(in super::super) volumes: BTreeMap<String, u64>,
    /// Its fault, in words.
    pub(in super::super) problem: Option<String>,
}

impl fmt::Display for ThinPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.group, self.pool)
    }
}

impl ThinPool {
    /// Parses `VG/POOL`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/').filter(|(group, pool)| is_name(group) && is_name(pool));
        let (group, pool) = parts.ok_or_else(|| {
            format!("`{text}`: write VG/POOL, a volume group of LVM and a thin pool in it")
        })?;
        Ok(Self { group: group.to_owned(), pool: pool.to_owned() })
    }

    /// The path of the volume for an export.
    ///
    /// # Errors
    /// `Usage` if its name is too long.
    pub(super) fn device(&self, export: &str) -> Result<PathBuf> {
        Ok(self.path(&volume_name(export, &self.group)?))
    }

    fn path(&self, volume: &str) -> PathBuf {
        Path::new(DEVICES).join(&self.group).join(volume)
    }

    /// The name of the volume at a path; none if that leads elsewhere.
    pub(in super::super) fn volume_at<'a>(&self, path: &'a Path) -> Option<&'a str> {
        let is_of_group = path.parent() == Some(&*Path::new(DEVICES).join(&self.group));
        path.file_name().and_then(|name| name.to_str()).filter(|it| is_of_group && is_name(it))
    }

    /// The pool of the same group that has the volume at a path, if a target has made that.
    ///
    /// # Errors
    /// `Device` if LVM can't be asked.
    pub(super) fn pool_of(&self, path: &Path) -> Result<Option<Self>> {
        let Some(name) = self.volume_at(path) else { return Ok(None) };
        let rows = lvm::volumes(&self.group)?;
        let row = rows.iter().find(|row| row.lv_name == name && row.tag().is_some());
        Ok(row.map(|row| Self { group: self.group.clone(), pool: row.pool_lv.clone() }))
    }

    /// The volume at a path, if it is in the pool and a target has made it. `identity`: the one
    /// that the open disk has reported, if it is known.
    ///
    /// # Errors
    /// `Device` if another volume has that name by now, or LVM can't be asked.
    pub(super) fn found(&self, path: &Path, identity: Option<&str>) -> Result<Option<Volume>> {
        let Some(name) = self.volume_at(path) else { return Ok(None) };
        let rows = lvm::volumes(&self.group)?;
        let Some(row) = rows.iter().find(|row| row.lv_name == name) else { return Ok(None) };
        let Some(uuid) = row.tag().filter(|_| row.pool_lv == self.pool) else { return Ok(None) };
        if identity.is_some_and(|it| it != row.identity()) {
            let message = format!("{} is another volume than the open one", path.display());
            return Err(Error::new(Code::Device, message));
        }
        let id = VolumeId { group: self.group.clone(), uuid };
        Ok(Some(Volume { id, name: name.to_owned(), extent: number(&row.vg_extent_size) }))
    }

    /// The same; one that no target has made is an error.
    pub(super) fn held(&self, path: &Path, identity: Option<&str>) -> Result<Volume> {
        self.found(path, identity)?.ok_or_else(|| {
            let message = format!(
                "no target has made {} in {self}, so none clones or deletes it: use LVM's own \
                 programs",
                path.display()
            );
            Error::new(Code::Device, message)
        })
    }

    /// The volumes of its group, if disks can be made in it.
    fn usable(&self) -> Result<Vec<Row>> {
        let rows = lvm::volumes(&self.group)?;
        let fault = match rows.iter().find(|row| row.lv_name == self.pool) {
            None => {
                let Self { group, pool } = self;
                format!(
                    "{group} has no {pool}: lvcreate --type thin-pool --name {pool} --size SIZE \
                     {group}"
                )
            }
            Some(row) if row.attribute(0) != 't' => format!("{self} is no thin pool"),
            Some(row) if row.attribute(7) != 'z' => format!(
                "{self} hands out blocks with what others have left in them: lvchange --zero y \
                 {self}"
            ),
            Some(_) => return Ok(rows),
        };
        Err(Error::new(Code::Device, fault))
    }

    /// A volume to be made for an export.
    fn draft(&self, export: &str, rows: &[Row], content: Content) -> Result<NewVolume> {
        let name = volume_name(export, &self.group)?;
        if rows.iter().any(|row| row.lv_name == name) {
            return Err(self.taken(&name));
        }
        let id = VolumeId { group: self.group.clone(), uuid: Uuid::new_v4() };
        Ok(NewVolume { pool: self.clone(), name, id, content })
    }

    fn taken(&self, name: &str) -> Error {
        let message = format!(
            "{} is there, and is no export: nothing is overwritten; export it (`tyche export add \
             NAME={0}`), remove it (lvremove), or choose another name",
            self.path(name).display()
        );
        Error::new(Code::Exists, message)
    }

    /// Drafts a volume of zeroes.
    ///
    /// # Errors
    /// `Usage` if the size is no multiple of the extents of the group; `Exists` if there is a
    /// volume of that name; `Device`, with the remedy.
    pub(super) fn new_volume(&self, export: &str, size: u64) -> Result<NewVolume> {
        let rows = self.usable()?;
        let extent = rows.first().map_or(0, |row| number(&row.vg_extent_size));
        check_size(size, extent)?;
        self.draft(export, &rows, Content::Zeroes(size))
    }

    /// Drafts a clone of a volume.
    ///
    /// # Errors
    /// As [`new_volume`](Self::new_volume).
    pub(super) fn new_clone(&self, export: &str, from: &Volume) -> Result<NewVolume> {
        let rows = self.usable()?;
        self.draft(export, &rows, Content::Clone(from.name.clone()))
    }

    /// Gives the volume at a path another name.
    ///
    /// # Errors
    /// `Exists` if another volume has that; `Device` if LVM refuses it.
    pub(super) fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let (Some(from), Some(to)) = (self.volume_at(from), self.volume_at(to)) else {
            unreachable!("the paths were made by it");
        };
        let turn = Turn::take()?;
        if lvm::volumes(&self.group)?.iter().any(|row| row.lv_name == to) {
            return Err(self.taken(to));
        }
        turn.run("lvrename", &[&self.group, from, to])
    }

    /// Enlarges a volume of it.
    ///
    /// # Errors
    /// `Usage` if the size is no multiple of the extents of the group; `Device` if LVM refuses it.
    pub(super) fn enlarge(&self, volume: &Volume, size: u64) -> Result<()> {
        check_size(size, volume.extent)?;
        let at = format!("{}/{}", self.group, volume.name);
        Turn::take()?.run("lvextend", &["--size", &format!("{size}b"), &at])
    }

    /// Activates the volume at a path, if a target has made it and the system has not: after the
    /// machine was started, or in a container, which has device nodes of its own.
    ///
    /// # Errors
    /// `Device` if LVM can't.
    pub(in super::super) fn activate(&self, path: &Path) -> Result<()> {
        if path.exists() || self.pool_of(path)?.is_none() {
            return Ok(());
        }
        let turn = Turn::take()?;
        let at = format!("{}/{}", self.group, self.volume_at(path).unwrap_or_default());
        turn.run("lvchange", &["--activate", "y", "--ignoreactivationskip", &at])?;
        if path.exists() { Ok(()) } else { turn.run("vgmknodes", &[&self.group]) }
    }

    /// How full it is.
    ///
    /// # Errors
    /// `Device` if LVM can't be asked, or there is no such pool.
    pub(in super::super) fn usage(&self) -> Result<ThinUsage> {
        let rows = lvm::volumes(&self.group)?;
        let pool = rows.iter().find(|row| row.lv_name == self.pool && row.attribute(0) == 't');
        let pool = pool.ok_or_else(|| {
            let message = format!("{} has no thin pool {}", self.group, self.pool);
            Error::new(Code::Device, message)
        })?;
        let ours = rows.iter().filter(|row| row.pool_lv == self.pool && row.tag().is_some());
        let allocated = |row: &Row| {
            let size = number(&row.lv_size);
            (row.lv_name.clone(), part(size, &row.data_percent).unwrap_or(0))
        };
        let (size, metadata_size) = (number(&pool.lv_size), number(&pool.lv_metadata_size));
        // How full it is says that by itself.
        let is_fault = |it: &&String| !it.is_empty() && *it != FULL;
        let health = Some(&pool.lv_health_status).filter(is_fault);
        Ok(ThinUsage {
            data: (size, part(size, &pool.data_percent)),
            metadata: (metadata_size, part(metadata_size, &pool.metadata_percent)),
            volumes: ours.map(allocated).collect(),
            problem: health.map(|it| format!("LVM says that its health is `{it}`")),
        })
    }

    /// Its fault, in words: no disk can be made in it, or it had better be set otherwise.
    pub(super) fn remark(&self) -> Option<String> {
        let rows = match self.usable() {
            Err(error) => return Some(format!("{}: nothing is made there now", error.message)),
            Ok(rows) => rows,
        };
        let queues = |row: &Row| row.lv_name == self.pool && row.lv_when_full == QUEUES;
        rows.iter().any(queues).then(|| {
            format!(
                "writes of hosts wait for a minute when it is full, and fail then; lvchange \
                 --errorwhenfull y {self} has them fail at once"
            )
        })
    }
}

impl NewVolume {
    /// The volume that it becomes.
    pub(in super::super) fn id(&self) -> &VolumeId {
        &self.id
    }

    /// Makes it. Returns how long writes to the original had to wait.
    ///
    /// # Errors
    /// `Device`, with what LVM says.
    pub(super) fn make(&self) -> Result<Duration> {
        let Self { pool: ThinPool { group, pool }, name, id, content } = self;
        let tag = id.tag();
        // Active also after a restart of the machine: LVM would leave snapshots out.
        let all = ["--name", name, "--addtag", &tag, "--setactivationskip", "n", "--activate", "y"];
        let (kind, mut pause) = match content {
            Content::Zeroes(size) => {
                let kind = ["--type", "thin", "--virtualsize", &format!("{size}b"), "--thinpool"];
                let kind = kind.map(str::to_owned).into_iter().chain([pool.clone(), group.clone()]);
                (kind.collect::<Vec<_>>(), None)
            }
            Content::Clone(from) => {
                // With --snapshot LVM looks for a module that it does not need then.
                let kind = ["--type", "thin", "--ignoreactivationskip"].map(str::to_owned);
                let kind = kind.into_iter().chain([format!("{group}/{from}")]);
                (kind.collect(), Some(Pause::new(&self.pool.path(from))))
            }
        };
        let kind: Vec<_> = kind.iter().map(String::as_str).collect();
        let look = || pause.iter_mut().for_each(Pause::look);
        Turn::take()?.run_while("lvcreate", &[&all[..], &kind].concat(), look)?;
        Ok(pause.map_or(Duration::ZERO, |pause| pause.at_most()))
    }
}

impl VolumeId {
    fn tag(&self) -> String {
        format!("{TAG}{}", self.uuid)
    }

    /// The name of the volume; none if it is not there.
    fn name(&self) -> Result<Option<String>> {
        let rows = lvm::volumes(&self.group)?;
        let own = rows.into_iter().find(|row| row.tag() == Some(self.uuid));
        Ok(own.map(|row| row.lv_name))
    }

    /// Deletes the volume, if it is there.
    ///
    /// # Errors
    /// `Device`, with what LVM says.
    pub(in super::super) fn delete(&self) -> Result<()> {
        // With the turn, what a killed target was making is there or is not.
        let turn = Turn::take()?;
        match self.name()? {
            None => Ok(()),
            Some(name) => turn.run("lvremove", &[&format!("{}/{name}", self.group)]),
        }
    }

    /// Gives the volume the name that it has at a path, if it has the name at another one.
    ///
    /// # Errors
    /// `Device`, with what LVM says.
    pub(in super::super) fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        let turn = Turn::take()?;
        let base = |path: &Path| path.file_name().and_then(|it| it.to_str()).map(str::to_owned);
        match (self.name()?, base(from), base(to)) {
            (Some(name), Some(from), Some(to)) if name == from && is_name(&to) => {
                turn.run("lvrename", &[&self.group, &from, &to])
            }
            _ => Ok(()),
        }
    }
}

impl Row {
    /// The UUID in the tag of a volume that a target has made.
    fn tag(&self) -> Option<Uuid> {
        self.lv_tags.split(',').find_map(|tag| tag.strip_prefix(TAG)?.parse().ok())
    }

    fn attribute(&self, index: usize) -> char {
        self.lv_attr.chars().nth(index).unwrap_or('-')
    }

    /// The identity that its device reports, as the store has it.
    fn identity(&self) -> String {
        let id = [&self.vg_uuid, &self.lv_uuid].map(|uuid| uuid.replace('-', ""));
        format!("dm/uuid: LVM-{}", id.concat())
    }
}

/// How long a device was suspended, at most: it is looked at again and again.
struct Pause {
    /// The kernel's file of its state; none if the device is not there.
    file: Option<PathBuf>,
    looked: Instant,
    was_suspended: bool,
    /// The time that was seen of it.
    seen: Duration,
    /// The longest time between two looks, in which it is not seen.
    unseen: Duration,
}

impl Pause {
    fn new(device: &Path) -> Self {
        let number = fs::metadata(device).ok().map(|it| it.rdev());
        let file = number.map(|it| {
            PathBuf::from(format!("/sys/dev/block/{}:{}/dm/suspended", major(it), minor(it)))
        });
        let (seen, unseen) = (Duration::ZERO, Duration::ZERO);
        Self { file, looked: Instant::now(), was_suspended: false, seen, unseen }
    }

    fn look(&mut self) {
        let said = self.file.as_ref().and_then(|file| fs::read_to_string(file).ok());
        let is_suspended = said.is_some_and(|it| it.trim() == "1");
        let now = Instant::now();
        let passed = now - self.looked;
        if is_suspended || self.was_suspended {
            self.seen += passed;
        }
        self.unseen = self.unseen.max(passed);
        (self.looked, self.was_suspended) = (now, is_suspended);
    }

    fn at_most(&self) -> Duration {
        self.seen.max(self.unseen)
    }
}

/// Whether LVM takes a name, which is no option.
fn is_name(name: &str) -> bool {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || "+_.-".contains(c);
    !name.is_empty()
        && !name.starts_with('-')
        && !matches!(name, "." | "..")
        && name.chars().all(is_valid)
}

/// A number that LVM has printed; 0 if there is none.
fn number(text: &str) -> u64 {
    text.parse().unwrap_or(0)
}

/// The part of a number that so many percents are; none if there are none.
fn part(whole: u64, percent: &str) -> Option<u64> {
    let percent: f64 = percent.parse().ok()?;
    Some((whole as f64 * percent / 100.0) as u64)
}

fn check_size(size: u64, extent: u64) -> Result<()> {
    if extent == 0 || (size > 0 && size.is_multiple_of(extent)) {
        return Ok(());
    }
    let extent = bytes(extent);
    let message = format!("a volume of {size} bytes: write a multiple of {extent}, LVM's extents");
    Err(Error::new(Code::Usage, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_are_in_the_directory_of_their_group() {
        let pool = ThinPool::parse("vg0/thin").unwrap();
        assert_eq!(pool.device("a/b").unwrap(), Path::new("/dev/vg0/a+2fb"));
        assert_eq!(pool.volume_at(Path::new("/dev/vg0/vm1")), Some("vm1"));
        for other in ["/dev/vg0/-vm1", "/dev/vg0/a b", "/dev/vg0", "/dev/vg0/..", "/dev/vg1/vm1"] {
            assert_eq!(pool.volume_at(Path::new(other)), None, "{other}");
        }
    }

    #[test]
    fn a_volume_of_a_target_is_known_by_its_tag_and_by_its_identity() {
        let uuid = Uuid::from_u128(7);
        let id = VolumeId { group: "vg0".into(), uuid };
        let row = |tags: &str| Row {
            lv_tags: tags.to_owned(),
            lv_uuid: "OaXP-1".into(),
            vg_uuid: "Zk-2".into(),
            ..Row::default()
        };
        assert_eq!(row(&format!("other,{}", id.tag())).tag(), Some(uuid));
        for other in ["", "other", "tyche-", "tyche-x", "backup-of-tyche"] {
            assert_eq!(row(other).tag(), None, "{other}");
        }
        assert_eq!(row("").identity(), "dm/uuid: LVM-Zk2OaXP1");
    }

    #[test]
    fn sizes_are_multiples_of_extents_and_percents_are_bytes() {
        check_size(8 << 20, 4 << 20).unwrap();
        let error = check_size((8 << 20) + 512, 4 << 20).unwrap_err();
        assert!(error.code == Code::Usage && error.message.contains("4.0 MiB"), "{error}");
        assert!(check_size(0, 4 << 20).is_err());
        assert_eq!(
            (part(1000, "12.50"), part(1000, ""), part(1000, "100.00")),
            (Some(125), None, Some(1000))
        );
    }

    #[test]
    fn a_pause_is_what_was_seen_of_it() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut pause = Pause::new(Path::new("/nonexistent"));
        pause.look();
        assert_eq!(pause.seen, Duration::ZERO);
        pause.file = Some(file.path().to_owned());
        let mut seen = Vec::new();
        for said in ["0\n", "1\n", "1\n", "0\n", "0\n"] {
            fs::write(file.path(), said).unwrap();
            let before = pause.seen;
            pause.look();
            seen.push(pause.seen > before);
        }
        assert!(pause.at_most() >= pause.seen && pause.at_most() > Duration::ZERO);
        assert_eq!(seen, [false, true, true, true, false]);
    }
}

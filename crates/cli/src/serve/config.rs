//! What a target exports and how: from the command line for one disk, from a TOML file for many.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bytesize::ByteSize;
use serde::Deserialize;
use toml::Spanned;
use uuid::Uuid;

use crate::error::{Code, Error, Result};

/// The configuration file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Config {
    /// Name of the target; the host's by default.
    pub(crate) name: Option<String>,
    /// Interfaces to serve on, or `tcp:ADDRESS:PORT`; by default all interfaces that are up.
    #[serde(default)]
    pub(crate) link: Vec<String>,
    /// What connections may take.
    #[serde(default)]
    pub(crate) limits: Limits,
    /// The disks.
    #[serde(default)]
    pub(crate) export: Vec<Export>,
}

/// What connections may take of the target's memory.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Limits {
    /// Channels of all hosts together.
    pub(crate) channels: usize,
    /// Requests in flight on each, 1 to 1024.
    pub(crate) queue_size: u16,
    /// Memory for the data of each, at least 1 MiB.
    pub(crate) data_queue: ByteSize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { channels: 128, queue_size: 256, data_queue: ByteSize::mib(32) }
    }
}

/// One disk.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Export {
    /// What hosts call it.
    pub(crate) name: String,
    /// A file, a block device, `mem:SIZE`, `sparse:SIZE` or `null:SIZE`.
    pub(crate) path: String,
    /// Its identity; by default one that is made when it is first served, and kept.
    pub(crate) uuid: Option<Uuid>,
    /// Refuse writes.
    #[serde(default)]
    pub(crate) read_only: bool,
    /// Completed writes may be volatile until the host flushes.
    #[serde(default)]
    pub(crate) write_back: bool,
    /// 512 or 4096.
    pub(crate) block_size: Option<u32>,
    /// Several hosts may write at once: only for cluster file systems.
    #[serde(default)]
    pub(crate) shared: bool,
    /// The hosts that may connect, by UUID; empty: all.
    #[serde(default)]
    pub(crate) hosts: Vec<Uuid>,
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// `Config`, naming the line and the key.
    pub(crate) fn read(path: &Path) -> Result<Self> {
        let wrong = |what: &str| Error::new(Code::Config, format!("{}: {what}", path.display()));
        let text = std::fs::read_to_string(path).map_err(|error| wrong(&error.to_string()))?;
        let config = toml::from_str(&text).map_err(|error| {
            let line = error.span().map_or(0, |span| text[..span.start].matches('\n').count() + 1);
            let key = error
                .span()
                .and_then(|span| text[..span.start].rsplit('\n').next().map(|it| (it, span.start)))
                .map(|(before, start)| {
                    let rest = text[start..].lines().next().unwrap_or_default();
                    format!("{before}{rest}")
                })
                .unwrap_or_default();
            wrong(&format!("line {line}: `{}`: {}", key.trim(), error.message()))
        })?;
        doubles(&text).map_err(|message| wrong(&message))?;
        Ok(config)
    }

    /// Checks that there are exports of the names given with `--accept-changed-disk`.
    ///
    /// # Errors
    /// `Usage`, with the name that no export has.
    pub(crate) fn check_names(&self, accepted: &[String]) -> Result<()> {
        let is_unknown = |name: &&String| self.export.iter().all(|export| export.name != **name);
        match accepted.iter().find(is_unknown) {
            None => Ok(()),
            Some(name) => {
                let message = format!("--accept-changed-disk {name}: there is no such export");
                Err(Error::new(Code::Usage, message))
            }
        }
    }
}

/// Refuses what only one export can have, naming both lines. `text` is a valid file.
fn doubles(text: &str) -> Result<(), String> {
    #[derive(Deserialize)]
    struct Lines {
        #[serde(default)]
        export: Vec<Line>,
    }
    #[derive(Deserialize)]
    struct Line {
        uuid: Option<Spanned<Uuid>>,
    }
    let lines: Lines = toml::from_str(text).map_err(|error| error.message().to_owned())?;
    let line = |uuid: &Spanned<Uuid>| text[..uuid.span().start].matches('\n').count() + 1;
    let mut seen = BTreeMap::new();
    for uuid in lines.export.iter().filter_map(|export| export.uuid.as_ref()) {
        let now = line(uuid);
        if let Some(before) = seen.insert(*uuid.get_ref(), now) {
            let uuid = uuid.get_ref();
            return Err(format!("lines {before} and {now}: two exports have the UUID {uuid}"));
        }
    }
    Ok(())
}

/// Where an export's blocks are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Memory, all of it taken at the start.
    Memory(u64),
    /// Memory, taken as it is written.
    Sparse(u64),
    Null(u64),
    File(PathBuf),
}

impl Export {
    /// From the command line: `NAME=PATH`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (name, path) = text
            .split_once('=')
            .filter(|(name, path)| !name.is_empty() && !path.is_empty())
            .ok_or("write NAME=PATH, NAME=mem:SIZE, NAME=sparse:SIZE or NAME=null:SIZE")?;
        let export = Self {
            name: name.to_owned(),
            path: path.to_owned(),
            uuid: None,
            read_only: false,
            write_back: false,
            block_size: None,
            shared: false,
            hosts: Vec::new(),
        };
        export.source()?;
        Ok(export)
    }

    /// What `path` means.
    pub(crate) fn source(&self) -> Result<Source, String> {
        let size = |text: &str| {
            text.parse::<ByteSize>()
                .map(|size| size.as_u64())
                .map_err(|error| format!("`{}`: {error}; write a size such as 1G", self.path))
        };
        Ok(match self.path.split_once(':') {
            Some(("mem", text)) => Source::Memory(size(&binary(text))?),
            Some(("sparse", text)) => Source::Sparse(size(&binary(text))?),
            Some(("null", text)) => Source::Null(size(&binary(text))?),
            _ => Source::File(PathBuf::from(&self.path)),
        })
    }
}

/// Sizes are binary, as `truncate` and `qemu-img` have them: 1G is 1 GiB.
pub(crate) fn binary(text: &str) -> String {
    match text.trim_end_matches(['b', 'B']).strip_suffix(['k', 'K', 'm', 'M', 'g', 'G', 't', 'T']) {
        Some(number) => {
            let unit = text[number.len()..].chars().next().unwrap_or_default();
            format!("{number}{}iB", unit.to_ascii_uppercase())
        }
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary() {
        for (text, bytes) in [("1G", 1 << 30), ("2MiB", 2 << 20), ("4k", 4096), ("512", 512)] {
            let export = Export::parse(&format!("a=mem:{text}")).unwrap();
            assert_eq!(export.source(), Ok(Source::Memory(bytes)), "{text}");
        }
        let sparse = Export::parse("a=sparse:1T").unwrap();
        assert_eq!(sparse.source(), Ok(Source::Sparse(1 << 40)));
        assert!(Export::parse("a=mem:lots").is_err());
        assert!(Export::parse("=mem:1G").is_err());
        assert!(Export::parse("a").is_err());
    }

    #[test]
    fn a_uuid_belongs_to_one_export() {
        let uuid = "11111111-2222-4333-8444-555555555555";
        let export = |name: &str, uuid: &str| {
            format!("[[export]]\nname = \"{name}\"\npath = \"mem:1M\"\nuuid = \"{uuid}\"\n")
        };
        let other = "11111111-2222-4333-8444-555555555556";
        assert_eq!(doubles(&(export("a", uuid) + &export("b", other))), Ok(()));
        let error = doubles(&(export("a", uuid) + &export("b", &uuid.to_uppercase()))).unwrap_err();
        assert!(error.contains("lines 4 and 8") && error.contains(uuid), "{error}");
    }

    #[test]
    fn a_wrong_file_is_named_with_line_and_key() {
        let dir = std::env::temp_dir().join(format!("tyche-config-{}", std::process::id()));
        std::fs::write(&dir, "name = \"a\"\n\n[[export]]\nname = \"b\"\nread_only = 3\n").unwrap();
        let error = Config::read(&dir).unwrap_err().message;
        std::fs::remove_file(&dir).unwrap();
        assert!(error.contains("line 5: `read_only = 3`"), "{error}");
    }
}

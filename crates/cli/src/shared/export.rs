//! A disk to export, as it is written in a file, on a command line, or by `tyche export add`.

use std::num::NonZeroU64;
use std::path::PathBuf;

use serde::de::{Deserialize, Deserializer};
use serde::{Serialize, Serializer};
use tyche_engine::RateLimit;
use tyche_fcoe::fc::wire::Wwn;
use tyche_proto::wire::Geometry;
use tyche_session::fcoe::parse_wwpn;
use uuid::Uuid;

use crate::shared::error::Code;
use crate::shared::rate_limit::{bytes_per_second, iops};
use crate::shared::report::{DefinedBy, Origin};
use crate::size;

/// The place that defines an export.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum DefinedAt {
    #[default]
    CommandLine,
    /// `tyche export add`: it is in the target's state.
    Command,
    File {
        path: PathBuf,
        line: usize,
    },
}

impl DefinedAt {
    /// The exit code for a mistake there.
    pub(crate) fn code(&self) -> Code {
        match self {
            Self::CommandLine | Self::Command => Code::Usage,
            Self::File { .. } => Code::Config,
        }
    }

    /// The line of its file.
    pub(crate) fn line(&self) -> Option<usize> {
        match self {
            Self::File { line, .. } => Some(*line),
            Self::CommandLine | Self::Command => None,
        }
    }
}

impl From<&DefinedAt> for DefinedBy {
    fn from(place: &DefinedAt) -> Self {
        match place {
            DefinedAt::CommandLine => Self::CommandLine,
            DefinedAt::Command => Self::Command,
            DefinedAt::File { .. } => Self::File,
        }
    }
}

/// One disk.
#[derive(Clone, Debug, Default, PartialEq, serde::Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Export {
    /// The name that hosts use.
    pub(crate) name: String,
    /// A file, a block device, `mem:SIZE`, `sparse:SIZE` or `null:SIZE`.
    #[serde(deserialize_with = "path")]
    pub(crate) path: String,
    /// The export's UUID; by default one is made when it is first served, and kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) uuid: Option<Uuid>,
    /// Refuse writes.
    #[serde(default)]
    pub(crate) read_only: bool,
    /// Completed writes may be volatile until the host flushes.
    #[serde(default)]
    pub(crate) write_back: bool,
    /// 512 or 4096.
    #[serde(default, deserialize_with = "block_size", skip_serializing_if = "Option::is_none")]
    pub(crate) block_size: Option<u32>,
    /// Several hosts may write at once: only for cluster file systems.
    #[serde(default)]
    pub(crate) shared: bool,
    /// The most requests of its hosts in a second, together.
    #[serde(default, deserialize_with = "iops", skip_serializing_if = "Option::is_none")]
    pub(crate) iops: Option<NonZeroU64>,
    /// The most bytes that they read and write in a second, together.
    #[serde(
        default,
        deserialize_with = "bytes_per_second",
        skip_serializing_if = "Option::is_none"
    )]
    pub(crate) bytes_per_second: Option<NonZeroU64>,
    /// UUIDs of the hosts that may connect; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) hosts: Vec<Uuid>,
    /// Names of the hosts with a key that may connect; by default all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) allow: Option<Vec<String>>,
    /// The ports that may know of it over FCoE.
    #[serde(
        default,
        deserialize_with = "initiators",
        skip_serializing_if = "Initiators::is_unsaid"
    )]
    pub(crate) initiators: Initiators,
    /// The disk that it was cloned from, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) origin: Option<Origin>,
    /// The name that it had before, if it was renamed by command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) renamed_from: Option<String>,
    /// The place that defines this export.
    #[serde(skip)]
    pub(crate) place: DefinedAt,
}

/// The largest disk in memory: the kernel counts bytes with a sign.
const SIZE_MAX: u64 = i64::MAX as u64;

/// The storage of an export's blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// Memory, all of it allocated at the start.
    Memory(u64),
    /// Memory, allocated as it is written.
    Sparse(u64),
    Null(u64),
    File(PathBuf),
}

impl Export {
    /// Parses `NAME=PATH` from the command line.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (name, path) = text
            .split_once('=')
            .filter(|(name, path)| !name.is_empty() && !path.is_empty())
            .ok_or("write NAME=PATH, NAME=mem:SIZE, NAME=sparse:SIZE or NAME=null:SIZE")?;
        let export = Self { name: name.to_owned(), path: path.to_owned(), ..Self::default() };
        export.source()?;
        Ok(export)
    }

    /// The export's name and path, and the place that defines them.
    pub(crate) fn described(&self) -> String {
        let Self { name, path, .. } = self;
        match &self.place {
            DefinedAt::CommandLine => format!("`--export {name}={path}`"),
            DefinedAt::Command => format!("`{name}`, added by command ({path}),"),
            DefinedAt::File { path: file, line } => {
                format!("line {line} of {} (`{name}`, {path})", file.display())
            }
        }
    }

    /// The limit of its requests.
    pub(crate) fn limit(&self) -> RateLimit {
        RateLimit { iops: self.iops, bytes_per_second: self.bytes_per_second }
    }

    /// Whether another one says the same, wherever it is defined, whatever it was called before.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let (place, renamed_from) = (self.place.clone(), self.renamed_from.clone());
        *self == Self { place, renamed_from, ..other.clone() }
    }

    /// The keys whose values are other ones in `other`, in words.
    pub(crate) fn unlike(&self, other: &Self) -> String {
        let pairs = [
            ("path", self.path != other.path),
            ("uuid", self.uuid != other.uuid),
            ("read_only", self.read_only != other.read_only),
            ("write_back", self.write_back != other.write_back),
            ("block_size", self.block_size != other.block_size),
            ("shared", self.shared != other.shared),
            ("iops", self.iops != other.iops),
            ("bytes_per_second", self.bytes_per_second != other.bytes_per_second),
            ("hosts", self.hosts != other.hosts),
            ("allow", self.allow != other.allow),
            ("initiators", self.initiators != other.initiators),
            ("origin", self.origin != other.origin),
        ];
        let keys = pairs.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key);
        format!("with other values of: {}", keys.collect::<Vec<_>>().join(", "))
    }

    /// Parses `path`.
    pub(crate) fn source(&self) -> Result<Source, String> {
        let parse = |text: &str| match size::parse(text) {
            Ok(size) if size > SIZE_MAX => {
                Err(format!("`{}`: a disk has less than 8 EiB", self.path))
            }
            Ok(size) => Ok(size),
            Err(error) => Err(format!("`{}`: {error}; write a size such as 1G", self.path)),
        };
        Ok(match self.path.split_once(':') {
            Some(("mem", text)) => Source::Memory(parse(text)?),
            Some(("sparse", text)) => Source::Sparse(parse(text)?),
            Some(("null", text)) => Source::Null(parse(text)?),
            _ => Source::File(PathBuf::from(&self.path)),
        })
    }
}

/// The ports that may know of an export over FCoE.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Initiators {
    /// Nothing is said: all, where no host has to show who it is.
    #[default]
    Unsaid,
    /// All, in so many words.
    Any,
    /// Those with these WWPNs.
    Ports(Vec<Wwn>),
}

/// The word for all ports.
pub(crate) const ANY: &str = "any";

impl Initiators {
    fn is_unsaid(&self) -> bool {
        *self == Self::Unsaid
    }

    /// The WWPNs; empty: all.
    pub(crate) fn wwpns(&self) -> Vec<Wwn> {
        match self {
            Self::Unsaid | Self::Any => Vec::new(),
            Self::Ports(wwpns) => wwpns.clone(),
        }
    }

    /// Adds a port of the command line: a WWPN, or `any`.
    pub(crate) fn add(&mut self, said: &Self) {
        match (&mut *self, said) {
            (Self::Ports(wwpns), Self::Ports(more)) => wwpns.extend(more),
            (Self::Any, _) | (_, Self::Unsaid) => {}
            (Self::Unsaid | Self::Ports(_), said) => *self = said.clone(),
        }
    }

    /// Parses a WWPN, or `any`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text {
            ANY => Ok(Self::Any),
            text => Ok(Self::Ports(vec![parse_wwpn(text)?])),
        }
    }
}

fn parsed_wwpn<E: serde::de::Error>(text: &str) -> Result<Wwn, E> {
    parse_wwpn(text).map_err(E::custom)
}

impl Serialize for Initiators {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Any => to.serialize_str(ANY),
            Self::Unsaid | Self::Ports(_) => {
                to.collect_seq(self.wwpns().iter().map(ToString::to_string))
            }
        }
    }
}

pub(crate) fn initiators<'de, D: Deserializer<'de>>(from: D) -> Result<Initiators, D::Error> {
    #[derive(serde::Deserialize)]
    #[serde(untagged)]
    enum WordOrList {
        Word(String),
        List(Vec<String>),
    }
    match WordOrList::deserialize(from)? {
        WordOrList::Word(word) if word == ANY => Ok(Initiators::Any),
        WordOrList::Word(_) => Err(serde::de::Error::custom("write a list of WWPNs, or \"any\"")),
        WordOrList::List(texts) if texts.is_empty() => Ok(Initiators::Unsaid),
        WordOrList::List(texts) => {
            let wwpns = texts.iter().map(|text| parsed_wwpn(text)).collect::<Result<_, _>>()?;
            Ok(Initiators::Ports(wwpns))
        }
    }
}

pub(crate) fn block_size<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u32>, D::Error> {
    let bytes = u32::deserialize(from)?;
    let is_valid = Geometry::is_block_size(bytes);
    is_valid.then_some(Some(bytes)).ok_or_else(|| serde::de::Error::custom("write 512 or 4096"))
}

fn path<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let path = String::deserialize(from)?;
    if path.is_empty() {
        let message = "write a file, a block device, mem:SIZE, sparse:SIZE or null:SIZE";
        return Err(serde::de::Error::custom(message));
    }
    Ok(path)
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
        assert!(Export::parse("a=null:8E").unwrap_err().contains("less than 8 EiB"));
        assert!(Export::parse("=mem:1G").is_err());
        assert!(Export::parse("a").is_err());
    }

    #[test]
    fn an_export_reads_as_it_was_written() {
        let least = Export::parse("a=mem:1M").unwrap();
        let most = Export {
            uuid: Some(Uuid::from_u128(7)),
            read_only: true,
            write_back: true,
            block_size: Some(4096),
            shared: true,
            iops: NonZeroU64::new(10_000),
            bytes_per_second: NonZeroU64::new(200 << 20),
            hosts: vec![Uuid::from_u128(8)],
            allow: Some(vec!["alpha".to_owned()]),
            initiators: Initiators::Ports(vec![Wwn(0x2100_0200_5e10_0002)]),
            origin: Some(Origin { export: "b".to_owned(), uuid: Uuid::from_u128(9), time: 5 }),
            renamed_from: Some("c".to_owned()),
            ..least.clone()
        };
        let any = Export { initiators: Initiators::Any, ..least.clone() };
        for export in [&least, &most, &any] {
            let text = serde_json::to_string(export).unwrap();
            assert_eq!(serde_json::from_str::<Export>(&text).unwrap(), *export, "{text}");
        }
        assert_eq!(
            serde_json::to_string(&least).unwrap(),
            r#"{"name":"a","path":"mem:1M","read_only":false,"write_back":false,"shared":false}"#
        );
        let (place, renamed_from) = (DefinedAt::Command, most.renamed_from.clone());
        assert!(
            least.is_same(&Export { place, renamed_from, ..least.clone() })
                && !least.is_same(&most)
        );
    }
}

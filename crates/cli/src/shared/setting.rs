//! A property of an export as `tyche export set` changes it.

use std::fmt::{self, Display};
use std::num::NonZeroU64;

use serde::Serialize;
use serde::de::{Deserialize, Deserializer};
use tyche_proto::wire::Geometry;
use uuid::Uuid;

use crate::shared::export::{ANY, Export, Initiators, block_size, initiators};
use crate::shared::rate_limit::{bytes_per_second, iops, parse_bytes_per_second, parse_iops};

/// The word for no limit.
const NONE: &str = "none";

/// See the [module](self).
#[derive(Clone, Debug, PartialEq, Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Setting {
    /// The most requests of its hosts in a second; `None`: no limit.
    Iops(#[serde(deserialize_with = "iops_if_any")] Option<NonZeroU64>),
    /// The most bytes that they read and write in a second; `None`: no limit.
    BytesPerSecond(#[serde(deserialize_with = "bytes_if_any")] Option<NonZeroU64>),
    /// Names of the hosts with a key that may connect; `None`: all.
    Allow(Option<Vec<String>>),
    /// UUIDs of the hosts without a key that may connect; empty: all.
    Hosts(Vec<Uuid>),
    /// The ports that may know of it over FCoE.
    Initiators(#[serde(deserialize_with = "initiators")] Initiators),
    /// Whether writes are refused.
    ReadOnly(bool),
    /// Whether completed writes may be volatile until the host flushes.
    WriteBack(bool),
    /// Whether several hosts may write at once.
    Shared(bool),
    /// Bytes in a block.
    BlockSize(#[serde(deserialize_with = "block_size")] Option<u32>),
}

impl Setting {
    /// The keys, each with what it is.
    pub(crate) const KEYS: [(&str, &str); 9] = [
        ("iops", "requests in a second, or none"),
        ("bytes_per_second", "such as 200M, or none"),
        ("allow", "hosts with a key, or any"),
        ("hosts", "UUIDs of hosts without a key, or any"),
        ("initiators", "WWPNs of ports, or any"),
        ("read_only", "true or false"),
        ("write_back", "true or false"),
        ("shared", "true or false"),
        ("block_size", "512 or 4096"),
    ];

    /// Parses `KEY=VALUE`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (key, value) = text.split_once('=').ok_or("write KEY=VALUE")?;
        let parsed = match key {
            "iops" => limit(value, parse_iops).map(Self::Iops),
            "bytes_per_second" => limit(value, parse_bytes_per_second).map(Self::BytesPerSecond),
            "allow" => list(value, |name| Ok(name.to_owned())).map(Self::Allow),
            "hosts" => {
                let uuid = |text: &str| Uuid::parse_str(text).map_err(|error| error.to_string());
                list(value, uuid).map(|hosts| Self::Hosts(hosts.unwrap_or_default()))
            }
            "initiators" => list(value, Initiators::parse).map(|said| {
                let mut all = Initiators::Unsaid;
                said.unwrap_or(vec![Initiators::Any]).iter().for_each(|it| all.add(it));
                Self::Initiators(all)
            }),
            "read_only" => truth(value).map(Self::ReadOnly),
            "write_back" => truth(value).map(Self::WriteBack),
            "shared" => truth(value).map(Self::Shared),
            "block_size" => {
                let bytes = value.parse().ok().filter(|bytes| Geometry::is_block_size(*bytes));
                let bytes = bytes.ok_or_else(|| "write 512 or 4096".to_owned());
                bytes.map(|bytes| Self::BlockSize(Some(bytes)))
            }
            "name" => Err("it is changed by `tyche export rename`".to_owned()),
            "size" => Err("it is changed by `tyche export resize`".to_owned()),
            "path" | "uuid" => {
                Err("it can't change: remove the export, and add it again".to_owned())
            }
            _ => {
                let keys = Self::KEYS.map(|(key, _)| key).join(", ");
                Err(format!("there is no such key; there are {keys}"))
            }
        };
        parsed.map_err(|error| format!("`{key}`: {error}"))
    }

    /// The key, as in target.toml.
    pub(crate) fn key(&self) -> &'static str {
        match self {
            Self::Iops(_) => "iops",
            Self::BytesPerSecond(_) => "bytes_per_second",
            Self::Allow(_) => "allow",
            Self::Hosts(_) => "hosts",
            Self::Initiators(_) => "initiators",
            Self::ReadOnly(_) => "read_only",
            Self::WriteBack(_) => "write_back",
            Self::Shared(_) => "shared",
            Self::BlockSize(_) => "block_size",
        }
    }

    /// Whether it is of the open disk, and not of who may have it, and how much.
    pub(crate) fn is_of_disk(&self) -> bool {
        match self {
            Self::Iops(_) | Self::BytesPerSecond(_) => false,
            Self::Allow(_) | Self::Hosts(_) | Self::Initiators(_) => false,
            Self::ReadOnly(_) | Self::WriteBack(_) | Self::Shared(_) | Self::BlockSize(_) => true,
        }
    }

    /// Changes an export.
    pub(crate) fn apply(&self, export: &mut Export) {
        match self {
            Self::Iops(limit) => export.iops = *limit,
            Self::BytesPerSecond(limit) => export.bytes_per_second = *limit,
            Self::Allow(names) => export.allow.clone_from(names),
            Self::Hosts(uuids) => export.hosts.clone_from(uuids),
            Self::Initiators(ports) => export.initiators.clone_from(ports),
            Self::ReadOnly(is_so) => export.read_only = *is_so,
            Self::WriteBack(is_so) => export.write_back = *is_so,
            Self::Shared(is_so) => export.shared = *is_so,
            Self::BlockSize(bytes) => export.block_size = *bytes,
        }
    }
}

/// `KEY=VALUE`, as [`Setting::parse`] takes it.
impl Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let joined = |items: Vec<String>| match items.is_empty() {
            true => ANY.to_owned(),
            false => items.join(","),
        };
        let value = match self {
            Self::Iops(limit) => limit.map_or_else(|| NONE.to_owned(), |it| it.to_string()),
            Self::BytesPerSecond(limit) => {
                limit.map_or_else(|| NONE.to_owned(), |it| it.to_string())
            }
            Self::Allow(names) => joined(names.clone().unwrap_or_default()),
            Self::Hosts(uuids) => joined(uuids.iter().map(Uuid::to_string).collect()),
            Self::Initiators(ports) => {
                joined(ports.wwpns().iter().map(ToString::to_string).collect())
            }
            Self::ReadOnly(is_so) | Self::WriteBack(is_so) | Self::Shared(is_so) => {
                is_so.to_string()
            }
            Self::BlockSize(bytes) => bytes.unwrap_or(512).to_string(),
        };
        write!(f, "{}={value}", self.key())
    }
}

fn truth(text: &str) -> Result<bool, String> {
    text.parse().map_err(|_| "write true or false".to_owned())
}

fn limit(
    text: &str,
    parse: impl Fn(&str) -> Result<NonZeroU64, String>,
) -> Result<Option<NonZeroU64>, String> {
    if text == NONE {
        return Ok(None);
    }
    parse(text).map(Some).map_err(|error| format!("{error}, or {NONE}"))
}

/// A list with commas; `None` for all.
fn list<T>(
    text: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Option<Vec<T>>, String> {
    match text {
        ANY => Ok(None),
        text if text.split(',').any(str::is_empty) => {
            Err(format!("write some with commas between them, or {ANY}"))
        }
        text => text.split(',').map(parse).collect::<Result<_, _>>().map(Some),
    }
}

/// A limit in a request.
fn iops_if_any<'de, D: Deserializer<'de>>(from: D) -> Result<Option<NonZeroU64>, D::Error> {
    #[derive(serde::Deserialize)]
    struct Limit(#[serde(deserialize_with = "iops")] Option<NonZeroU64>);
    Ok(Option::<Limit>::deserialize(from)?.and_then(|limit| limit.0))
}

fn bytes_if_any<'de, D: Deserializer<'de>>(from: D) -> Result<Option<NonZeroU64>, D::Error> {
    #[derive(serde::Deserialize)]
    struct Limit(#[serde(deserialize_with = "bytes_per_second")] Option<NonZeroU64>);
    Ok(Option::<Limit>::deserialize(from)?.and_then(|limit| limit.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_the_same_on_the_command_line_in_a_request_and_in_the_log() {
        for (text, json) in [
            ("iops=1000", r#"{"iops":1000}"#),
            ("iops=none", r#"{"iops":null}"#),
            ("bytes_per_second=1048576", r#"{"bytes_per_second":1048576}"#),
            ("bytes_per_second=none", r#"{"bytes_per_second":null}"#),
            ("allow=alpha,beta", r#"{"allow":["alpha","beta"]}"#),
            ("allow=any", r#"{"allow":null}"#),
            ("hosts=any", r#"{"hosts":[]}"#),
            (
                "hosts=7a26e711-2233-4455-a677-8899aabbccdd",
                r#"{"hosts":["7a26e711-2233-4455-a677-8899aabbccdd"]}"#,
            ),
            ("initiators=any", r#"{"initiators":"any"}"#),
            (
                "initiators=21:00:02:00:5e:10:00:02,21:00:02:00:5e:10:00:03",
                r#"{"initiators":["21:00:02:00:5e:10:00:02","21:00:02:00:5e:10:00:03"]}"#,
            ),
            ("read_only=true", r#"{"read_only":true}"#),
            ("write_back=false", r#"{"write_back":false}"#),
            ("shared=true", r#"{"shared":true}"#),
            ("block_size=4096", r#"{"block_size":4096}"#),
        ] {
            let setting = Setting::parse(text).unwrap();
            assert_eq!(setting.to_string(), text);
            assert_eq!(serde_json::to_string(&setting).unwrap(), json);
            assert_eq!(serde_json::from_str::<Setting>(json).unwrap(), setting);
        }
        assert_eq!(Setting::parse("bytes_per_second=1M").unwrap().to_string().len(), 24);
    }

    #[test]
    fn all_keys_are_in_the_list() {
        for (key, _) in Setting::KEYS {
            let error = Setting::parse(&format!("{key}=?")).err();
            // Any text is a host's name.
            assert!(error.is_none_or(|it| !it.contains("no such key")), "{key}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_by_its_key() {
        for (text, said) in [
            ("iops", "write KEY=VALUE"),
            ("iops=9", "`iops`: write 10 to 1000000000, or none"),
            ("bytes_per_second=1k", "`bytes_per_second`: write 1.0 MiB to 1.0 TiB, or none"),
            ("allow=", "`allow`: write some with commas between them, or any"),
            ("allow=a,,b", "or any"),
            ("hosts=alpha", "`hosts`: "),
            ("initiators=1", "`initiators`: `1`: a WWPN is 16 hexadecimal digits"),
            ("read_only=yes", "`read_only`: write true or false"),
            ("block_size=1024", "write 512 or 4096"),
            ("name=b", "`tyche export rename`"),
            ("size=1G", "`tyche export resize`"),
            ("path=/dev/b", "it can't change"),
            ("colour=red", "`colour`: there is no such key; there are iops"),
        ] {
            let error = Setting::parse(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
        for json in [
            r#"{"iops":9}"#,
            r#"{"bytes_per_second":0}"#,
            r#"{"initiators":"all"}"#,
            r#"{"block_size":1}"#,
            r#"{"path":"/dev/b"}"#,
            r#"{"read_only":null}"#,
        ] {
            assert!(serde_json::from_str::<Setting>(json).is_err(), "{json}");
        }
    }
}

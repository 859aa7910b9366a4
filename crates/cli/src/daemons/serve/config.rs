//! The configuration of a target: from the command line for one disk, from a TOML file for many.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::SocketAddr;
use std::num::{NonZeroU8, NonZeroU64};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytesize::ByteSize;
use serde::de::{Deserialize, Deserializer};
use toml::Spanned;
use toml::de::DeTable;
use tyche_engine::RateLimit;
use tyche_fcoe::fc::network::Mode;
use tyche_fcoe::fc::wire::Wwn;
use tyche_proto::crypto::PublicKey;
use tyche_session::fcoe::{parse_mode, parse_wwpn};

use super::pool::Pool;
use super::vlan::Vlan;
use crate::shared::control_address::parse_listening;
use crate::shared::error::{Code, Error, Result};
pub(crate) use crate::shared::export::{DefinedAt, Export, Initiators, Source};
use crate::shared::host::AddedHost;
use crate::shared::keys::public_key;
use crate::shared::rate_limit::{bytes_per_second, iops};
use crate::size;

/// The configuration, as it is in a file.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Config {
    /// Name of the target; the machine's host name by default.
    pub(crate) name: Option<String>,
    /// Interfaces to serve on, or places to listen at; by default all interfaces that are up.
    pub(crate) link: Vec<String>,
    /// Threads for each interface.
    pub(crate) threads: Option<NonZeroU8>,
    /// Do not answer hosts that look for targets over UDP without an address.
    #[serde(rename = "udp_discovery", deserialize_with = "negated")]
    pub(crate) is_hidden: bool,
    /// Limits of connections.
    pub(crate) limits: Limits,
    /// Interfaces to serve on by FCoE.
    pub(crate) fcoe: Vec<FcoePort>,
    /// VLANs for FCoE that are announced.
    pub(crate) fcoe_vlan: Vec<Vlan>,
    /// File of the target's secret key; or two, while it is being changed: of the present key, and
    /// of the next.
    #[serde(deserialize_with = "paths")]
    pub(crate) key: Vec<PathBuf>,
    /// Whether hosts without a key are let in though the target has one.
    pub(crate) auth: Option<Auth>,
    /// Do not answer those who do not know the target's key.
    #[serde(rename = "silent")]
    pub(crate) is_silent: bool,
    /// The hosts that may connect, by their keys.
    pub(crate) host: Vec<Host>,
    /// Where admins elsewhere are listened to.
    #[serde(deserialize_with = "listening")]
    pub(crate) control: Option<SocketAddr>,
    /// The admins, by their keys.
    pub(crate) admin: Vec<Admin>,
    /// The pools.
    pub(crate) pool: Vec<Pool>,
    /// The disks.
    #[serde(deserialize_with = "exports")]
    pub(crate) export: Vec<Export>,
    /// The exports that were added by command and contradict the others: they are kept, and served
    /// when they do not any more.
    #[serde(skip)]
    pub(crate) idle: Vec<Export>,
    /// The links that were added by command. They are among the others if any link is named.
    #[serde(skip)]
    pub(crate) added_links: Vec<String>,
    /// The hosts that were added by command.
    #[serde(skip)]
    pub(crate) added_hosts: Vec<AddedHost>,
    /// Those that contradict the others, each with the reason: they are kept, and let in when they
    /// do not any more.
    #[serde(skip)]
    pub(crate) idle_hosts: Vec<(AddedHost, String)>,
    /// The lines of the file that begin its keys.
    #[serde(skip)]
    pub(crate) lines: BTreeMap<String, usize>,
}

/// Whether hosts have to prove who they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Auth {
    /// Hosts without a key are refused.
    Required,
    /// They may connect, but for exports that are for certain hosts.
    Optional,
}

/// A host with keys.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Host {
    /// Its name at this target.
    pub(crate) name: String,
    /// Its public keys: one, or several while they are exchanged.
    #[serde(deserialize_with = "keys")]
    pub(crate) key: Vec<PublicKey>,
    /// The most requests in a second, at all exports together.
    #[serde(default, deserialize_with = "iops")]
    pub(crate) iops: Option<NonZeroU64>,
    /// The most bytes that it reads and writes in a second, at all exports together.
    #[serde(default, deserialize_with = "bytes_per_second")]
    pub(crate) bytes_per_second: Option<NonZeroU64>,
}

impl Host {
    /// Parses `NAME=KEY` from the command line.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (name, key) = text.split_once('=').ok_or("write NAME=KEY")?;
        let (iops, bytes_per_second) = (None, None);
        Ok(Self { name: name.to_owned(), key: vec![public_key(key)?], iops, bytes_per_second })
    }

    /// The limit of its requests.
    pub(crate) fn limit(&self) -> RateLimit {
        RateLimit { iops: self.iops, bytes_per_second: self.bytes_per_second }
    }
}

/// An admin with keys, who asks from elsewhere.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Admin {
    /// The name at this target.
    pub(crate) name: String,
    /// The public keys: one, or several while they are exchanged. None is that of a host.
    #[serde(deserialize_with = "keys")]
    pub(crate) key: Vec<PublicKey>,
    /// Whether the admin may only ask what is.
    #[serde(default)]
    pub(crate) read_only: bool,
}

fn listening<'de, D: Deserializer<'de>>(from: D) -> Result<Option<SocketAddr>, D::Error> {
    let address = parse_listening(&String::deserialize(from)?);
    address.map(Some).map_err(serde::de::Error::custom)
}

fn negated<'de, D: Deserializer<'de>>(from: D) -> Result<bool, D::Error> {
    bool::deserialize(from).map(|it| !it)
}

/// The exports, each with the offset of its table in the file as its line: see [`Config::parse`].
fn exports<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Export>, D::Error> {
    let placed = |export: Spanned<Export>| {
        let place = DefinedAt::File { path: PathBuf::new(), line: export.span().start };
        Export { place, ..export.into_inner() }
    };
    Ok(Vec::deserialize(from)?.into_iter().map(placed).collect())
}

/// One text, or several.
fn texts<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    #[derive(serde::Deserialize)]
    #[serde(untagged)]
    enum OneOrMany {
        One(String),
        Many(Vec<String>),
    }
    Ok(match OneOrMany::deserialize(from)? {
        OneOrMany::One(text) => vec![text],
        OneOrMany::Many(texts) => texts,
    })
}

/// One file, or several.
fn paths<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<PathBuf>, D::Error> {
    Ok(texts(from)?.into_iter().map(PathBuf::from).collect())
}

/// One key, or several.
fn keys<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<PublicKey>, D::Error> {
    let texts = texts(from)?;
    let parsed = texts.iter().map(|text| public_key(text).map_err(serde::de::Error::custom));
    parsed.collect()
}

/// An interface to serve on by FCoE.
#[derive(Clone, Debug, PartialEq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FcoePort {
    /// Its name.
    pub(crate) link: String,
    /// The kind of its network.
    #[serde(default, deserialize_with = "mode")]
    pub(crate) mode: Mode,
    /// Name of its port; by default it follows from the interface's address.
    #[serde(default, deserialize_with = "wwpn")]
    pub(crate) wwpn: Option<Wwn>,
    /// E_D_TOV in seconds, 0.05 to 60.
    #[serde(default = "default_e_d_tov", deserialize_with = "e_d_tov")]
    pub(crate) e_d_tov: f64,
}

impl FcoePort {
    /// The interface of that name on a network of that kind, with that E_D_TOV in seconds.
    pub(crate) fn new(link: String, mode: Mode, e_d_tov: f64) -> Self {
        Self { link, mode, wwpn: None, e_d_tov }
    }

    /// E_D_TOV, in whole milliseconds.
    pub(crate) fn e_d_tov(&self) -> Duration {
        Duration::from_millis((self.e_d_tov * 1000.0) as u64)
    }
}

fn default_e_d_tov() -> f64 {
    2.0
}

fn e_d_tov<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    within(f64::deserialize(from)?, 0.05..=60.0)
}

fn mode<'de, D: Deserializer<'de>>(from: D) -> Result<Mode, D::Error> {
    parse_mode(&String::deserialize(from)?).map_err(serde::de::Error::custom)
}

fn wwpn<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Wwn>, D::Error> {
    parse_wwpn(&String::deserialize(from)?).map(Some).map_err(serde::de::Error::custom)
}

/// Limits of connections to the target's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Limits {
    /// Memory for the channels of all hosts together, 1 MiB to 16 TiB.
    #[serde(deserialize_with = "memory")]
    pub(crate) memory: ByteSize,
    /// Requests in flight on each, 1 to 1024.
    #[serde(deserialize_with = "queue_size")]
    pub(crate) queue_size: u16,
    /// Memory for the data of each at most, 1 MiB to 4 GiB.
    #[serde(deserialize_with = "data_queue")]
    pub(crate) data_queue: ByteSize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { memory: ByteSize::gib(1), queue_size: 256, data_queue: ByteSize::mib(32) }
    }
}

fn memory<'de, D: Deserializer<'de>>(from: D) -> Result<ByteSize, D::Error> {
    within(ByteSize(size::deserialize(from)?), ByteSize::mib(1)..=ByteSize::gib(16 << 10))
}

fn queue_size<'de, D: Deserializer<'de>>(from: D) -> Result<u16, D::Error> {
    within(u16::deserialize(from)?, 1..=1024)
}

fn data_queue<'de, D: Deserializer<'de>>(from: D) -> Result<ByteSize, D::Error> {
    within(ByteSize(size::deserialize(from)?), ByteSize::mib(1)..=ByteSize::gib(4))
}

/// Checks a range: a value outside is an error, never adjusted silently.
fn within<T, E>(value: T, range: RangeInclusive<T>) -> Result<T, E>
where
    T: PartialOrd + Display,
    E: serde::de::Error,
{
    if range.contains(&value) {
        return Ok(value);
    }
    Err(E::custom(format!("write {} to {}", range.start(), range.end())))
}

impl Config {
    /// Parses the text of a configuration file.
    ///
    /// # Errors
    /// `Config`, naming the line and the key.
    pub(crate) fn parse(text: &str, path: &Path) -> Result<Self> {
        let wrong = |what: &str| Error::new(Code::Config, format!("{}: {what}", path.display()));
        let line_at = |offset: usize| text[..offset].matches('\n').count() + 1;
        let mut config: Self = toml::from_str(text).map_err(|error| {
            let start = error.span().map(|span| span.start);
            let key = start.map_or("", |start| {
                let begin = text[..start].rfind('\n').map_or(0, |end| end + 1);
                text[begin..].lines().next().unwrap_or_default()
            });
            let line = start.map_or(0, line_at);
            wrong(&format!("line {line}: `{}`: {}", key.trim(), error.message()))
        })?;
        for export in &mut config.export {
            if let DefinedAt::File { path: file, line } = &mut export.place {
                *line = line_at(*line);
                path.clone_into(file);
            }
        }
        if let Ok(table) = DeTable::parse(text) {
            let keys = table.get_ref().keys();
            let line = |key: &Spanned<_>| line_at(key.span().start);
            config.lines = keys.map(|key| (key.get_ref().to_string(), line(key))).collect();
        }
        Ok(config)
    }

    /// Checks that the names given with `--accept-changed-disk` are exports.
    ///
    /// # Errors
    /// `Usage`, with the unknown name.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Config> {
        Config::parse(text, Path::new("target.toml"))
    }

    #[test]
    fn a_wrong_file_is_named_with_line_and_key() {
        let error = read("name = \"a\"\n\n[[export]]\nname = \"b\"\nread_only = 3\n").unwrap_err();
        assert!(error.message.contains("line 5: `read_only = 3`"), "{error}");
    }

    #[test]
    fn limits_that_make_no_sense_are_refused_with_line_and_range() {
        for (key, range) in [
            ("memory = \"512kiB\"", "write 1.0 MiB to 16.0 TiB"),
            ("queue_size = 0", "write 1 to 1024"),
            ("queue_size = 1025", "write 1 to 1024"),
            ("data_queue = \"4kiB\"", "write 1.0 MiB to 4.0 GiB"),
            ("data_queue = \"5GiB\"", "write 1.0 MiB to 4.0 GiB"),
        ] {
            let error = read(&format!("[limits]\n{key}\n")).unwrap_err();
            let wanted = format!("target.toml: line 2: `{key}`: {range}");
            assert!(error.message.ends_with(&wanted), "{error}");
        }
        let least = read("[limits]\nmemory = \"1MiB\"\n").unwrap().limits.memory;
        assert_eq!(least, ByteSize::mib(1));
        let wrong = read("[limits]\ndata_queue = true\n").unwrap_err();
        assert!(wrong.message.contains("write a size such as \"32M\""), "{wrong}");
        for written in ["\"32M\"", "\"32MiB\"", "\"32MB\"", "33554432"] {
            let read = read(&format!("[limits]\ndata_queue = {written}\n")).unwrap();
            assert_eq!(read.limits.data_queue, ByteSize::mib(32), "{written}");
        }
    }

    #[test]
    fn a_block_size_that_no_disk_has_is_refused_with_its_line() {
        let export = "[[export]]\nname = \"a\"\npath = \"/dev/a\"\n";
        let error = read(&format!("{export}block_size = 1024\n")).unwrap_err();
        assert_eq!(error.code, Code::Config);
        assert!(
            error.message.ends_with("line 4: `block_size = 1024`: write 512 or 4096"),
            "{error}"
        );
        assert_eq!(
            read(&format!("{export}block_size = 4096\n")).unwrap().export[0].block_size,
            Some(4096)
        );
    }

    #[test]
    fn exports_and_hosts_have_limits_of_requests_and_bytes() {
        let export = "[[export]]\nname = \"a\"\npath = \"mem:1M\"\n";
        let limits = "iops = 10000\nbytes_per_second = \"200M\"\n";
        let host = format!("[[host]]\nname = \"b\"\nkey = []\n{limits}");
        let config = read(&format!("{host}{export}{limits}")).unwrap();
        let limit = RateLimit {
            iops: NonZeroU64::new(10_000),
            bytes_per_second: NonZeroU64::new(200 << 20),
        };
        assert_eq!([config.export[0].limit(), config.host[0].limit()], [limit; 2]);
        assert_eq!(read(export).unwrap().export[0].limit(), RateLimit::default());
        for (key, range) in [
            ("iops = 9", "write 10 to 1000000000"),
            ("bytes_per_second = \"1k\"", "write 1.0 MiB to 1.0 TiB"),
        ] {
            let error = read(&format!("{export}{key}\n")).unwrap_err();
            assert!(error.message.ends_with(&format!("line 4: `{key}`: {range}")), "{error}");
        }
    }

    #[test]
    fn an_export_has_a_path() {
        let error = read("[[export]]\nname = \"a\"\npath = \"\"\n").unwrap_err();
        assert!(error.message.contains("line 3: `path = \"\"`: write a file"), "{error}");
    }

    #[test]
    fn a_target_is_found_over_udp_unless_it_declines() {
        for (text, is_hidden) in
            [("", false), ("udp_discovery = true", false), ("udp_discovery = false", true)]
        {
            assert_eq!(read(text).unwrap().is_hidden, is_hidden, "{text}");
        }
    }

    #[test]
    fn ports_of_fcoe_have_names_and_times_that_make_sense() {
        let config = read("[[fcoe]]\nlink = \"eth1\"\ne_d_tov = 0.05\n").unwrap();
        assert_eq!(config.fcoe[0].e_d_tov(), Duration::from_millis(50));
        assert_eq!(config.fcoe[0].mode, Mode::Vn2vn);
        let config = read("[[fcoe]]\nlink = \"eth1\"\nmode = \"fabric\"\n").unwrap();
        assert_eq!(config.fcoe[0].mode, Mode::Fabric);
        let line = "[[fcoe]]\nlink = \"eth1\"\n";
        for (key, message) in [
            ("mode = \"auto\"", "the mode is vn2vn or fabric"),
            ("wwpn = \"20:00\"", "a WWPN is 16 hexadecimal digits"),
            ("e_d_tov = 0.01", "write 0.05 to 60"),
        ] {
            let error = read(&format!("{line}{key}\n")).unwrap_err();
            assert!(error.message.contains("line 3") && error.message.contains(message), "{error}");
        }
        let config = read("fcoe_vlan = [\"eth1:7\"]\n").unwrap();
        assert_eq!(config.fcoe_vlan, [Vlan::parse("eth1:7").unwrap()]);
        let error = read("fcoe_vlan = [\"eth1\"]\n").unwrap_err();
        assert!(error.message.contains("line 1") && error.message.contains("INTERFACE:VLAN"));
    }

    #[test]
    fn ports_that_may_see_an_export_are_listed_or_any() {
        let of = |line: &str| {
            let config = read(&format!("[[export]]\nname = \"a\"\npath = \"b\"\n{line}\n"));
            config.map(|config| config.export[0].initiators.clone())
        };
        let wwpn = Wwn(0x2100_0200_5e10_0002);
        let listed = Initiators::Ports(vec![wwpn]);
        for (line, expected) in [
            ("", Initiators::Unsaid),
            ("initiators = []", Initiators::Unsaid),
            ("initiators = \"any\"", Initiators::Any),
            ("initiators = [\"21:00:02:00:5e:10:00:02\"]", listed.clone()),
        ] {
            assert_eq!(of(line).unwrap(), expected, "{line}");
        }
        for line in ["initiators = \"all\"", "initiators = [\"any\"]", "initiators = 3"] {
            assert!(of(line).unwrap_err().message.contains("line 4"), "{line}");
        }
        let mut said = Initiators::Unsaid;
        said.add(&listed);
        said.add(&Initiators::Ports(vec![Wwn(7)]));
        assert_eq!(said.wwpns(), [wwpn, Wwn(7)]);
        said.add(&Initiators::parse("any").unwrap());
        said.add(&listed);
        assert_eq!(said, Initiators::Any);
    }

    #[test]
    fn exports_know_their_lines() {
        let table = "[[export]]\nname = \"b\"\npath = \"/dev/b\"\n";
        let config = read(&format!("name = \"a\"\n\n{table}\n{table}")).unwrap();
        let line = |export: &Export| match export.place {
            DefinedAt::File { line, .. } => line,
            DefinedAt::CommandLine | DefinedAt::Command => 0,
        };
        assert_eq!(config.export.iter().map(line).collect::<Vec<_>>(), [3, 7]);
        let keys = [("name".to_owned(), 1), ("export".to_owned(), 3)];
        assert_eq!(config.lines, BTreeMap::from(keys));
    }
}

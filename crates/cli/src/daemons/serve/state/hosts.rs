//! The hosts that were added by command, which outlive the target's process.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::super::checked_name;
use super::State;
use super::record::replace;
use crate::shared::error::{Code, Error, Result};
use crate::shared::host::AddedHost;

/// The file of the hosts that were added by command.
const HOSTS: &str = "hosts.json";
/// The version of its content.
const VERSION: u32 = 1;
/// The most hosts that a target keeps so: all are read and written together.
pub(crate) const HOSTS_MAX: usize = 4096;

/// The content of the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Content<'a> {
    version: u32,
    hosts: Cow<'a, [AddedHost]>,
}

/// The version of a file, whatever else is in it.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

impl State {
    /// The hosts that were added by command.
    ///
    /// # Errors
    /// `Config` if they can't be read.
    pub(crate) fn added_hosts(&self) -> Result<Vec<AddedHost>> {
        read(&self.dir.join(HOSTS))
    }

    /// Keeps the hosts that were added by command: these from now on.
    ///
    /// # Errors
    /// `Other` if that is not possible. Those before are kept then.
    pub(crate) fn keep_hosts(&self, hosts: &[AddedHost]) -> Result<()> {
        keep(&self.dir.join(HOSTS), hosts)
    }
}

/// Reads the hosts in a file; none if there is no file.
fn read(path: &Path) -> Result<Vec<AddedHost>> {
    let text = match fs::read_to_string(path) {
        // Of the path that leads there, something is missing or no directory.
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Vec::new());
        }
        text => text,
    };
    text.map_err(|error| error.to_string()).and_then(|text| parse(&text)).map_err(|error| {
        let remedy = "it has the hosts that `tyche host add` has added: mend it, or remove it and \
                      add them again";
        Error::new(Code::Config, format!("{}: {error}; {remedy}", path.display()))
    })
}

/// The hosts in the text of a file, if it could be one of ours: no two have a name or a key.
fn parse(text: &str) -> Result<Vec<AddedHost>, String> {
    // Of a later version the rest may not be understood.
    let Versioned { version } = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if version != VERSION {
        return Err(format!("it has version {version}, and this program knows {VERSION} only"));
    }
    let content: Content<'_> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let hosts = content.hosts.into_owned();
    if hosts.len() > HOSTS_MAX {
        return Err(format!("it has {} hosts, and {HOSTS_MAX} is the most", hosts.len()));
    }
    let (mut names, mut keys) = (BTreeSet::new(), BTreeSet::new());
    for AddedHost { name, key, .. } in &hosts {
        checked_name(name).map_err(|error| error.message)?;
        if !names.insert(name) {
            return Err(format!("host {name} is there twice"));
        }
        if !keys.insert(key) {
            return Err(format!("host {name} has the key of another, {key}"));
        }
    }
    Ok(hosts)
}

fn keep(path: &Path, hosts: &[AddedHost]) -> Result<()> {
    let content = Content { version: VERSION, hosts: hosts.into() };
    replace(path, |_| Ok(serde_json::to_string_pretty(&content)?))
        .map_err(|error| Error::new(Code::Other, format!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU64;

    use tyche_proto::crypto::SecretKey;

    use super::*;

    fn host(name: &str, number: u64) -> AddedHost {
        let mut random = [7; 32];
        random[8..16].copy_from_slice(&number.to_le_bytes());
        let key = SecretKey::from_random(random).public();
        AddedHost { name: name.to_owned(), key, iops: None, bytes_per_second: None }
    }

    #[test]
    fn hosts_outlive_the_process() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/hosts.json");
        assert_eq!(read(&path).unwrap(), []);
        let limited = AddedHost { iops: NonZeroU64::new(1000), ..host("node2", 2) };
        let hosts = [host("node1", 1), limited];
        keep(&path, &hosts).unwrap();
        assert_eq!(read(&path).unwrap(), hosts);
        keep(&path, &[]).unwrap();
        assert_eq!(read(&path).unwrap(), []);
        // In the way of the new file, also for root.
        fs::create_dir(dir.path().join("new/hosts.json.new")).unwrap();
        let error = keep(&path, &hosts).unwrap_err();
        assert!(error.code == Code::Other && error.message.contains("hosts.json"), "{error}");
        assert_eq!(read(&path).unwrap(), []);
    }

    #[test]
    fn a_file_that_is_not_ours_is_named_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hosts.json");
        let [one, two] = [1, 2].map(|number| serde_json::json!(host("node1", number)).to_string());
        let file = |hosts: &str| format!(r#"{{"version":1,"hosts":[{hosts}]}}"#);
        fs::write(&path, file(&one)).unwrap();
        assert_eq!(read(&path).unwrap(), [host("node1", 1)]);
        let renamed = |name: &str| one.replace("node1", name);
        for (text, said) in [
            (String::new(), "EOF"),
            ("{".to_owned(), "EOF"),
            ("[]".to_owned(), "invalid"),
            (r#"{"version":1}"#.to_owned(), "missing field `hosts`"),
            (format!(r#"{{"hosts":[{one}]}}"#), "missing field `version`"),
            (file(&one).replace(":1,", ":2,"), "it has version 2"),
            (r#"{"version":7,"nodes":{}}"#.to_owned(), "it has version 7"),
            (file(&one).replace(":1,", r#":1,"users":[],"#), "unknown field `users`"),
            (file(&one.replace('}', r#","admin":true}"#)), "unknown field `admin`"),
            (file(&one.replace("tyche_", "tyche_secret_")), "that is a secret key"),
            (file(&[&*one, &two].join(",")), "host node1 is there twice"),
            (file(&[&*one, &renamed("node2")].join(",")), "host node2 has the key of another"),
            (file(&renamed("")), "1 to 63 bytes"),
            (file(&renamed(&"n".repeat(64))), "1 to 63 bytes"),
            (file(&renamed("a\\nb")), "1 to 63 bytes"),
            (file(&one.replace('}', r#","iops":1}"#)), "write 10 to"),
        ] {
            fs::write(&path, &text).unwrap();
            let error = read(&path).unwrap_err();
            assert!(error.code == Code::Config && error.message.contains(said), "{text}: {error}");
            let names_all =
                error.message.contains("hosts.json") && error.message.contains("add them");
            assert!(names_all && !error.message.contains('\n'), "{error}");
        }
        fs::write(&path, [0xff, 0xfe]).unwrap();
        assert_eq!(read(&path).unwrap_err().code, Code::Config, "no text");
    }

    #[test]
    fn as_many_hosts_are_read_as_are_kept_at_most() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("hosts.json");
        let mut hosts: Vec<_> =
            (0..HOSTS_MAX as u64).map(|number| host(&format!("node{number}"), number)).collect();
        keep(&path, &hosts).unwrap();
        assert_eq!(read(&path).unwrap(), hosts);
        hosts.push(host("more", u64::MAX));
        keep(&path, &hosts).unwrap();
        let error = read(&path).unwrap_err();
        assert!(error.message.contains("it has 4097 hosts, and 4096 is the most"), "{error}");
    }
}

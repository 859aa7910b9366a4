//! `tyche key`: the keys of hosts and targets.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use tyche_proto::crypto::PublicKey;
use tyche_session::{KEY_FILE, KeyFileError, KnownTargets, make_key};

use crate::output::{Format, Table, print, remark, show};
use crate::shared::error::{Code, CodedResult, Error, Result};
use crate::shared::keys::public_key;
use crate::shared::keys::read_key;
use crate::shared::report::{KnownTargetReport, Output};

/// Make and show the keys by which hosts and targets prove who they are.
///
/// Each machine makes a key of its own. The secret part stays in its file; the public part, a line
/// of 49 characters, is given to the other machine: a target has those of its hosts (`tyche host
/// add NAME KEY`, `tyche serve --host NAME=KEY`), a host names that of its target (`tyche connect
/// --target-key KEY`), or keeps it on first contact (`--target-key ask`).
#[derive(Args, Debug)]
pub(crate) struct KeyCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Make a key for this machine, and print its public part. An existing key is left alone.
    Generate(Generate),
    /// Print the public part of this machine's key.
    Show(KeyFile),
    /// Print the fingerprint of a key, to be compared by eye or by phone.
    Fingerprint(Fingerprint),
    /// List the targets whose keys this machine knows: those that you have said yes to after
    /// `tyche connect TARGET/EXPORT --target-key ask`.
    Known(KnownArgs),
    /// Forget the key of a target: it has another one now, or is no more.
    Forget(Forget),
}

#[derive(Args, Debug)]
struct Generate {
    #[command(flatten)]
    key: KeyFile,

    /// If there is a key already, print its public part, as if it had been made now.
    #[arg(long)]
    if_needed: bool,
}

#[derive(Args, Debug)]
struct KeyFile {
    /// File of the secret key.
    #[arg(default_value = KEY_FILE)]
    file: PathBuf,
}

#[derive(Args, Debug)]
struct Fingerprint {
    /// The public key; by default this machine's own.
    #[arg(value_parser = key_to_compare)]
    key: Option<PublicKey>,

    /// File of the secret key.
    #[arg(long, value_name = "FILE", default_value = KEY_FILE, conflicts_with = "key")]
    file: PathBuf,
}

#[derive(Args, Debug)]
struct KnownArgs {
    /// How to print.
    #[arg(short, long, default_value_t)]
    output: Format,
}

#[derive(Args, Debug)]
struct Forget {
    /// Name of the target, as `tyche key known` lists it, or its UUID.
    target: String,
}

/// Parses a public key. A path is taken for one by whoever has several keys.
fn key_to_compare(text: &str) -> Result<PublicKey, String> {
    public_key(text).map_err(|error| match text.contains('/') {
        true => "a file of a key is named with --file".to_owned(),
        false => error,
    })
}

impl KeyCommand {
    /// How to print.
    pub(crate) fn output(&self) -> Format {
        match &self.action {
            Action::Known(KnownArgs { output }) => *output,
            _ => Format::Text,
        }
    }
}

pub(crate) fn run(command: &KeyCommand) -> Result<()> {
    match &command.action {
        Action::Generate(Generate { key: KeyFile { file }, if_needed }) => {
            print(&format!("{}\n", generate(file, *if_needed)?))
        }
        Action::Show(KeyFile { file }) => print(&format!("{}\n", read_key(file)?.public())),
        Action::Fingerprint(Fingerprint { key, file }) => {
            let key = match key {
                Some(key) => *key,
                None => read_key(file)?.public(),
            };
            print(&format!("{}\n", key.fingerprint()))
        }
        Action::Known(KnownArgs { output }) => list(&KnownTargets::read().coded()?, *output),
        Action::Forget(Forget { target }) => {
            let mut known = KnownTargets::read().coded()?;
            let gone = known.forget(target).coded()?;
            let lines = gone.iter().map(|it| format!("{} {}\n", it.name, it.key.fingerprint()));
            print(&lines.collect::<String>())
        }
    }
}

fn list(known: &KnownTargets, output: Format) -> Result<()> {
    known.mistakes().for_each(|mistake| remark(format_args!("tyche: {mistake}")));
    show(
        output,
        || Output::KnownTargets {
            file: known.path().display().to_string(),
            targets: known.targets().iter().map(KnownTargetReport::from).collect(),
        },
        || {
            let mut table = Table::new(["TARGET", "KEY", "UUID"]);
            for target in known.targets() {
                let uuid = target.uuid.to_string();
                table.row([target.name.to_string(), target.key.fingerprint(), uuid]);
            }
            table.to_string()
        },
    )
}

fn generate(file: &Path, if_needed: bool) -> Result<PublicKey> {
    match make_key(file) {
        Ok(key) => Ok(key.public()),
        Err(KeyFileError::Io { error, .. }) if error.kind() == ErrorKind::AlreadyExists => {
            if if_needed {
                return Ok(read_key(file)?.public());
            }
            let file = file.display();
            let message = format!(
                "{file}: there is a key already; `tyche key show {file}` prints its public part"
            );
            Err(Error::new(Code::Exists, message))
        }
        Err(error) => Err(error).coded(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_is_there_is_left_alone_and_shown_only_if_that_will_do() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("key");
        let key = generate(&file, true).unwrap();
        let secret = || std::fs::read(&file).unwrap();
        let before = secret();
        let error = generate(&file, false).unwrap_err();
        assert_eq!(error.code, Code::Exists);
        assert!(error.message.contains("`tyche key show "), "{error}");
        assert_eq!(generate(&file, true).unwrap(), key);
        assert_eq!(secret(), before);
    }
}

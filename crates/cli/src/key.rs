//! `tyche key`: the keys of hosts and targets.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use tyche_proto::crypto::PublicKey;
use tyche_session::{KEY_FILE, KeyFileError, make_key};

use crate::connect::public_key;
use crate::error::{Code, CodedResult, Error, Result};
use crate::secret::read_key;

/// Make and show the keys by which hosts and targets prove who they are.
///
/// Each machine makes a key of its own. The secret part stays in its file; the public part, a line
/// of 49 characters, is given to the other machine: a target lists those of its hosts
/// (`tyche serve --host NAME=KEY`), a host names that of its target (`tyche connect --target-key
/// KEY`).
#[derive(Args, Debug)]
pub(crate) struct KeyCommand {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Make a key for this machine, and print its public part. An existing key is left alone.
    Generate(KeyFile),
    /// Print the public part of this machine's key.
    Show(KeyFile),
    /// Print the fingerprint of a key, to be compared by eye or by phone.
    Fingerprint(Fingerprint),
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
    #[arg(value_parser = public_key)]
    key: Option<PublicKey>,

    /// File of the secret key.
    #[arg(long, value_name = "FILE", default_value = KEY_FILE, conflicts_with = "key")]
    file: PathBuf,
}

pub(crate) fn run(command: &KeyCommand) -> Result<()> {
    match &command.action {
        Action::Generate(KeyFile { file }) => println!("{}", generate(file)?),
        Action::Show(KeyFile { file }) => println!("{}", read_key(file)?.public()),
        Action::Fingerprint(Fingerprint { key, file }) => {
            let key = match key {
                Some(key) => *key,
                None => read_key(file)?.public(),
            };
            println!("{}", key.fingerprint());
        }
    }
    Ok(())
}

fn generate(file: &Path) -> Result<PublicKey> {
    match make_key(file) {
        Ok(key) => Ok(key.public()),
        Err(KeyFileError::Io { error, .. }) if error.kind() == ErrorKind::AlreadyExists => {
            let file = file.display();
            let message = format!(
                "{file}: there is a key already; `tyche key show {file}` prints its public part"
            );
            Err(Error::new(Code::Config, message))
        }
        Err(error) => Err(error).coded(),
    }
}

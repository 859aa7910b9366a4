//! Who was last let in to write an export: kept over restarts of the target.
//!
//! A session that was away while another host wrote must not get back in: what it still has to
//! write is stale. That the target was restarted in between changes nothing about it.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use tyche_engine::RememberWriter;
use tyche_proto::Writer;
use uuid::Uuid;

use crate::error::{Code, Context, Result};

/// One file for each export, named by the export's UUID, with those of session and device in it.
const DIRECTORY: &str = "/var/lib/tyche/writers";

fn path(export: Uuid) -> PathBuf {
    Path::new(DIRECTORY).join(export.to_string())
}

/// Who was last let in to write the export, if any is known.
///
/// # Errors
/// If the file is there and can't be read: to go on without it could cost data.
pub(super) fn recall(export: Uuid) -> Result<Option<Writer>> {
    let path = path(export);
    match fs::read_to_string(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).context(Code::Permission, path.display()),
        Ok(text) => parse(&text).map(Some).context(
            Code::Config,
            format_args!("{}: remove it if no host is away from the export", path.display()),
        ),
    }
}

/// A session that is alone serves a device of its own.
fn parse(text: &str) -> std::result::Result<Writer, uuid::Error> {
    let (session, device) = text.trim().split_once(' ').unwrap_or((text.trim(), text.trim()));
    Ok(Writer { session: Uuid::parse_str(session)?, device: Uuid::parse_str(device)? })
}

/// Keeps the writers of the exports that are named.
pub(super) fn rememberer(exports: Vec<Option<Uuid>>) -> RememberWriter {
    Box::new(move |export, writer| {
        let Some(path) = exports[export].map(path) else { return Ok(()) };
        keep(&path, writer).map_err(|error| format!("{}: {error}", path.display()))
    })
}

fn keep(path: &Path, Writer { session, device }: Writer) -> io::Result<()> {
    fs::create_dir_all(DIRECTORY)?;
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    writeln!(file, "{session} {device}")?;
    file.sync_all()?;
    fs::rename(new, path)?;
    File::open(DIRECTORY)?.sync_all()
}

//! Conflicts between exports: two of the same name, UUID or file.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use super::config::{DefinedAt, Export, Source};
use crate::shared::error::{Code, Error, Result};

/// Time limit for file systems to say which files paths name.
const ANSWER: Duration = Duration::from_secs(2);
/// Time limit for one of them, before the others are asked without it.
const PROMPT: Duration = Duration::from_millis(200);

/// Refuses exports with the same name or UUID, and several of one file or device where one of them
/// writes: the lock would refuse the second, but could only report that this process holds it.
///
/// # Errors
/// `Usage` or `Config`, with the places that define both.
pub(super) fn refuse(exports: &[Export]) -> Result<()> {
    let identities = identities(exports);
    for (index, second) in exports.iter().enumerate() {
        for (first, identity) in exports[..index].iter().zip(&identities) {
            let is_same_file = identity.is_some() && *identity == identities[index];
            let what = if first.name == second.name {
                format!("have the same name, `{}`: rename one", first.name)
            } else if let Some(uuid) = first.uuid.filter(|_| first.uuid == second.uuid) {
                format!("have the same UUID, {uuid}: give one another")
            } else if !(first.read_only && second.read_only) && is_same_file {
                "export the same disk: remove one, or make both read-only".to_owned()
            } else {
                continue;
            };
            let both = [first, second];
            let in_file = both.iter().any(|export| export.place != DefinedAt::CommandLine);
            let code = if in_file { Code::Config } else { Code::Usage };
            let message = format!("{} and {} {what}", first.described(), second.described());
            return Err(Error::new(code, message));
        }
    }
    Ok(())
}

/// Another export with the same file or device as the one of that name.
pub(super) fn sharing<'a>(exports: &'a [Export], name: &str) -> Option<&'a Export> {
    let identities = identities(exports);
    let index = exports.iter().position(|export| export.name == name)?;
    let own = identities[index]?;
    let mut others = exports.iter().zip(&identities).filter(|(other, _)| other.name != name);
    others.find(|(_, identity)| **identity == Some(own)).map(|(other, _)| other)
}

/// Identity of a file or device, independent of its path: whether it is a device; device number, or
/// file system and inode.
type FileId = (bool, u64, u64);

/// The identities of the exports' files, of those that answer in time. The others' disks may hang,
/// which must not keep anybody else from being served; their locks are left.
fn identities(exports: &[Export]) -> Vec<Option<FileId>> {
    let files = exports.iter().enumerate().filter_map(|(index, export)| match export.source() {
        Ok(Source::File(path)) => Some((index, path)),
        _ => None,
    });
    let files: Vec<_> = files.collect();
    let mut identities = vec![None; exports.len()];
    let deadline = Instant::now() + ANSWER;
    let mut left = &files[..];
    // A thread asks for one after the other. Where it is held up, another goes on behind that.
    while !left.is_empty() && Instant::now() < deadline {
        let (sender, answers) = channel();
        let asked = left.to_vec();
        let ask = move || {
            let _ = asked.iter().try_for_each(|(_, path)| sender.send(identity(path)));
        };
        if thread::Builder::new().spawn(ask).is_err() {
            break;
        }
        while let Some(((index, _), others)) = left.split_first() {
            left = others;
            match answers.recv_timeout(PROMPT) {
                Ok(answer) => identities[*index] = answer,
                Err(_) => break,
            }
        }
    }
    identities
}

fn identity(path: &Path) -> Option<FileId> {
    let found = fs::metadata(path).ok()?;
    Some(match found.file_type().is_block_device() {
        true => (true, found.rdev(), 0),
        false => (false, found.dev(), found.ino()),
    })
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn refusal(arguments: &[&str], read_only: bool) -> Option<Error> {
        let export = |text: &&str| Export { read_only, ..Export::parse(text).unwrap() };
        let exports: Vec<_> = arguments.iter().map(export).collect();
        refuse(&exports).err()
    }

    #[test]
    fn a_uuid_belongs_to_one_export() {
        let uuid = Uuid::from_u128(1);
        let export = |line, uuid| {
            let place = DefinedAt::File { path: "target.toml".into(), line };
            Export { uuid, place, ..Export::parse(&format!("a{line}=mem:1M")).unwrap() }
        };
        let error = refuse(&[export(1, Some(uuid)), export(5, Some(uuid))]).unwrap_err();
        assert_eq!(error.code, Code::Config);
        for part in ["line 1 of", "line 5 of", &uuid.to_string()] {
            assert!(error.message.contains(part), "{error}");
        }
        assert!(refuse(&[export(1, Some(uuid)), export(5, Some(Uuid::from_u128(2)))]).is_ok());
        assert!(refuse(&[export(1, None), export(5, None)]).is_ok());
    }

    #[test]
    fn both_of_a_pair_are_named() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("disk"), dir.path().join("link"));
        fs::write(&path, "blocks").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let [a, b] = [format!("a={}", path.display()), format!("b={}", link.display())];
        let error = refusal(&[&a, "c=mem:1M", &b], false).unwrap();
        let names_both = error.message.contains(&a) && error.message.contains(&b);
        assert!(names_both && error.code == Code::Usage, "{error}");
        assert!(refusal(&[&a, &b], true).is_none(), "readers share a file");
        let error = refusal(&["a=mem:1M", "a=mem:2M"], false).unwrap();
        assert!(
            error.message.contains("a=mem:1M") && error.message.contains("a=mem:2M"),
            "{error}"
        );
        assert!(refusal(&["a=mem:1M", "b=mem:1M"], false).is_none());
        assert!(
            refusal(&["a=/nonexistent", "b=/nonexistent"], false).is_none(),
            "said by the store"
        );
    }
}

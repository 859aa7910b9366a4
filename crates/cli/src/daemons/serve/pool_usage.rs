//! How full the pools of a target are. A file system that does not answer is not waited for, nor
//! asked again before it has answered.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use rustix::fs::statvfs;

/// The bytes of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Usage {
    /// Its size.
    pub(super) size: u64,
    /// Those that have data.
    pub(super) used: u64,
}

/// Looks at the file systems of directories.
#[derive(Default)]
pub(super) struct Looks(Mutex<BTreeMap<PathBuf, Receiver<io::Result<Usage>>>>);

impl Looks {
    /// Returns how full the file system of each directory is, or why that is not known, in words.
    /// `deadline`: the time until which it is waited for.
    pub(super) fn look<'a>(
        &self,
        dirs: impl Iterator<Item = &'a Path>,
        deadline: Instant,
    ) -> Vec<Result<Usage, String>> {
        let mut asked = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let dirs: Vec<_> = dirs.collect();
        for dir in &dirs {
            asked.entry((*dir).to_owned()).or_insert_with(|| ask(dir));
        }
        let take = |dir: &Path| {
            let answer = asked.get(dir).ok_or("is named twice")?;
            let left = deadline.saturating_duration_since(Instant::now());
            let answer = match answer.recv_timeout(left) {
                Err(RecvTimeoutError::Timeout) => return Err("does not answer".to_owned()),
                Err(RecvTimeoutError::Disconnected) => Err("can't be asked now".to_owned()),
                Ok(answer) => answer.map_err(|error| error.to_string()),
            };
            asked.remove(dir);
            answer
        };
        dirs.into_iter().map(take).collect()
    }
}

/// Asks in a thread of its own.
fn ask(dir: &Path) -> Receiver<io::Result<Usage>> {
    let (sender, answer) = sync_channel(1);
    let dir = dir.to_owned();
    let look = move || {
        // Nobody waits for it if the target has ended.
        let _ = sender.send(usage(&dir));
    };
    // Without a thread, the sender is gone, and the answer is that.
    let _ = thread::Builder::new().name("tyche-pool".into()).spawn(look);
    answer
}

fn usage(dir: &Path) -> io::Result<Usage> {
    let found = statvfs(dir)?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    let used = found.f_blocks.saturating_sub(found.f_bfree);
    Ok(Usage { size: bytes(found.f_blocks), used: bytes(used) })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn directories_are_looked_at_again_and_missing_ones_are_named() {
        let (dir, looks) = (tempfile::tempdir().unwrap(), Looks::default());
        let gone = dir.path().join("gone");
        for _ in 0..2 {
            let deadline = Instant::now() + Duration::from_secs(60);
            let found = looks.look([dir.path(), &gone].into_iter(), deadline);
            let usage = found[0].clone().unwrap();
            assert!(usage.size > 0 && usage.used <= usage.size, "{usage:?}");
            assert!(found[1].clone().unwrap_err().contains("No such file"), "{found:?}");
        }
    }
}

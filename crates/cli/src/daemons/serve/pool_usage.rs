//! How full the pools of a target are. A file system or an LVM that does not answer is not waited
//! for, nor asked again before it has answered.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::statvfs;

use super::pool::{Place, Pool, ThinUsage};

/// The last answer of LVM counts for so long if it takes its time, as while it changes something.
const COUNTS: Duration = Duration::from_secs(60);

/// The bytes of a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// Its size, or that of its file system.
    pub(super) size: u64,
    /// Those that have data; none if that is not known.
    pub(super) used: Option<u64>,
    /// Those for what keeps track of them, and how many of them are used; none of a file system.
    pub(super) metadata: Option<(u64, Option<u64>)>,
    /// The bytes that its volumes have, by their names.
    volumes: BTreeMap<String, u64>,
    /// Its fault, in words.
    pub(super) problem: Option<String>,
}

/// The answer of a pool, or why there is none.
type Answer = Result<Usage, String>;

/// Looks at pools.
#[derive(Default)]
pub(super) struct Looks(Mutex<BTreeMap<String, Look>>);

/// The last answer of a pool, and the one that is waited for.
#[derive(Default)]
struct Look {
    /// The answer that is waited for.
    asked: Option<Receiver<Answer>>,
    /// The last one, and when it came.
    last: Option<(Instant, Answer)>,
}

impl Looks {
    /// Returns how full each pool is, or why that is not known, in words. `deadline`: the time
    /// until which it is waited for.
    pub(super) fn look(&self, pools: &[Pool], deadline: Instant) -> Vec<Answer> {
        let mut looks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for pool in pools {
            let look = looks.entry(pool.path()).or_default();
            look.asked.get_or_insert_with(|| ask(&pool.place));
        }
        let take = |pool: &Pool| {
            let look = looks.get_mut(&pool.path()).ok_or("is named twice")?;
            look.take(pool.has_volumes(), deadline)
        };
        pools.iter().map(take).collect()
    }
}

impl Look {
    fn take(&mut self, counts_longer: bool, deadline: Instant) -> Answer {
        let left = deadline.saturating_duration_since(Instant::now());
        let answer = match self.asked.as_ref().map(|asked| asked.recv_timeout(left)) {
            None => return Err("is named twice".to_owned()),
            Some(Err(RecvTimeoutError::Timeout)) => {
                let counts = |last: &&(Instant, Answer)| counts_longer && last.0.elapsed() < COUNTS;
                let last = self.last.as_ref().filter(counts).map(|(_, last)| last.clone());
                return last.unwrap_or_else(|| Err("does not answer".to_owned()));
            }
            Some(Err(RecvTimeoutError::Disconnected)) => Err("can't be asked now".to_owned()),
            Some(Ok(answer)) => answer,
        };
        self.asked = None;
        self.last = Some((Instant::now(), answer.clone()));
        answer
    }
}

/// The pool that has the disk at a path, and the bytes of a volume there.
pub(super) fn member<'a>(
    pools: &'a [Pool],
    usages: &[Answer],
    path: &Path,
) -> Option<(&'a Pool, Option<u64>)> {
    pools.iter().zip(usages).find_map(|(pool, usage)| match &pool.place {
        Place::Directory(dir) => dir.has(path).then_some((pool, None)),
        Place::Thin(thin) => {
            let volumes = usage.as_ref().ok().map(|usage| &usage.volumes)?;
            let allocated = volumes.get(thin.volume_at(path)?)?;
            Some((pool, Some(*allocated)))
        }
    })
}

/// Asks in a thread of its own.
fn ask(place: &Place) -> Receiver<Answer> {
    let (sender, answer) = sync_channel(1);
    let place = place.clone();
    let look = move || {
        let usage = match &place {
            Place::Directory(dir) => of_files(dir.path()).map_err(|error| error.to_string()),
            Place::Thin(pool) => pool.usage().map(of_volumes).map_err(|error| error.message),
        };
        // Nobody waits for it if the target has ended.
        let _ = sender.send(usage);
    };
    // Without a thread, the sender is gone, and the answer is that.
    let _ = thread::Builder::new().name("tyche-pool".into()).spawn(look);
    answer
}

fn of_files(dir: &Path) -> io::Result<Usage> {
    let found = statvfs(dir)?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    let used = found.f_blocks.saturating_sub(found.f_bfree);
    Ok(Usage { size: bytes(found.f_blocks), used: Some(bytes(used)), ..Usage::default() })
}

fn of_volumes(ThinUsage { data, metadata, volumes, problem }: ThinUsage) -> Usage {
    Usage { size: data.0, used: data.1, metadata: Some(metadata), volumes, problem }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(name: &str, path: &str) -> Pool {
        toml::from_str(&format!("name = {name:?}\npath = {path:?}\n")).unwrap()
    }

    #[test]
    fn directories_are_looked_at_again_and_missing_ones_are_named() {
        let (dir, looks) = (tempfile::tempdir().unwrap(), Looks::default());
        let at = |name: &str, path: &Path| pool(name, &format!("dir:{}", path.display()));
        let pools = [at("a", dir.path()), at("b", &dir.path().join("gone"))];
        for _ in 0..2 {
            let deadline = Instant::now() + Duration::from_secs(60);
            let found = looks.look(&pools, deadline);
            let usage = found[0].clone().unwrap();
            assert!(usage.size > 0 && usage.used.unwrap() <= usage.size, "{usage:?}");
            assert!(found[1].clone().unwrap_err().contains("No such file"), "{found:?}");
            let file = dir.path().join("disk");
            assert_eq!(member(&pools, &found, &file), Some((&pools[0], None)));
        }
    }

    #[test]
    fn the_last_answer_of_lvm_counts_while_it_takes_its_time() {
        let (sender, asked) = sync_channel(1);
        let mut look = Look { asked: Some(asked), last: None };
        assert_eq!(look.take(true, Instant::now()), Err("does not answer".to_owned()));
        let usage = Usage { size: 7, ..Usage::default() };
        sender.send(Ok(usage.clone())).unwrap();
        assert_eq!(look.take(true, Instant::now()), Ok(usage.clone()));
        let (_sender, asked) = sync_channel(1);
        look.asked = Some(asked);
        assert_eq!(look.take(true, Instant::now()), Ok(usage));
        assert_eq!(look.take(false, Instant::now()), Err("does not answer".to_owned()));
    }

    #[test]
    fn a_volume_is_in_the_pool_that_lvm_says() {
        let pools = [pool("a", "lvm-thin:vg0/a"), pool("b", "lvm-thin:vg0/b")];
        let usage = |volumes: &[(&str, u64)]| {
            let volumes = volumes.iter().map(|(name, bytes)| ((*name).to_owned(), *bytes));
            Ok(Usage { volumes: volumes.collect(), ..Usage::default() })
        };
        let usages = [usage(&[("vm1", 1)]), usage(&[("vm2", 2)])];
        let of = |path: &str| member(&pools, &usages, Path::new(path));
        assert_eq!(of("/dev/vg0/vm2"), Some((&pools[1], Some(2))));
        assert_eq!(of("/dev/vg0/root"), None);
        assert_eq!(of("/dev/vg1/vm1"), None);
    }
}

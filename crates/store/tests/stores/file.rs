//! Properties of files: holes, wake-ups, registered memory, changes of size.

use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use tempfile::NamedTempFile;
use tyche_block::{Arena, Errno, Operation, PAGE, StatusRun};
use tyche_store::file::{Direct, FileOptions, FileStore};
use tyche_store::{BackingError, ResizeError, Store};
use tyche_testkit::wait::{PATIENCE, wait_until};

use crate::drive::{Driver, WRITE};

const MIB: usize = 1 << 20;

pub(crate) fn temporary(size: u64) -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    file.as_file().set_len(size).unwrap();
    file
}

fn open(file: &NamedTempFile) -> FileStore {
    FileStore::open(file.path(), &FileOptions::default()).unwrap()
}

fn allocated(file: &File) -> u64 {
    file.sync_all().unwrap();
    file.metadata().unwrap().blocks() * 512
}

#[test]
fn discarded_and_unmapped_space_goes_back_to_the_filesystem() {
    let file = temporary(4 * MIB as u64);
    let store = open(&file);
    if !store.geometry().discard {
        println!("SKIPPED: the filesystem of the temporary directory cannot punch holes");
        return;
    }
    let mut driver = Driver::new(&store, 4);
    let unmap = |may_unmap| Operation::WriteZeroes { fua: false, may_unmap };
    for (operation, shrinks) in
        [(Operation::Discard, true), (unmap(true), true), (unmap(false), false)]
    {
        driver.write(WRITE, 0, &vec![0xa5; 2 * MIB]).unwrap();
        let full = allocated(file.as_file());
        assert!(full >= 2 * MIB as u64);
        driver.run(operation, MIB as u64, MIB).result.unwrap();
        let left = allocated(file.as_file());
        assert_eq!(left <= full - MIB as u64, shrinks, "{operation:?}: {full} to {left}");
        assert_eq!(driver.read(MIB as u64, MIB), vec![0; MIB]);
        assert_eq!(driver.read(0, MIB), vec![0xa5; MIB]);
    }
}

#[test]
fn holes_are_told_as_the_filesystem_has_them() {
    let file = temporary(8 * MIB as u64);
    let mut driver = Driver::new(&open(&file), 4);
    let size = 8 * MIB as u64;
    if driver.status(0, size) == [StatusRun::data(size)] {
        println!("SKIPPED: the filesystem of the temporary directory is not known to tell holes");
        return;
    }
    assert_eq!(driver.status(0, size), [StatusRun::hole(size)]);
    driver.write(WRITE, MIB as u64, &vec![0xa5; MIB]).unwrap();
    let runs =
        [StatusRun::hole(MIB as u64), StatusRun::data(MIB as u64), StatusRun::hole(6 * MIB as u64)];
    assert_eq!(driver.status(0, size), runs);
    let unmap = Operation::WriteZeroes { fua: false, may_unmap: true };
    driver.run(unmap, MIB as u64, MIB).result.unwrap();
    assert_eq!(driver.status(0, size), [StatusRun::hole(size)]);
    // A block that was cut is lost, and what is left of it is no part of a run.
    driver.write(WRITE, 0, &vec![0xa5; 2 * MIB]).unwrap();
    for odd in [3, 2] {
        file.as_file().set_len(MIB as u64 + odd).unwrap();
        assert_eq!(driver.run(Operation::BlockStatus, MIB as u64, 4096).result, Err(Errno::IO));
        assert_eq!(driver.status(0, size), [StatusRun::data(MIB as u64)]);
    }
    // What was cut off is lost, also if the file is lengthened again.
    file.as_file().set_len(MIB as u64).unwrap();
    assert_eq!(driver.run(Operation::BlockStatus, 2 * MIB as u64, 4096).result, Err(Errno::IO));
    file.as_file().set_len(size).unwrap();
    assert_eq!(driver.run(Operation::BlockStatus, 2 * MIB as u64, 4096).result, Err(Errno::IO));
    assert_eq!(driver.status(0, size), [StatusRun::data(MIB as u64)]);
}

#[test]
fn a_status_in_flight_returns_its_buffer_when_the_queue_is_gone() {
    let file = temporary(MIB as u64);
    let store = open(&file);
    let mut driver = Driver::new(&store, 4);
    for token in 0..4 {
        driver.submit(token, Operation::BlockStatus, 0, 4096);
    }
    driver.queue.kick().unwrap();
    driver.queue = store.queue(1).unwrap();
    let pages = driver.arena.pages() * PAGE;
    wait_until("the buffers are back", || driver.arena.claim(0, pages).is_some());
}

#[test]
fn the_descriptor_is_readable_exactly_while_completions_wait() {
    let file = temporary(MIB as u64);
    let mut driver = Driver::new(&open(&file), 4);
    let mut done = Vec::new();
    assert!(!driver.readable(Duration::ZERO));
    // A request that fails at once must wake the sleeper as well.
    for (offset, result) in [(0, Ok(())), (1, Err(Errno::INVAL)), (MIB as u64, Err(Errno::INVAL))] {
        driver.submit(5, Operation::Read, offset, 512);
        driver.queue.kick().unwrap();
        assert!(driver.readable(PATIENCE));
        assert!(driver.readable(Duration::ZERO), "still, as nobody has reaped");
        driver.queue.reap(&mut done);
        assert!(!driver.readable(Duration::ZERO));
        assert_eq!(done.pop().unwrap().result, result);
        assert_eq!(driver.queue.in_flight(), 0);
    }
}

#[test]
fn refused_requests_fail_and_return_their_buffers() {
    let file = temporary(MIB as u64);
    let options = FileOptions { read_only: true, ..FileOptions::default() };
    let store = FileStore::open(file.path(), &options).unwrap();
    let mut driver = Driver::new(&store, 4);
    assert_eq!(driver.write(WRITE, 0, &[1; 512]), Err(Errno::ROFS));
    assert_eq!(driver.run(Operation::Discard, 0, 512).result, Err(Errno::ROFS));
    assert_eq!(driver.read(0, 512), [0; 512]);
    assert_eq!(driver.flush(), Ok(()));
    driver.submit_with(1, Operation::Read, 0, 512, None);
    assert_eq!(driver.finish()[0].result, Err(Errno::INVAL), "a read without a buffer");
    driver.assert_nothing_is_lent();
}

#[test]
fn registered_and_other_memory_mix_and_arenas_come_and_go() {
    let file = temporary(MIB as u64);
    let mut driver = Driver::new(&open(&file), 8);
    for round in 0..70_u8 {
        // More rounds than the table has entries, so entries must be released.
        let arena = Arena::new(4);
        driver.queue.register(&arena);
        driver.queue.register(&arena);
        let mut registered = arena.alloc(2 * PAGE).unwrap();
        registered.fill(round);
        driver.submit_with(0, WRITE, 0, 2 * PAGE, Some(registered));
        let other = driver.buffer(&[!round; PAGE]);
        driver.submit_with(1, WRITE, 2 * PAGE as u64, PAGE, Some(other));
        assert!(driver.finish().iter().all(|completion| completion.result.is_ok()));
        let buffer = arena.alloc(3 * PAGE);
        driver.submit_with(2, Operation::Read, 0, 3 * PAGE, buffer);
        let read = driver.finish().pop().unwrap();
        read.result.unwrap();
        let read = read.buffer.unwrap();
        assert!(read[..2 * PAGE].iter().all(|&byte| byte == round));
        assert!(read[2 * PAGE..].iter().all(|&byte| byte == !round));
        drop(read);
        driver.queue.unregister(&arena);
    }
}

#[test]
fn a_file_that_grows_is_seen_when_asked_for() {
    for direct in [Direct::Auto, Direct::Off] {
        let file = temporary(MIB as u64);
        let store = FileStore::open(file.path(), &FileOptions { direct, ..FileOptions::default() })
            .unwrap();
        let mut driver = Driver::new(&store, 4);
        file.as_file().set_len(2 * MIB as u64 + 511).unwrap();
        assert!(driver.run(Operation::Read, MIB as u64, 512).result.is_err(), "not as yet");
        assert_eq!(store.resize(None).unwrap(), 2 * MIB as u64);
        assert_eq!(driver.read(2 * MIB as u64 - 512, 512), [0; 512]);
        driver.write(Operation::Write { fua: false }, 2 * MIB as u64 - 512, &[1; 512]).unwrap();
    }
}

#[test]
fn what_was_cut_off_a_file_stays_lost() {
    let modifications = [
        Operation::Write { fua: false },
        Operation::Write { fua: true },
        Operation::WriteZeroes { fua: false, may_unmap: false },
        Operation::WriteZeroes { fua: false, may_unmap: true },
        Operation::Discard,
    ];
    for direct in [Direct::Auto, Direct::Off] {
        for (operation, write_back) in
            modifications.into_iter().zip([true, false].into_iter().cycle())
        {
            let file = temporary(MIB as u64);
            let options = FileOptions { direct, write_back, ..FileOptions::default() };
            let store = FileStore::open(file.path(), &options).unwrap();
            let mut driver = Driver::new(&store, 4);
            let left = MIB as u64 / 2 + 100;
            file.as_file().set_len(left).unwrap();
            let beyond = driver.run(operation, MIB as u64 - 4096, 4096).result;
            assert_eq!(beyond, Err(Errno::IO), "{operation:?}");
            assert_eq!(file.as_file().metadata().unwrap().len(), left, "{operation:?}");
            assert_eq!(driver.run(Operation::Read, 0, MIB).result, Err(Errno::IO));
            driver.run(operation, 0, 4096).result.unwrap();
            assert_eq!(driver.read(4096, MIB / 2 - 4096), vec![0; MIB / 2 - 4096]);
            // Another program lengthens it: what was there is gone all the same.
            file.as_file().set_len(2 * MIB as u64).unwrap();
            assert_eq!(driver.run(Operation::Read, MIB as u64 - 512, 512).result, Err(Errno::IO));
            let shrunk = BackingError::Shrunk { now: left, size: MIB as u64 };
            assert_eq!(store.check_backing(), Err(shrunk));
            assert!(matches!(store.resize(None), Err(ResizeError::Backing(_))));
            assert_eq!(store.geometry().size, MIB as u64, "never smaller");
        }
    }
}

/// A deleted file still has its data, and its end.
#[test]
fn what_was_cut_off_a_deleted_file_stays_lost() {
    let file = temporary(MIB as u64);
    let store = open(&file);
    let mut driver = Driver::new(&store, 4);
    // The name is deleted by that.
    let file = file.into_file();
    file.set_len(MIB as u64 / 2).unwrap();
    let write = Operation::Write { fua: false };
    assert_eq!(driver.run(write, MIB as u64 - 4096, 4096).result, Err(Errno::IO));
    assert_eq!(file.metadata().unwrap().len(), MIB as u64 / 2);
    assert_eq!(driver.run(Operation::Read, MIB as u64 / 2, 4096).result, Err(Errno::IO));
    driver.run(write, 0, 4096).result.unwrap();
    assert_eq!(store.check_backing(), Err(BackingError::Deleted));
}

/// The size may come back before anything is written, or asked for: a read that ends early tells.
#[test]
fn a_cut_that_a_read_has_met_is_remembered() {
    let file = temporary(MIB as u64);
    let store = open(&file);
    let mut driver = Driver::new(&store, 4);
    file.as_file().set_len(4096).unwrap();
    assert_eq!(driver.run(Operation::Read, 0, 8192).result, Err(Errno::IO));
    file.as_file().set_len(MIB as u64).unwrap();
    assert_eq!(driver.run(Operation::Read, 4096, 4096).result, Err(Errno::IO));
    assert_eq!(driver.read(0, 4096), [0; 4096]);
}

#[test]
fn a_file_is_made_larger_while_it_is_used_and_never_smaller() {
    let file = temporary(MIB as u64);
    let store = open(&file);
    let mut driver = Driver::new(&store, 4);
    assert_eq!(store.resize(Some(MIB as u64)).unwrap(), MIB as u64, "nothing to do");
    assert_eq!(store.resize(Some(2 * MIB as u64)).unwrap(), 2 * MIB as u64);
    assert_eq!(file.as_file().metadata().unwrap().len(), 2 * MIB as u64);
    assert_eq!(store.geometry().size, 2 * MIB as u64);
    assert_eq!(driver.read(2 * MIB as u64 - 512, 512), [0; 512]);

    // The file has grown unnoticed: a size that would cut that off is refused.
    file.as_file().set_len(4 * MIB as u64).unwrap();
    let shorter = store.resize(Some(3 * MIB as u64)).unwrap_err();
    let (now, wanted) = (4 * MIB as u64, 3 * MIB as u64);
    assert!(
        matches!(shorter, ResizeError::Shrinks { now: n, wanted: w } if (n, w) == (now, wanted))
    );
    assert_eq!(store.geometry().size, 4 * MIB as u64, "but now it is known");
    assert_eq!(file.as_file().metadata().unwrap().len(), 4 * MIB as u64);

    let odd = store.resize(Some(5 * MIB as u64 + 100)).unwrap_err();
    assert!(matches!(odd, ResizeError::Indivisible { block_size: 512, .. }), "{odd}");
    let beyond = store.resize(Some(u64::MAX - 511)).unwrap_err();
    assert!(matches!(beyond, ResizeError::System { call: "ftruncate", .. }), "{beyond}");
    assert_eq!(store.geometry().size, 4 * MIB as u64);
}

#[test]
fn resizes_at_the_same_time_end_with_the_largest() {
    for _ in 0..20 {
        let file = temporary(MIB as u64);
        let store = open(&file);
        std::thread::scope(|scope| {
            for size in 2..10 {
                let store = &store;
                scope.spawn(move || store.resize(Some(size * MIB as u64)));
            }
        });
        assert_eq!(file.as_file().metadata().unwrap().len(), 9 * MIB as u64);
        assert_eq!(store.geometry().size, 9 * MIB as u64);
    }
}

#[test]
fn a_file_that_is_exported_read_only_grows_by_other_means_only() {
    let file = temporary(MIB as u64);
    let options = FileOptions { read_only: true, ..FileOptions::default() };
    let store = FileStore::open(file.path(), &options).unwrap();
    let refused = store.resize(Some(2 * MIB as u64)).unwrap_err();
    assert!(matches!(refused, ResizeError::ReadOnly), "{refused}");
    file.as_file().set_len(2 * MIB as u64).unwrap();
    assert_eq!(store.resize(Some(2 * MIB as u64)).unwrap(), 2 * MIB as u64);
}

#[test]
fn the_identity_is_of_the_file_not_of_its_name() {
    let (one, other) = (temporary(4096), temporary(4096));
    let identity = |path: &std::path::Path| {
        let store = FileStore::open(path, &FileOptions::default()).unwrap();
        store.identity().expect("files have one").to_owned()
    };
    let known = identity(one.path());
    println!("{known}");
    assert_eq!(identity(one.path()), known);
    assert_ne!(identity(other.path()), known);
    let link = other.path().with_extension("link");
    std::os::unix::fs::symlink(one.path(), &link).unwrap();
    let through = identity(&link);
    std::fs::remove_file(&link).unwrap();
    assert_eq!(through, known);
    // A copy that takes the file's name is another file.
    let copy = one.path().with_extension("copy");
    std::fs::copy(one.path(), &copy).unwrap();
    std::fs::rename(&copy, one.path()).unwrap();
    assert_ne!(identity(one.path()), known);
}

#[test]
fn a_queue_has_a_depth_and_keeps_to_it() {
    let file = temporary(MIB as u64);
    let store = open(&file);
    for depth in [0, 32769] {
        let error = store.queue(depth).err().expect("no such queue");
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
    }
    // Not a power of two, and filled to the last slot before the kernel sees any.
    let mut driver = Driver::new(&store, 5);
    for round in 0..20 {
        for token in 0..5 {
            driver.submit(round * 5 + token, Operation::Read, token * 4096, 4096);
        }
        assert_eq!(driver.queue.in_flight(), 5);
        let mut tokens: Vec<_> = driver.finish().iter().map(|done| done.token).collect();
        tokens.sort_unstable();
        assert_eq!(tokens, (round * 5..round * 5 + 5).collect::<Vec<_>>());
    }
}

#[test]
fn a_file_that_shrank_or_was_deleted_is_not_called_healthy() {
    let file = temporary(MIB as u64);
    let store = open(&file);
    assert_eq!(store.check_backing(), Ok(()));
    file.as_file().set_len(4096).unwrap();
    let shrunk = BackingError::Shrunk { now: 4096, size: MIB as u64 };
    assert_eq!(store.check_backing(), Err(shrunk.clone()));
    // Whatever size is asked for: lost bytes must not come back as zeroes unnoticed.
    for size in [None, Some(MIB as u64), Some(2 * MIB as u64)] {
        let refused = store.resize(size).unwrap_err();
        assert!(matches!(&refused, ResizeError::Backing(why) if *why == shrunk), "{refused}");
    }
    assert_eq!(file.as_file().metadata().unwrap().len(), 4096);
    file.as_file().set_len(MIB as u64).unwrap();
    assert_eq!(store.check_backing(), Err(shrunk), "what was cut off does not come back");

    let file = temporary(MIB as u64);
    let store = open(&file);
    file.close().unwrap();
    assert_eq!(store.check_backing(), Err(BackingError::Deleted));
    assert!(matches!(store.resize(None), Err(ResizeError::Backing(BackingError::Deleted))));
}

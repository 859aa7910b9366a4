//! One writer or many readers, within a process and across processes, until the last I/O is out.

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tyche_store::Store;
use tyche_store::file::{FileOptions, FileStore, OpenError};
use tyche_testkit::wait;

use crate::drive::{Driver, WRITE};
use crate::file::temporary;

const HOLDER: &str = "TYCHE_STORE_TEST_HOLD";

fn within(lock_wait: Duration, read_only: bool) -> FileOptions {
    FileOptions { read_only, lock_wait, ..FileOptions::default() }
}

fn at_once(read_only: bool) -> FileOptions {
    within(Duration::ZERO, read_only)
}

fn holder_of(error: &OpenError) -> Option<u32> {
    match error {
        OpenError::InUse { holder, .. } => holder.pid,
        other => panic!("not about the lock: {other}"),
    }
}

#[test]
fn one_writer_or_many_readers() {
    let file = temporary(4096);
    let open = |read_only| FileStore::open(file.path(), &at_once(read_only));
    let writer = open(false).unwrap();
    for read_only in [false, true] {
        let error = open(read_only).expect_err("the writer is alone");
        assert_eq!(holder_of(&error), Some(std::process::id()), "{error}");
        assert!(error.to_string().contains(&format!("pid {}", std::process::id())), "{error}");
    }
    // A queue keeps the lock as well, and releases it when dropped.
    let queue = writer.queue(1).unwrap();
    drop(writer);
    open(false).expect_err("a queue may still write");
    drop(queue);
    // A child that another test has just forked holds the lock, too, until it executes its program.
    let open_when_free = |read_only| {
        FileStore::open(file.path(), &within(wait::PATIENCE, read_only)).expect("it is free soon")
    };
    let readers = [open_when_free(true), open_when_free(true)];
    open(false).expect_err("readers keep writers out");
    drop(readers);
    open_when_free(false);
}

/// Not a test: the child process of the tests below.
#[test]
fn child_that_holds_the_lock() {
    let Ok(path) = env::var(HOLDER) else { return };
    let store = FileStore::open(Path::new(&path), &FileOptions::default()).unwrap();
    let mut driver = Driver::new(&store, 256);
    let size = usize::try_from(store.geometry().size).unwrap() / 256;
    for token in 0..256 {
        let buffer = driver.buffer(&vec![0xee; size]);
        driver.submit_with(token, WRITE, token * size as u64, size, Some(buffer));
    }
    driver.queue.kick().unwrap();
    println!("{HOLDER}");
    std::io::stdout().flush().unwrap();
    // Until killed, or until the parent and its end of the pipe are gone.
    let mut line = String::new();
    let _ = std::io::stdin().read_line(&mut line);
}

/// Starts the holder and waits until it has the lock and writes in flight.
fn start_holder(path: &Path) -> Child {
    let mut child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "locking::child_that_holds_the_lock", "--nocapture"])
        .env(HOLDER, path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains(HOLDER)), "the child has the lock");
    child
}

#[test]
fn a_killed_writer_holds_the_lock_until_its_writes_are_out() {
    let file = temporary(8 << 20);
    for round in 0..3 {
        let mut child = start_holder(file.path());
        let error = FileStore::open(file.path(), &at_once(false)).expect_err("in use");
        assert_eq!(holder_of(&error), Some(child.id()), "{error}");
        child.kill().unwrap();
        // The kernel may be busy with the dead process's writes.
        let store = FileStore::open(file.path(), &within(wait::PATIENCE, false)).unwrap();
        child.wait().unwrap();
        // No write of the old process arrives from now on.
        let mut driver = Driver::new(&store, 1);
        driver.write(WRITE, 0, &vec![round; 8 << 20]).unwrap();
        assert!(driver.read(0, 8 << 20).iter().all(|&byte| byte == round));
    }
}

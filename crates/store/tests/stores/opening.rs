//! Errors for paths that cannot be exported.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;
use tyche_store::Store;
use tyche_store::file::{Direct, FileOptions, FileStore, OpenError};

use crate::file::temporary;

fn refused(path: &Path, options: &FileOptions) -> OpenError {
    let error = FileStore::open(path, options).expect_err("this cannot be opened");
    let message = error.to_string();
    assert!(message.starts_with(&path.display().to_string()), "names the path: {message}");
    assert!(!message.contains('\n') && message.contains("; "), "says what to do: {message}");
    error
}

#[test]
fn paths_that_are_not_disks_are_refused_by_kind() {
    let options = FileOptions::default();
    let dir = TempDir::new().unwrap();
    let missing = dir.path().join("missing");
    assert!(matches!(refused(&missing, &options), OpenError::NotFound { .. }));
    assert!(matches!(refused(dir.path(), &options), OpenError::Directory { .. }));
    assert!(matches!(refused(Path::new("/dev/null"), &options), OpenError::NotADisk { .. }));
    // Opening a pipe for reading would wait for a writer.
    let pipe = dir.path().join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let read_only = FileOptions { read_only: true, ..FileOptions::default() };
    assert!(matches!(refused(&pipe, &read_only), OpenError::NotADisk { .. }));
}

#[test]
fn sizes_that_make_no_disk_are_refused() {
    let options = FileOptions::default();
    let empty = temporary(0);
    assert!(matches!(refused(empty.path(), &options), OpenError::TooSmall { size: 0, .. }));
    let small = temporary(4095);
    let shape = |store: FileStore| (store.geometry().size, store.odd_end());
    assert_eq!(shape(FileStore::open(small.path(), &options).unwrap()), (3584, 511));
    let block_size = |size| FileOptions { block_size: Some(size), ..FileOptions::default() };
    let large_blocks = refused(small.path(), &block_size(4096));
    assert!(matches!(large_blocks, OpenError::TooSmall { size: 4095, block_size: 4096, .. }));
    for wrong in [0, 1024, 8192] {
        let error = refused(small.path(), &block_size(wrong));
        assert!(matches!(error, OpenError::BlockSize { .. }));
    }
}

#[test]
fn permission_says_what_was_wanted() {
    let file = temporary(4096);
    // Root passes all permission bits, but not this attribute.
    let immutable = |sign: &str| {
        let status = Command::new("chattr").arg(format!("{sign}i")).arg(file.path()).output();
        status.is_ok_and(|output| output.status.success())
    };
    if !immutable("+") {
        println!("SKIPPED: cannot make a file immutable here");
        return;
    }
    let error = FileStore::open(file.path(), &FileOptions::default());
    let read_only = FileOptions { read_only: true, ..FileOptions::default() };
    let readable = FileStore::open(file.path(), &read_only);
    assert!(immutable("-"));
    let error = error.expect_err("immutable");
    assert!(matches!(error, OpenError::Permission { read_only: false, .. }), "{error}");
    assert!(error.to_string().contains("read-only"), "{error}");
    assert!(readable.unwrap().geometry().read_only);
}

#[test]
fn direct_io_is_used_or_refused_as_asked() {
    let file = temporary(1 << 20);
    let with =
        |direct| FileStore::open(file.path(), &FileOptions { direct, ..FileOptions::default() });
    assert!(!with(Direct::Off).unwrap().is_direct());
    let auto = with(Direct::Auto).unwrap().is_direct();
    match with(Direct::On) {
        Ok(store) => assert!(store.is_direct() && auto),
        Err(error) => {
            assert!(matches!(error, OpenError::NoDirect { .. }), "{error}");
            assert!(!auto);
        }
    }
    assert_eq!(fs::metadata(file.path()).unwrap().len(), 1 << 20, "opening changes nothing");
}

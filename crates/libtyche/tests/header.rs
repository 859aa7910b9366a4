//! `include/tyche.h` matches the library: it is generated again and compared.

#![allow(clippy::unwrap_used, reason = "a test that cannot set its stage has failed")]

use std::path::Path;

/// If set, the header is written instead of compared.
const UPDATE: &str = "TYCHE_UPDATE_HEADER";

#[test]
fn the_header_is_that_of_the_library() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let builder = cbindgen::Builder::new()
        .with_config(cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap())
        .with_src(root.join("src/ffi/mod.rs"));
    let mut made = Vec::new();
    builder.generate().unwrap().write(&mut made);
    let made = String::from_utf8(made).unwrap();
    let path = root.join("include/tyche.h");
    if std::env::var_os(UPDATE).is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap();
    assert!(kept == made, "include/tyche.h is stale: run this test once with {UPDATE}=1");
}

//! Makes the types and services of CSI from `proto/csi.proto`, without protoc; and its clients, for
//! the tests.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=proto/csi.proto");
    let files = protox::compile(["csi.proto"], ["proto"])?;
    let clients = PathBuf::from(std::env::var("OUT_DIR")?).join("clients");
    std::fs::create_dir_all(&clients)?;
    // Its comments are Markdown of another kind, with code that is no Rust.
    let configure = || tonic_prost_build::configure().disable_comments(["."]);
    configure().build_client(false).generate_default_stubs(true).compile_fds(files.clone())?;
    configure().build_server(false).out_dir(clients).compile_fds(files)?;
    Ok(())
}

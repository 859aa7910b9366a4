//! Gives the shared library its name for the dynamic linker: the ABI's number is part of it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libtyche.so.0");
}

//! Sets the shared library's soname, of which the ABI's number is a part.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libtyche.so.1");
}

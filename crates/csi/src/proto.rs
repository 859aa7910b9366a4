//! The messages and services of CSI, made from `proto/csi.proto`.

#![allow(
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    clippy::restriction,
    reason = "it is made by tonic-prost-build"
)]

tonic::include_proto!("csi.v1");

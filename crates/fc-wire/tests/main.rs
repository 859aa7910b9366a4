//! Frames of Fibre Channel: written, parsed, and refused.

mod captures;
mod corpus;
mod ct;
mod els;
mod exhaustive;
mod fcp;
mod fip;
mod frame;
mod frames;
mod golden;
mod protocol;
mod roundtrip;
mod values;

//! Frames: written, parsed, and refused.

mod corpus;
mod display;
mod dissector;
mod exhaustive;
mod frames;
mod golden;
mod greeting;
mod protocol;
mod roundtrip;
mod sealed;
mod sealed_corpus;

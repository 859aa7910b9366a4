//! Frames without sense, from a seed.

//! Commands allocate nothing.

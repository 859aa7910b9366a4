//! Floods of frames, as fast as they can be sent. They load the machine, so each runs alone; here
//! one follows the other, and the machine is emptied for all at once.

mod garbage;
mod handshakes;
mod strangers;

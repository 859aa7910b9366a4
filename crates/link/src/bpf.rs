//! Steps of programs that the kernel runs for each frame (classic BPF), and the one that several
//! kinds of link have in common: the division of frames among threads.

use crate::{Except, Share};

/// The remainder of a division (linux/filter.h).
const BPF_MOD: u32 = 0x90;
/// A result from the accumulator (linux/filter.h).
const BPF_A: u32 = 0x10;

/// Steps that leave the index of the share that a frame belongs to in the accumulator: the
/// remainder that [`Share::has`] compares. They read nothing that was loaded before. A frame that
/// is too short ends the program with zero.
pub(crate) fn remainder(share: &Share) -> [libc::sock_filter; 7] {
    let &Share { of, at, except, .. } = share;
    let as_others = Except { at, mask: 0, value: 0, by: Some(at) };
    let except = except.unwrap_or(as_others);
    [
        load_byte(except.at as u32),
        step(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, 0, except.mask.into()),
        jump(libc::BPF_JEQ, 0, 2, except.value.into()),
        except.by.map_or(load_zero(), |at| load_byte(at as u32)),
        skip(1),
        load_byte(at as u32),
        step(libc::BPF_ALU | BPF_MOD | libc::BPF_K, 0, 0, of.into()),
    ]
}

/// Loads the byte at an offset of the frame.
fn load_byte(at: u32) -> libc::sock_filter {
    step(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, at)
}

/// Loads a zero.
fn load_zero() -> libc::sock_filter {
    step(libc::BPF_LD | libc::BPF_IMM, 0, 0, 0)
}

/// Loads the two bytes at an offset of the frame.
pub(crate) fn load_half(at: u32) -> libc::sock_filter {
    step(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, 0, 0, at)
}

/// Skips steps.
fn skip(steps: u32) -> libc::sock_filter {
    step(libc::BPF_JMP | libc::BPF_JA, 0, 0, steps)
}

/// Loads the word at an offset of the frame.
pub(crate) fn load(at: u32) -> libc::sock_filter {
    step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, at)
}

/// Compares the loaded word, and skips `if_so` or `if_not` steps.
pub(crate) fn jump(how: u32, if_so: u8, if_not: u8, with: u32) -> libc::sock_filter {
    step(libc::BPF_JMP | how | libc::BPF_K, if_so, if_not, with)
}

/// Ends with this number of bytes of the frame; with zero, it is dropped.
pub(crate) fn verdict(bytes: u32) -> libc::sock_filter {
    step(libc::BPF_RET | libc::BPF_K, 0, 0, bytes)
}

/// Ends with the number in the accumulator.
pub(crate) fn result() -> libc::sock_filter {
    step(libc::BPF_RET | BPF_A, 0, 0, 0)
}

fn step(code: u32, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: code as u16, jt, jf, k }
}

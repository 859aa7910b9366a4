//! One frame out, one frame back.

use std::io;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::socket::{Socket, head};
use super::{HEAD, LOST, Outcome, PAGE};

/// Bytes of a question.
const QUESTION: usize = 128;

pub(super) fn serve(socket: &Socket, ready: impl FnOnce()) -> io::Result<()> {
    let mut answer = vec![1; HEAD + PAGE];
    answer[..HEAD].copy_from_slice(&head(1));
    let mut question = [0; QUESTION];
    ready();
    loop {
        if receive(socket, &mut question)? {
            send(socket, &answer, SendFlags::empty())?;
        }
    }
}

pub(super) fn ask(socket: &Socket, time: Duration) -> io::Result<Outcome> {
    let mut question = [0; QUESTION];
    question[..HEAD].copy_from_slice(&head(1));
    let mut answer = vec![1; HEAD + PAGE];
    let (mut answers, mut lost) = (0u64, 0u64);
    let start = Instant::now();
    while start.elapsed() < time {
        send(socket, &question, SendFlags::empty())?;
        let asked = Instant::now();
        while !receive(socket, &mut answer)? {
            if asked.elapsed() > LOST {
                lost += 1;
                break;
            }
        }
        answers += u64::from(asked.elapsed() <= LOST);
    }
    Outcome::of_exchange(1, (answers, 2 * answers), start, lost)
}

/// Receives a frame if one is pending.
fn receive(socket: &Socket, buffer: &mut [u8]) -> io::Result<bool> {
    match recv(socket, buffer, RecvFlags::DONTWAIT) {
        Ok(_) => Ok(true),
        Err(Errno::AGAIN | Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

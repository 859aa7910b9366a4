//! Several threads of one port: logins come to the first, commands to each.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tyche_engine::BATCH;
use tyche_fcoe::fc::wire::fcp::TaskManagement;
use tyche_fcoe::fc::wire::{Kind, Xid};
use tyche_fcoe::scsi::Status;
use tyche_fcoe::{Role, Units};

use crate::resets::{READ, WRITE, evict, held_disk, read};
use crate::target::{HOST, OTHER, Target, units_of};

/// Two threads of a port, at which an initiator is logged in that has taken all attentions.
fn threads() -> ([Target; 2], Arc<AtomicBool>, Arc<Units>) {
    let (disk, is_held) = held_disk();
    let units = units_of(disk, None, false);
    let mut both: [Target; 2] = Target::threads_of(&units, 1, 2).try_into().ok().unwrap();
    both[0].login(HOST);
    both[1].is_at(HOST);
    both[0].attend();
    (both, is_held, units)
}

fn work(all: &mut [Target]) {
    while all.iter_mut().fold(false, |worked, it| it.turn() | worked) {}
}

/// Has the second thread begin a write that stays at the disk.
fn begin_write([_, second]: &mut [Target; 2], is_held: &AtomicBool) {
    is_held.store(true, Ordering::Relaxed);
    second.send(WRITE, 512);
    assert!(second.ends(&[7; 512]).is_empty(), "it is with the disk");
}

#[test]
fn a_login_is_one_of_all_threads_and_so_are_the_right_to_write_and_what_was_written() {
    let (mut both, ..) = threads();
    assert_eq!(both[1].attend(), [], "an attention is told once");
    assert_eq!(both[1].run(WRITE, &[7; 512]).status, Status::Good);
    assert_eq!(both[0].run(READ, &[]).data[0], 7);
    assert_eq!(both[0].run(WRITE, &[8; 512]).status, Status::Good);
    assert_eq!(both[1].run(READ, &[]).data[0], 8);
    both[0].welcome(OTHER);
    both[1].is_at(OTHER);
    assert_eq!(both[1].run(WRITE, &[]).status, Status::ReservationConflict);
}

#[test]
fn a_login_has_ended_when_no_thread_is_at_work_or_has_a_frame_left() {
    let (mut both, is_held, _) = threads();
    begin_write(&mut both, &is_held);
    both[0].logout();
    work(&mut both);
    assert_eq!(both[0].role.poll_drained(), None, "its write may still change the disk");
    assert_eq!(both[0].role.initiators().next(), Some(HOST.1));
    is_held.store(false, Ordering::Relaxed);
    while both[0].role.listen(both[0].now) | both[0].role.work(both[0].now) {}
    while both[1].role.listen(both[1].now) | both[1].role.work(both[1].now) {}
    assert_eq!(both[1].role.initiators().next(), None);
    assert!(!both[0].turn() && both[0].role.poll_drained().is_none(), "a frame may be left");
    assert!(both[1].role.confirm_left() && !both[1].role.confirm_left());
    assert!(both[0].turn());
    assert_eq!(both[0].role.poll_drained(), Some(HOST.1));
    assert_eq!(both[0].role.initiators().next(), None);
    assert!(both[1].ends(&[]).is_empty(), "nothing is said of it");
    // The next login is one of all threads again.
    both[0].login(HOST);
    both[0].attend();
    assert_eq!(both[1].run(READ, &[]).data[0], 7, "the write was begun in time");
}

#[test]
fn a_thread_carries_an_order_out_after_the_frames_that_came_before_it() {
    let (mut both, ..) = threads();
    both[0].logout();
    both[1].role.listen(both[1].now);
    (0..BATCH).for_each(|_| both[1].role.note_frame());
    both[1].role.work(both[1].now);
    assert!(both[1].role.initiators().next().is_some(), "there may be more in the ring");
    (0..BATCH - 1).for_each(|_| both[1].role.note_frame());
    both[1].role.work(both[1].now);
    assert!(both[1].role.initiators().next().is_none());
    // A crowd of others does not hold it up for ever.
    work(&mut both);
    both[0].login(HOST);
    both[1].turn();
    both[0].logout();
    both[1].role.listen(both[1].now);
    let mut turns = 0;
    while both[1].role.initiators().next().is_some() {
        (0..BATCH).for_each(|_| both[1].role.note_frame());
        both[1].role.work(both[1].now);
        turns += 1;
    }
    assert!((2..=2 * 256_usize.div_ceil(BATCH) + 1).contains(&turns), "{turns}");
}

#[test]
fn a_function_waits_for_all_threads_and_says_nothing_of_the_asker_s_commands() {
    for function in [
        TaskManagement::ABORT_TASK_SET,
        TaskManagement::CLEAR_TASK_SET,
        TaskManagement::LU_RESET,
        TaskManagement::TARGET_RESET,
    ] {
        let (mut both, is_held, _) = threads();
        begin_write(&mut both, &is_held);
        both[0].manage(function);
        work(&mut both);
        assert!(both[0].ends(&[]).is_empty(), "{function:?}: the disk is at work with it");
        is_held.store(false, Ordering::Relaxed);
        work(&mut both);
        let ends = both[0].ends(&[]);
        assert!(ends.len() == 1 && ends[0].status == Status::Good, "{function:?}: {ends:?}");
        assert!(both[1].ends(&[]).is_empty(), "{function:?}");
    }
}

#[test]
fn an_initiator_that_is_shut_out_may_write_until_all_threads_have_ended_its_commands() {
    let (mut both, is_held, units) = threads();
    begin_write(&mut both, &is_held);
    let mut other = Target::of(&units, 2);
    other.welcome(OTHER);
    let departure = evict(&units, HOST);
    work(&mut both);
    work(std::slice::from_mut(&mut other));
    assert!(!departure.wait(Duration::ZERO));
    other.attend();
    assert_eq!(other.run(WRITE, &[]).status, Status::ReservationConflict, "not before");
    is_held.store(false, Ordering::Relaxed);
    work(&mut both);
    assert!(departure.wait(Duration::ZERO));
    assert_eq!(both[1].ends(&[])[0].status, Status::TaskAborted);
    assert_eq!(other.run(WRITE, &[9; 512]).status, Status::Good);
    assert_eq!(read(&mut other), 9);
}

#[test]
fn a_service_about_an_exchange_is_answered_by_the_thread_that_has_it() {
    let (mut both, is_held, _) = threads();
    both[1].take_odd_numbers();
    begin_write(&mut both, &is_held);
    let about = both[1].last();
    both[0].inquire(about);
    assert_eq!(both[0].kinds(), [], "it does not know");
    both[1].turn();
    assert_eq!(both[1].kinds(), [(Kind::ElsReply, Xid(0x777))]);
    is_held.store(false, Ordering::Relaxed);
    work(&mut both);
}

#[test]
fn an_abort_of_nobody_s_command_comes_to_the_logins() {
    let (mut both, ..) = threads();
    both[1].is_at(OTHER);
    both[1].abort();
    assert_eq!(both[1].kinds(), [], "the first thread knows whether it is logged in");
    both[0].turn();
    let sent_on = both[0].role.poll_sent_on().unwrap();
    assert_eq!((sent_on.frame().header.kind, sent_on.frame().header.s_id), (Kind::Abts, OTHER.0));
    both[1].is_at(HOST);
    both[1].abort();
    assert_eq!(both[1].kinds().len(), 1, "that it does not know the exchange");
    both[0].turn();
    assert!(both[0].role.poll_sent_on().is_none());
}

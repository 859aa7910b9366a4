use super::*;

fn write(losses: &Losses, lane: usize) {
    losses.written(lane, losses.begin_write());
}

/// A flush as an initiator has it: a failure is reported.
fn flush(losses: &Losses) -> bool {
    let since = losses.begin_flush();
    end(losses, &since)
}

fn end(losses: &Losses, since: &Since) -> bool {
    let flushed = losses.flushed(since, true);
    losses.settle(since);
    flushed == Flushed::Durable
}

#[test]
fn a_loss_fails_one_flush_on_whichever_lane() {
    let losses = Losses::new(2);
    assert!(!losses.lose() && flush(&losses), "nothing was written");
    write(&losses, 0);
    let before = losses.begin_flush();
    write(&losses, 1);
    assert!(end(&losses, &before));
    assert!(losses.lose(), "the flush has begun before the second write");
    assert!(!losses.lose(), "it is known");
    assert!(!flush(&losses) && flush(&losses));
    write(&losses, 1);
    assert!(flush(&losses));
    assert!(!losses.lose() && flush(&losses), "all was durable");
}

#[test]
fn a_write_on_its_way_may_be_lost_as_well() {
    let losses = Losses::new(2);
    let write_since = losses.begin_write();
    assert!(!losses.lose(), "nothing is done");
    losses.written(1, write_since);
    write(&losses, 0);
    assert!(!flush(&losses) && flush(&losses));
}

#[test]
fn flushes_on_their_way_at_a_loss_all_fail() {
    let losses = Losses::new(2);
    write(&losses, 0);
    let both = [losses.begin_flush(), losses.begin_flush()];
    assert!(losses.lose());
    assert_eq!(both.map(|since| end(&losses, &since)), [false, false]);
    assert!(flush(&losses));
}

#[test]
fn a_flush_tells_of_what_it_covers_only() {
    let losses = Losses::new(2);
    let nothing = losses.begin_flush();
    write(&losses, 0);
    let first = losses.begin_flush();
    write(&losses, 1);
    assert!(losses.lose());
    assert!(end(&losses, &nothing), "it covers nothing");
    assert!(!end(&losses, &first));
    assert!(!flush(&losses), "the second write was done after that one had begun");
    assert!(flush(&losses));
}

#[test]
fn writes_are_in_doubt_until_a_flush_has_covered_those_that_were_on_their_way() {
    let losses = Losses::new(1);
    losses.suspect_loss();
    assert!(!losses.is_doubtful(), "nothing is done");
    let since = losses.begin_write();
    losses.suspect_loss();
    write(&losses, 0);
    assert!(!losses.is_doubtful(), "that one was written after it");
    losses.written(0, since);
    assert!(losses.is_doubtful());
    assert!(flush(&losses) && !losses.is_doubtful());
}

#[test]
fn what_was_written_before_a_login_is_lost_if_there_is_doubt_after_it() {
    let losses = Losses::new(1);
    write(&losses, 0);
    losses.log_in();
    let covers = losses.begin_flush();
    losses.suspect_loss();
    assert!(!end(&losses, &covers), "the target may not know of the write");
    losses.suspect_loss();
    assert!(flush(&losses), "it was told");
    write(&losses, 0);
    losses.suspect_loss();
    assert!(flush(&losses), "the target knows of that one");
}

#[cfg(feature = "target")]
#[test]
fn a_target_tells_until_that_is_confirmed_and_keeps_what_is_in_the_cache() {
    let losses = Losses::of_initiator();
    losses.notice(3);
    write(&losses, 0);
    losses.notice(3);
    let before = losses.begin_flush();
    assert_eq!(losses.flushed(&before, true), Flushed::Durable, "it was written after that loss");
    let write_since = losses.begin_write();
    losses.notice(4);
    losses.notice(4);
    losses.written(0, write_since);
    let told = losses.begin_flush();
    assert_eq!(losses.flushed(&told, true), Flushed::Lost);
    let again = losses.begin_flush();
    assert_eq!(losses.flushed(&again, true), Flushed::Lost, "nobody knows it yet");
    losses.tell(&told);
    let third = losses.begin_flush();
    assert_eq!(losses.flushed(&third, false), Flushed::Failed, "it may be in the cache");
    assert_eq!(losses.flushed(&third, true), Flushed::Durable);
    let fourth = losses.begin_flush();
    assert_eq!(losses.flushed(&fourth, false), Flushed::Durable, "nothing is at stake");
}

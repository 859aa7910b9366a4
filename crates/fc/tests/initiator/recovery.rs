//! The repair of lost frames: each row of the table in FC.md.

use tyche_fc::initiator::{Data, Failure, LaneConfig, Refused};
use tyche_fc::wire::Kind;
use tyche_fc::wire::bls::BaRjt;
use tyche_fc::wire::els::{Rejection, Reply};
use tyche_fc::wire::fcp::Response;

use crate::script::{
    AT_WORK, COMPLETE, FRAME, OURS_TO_GO_ON, R_A_TOV, REC_TOV, Script, WWPN, config, header, parse,
};

const INVALID: (u8, u8) = (BaRjt::LOGICAL, BaRjt::INVALID_XID);

/// A read that has had some data, or a write that has sent some, then silence until we ask.
fn stalled(is_read: bool) -> Script {
    let mut script = Script::new();
    if is_read {
        script.read(2 * FRAME);
        script.data(0x2a, 0, FRAME);
    } else {
        script.write(2 * FRAME);
        script.ask_for(0x2a, 0, FRAME);
    }
    script.sent();
    assert_eq!(script.wait(REC_TOV - 1), "");
    assert_eq!(script.wait(1), "ask 002a");
    script
}

/// A command without data or with them of which nothing has come, until we ask.
fn silent(cdb: u8, data: Data) -> Script {
    let mut script = Script::new();
    script.try_submit(cdb, data).unwrap();
    assert_eq!(script.sent(), "command 002a");
    assert_eq!(script.wait(REC_TOV), "ask 002a");
    script
}

/// An exchange that is being aborted.
fn aborting(is_read: bool) -> Script {
    let mut script = stalled(is_read);
    assert_eq!(script.state(0x2a, OURS_TO_GO_ON), "abort 002a");
    script
}

#[test]
fn a_target_at_work_is_waited_for() {
    let mut script = stalled(true);
    for _ in 0..3 {
        assert_eq!(script.state(0x2a, AT_WORK), "");
        assert_eq!(script.wait(REC_TOV - 1), "");
        assert_eq!(script.wait(1), "ask 002a");
    }
    assert_eq!(script.state(0x2a, AT_WORK), "");
    script.data(0x2a, FRAME, FRAME);
    script.good(0x2a);
    assert_eq!(script.ends(), [(0, Ok(0))]);
}

#[test]
fn an_exchange_that_is_complete_there_or_waits_for_us_is_aborted() {
    for (is_read, estat) in
        [(true, COMPLETE), (false, COMPLETE), (true, OURS_TO_GO_ON), (false, OURS_TO_GO_ON)]
    {
        let mut script = stalled(is_read);
        assert_eq!(script.state(0x2a, estat), "abort 002a");
        assert!(script.ends().is_empty(), "not before it is confirmed");
        script.accept_abort(0x2a);
        assert_eq!(script.ends(), [(0, Err(Failure::Aborted))]);
        assert_eq!(script.lane.repairs().out_of_step, 1);
    }
}

#[test]
fn a_read_and_a_write_that_never_arrived_are_over_at_once() {
    for (cdb, data) in [(0x88, Data::In(FRAME)), (0x8a, Data::Out(FRAME))] {
        let mut script = silent(cdb, data);
        assert_eq!(script.unknown(), "");
        assert_eq!(script.ends(), [(0, Err(Failure::NotArrived))]);
        // If it was only late, no data go there.
        assert_eq!(script.ask_for(0x2a, 0, FRAME), "");
        assert!(!script.data(0x2a, 0, FRAME));
        assert_eq!((script.lane.ignored().late, script.lane.repairs().not_arrived), (2, 1));
    }
}

#[test]
fn a_command_that_needs_no_data_may_still_arrive() {
    for cdb in [0x91, 0x93] {
        let mut script = silent(cdb, Data::None);
        assert_eq!(script.unknown(), "");
        assert_eq!(script.wait(R_A_TOV - REC_TOV - 1), "");
        assert!(script.ends().is_empty());
        script.wait(1);
        assert_eq!(script.ends(), [(0, Err(Failure::NotArrived))]);
        // Linux says that it knows no exchange before it has answered.
        let mut script = silent(cdb, Data::None);
        script.unknown();
        script.wait(R_A_TOV - REC_TOV - 1);
        script.good(0x2a);
        assert_eq!(script.ends(), [(0, Ok(0))]);
        script.wait(R_A_TOV);
        assert!(script.ends().is_empty());
    }
}

#[test]
fn an_exchange_that_is_over_there_has_lost_its_answer() {
    for is_read in [true, false] {
        let mut script = stalled(is_read);
        assert_eq!(script.unknown(), "");
        assert_eq!(script.ends(), [(0, Err(Failure::AnswerLost))]);
        assert_eq!(script.lane.repairs().answer_lost, 1);
        script.good(0x2a);
        assert_eq!(script.lane.ignored().late, 1);
    }
}

#[test]
fn the_number_of_a_question_is_not_used_again_soon() {
    let mut script = stalled(false);
    assert_eq!(script.wait(REC_TOV), "ask 002a");
    let asked = script.asked.unwrap().ox_id.0;
    script.state(0x2a, AT_WORK);
    // An answer that comes twice finds no other question: a refusal does not say what it is about.
    let refused = Reply::Refused(Rejection {
        reason: Rejection::LOGICAL,
        explanation: Rejection::INVALID_XID,
    });
    assert_eq!(script.reply(refused), "");
    assert_eq!((script.ends(), script.lane.ignored().late), (vec![], 1));
    for _ in 0..0x100 {
        let name = script.flush();
        script.sent();
        let ox_id = parse(&script.seen[script.seen.len() - 1]).header.ox_id.0;
        assert_ne!(ox_id, asked);
        script.good(ox_id);
        assert_eq!(script.ends(), [(name, Ok(0))]);
    }
}

#[test]
fn questions_without_an_answer_are_repeated_and_then_the_exchange_is_aborted() {
    let mut script = stalled(false);
    assert_eq!(script.wait(REC_TOV), "ask 002a");
    assert_eq!(script.wait(REC_TOV), "ask 002a");
    assert_eq!(script.wait(REC_TOV), "abort 002a");
    assert_eq!(script.lane.repairs().silent, 1);
    // The answers that come now are late.
    assert_eq!(script.state(0x2a, AT_WORK), "");
    assert_eq!(script.lane.ignored().late, 1);
}

#[test]
fn a_frame_that_crosses_the_question_is_its_answer() {
    let mut script = stalled(false);
    let sent = "data 002a 2016+2016!";
    assert_eq!(script.ask_for(0x2a, FRAME, FRAME), sent);
    assert_eq!(script.state(0x2a, OURS_TO_GO_ON), "", "it was so before");
    assert_eq!(script.wait(REC_TOV - 1), "");
    assert_eq!(script.wait(1), "ask 002a");
    script.good(0x2a);
    assert_eq!(script.ends(), [(0, Ok(0))]);
    assert_eq!(script.unknown(), "");
    assert!(script.ends().is_empty());
}

#[test]
fn a_question_is_not_sent_any_more_when_its_answer_is_known() {
    let mut script = Script::new();
    script.read(2 * FRAME);
    assert_eq!(script.sent(), "command 002a");
    script.is_full = true;
    script.wait(REC_TOV);
    script.data(0x2a, 0, FRAME);
    script.is_full = false;
    script.drain();
    assert_eq!(script.sent(), "");
    script.data(0x2a, FRAME, FRAME);
    script.good(0x2a);
    assert_eq!(format!("{:?}", script.lane), "{}", "its exchange is over as well");
}

#[test]
fn a_target_without_answers_to_questions_has_the_time_of_a_command() {
    let mut script = stalled(true);
    assert_eq!(script.refuse(Rejection::UNSUPPORTED, 0), "");
    assert_eq!(script.wait(30_000 - REC_TOV - 1), "");
    assert_eq!(script.wait(1), "abort 002a");
    assert_eq!(script.lane.repairs().timed_out, 1);
    script.accept_abort(0x2a);
    script.read(FRAME);
    script.sent();
    assert_eq!(script.wait(9_000), "", "it is not asked again");
}

#[test]
fn a_target_that_is_busy_is_asked_again() {
    let mut script = stalled(true);
    assert_eq!(script.refuse(Rejection::BUSY, 0), "");
    assert_eq!(script.wait(REC_TOV - 1), "");
    assert_eq!(script.wait(1), "ask 002a");
}

#[test]
fn a_target_that_has_forgotten_the_login_needs_another() {
    let mut script = stalled(false);
    assert_eq!(script.refuse(Rejection::UNABLE, Rejection::NOT_LOGGED_IN), "");
    assert_eq!(script.restarts, [WWPN]);
    assert!(script.ends().is_empty());
}

#[test]
fn a_command_has_its_time_even_if_the_target_is_at_work() {
    let mut script = stalled(true);
    for _ in 1..9 {
        script.state(0x2a, AT_WORK);
        assert_eq!(script.wait(REC_TOV), "ask 002a");
    }
    script.state(0x2a, AT_WORK);
    assert_eq!(script.wait(REC_TOV), "abort 002a", "30 s");
}

#[test]
fn an_abort_is_repeated_and_then_the_login_begins_anew() {
    let mut script = aborting(false);
    for _ in 0..2 {
        assert_eq!(script.wait(2 * R_A_TOV - 1), "");
        assert_eq!(script.wait(1), "abort 002a");
    }
    assert_eq!(script.wait(2 * R_A_TOV - 1), "");
    assert!(script.restarts.is_empty());
    assert_eq!(script.wait(1), "");
    assert_eq!(script.restarts, [WWPN]);
    assert_eq!(script.wait(100_000), "");
    assert!(script.ends().is_empty(), "the target may be at work with it");
    script.lane.logged_out(script.now, WWPN);
    script.drain();
    // All its data had not been sent.
    assert_eq!(script.ends(), [(0, Err(Failure::LoggedOut { may_modify: false }))]);
}

#[test]
fn an_accepted_abort_needs_no_numbers_in_its_payload() {
    let mut script = aborting(false);
    script.accept_abort_without_numbers(0x2a);
    assert_eq!(script.ends(), [(0, Err(Failure::Aborted))]);
    assert_eq!(script.wait(R_A_TOV), "release 002a");
}

#[test]
fn an_abort_that_is_answered_late_is_answered() {
    let mut script = aborting(false);
    script.wait(6 * R_A_TOV);
    assert_eq!(script.restarts, [WWPN]);
    script.accept_abort(0x2a);
    assert_eq!(script.ends(), [(0, Err(Failure::Aborted))]);
}

#[test]
fn an_aborted_exchange_is_released_after_a_while_and_its_xid_is_free_then() {
    let mut script = aborting(true);
    script.accept_abort(0x2a);
    script.ends();
    script.data(0x2a, FRAME, FRAME);
    script.good(0x2a);
    assert_eq!(script.lane.ignored().late, 2);
    script.accept_abort(0x2a);
    assert_eq!(script.lane.ignored().unexpected, 1);
    assert_eq!(script.wait(R_A_TOV - 1), "");
    assert_eq!(script.wait(1), "release 002a");
    script.good(0x2a);
    assert_eq!(script.lane.ignored().late, 3);
    assert_eq!(script.reply(Reply::Accepted), "");
    script.good(0x2a);
    assert_eq!(script.lane.ignored().no_exchange, 1);
    assert_eq!(script.wait(60_000), "");
    assert_eq!(script.lane.poll_timeout(), None);
}

#[test]
fn commands_that_are_still_to_be_released_take_numbers_too() {
    let mut script = Script::with(LaneConfig { depth: 1, ..config() });
    for ox_id in [0x2a, 0x2c] {
        let name = script.read(2 * FRAME);
        script.data(ox_id, 0, FRAME);
        assert!(script.wait(REC_TOV).contains(&format!("ask {ox_id:04x}")));
        assert_eq!(script.state(ox_id, OURS_TO_GO_ON), format!("abort {ox_id:04x}"));
        script.accept_abort(ox_id);
        assert_eq!(script.ends(), [(name, Err(Failure::Aborted))]);
    }
    assert_eq!(script.try_submit(0x91, Data::None), Err(Refused::Full));
    assert_eq!(script.lane.repairs().no_xid, 0);
    assert_eq!(script.lane.frames()[0], 1000);
    script.wait(R_A_TOV - REC_TOV);
    assert_eq!(script.reply(Reply::Accepted), "");
    assert_eq!(script.try_submit(0x91, Data::None), Ok(0));
}

#[test]
fn a_release_that_is_not_answered_is_one() {
    let mut script = aborting(true);
    script.accept_abort(0x2a);
    assert_eq!(script.wait(R_A_TOV), "release 002a");
    assert_eq!(script.wait(REC_TOV), "");
    script.good(0x2a);
    assert_eq!(script.lane.ignored().no_exchange, 1);
    assert_eq!(script.wait(60_000), "");
}

#[test]
fn a_response_that_crosses_the_abort_counts() {
    let mut script = aborting(false);
    script.respond(0x2a, &Response { status: 2, sense: &[0x70; 18], ..Response::GOOD });
    assert_eq!(script.ends(), [(0, Ok(2))]);
    let mut rejected = aborting(false);
    rejected.respond(0x2a, &Response { status: 2, ..Response::GOOD });
    rejected.reject_abort(0x2a, INVALID.0, INVALID.1);
    assert_eq!((rejected.ends(), rejected.wait(100_000)), (vec![(0, Ok(2))], String::new()));
    assert_eq!(rejected.lane.repairs().answer_lost, 0);
    script.good(0x2a);
    assert_eq!((script.ends(), script.lane.ignored().late), (vec![], 1));
    assert_eq!(script.wait(2 * R_A_TOV), "abort 002a", "the target is to know");
    script.accept_abort(0x2a);
    assert!(script.ends().is_empty(), "once");
    assert_eq!(script.wait(R_A_TOV), "release 002a");
}

#[test]
fn data_that_come_after_the_abort_are_not_placed_and_so_the_response_does_not_count() {
    let mut script = aborting(true);
    assert!(!script.data(0x2a, FRAME, FRAME));
    script.good(0x2a);
    assert!(script.ends().is_empty());
    script.reject_abort(0x2a, INVALID.0, INVALID.1);
    assert_eq!(script.ends(), [(0, Err(Failure::AnswerLost))]);
    assert_eq!(script.lane.ignored().late, 2);
}

#[test]
fn a_rejected_abort_shows_that_nothing_is_at_work() {
    let mut script = aborting(false);
    script.reject_abort(0x2a, BaRjt::UNABLE, 0);
    assert!(script.ends().is_empty(), "it may be later");
    // As Linux says it.
    script.reject_abort(0x2a, BaRjt::UNABLE, BaRjt::INVALID_XID);
    assert_eq!(script.ends(), [(0, Err(Failure::AnswerLost))]);
    assert_eq!(script.wait(100_000), "");
}

#[test]
fn a_rejected_abort_of_what_never_answered_leaves_time_to_arrive() {
    let mut script = silent(0x93, Data::None);
    assert_eq!(script.wait(3 * REC_TOV - 1), "ask 002a, ask 002a");
    assert_eq!(script.wait(1), "abort 002a");
    script.reject_abort(0x2a, INVALID.0, INVALID.1);
    assert!(script.ends().is_empty());
    script.wait(1);
    assert_eq!(script.ends(), [(0, Err(Failure::NotArrived))], "R_A_TOV is over already");
}

#[test]
fn the_number_of_the_exchange_there_is_learnt_from_the_answer() {
    let mut script = silent(0x91, Data::None);
    assert_eq!(script.state(0x2a, OURS_TO_GO_ON), "abort 002a");
    let abort = parse(&script.seen[0]).header;
    assert_eq!(abort.rx_id.0, 0x2a + crate::script::RX);
}

#[test]
fn answers_that_are_none_are_waited_out() {
    let mut script = stalled(true);
    assert_eq!(script.state(0x2b, COMPLETE), "", "about another exchange");
    let asked = script.asked.unwrap();
    let _ = script.receive(asked.reply(Kind::ElsReply, asked.rx_id), &[0x77; 30]);
    let _ = script.receive(asked.reply(Kind::ElsReply, asked.rx_id), &[]);
    let _ = script.receive(asked.reply(Kind::FcpRsp, asked.rx_id), &[0; 24]);
    assert_eq!((script.lane.ignored().malformed, script.lane.ignored().unexpected), (3, 1));
    let _ = script.receive(header(Kind::BaAcc, 0x2a), &[0; 11]);
    let _ = script.receive(header(Kind::BaRjt, 0x2a), &[0; 3]);
    assert_eq!(script.lane.ignored().malformed, 5);
    assert_eq!(script.state(0x2a, AT_WORK), "");
}

/// Has the command with this OX_ID lose its answer; whether an attention may be lost with it.
fn lose(script: &mut Script, ox_id: u16) -> bool {
    script.data(ox_id, 0, 4);
    script.sent();
    assert_eq!(script.wait(REC_TOV), format!("ask {}", tyche_fc::wire::Xid(ox_id)));
    script.ends.clear();
    script.unknown();
    let [end] = script.ends[..] else { panic!("{:?}", script.ends) };
    assert_eq!(end.end, Err(Failure::AnswerLost));
    end.attention_lost
}

#[test]
fn an_attention_of_a_new_login_may_be_lost_with_an_answer() {
    let mut script = Script::new();
    script.flush();
    script.good(0x2a);
    assert!(!script.ends[0].attention_lost, "it has an answer");
    script.read(FRAME);
    assert!(!lose(&mut script, 0x2b), "another answer would have had it");
    let mut script = Script::new();
    script.read(FRAME);
    script.flush();
    script.good(0x2b);
    assert!(lose(&mut script, 0x2a), "it may have been executed first");
    let mut script = Script::new();
    script.try_submit(0x12, Data::In(FRAME)).unwrap();
    script.data(0x2a, 0, FRAME);
    script.good(0x2a);
    script.read(FRAME);
    assert!(lose(&mut script, 0x2b), "INQUIRY leaves it where it is");
}

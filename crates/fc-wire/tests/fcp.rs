//! Information units of FCP that vary: short responses, longer CDBs, several functions at once.

use tyche_fc_wire::fcp::*;
use tyche_fc_wire::{FCtl, Header, Kind, PortId, Reject, Xid};

fn emit(response: &Response<'_>) -> Vec<u8> {
    let mut buffer = [0xa5; 300];
    let len = response.emit(&mut buffer);
    buffer[..len].to_vec()
}

#[test]
fn responses_may_leave_out_what_no_flag_refers_to() {
    let good = emit(&Response::GOOD);
    assert_eq!(good, [0; 24]);
    for len in 0..24 {
        let expected = if len < 12 { Err(Reject::Length) } else { Ok(Response::GOOD) };
        assert_eq!(Response::parse(&good[..len]), expected, "{len}");
    }
    // Only a confirmation is asked for.
    let confirm = emit(&Response { confirm: true, ..Response::GOOD });
    assert_eq!(Response::parse(&confirm[..12]), Response::parse(&confirm));
    for flag in [0x01, 0x02, 0x04, 0x08] {
        let mut short = good[..12].to_vec();
        short[10] = flag;
        assert_eq!(Response::parse(&short), Err(Reject::Length), "{flag:#x}");
    }
}

#[test]
fn lengths_count_only_if_a_flag_says_so() {
    let mut response = emit(&Response::GOOD);
    response[12..24].fill(0xff);
    assert_eq!(Response::parse(&response), Ok(Response::GOOD));
    response[10] = 0x04;
    let over = Response { residual: Residual::Over(u32::MAX), ..Response::GOOD };
    assert_eq!(Response::parse(&response), Ok(over));
    response[10] = 0x0c;
    assert_eq!(Response::parse(&response), Err(Reject::Range));
    for flag in [0x01, 0x02] {
        response[10] = flag;
        assert_eq!(Response::parse(&response), Err(Reject::Length));
    }
}

#[test]
fn response_information_has_four_bytes_or_eight() {
    let code = Some(ResponseCode::ManagementRejected.to_wire());
    let sense = [0x70, 0, 5, 0, 0, 0, 0, 10];
    let response = Response { code, sense: &sense, status: 2, ..Response::GOOD };
    let bytes = emit(&response);
    assert_eq!(
        bytes[20..],
        [[0, 0, 0, 8], [0, 0, 0, 4], [0; 4], [0x70, 0, 5, 0], [0, 0, 0, 10]].concat()
    );
    assert_eq!(Response::parse(&bytes), Ok(response));
    let mut short = bytes.clone();
    short.drain(28..32);
    short[23] = 4;
    assert_eq!(Response::parse(&short), Ok(response));
    short[23] = 0;
    let Response { sense, code, .. } = Response::parse(&short).unwrap();
    assert_eq!((code, sense), (None, &short[24..32]));
    short[23] = 3;
    assert_eq!(Response::parse(&short), Err(Reject::Range));
}

#[test]
fn commands_that_cannot_be_executed_are_told_so() {
    let good = Command::new([0; 8], [0; CDB_LEN]);
    assert_eq!(good.check(), Ok(()));
    let reset = Command { management: TaskManagement::LU_RESET, ..good };
    assert_eq!(reset.check(), Ok(()));
    let both = TaskManagement::LU_RESET.with(TaskManagement::CLEAR_ACA);
    for wrong in [
        Command { reads: true, writes: true, ..good },
        Command { more_cdb: &[1, 2, 3, 4], ..good },
        Command { management: both, ..good },
    ] {
        assert_eq!(wrong.check(), Err(ResponseCode::FieldsInvalid), "{wrong:?}");
    }
}

/// Its CDB is not to be executed, whichever bit it is.
#[test]
fn every_bit_of_task_management_is_a_function() {
    let mut unit = [0; COMMAND_LEN];
    Command::new([0; 8], [0; CDB_LEN]).emit(&mut unit);
    for bit in 0..8 {
        unit[10] = 1 << bit;
        let command = Command::parse(&unit).unwrap();
        assert_eq!(command.management.to_wire(), 1 << bit);
        assert_eq!(command.check(), Ok(()));
    }
}

/// The length of the data comes behind all of the CDB.
#[test]
fn longer_cdbs_are_whole_or_faults() {
    let more_cdb = [0xcd; 63 * 4];
    let command = Command { more_cdb: &more_cdb, data_len: 7, ..Command::new([1; 8], [2; 16]) };
    let mut buffer = [0xa5; 300];
    let len = command.emit(&mut buffer);
    assert_eq!(len, COMMAND_LEN + 63 * 4);
    assert_eq!(Command::parse(&buffer[..len]), Ok(command));
    assert_eq!(Command::parse(&buffer[..len - 1]), Err(Reject::Length));
    assert_eq!(Command::parse(&buffer[..40]), Err(Reject::Length));
}

#[test]
fn longer_cdbs_have_at_most_63_whole_words() {
    for len in [3, 64 * 4, 255 * 4] {
        let more_cdb = vec![0xcd; len];
        let command = Command { more_cdb: &more_cdb, ..Command::new([1; 8], [2; 16]) };
        let emitted = std::panic::catch_unwind(|| command.emit(&mut [0; 2000]));
        assert!(emitted.is_err(), "{len}");
    }
}

#[test]
fn data_have_an_offset_and_an_end() {
    let header = Header::request(Kind::FcpData, PortId::NONE, PortId::NONE, Xid(1));
    assert_eq!(data_offset(&header, 4), Err(Reject::Offset));
    let header = Header { f_ctl: FCtl::WRITE_DATA, parameter: 0xffff_fffc, ..header };
    assert_eq!(data_offset(&header, 3), Ok(0xffff_fffc));
    assert_eq!(data_offset(&header, 4), Err(Reject::Range));
    let burst = TransferReady { offset: 0xffff_fffc, len: 3 };
    assert_eq!(TransferReady::parse(&burst.to_bytes()), Ok(burst));
    for len in [0, 4] {
        let wrong = TransferReady { len, ..burst }.to_bytes();
        assert_eq!(TransferReady::parse(&wrong), Err(Reject::Range), "{len}");
    }
}

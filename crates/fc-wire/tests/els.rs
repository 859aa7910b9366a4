//! Link services whose payloads vary: pages of PRLI and RSCN, units of time-outs, longer payloads.

use tyche_fc_wire::Reject;
use tyche_fc_wire::els::*;

const PRLI: [u8; 20] = [0x20, 16, 0, 20, 8, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xa2];
const EXECUTED: [u8; 20] = [2, 16, 0, 20, 8, 0, 0x21, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x92];

fn parameters(bits: &[FcpParameters]) -> FcpParameters {
    bits.iter().fold(FcpParameters::EMPTY, |all, bit| all.with(*bit))
}

/// The agreement of Linux' initiator and target.
#[test]
fn prli_and_its_answer() {
    let parameters_of_host = parameters(&[
        FcpParameters::RETRY,
        FcpParameters::CONFIRMED_COMPLETION,
        FcpParameters::INITIATOR,
        FcpParameters::READ_XFER_RDY_DISABLED,
    ]);
    assert_eq!(parameters_of_host.to_wire(), 0x1a2);
    let process = Process { image_pair: true, response: 0, parameters: parameters_of_host };
    assert_eq!(Request::parse(&PRLI), Ok(Request::Prli(process)));
    let parameters = parameters(&[
        FcpParameters::CONFIRMED_COMPLETION,
        FcpParameters::TARGET,
        FcpParameters::READ_XFER_RDY_DISABLED,
    ]);
    let process = Process { image_pair: true, response: Process::EXECUTED, parameters };
    assert_eq!(Reply::parse(Code::Prli, &EXECUTED), Ok(Reply::Process(process)));
}

#[test]
fn the_page_of_fcp_is_the_one_that_counts() {
    let other = [5, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let mut two = [&PRLI[..4], &other, &PRLI[4..]].concat();
    assert_eq!(Request::parse(&two), Err(Reject::Range), "a length that ends before it");
    two[3] = 36;
    assert_eq!(Request::parse(&two), Request::parse(&PRLI));
    two[20] = 5;
    assert_eq!(Request::parse(&two), Err(Reject::Range));
}

#[test]
fn pages_of_another_length_are_faults() {
    let mut prli = PRLI;
    for (offset, value, reject) in [
        (1, 12, Reject::Range),
        (1, 20, Reject::Range),
        (3, 21, Reject::Length),
        (3, 19, Reject::Length),
        (3, 3, Reject::Length),
        (3, 4, Reject::Range),
        (2, 1, Reject::Length),
    ] {
        prli[offset] = value;
        assert_eq!(Request::parse(&prli), Err(reject), "{offset} {value}");
        prli = PRLI;
    }
    let rscn = [0x61, 4, 0, 12, 0x00, 0, 1, 2, 0x03, 0, 0, 0];
    let Ok(Request::Rscn(parsed)) = Request::parse(&rscn) else { panic!("no RSCN") };
    assert_eq!(parsed.ports.len(), 2);
    assert_eq!(parsed.ports[0].id.to_u32(), 0x102);
    for (offset, value, reject) in [
        (1, 8, Reject::Range),
        (3, 4, Reject::Range),
        (3, 10, Reject::Length),
        (3, 16, Reject::Length),
        (3, 2, Reject::Length),
    ] {
        let mut wrong = rscn;
        wrong[offset] = value;
        assert_eq!(Request::parse(&wrong), Err(reject), "{offset} {value}");
    }
}

#[test]
fn codes_are_those_of_requests_or_of_answers() {
    for code in 0..=u8::MAX {
        let payload = [&[code, 4, 0, 8][..], &[0; 112]].concat();
        let is_known = Code::from_wire(code).is_some();
        let is_answer = matches!(code, 1 | 2);
        let parsed = Request::parse(&payload);
        assert_eq!(parsed == Err(Reject::Code), !is_known || is_answer, "{code:#x} {parsed:?}");
        if let Ok(request) = parsed {
            assert_eq!(request.code().to_wire(), code);
        }
        let parsed = Reply::parse(Code::Logo, &payload);
        assert_eq!(parsed.is_err(), !is_answer, "{code:#x} {parsed:?}");
    }
    assert_eq!(Request::parse(&[]), Err(Reject::Length));
}

#[test]
fn bytes_behind_a_payload_are_ignored() {
    let longer = [&PRLI[..], &[0xee; 8]].concat();
    assert_eq!(Request::parse(&longer), Request::parse(&PRLI));
    let login = [&[3][..], &[0x11; 255]].concat();
    assert_eq!(Request::parse(&login), Request::parse(&login[..LOGIN_LEN]));
    assert_eq!(Request::parse(&login[..LOGIN_LEN - 1]), Err(Reject::Length));
}

#[test]
fn lengths_and_time_outs_have_their_units() {
    let mut login = [0u8; LOGIN_LEN];
    login[0] = 2;
    login[8..20].copy_from_slice(&[0x14, 0, 0xf8, 0x40, 0, 0, 0x27, 0x10, 0x77, 0x35, 0x94, 0]);
    login[68..70].copy_from_slice(&[0x80, 0]);
    login[74..76].copy_from_slice(&[0xf8, 0x40]);
    let Ok(Reply::FabricLogin(parsed)) = Reply::parse(Code::Flogi, &login) else {
        panic!("no FLOGI");
    };
    assert!(parsed.features.has(Features::F_PORT) && parsed.features.has(Features::E_D_TOV_NS));
    assert_eq!(parsed.receive_len, 2112);
    assert_eq!(parsed.class3.unwrap().receive_len, 2112);
    assert_eq!((parsed.r_a_tov_ms, parsed.e_d_tov), (10_000, 2_000_000_000));
    login[68] = 0x7f;
    let Ok(Reply::PortLogin(parsed)) = Reply::parse(Code::Plogi, &login) else {
        panic!("no PLOGI");
    };
    assert_eq!((parsed.sequences, parsed.relative_offsets), (0, 10_000));
    assert_eq!(parsed.class3, None);
    let rtv = [2, 0, 0, 0, 0, 0, 0x27, 0x10, 0, 0, 7, 0xd0, 0x04, 0, 0, 0];
    let timeouts = Timeouts { r_a_tov_ms: 10_000, e_d_tov: 2000, e_d_tov_ns: true };
    assert_eq!(Reply::parse(Code::Rtv, &rtv), Ok(Reply::Timeouts(timeouts)));
}

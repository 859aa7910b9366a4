//! Encapsulated frames: CRC, fill, delimiters, the order of the checks, and the heads and tails
//! that are written around data.

use tyche_fc_wire::fcp::{CommandFrame, PreparedHead};
use tyche_fc_wire::*;

const TARGET: PortId = PortId::new(0x0102);
const HOST: PortId = PortId::new(0x0304);

fn ethernet() -> Ethernet {
    let [destination, source] = [TARGET, HOST].map(|id| Mac::fpma(FcMap::VN2VN, id));
    Ethernet { destination, source }
}

fn data_header(payload_offset: u32) -> Header {
    Header {
        f_ctl: FCtl::WRITE_DATA_END,
        seq_id: 5,
        seq_cnt: 1,
        rx_id: Xid(9),
        parameter: payload_offset,
        ..Header::request(Kind::FcpData, HOST, TARGET, Xid(0x107))
    }
}

fn emit(header: Header, payload: &[u8]) -> Vec<u8> {
    let mut buffer = [0xa5; FRAME_LEN_MAX];
    let len = Frame { ethernet: ethernet(), header, payload }.emit(&mut buffer);
    buffer[..len].to_vec()
}

fn parse(frame: &[u8]) -> Result<Frame<'_>, Reject> {
    let (head, rest) = frame.split_first_chunk().expect("longer than a head");
    Frame::parse(head, rest)
}

/// CRC-32, bit by bit.
fn slow_crc(bytes: &[u8]) -> u32 {
    let step = |crc: u32| crc >> 1 ^ if crc & 1 != 0 { 0xedb8_8320 } else { 0 };
    let byte = |crc, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc));
    !bytes.iter().fold(u32::MAX, byte)
}

#[test]
fn the_crc_is_that_of_ethernet_over_any_pieces() {
    assert_eq!(crc([&b"123456789"[..]]), 0xcbf4_3926);
    let bytes: Vec<u8> = (0..=255).cycle().take(2136).collect();
    for cut in [0, 1, 24, 25, 1000, 2135, 2136] {
        let (front, back) = bytes.split_at(cut);
        assert_eq!(crc([front, back]), slow_crc(&bytes));
    }
}

#[test]
fn frames_have_their_lengths_and_a_little_endian_crc() {
    for (len, whole) in [(0, 60), (1, 64), (4, 64), (12, 72), (32, 92), (2048, 2108), (2112, 2172)]
    {
        let frame = emit(data_header(0), &vec![0x5a; len]);
        assert_eq!(frame.len(), whole, "{len}");
        let (covered, tail) = frame[28..].split_at(whole - 36);
        assert_eq!(tail[..4], slow_crc(covered).to_le_bytes());
        assert_eq!(tail[4..], [0x42, 0, 0, 0]);
        assert_eq!(frame[14..27], [0; 13]);
    }
}

#[test]
fn fill_is_zero_and_no_part_of_the_payload() {
    for len in 0..9usize {
        let payload = vec![0xff; len];
        let frame = emit(data_header(0), &payload);
        let fill = (4 - len % 4) % 4;
        assert_eq!(usize::from(frame[28 + 11] & 3), fill);
        assert!(frame[52 + len..52 + len + fill].iter().all(|&byte| byte == 0));
        assert_eq!(parse(&frame).unwrap().payload, payload);
        // Its value is not looked at.
        let mut other = frame.clone();
        other[52 + len..52 + len + fill].fill(0x77);
        mend(&mut other);
        assert_eq!(parse(&other), parse(&frame));
    }
}

/// Corrects the CRC.
fn mend(frame: &mut [u8]) {
    let end = frame.len() - TAIL_LEN;
    let crc = slow_crc(&frame[28..end]);
    frame[end..end + 4].copy_from_slice(&crc.to_le_bytes());
}

#[test]
fn faults_are_found_in_their_order() {
    let good = emit(data_header(0), &[1; 8]);
    let mut frame = good.clone();
    // From the last check to the first: each is found before those that came before it here.
    let eof = good.len() - 4;
    let changes: [(usize, u8, bool, Reject); 9] = [
        (28, 0x09, true, Reject::Kind),
        (28 + 13, 0x20, true, Reject::OptionalHeaders),
        (52, 0xff, false, Reject::Crc),
        (eof, 0x46, false, Reject::Class),
        (eof, 0x50, false, Reject::Aborted),
        (eof, 0x43, false, Reject::Eof),
        (27, 0x2d, false, Reject::Class),
        (27, 0x2f, false, Reject::Sof),
        (14, 0x10, false, Reject::Version),
    ];
    for (offset, value, mended, reject) in changes {
        frame[offset] = value;
        if mended {
            mend(&mut frame);
        }
        assert_eq!(parse(&frame), Err(reject));
    }
    frame[13] = 0x14;
    assert_eq!(parse(&frame), Err(Reject::EtherType));
    for len in [59, 61, 67, 69] {
        frame.resize(len, 0);
        assert_eq!(parse(&frame), Err(Reject::Length), "{len}");
    }
    frame.resize(2176, 0);
    assert_eq!(parse(&frame), Err(Reject::Length));
}

#[test]
fn every_delimiter_is_taken_or_has_its_reason() {
    let good = emit(data_header(0), &[]);
    for code in 0..=u8::MAX {
        let mut frame = good.clone();
        frame[27] = code;
        let expected = match code {
            0x2e | 0x36 => None,
            0x28 | 0x2d | 0x35 | 0x29 | 0x31 | 0x39 => Some(Reject::Class),
            _ => Some(Reject::Sof),
        };
        assert_eq!(parse(&frame).err(), expected, "SOF {code:#x}");
        let mut frame = good.clone();
        frame[56] = code;
        let expected = match code {
            0x41 | 0x42 => None,
            0x49 | 0x50 => Some(Reject::Aborted),
            0x46 | 0x4e | 0x44 | 0x4f => Some(Reject::Class),
            _ => Some(Reject::Eof),
        };
        assert_eq!(parse(&frame).err(), expected, "EOF {code:#x}");
    }
}

#[test]
fn fill_without_payload_is_a_fault() {
    let mut frame = emit(data_header(0), &[]);
    frame[28 + 11] |= 1;
    mend(&mut frame);
    assert_eq!(parse(&frame), Err(Reject::Fill));
}

#[test]
fn frames_are_for_the_port_of_their_address() {
    let frame = emit(data_header(0), &[]);
    let mut frame = parse(&frame).unwrap();
    assert_eq!(frame.check_destination(), Ok(()));
    frame.header.d_id = HOST;
    assert_eq!(frame.check_destination(), Err(Reject::Destination));
    frame.header.d_id = TARGET;
    frame.ethernet.destination.0[0] |= 1;
    assert_eq!(frame.check_destination(), Err(Reject::Destination));
}

/// Named values of F_CTL are unions of its bits, as FC-FS-3 describes the frames.
#[test]
fn values_of_f_ctl_consist_of_its_bits() {
    let all = |bits: &[FCtl]| bits.iter().fold(FCtl::EMPTY, |all, bit| all.with(*bit));
    use FCtl as F;
    let (ours, theirs) = (F::EMPTY, F::EX_CTX);
    let values = [
        (F::REQUEST, all(&[ours, F::FIRST_SEQ, F::END_SEQ, F::SEQ_INIT])),
        (F::REPLY, all(&[theirs, F::LAST_SEQ, F::END_SEQ, F::SEQ_INIT])),
        (F::XFER_RDY, all(&[theirs, F::END_SEQ, F::SEQ_INIT])),
        (F::WRITE_DATA, all(&[ours, F::REL_OFF])),
        (F::WRITE_DATA_END, all(&[ours, F::END_SEQ, F::SEQ_INIT, F::REL_OFF])),
        (F::READ_DATA, all(&[theirs, F::REL_OFF])),
        (F::READ_DATA_END, all(&[theirs, F::END_SEQ, F::REL_OFF])),
        (F::RESPONSE, all(&[theirs, F::LAST_SEQ, F::END_SEQ])),
        (F::RESPONSE_TO_CONFIRM, all(&[theirs, F::END_SEQ, F::SEQ_INIT])),
        (F::ABTS, all(&[ours, F::END_SEQ, F::SEQ_INIT])),
        (F::CONFIRMATION, all(&[ours, F::LAST_SEQ, F::END_SEQ, F::SEQ_INIT])),
    ];
    for (value, bits) in values {
        assert_eq!(value, bits);
    }
}

#[test]
fn data_stay_where_they_are() {
    let data: Vec<u8> = (0..2111u32).map(|byte| (byte * 7) as u8).collect();
    let header = data_header(4096);
    let expected = emit(header, &data);
    let head = head(ethernet(), &header, data.len());
    for cut in [0, 1, 512, 2048] {
        let (front, back) = data.split_at(cut);
        let tail = Tail::seal(&head, [front, back]);
        assert_eq!([&head[..], front, back, tail.as_bytes()].concat(), expected);
    }
    let parsed = parse(&expected).unwrap();
    assert_eq!(parsed, Frame { ethernet: ethernet(), header, payload: &data });
    assert_eq!(parsed.payload.as_ptr(), expected[52..].as_ptr(), "no copy");
}

#[test]
fn prepared_heads_are_patched_to_those_of_each_frame() {
    let first = Header { f_ctl: FCtl::READ_DATA, seq_cnt: 0, ..data_header(0) };
    let mut prepared = PreparedHead::new(ethernet(), &first);
    for (seq_cnt, f_ctl, len) in
        [(0, FCtl::READ_DATA, 2112), (1, FCtl::READ_DATA_END, 5), (0, FCtl::WRITE_DATA_END, 2047)]
    {
        let (ox_id, rx_id, parameter) = (Xid(0x1234), Xid(0x4321), 0x00a0_0200);
        let header = Header { ox_id, rx_id, f_ctl, seq_id: 77, seq_cnt, parameter, ..first };
        prepared.set_exchange(ox_id, rx_id);
        prepared.set_data(f_ctl, (77, seq_cnt), parameter, len);
        assert_eq!(*prepared.as_bytes(), head(ethernet(), &header, len));
    }
}

#[test]
fn prepared_commands_are_patched_to_those_of_each_request() {
    let command = |cdb, reads, data_len| fcp::Command {
        crn: data_len as u8,
        reads,
        writes: !reads,
        data_len,
        ..fcp::Command::new([0, 3, 0, 0, 0, 0, 0, 0], [cdb; 16])
    };
    let header = Header::request(Kind::FcpCmnd, HOST, TARGET, Xid(0));
    let mut prepared = CommandFrame::new(ethernet(), &header, &command(0, true, 0));
    for (ox_id, cdb, reads, data_len) in [(7, 0x88, true, 4096), (0xfffe, 0x8a, false, 1 << 20)] {
        let command = command(cdb, reads, data_len);
        let header = Header { ox_id: Xid(ox_id), seq_id: cdb, ..header };
        prepared.patch((Xid(ox_id), cdb), data_len as u8, (reads, !reads), &[cdb; 16], data_len);
        assert_eq!(prepared, CommandFrame::new(ethernet(), &header, &command));
        let parsed = parse(prepared.as_bytes()).unwrap();
        assert_eq!(parsed.header, header);
        assert_eq!(fcp::Command::parse(parsed.payload), Ok(command));
    }
}

//! Shared by the tests of frames: the golden frames, and the rule that holds for every frame.
//!
//! Reserved bits are ignored, so a meaning has more than one encoding. The rule: a frame is
//! rejected, or it is emitted to a frame that is parsed to the same meaning.

#![allow(dead_code, reason = "each test, and each fuzzer, uses a part")]

use std::fs;
use std::path::{Path, PathBuf};

use tyche_fc_wire::bls::{BaAcc, BaRjt};
use tyche_fc_wire::fcp::{Command, Response, TransferReady, data_offset};
use tyche_fc_wire::{
    FCtl, FRAME_LEN_MAX, Frame, HEAD_LEN, Header, Kind, PAYLOAD_LEN_MAX, PortId, Reject, TAIL_LEN,
    Xid, crc, ct, els, fip,
};
use tyche_testkit::golden::Golden;

/// Every golden frame, in the order of docs/golden-frames-fc.md.
pub(crate) const GOLDEN: [&str; 67] = [
    "solicitation",
    "solicitation-fcf",
    "advertisement",
    "fip-flogi",
    "fip-flogi-acc",
    "fip-flogi-rjt",
    "fip-logo",
    "keep-alive",
    "keep-alive-port",
    "clear-virtual-link",
    "vlan-request",
    "vlan-notification",
    "vn2vn-vlan-notification",
    "probe-request",
    "probe-reply",
    "claim-notification",
    "claim-response",
    "beacon",
    "plogi",
    "plogi-acc",
    "prli",
    "prli-acc",
    "prlo",
    "prlo-acc",
    "rtv",
    "rtv-acc",
    "logo",
    "logo-acc",
    "adisc",
    "adisc-acc",
    "rec",
    "rec-acc",
    "srr",
    "srr-acc",
    "rrq",
    "rls",
    "rls-acc",
    "ls-rjt",
    "scr",
    "rscn",
    "abts",
    "ba-acc",
    "ba-rjt",
    "fcp-cmnd-read",
    "fcp-cmnd-write",
    "fcp-cmnd-reset",
    "fcp-xfer-rdy",
    "fcp-data-write",
    "fcp-data-read",
    "fcp-data-fill",
    "fcp-rsp",
    "fcp-rsp-sense",
    "fcp-rsp-reset",
    "fcp-conf",
    "ct-rnn-id",
    "ct-rsnn-nn",
    "ct-rspn-id",
    "ct-rft-id",
    "ct-rff-id",
    "ct-acc",
    "ct-gpn-ft",
    "ct-gpn-ft-acc",
    "ct-gpn-id",
    "ct-gpn-id-acc",
    "ct-gff-id",
    "ct-gff-id-acc",
    "ct-rjt",
];

/// The golden frames of this crate.
pub(crate) const FILES: Golden = Golden { root: env!("CARGO_MANIFEST_DIR") };

/// The bytes of a golden frame.
pub(crate) fn golden(name: &str) -> Vec<u8> {
    FILES.frame(name)
}

/// Files in `tests/captures`, with frames of other implementations: Debian's Linux of that version,
/// libfc's initiator and tcm_fc's target on a network without a fabric.
pub(crate) const CAPTURES: [&str; 2] = ["linux-6.1", "linux-6.12"];

/// Bytes in front of the first frame of such a file, and in front of each.
const FILE_HEADER_LEN: usize = 24;
const FRAME_HEADER_LEN: usize = 16;

/// The bytes of one of them.
pub(crate) fn capture(name: &str) -> Vec<u8> {
    let path = path("tests/captures").join(format!("{name}.pcap"));
    fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The frames of a file in the format of pcap, little-endian.
pub(crate) fn captured(mut file: &[u8]) -> Vec<&[u8]> {
    assert!(file.starts_with(&0xa1b2_c3d4_u32.to_le_bytes()), "pcap, microseconds, little-endian");
    file = &file[FILE_HEADER_LEN..];
    let mut frames = Vec::new();
    while let Some((header, rest)) = file.split_first_chunk::<FRAME_HEADER_LEN>() {
        let len = u32::from_le_bytes(header[8..12].try_into().expect("four bytes"));
        let (frame, rest) = rest.split_at(len as usize);
        frames.push(frame);
        file = rest;
    }
    frames
}

/// A path in this crate.
pub(crate) fn path(relative: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(relative)
}

/// A frame of either EtherType.
#[expect(clippy::large_enum_variant, reason = "a test has one at a time")]
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Any<'a> {
    Fip(fip::Frame<'a>),
    Fc(Frame<'a>),
}

/// Parses a frame by its EtherType.
pub(crate) fn parse(frame: &[u8]) -> Result<Any<'_>, Reject> {
    if is_fip(frame) {
        return fip::Frame::parse(frame).map(Any::Fip);
    }
    let (head, rest) = frame.split_first_chunk::<HEAD_LEN>().ok_or(Reject::Length)?;
    Frame::parse(head, rest).map(Any::Fc)
}

pub(crate) fn is_fip(frame: &[u8]) -> bool {
    frame.get(12..14) == Some(&[0x89, 0x14])
}

impl Any<'_> {
    /// Writes the frame.
    pub(crate) fn emit(&self) -> Vec<u8> {
        let mut buffer = [0xa5; FRAME_LEN_MAX];
        let len = match self {
            Self::Fip(frame) => frame.emit(&mut buffer),
            Self::Fc(frame) => frame.emit(&mut buffer),
        };
        buffer[..len].to_vec()
    }
}

/// The meaning of a payload. Answers need the code of the request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Payload<'a> {
    Empty,
    Els(els::Request<'a>),
    ElsReply(els::Code, els::Reply),
    Ct(ct::Request<'a>),
    CtReply(ct::Command, ct::Reply<'a>),
    BaAcc(BaAcc),
    BaRjt(BaRjt),
    Command(Command<'a>),
    TransferReady(TransferReady),
    Data(u32, &'a [u8]),
    Response(Response<'a>),
}

impl<'a> Payload<'a> {
    /// All meanings that a payload can have, depending on what it answers.
    pub(crate) fn parse(header: &Header, payload: &'a [u8]) -> Vec<Result<Self, Reject>> {
        match header.kind {
            Kind::ElsRequest | Kind::Fc4Request => {
                vec![els::Request::parse(payload).map(Self::Els)]
            }
            Kind::ElsReply | Kind::Fc4Reply => {
                let reply = |&code| els::Reply::parse(code, payload).map(|it| (code, it));
                let replies = els::Code::ALL.iter().map(reply);
                replies.map(|reply| reply.map(|(code, it)| Self::ElsReply(code, it))).collect()
            }
            Kind::CtRequest => vec![ct::Request::parse(payload).map(Self::Ct)],
            Kind::CtReply => {
                let reply = |&code| ct::Reply::parse(code, payload).map(|it| (code, it));
                let replies = ct::Command::ALL.iter().map(reply);
                replies.map(|reply| reply.map(|(code, it)| Self::CtReply(code, it))).collect()
            }
            Kind::BaAcc => vec![BaAcc::parse(payload).map(Self::BaAcc)],
            Kind::BaRjt => vec![BaRjt::parse(payload).map(Self::BaRjt)],
            Kind::FcpCmnd => vec![Command::parse(payload).map(Self::Command)],
            Kind::FcpXferRdy => vec![TransferReady::parse(payload).map(Self::TransferReady)],
            Kind::FcpData => {
                let offset = data_offset(header, payload.len());
                vec![offset.map(|offset| Self::Data(offset, payload))]
            }
            Kind::FcpRsp => vec![Response::parse(payload).map(Self::Response)],
            Kind::FcpConf | Kind::Abts => vec![Ok(Self::Empty)],
        }
    }

    /// Writes the payload.
    pub(crate) fn emit(&self) -> Vec<u8> {
        let mut buffer = vec![0xa5; FRAME_LEN_MAX];
        let len = match self {
            Self::Empty => 0,
            Self::Els(request) => request.emit(&mut buffer),
            Self::ElsReply(_, reply) => reply.emit(&mut buffer),
            Self::Ct(request) => request.emit(&mut buffer),
            Self::CtReply(_, reply) => reply.emit(&mut buffer),
            Self::BaAcc(answer) => return answer.to_bytes().to_vec(),
            Self::BaRjt(answer) => return answer.to_bytes().to_vec(),
            Self::Command(command) => command.emit(&mut buffer),
            Self::TransferReady(ready) => return ready.to_bytes().to_vec(),
            Self::Data(_, data) => return data.to_vec(),
            Self::Response(response) => response.emit(&mut buffer),
        };
        buffer.truncate(len);
        buffer
    }
}

/// Checks the rule for a payload. Returns how many meanings it can have.
pub(crate) fn check_payload(header: &Header, payload: &[u8]) -> usize {
    let mut accepted = 0;
    for (at, meaning) in Payload::parse(header, payload).into_iter().enumerate() {
        let Ok(meaning) = meaning else { continue };
        accepted += 1;
        let again = meaning.emit();
        let same = &Payload::parse(header, &again)[at];
        assert_eq!(same.as_ref(), Ok(&meaning), "from {payload:02x?}");
        assert_eq!(meaning.emit(), again);
    }
    accepted
}

/// Checks the rule for a frame and its payload. Returns whether both were accepted.
pub(crate) fn check(frame: &[u8]) -> bool {
    let Ok(parsed) = parse(frame) else { return false };
    // Longer than any frame that is sent: its padding is cut.
    let again = match &parsed {
        Any::Fip(fip) if fip.len > FRAME_LEN_MAX => return true,
        parsed => parsed.emit(),
    };
    let same = parse(&again);
    assert_eq!(shortest(same.as_ref().ok()), shortest(Some(&parsed)));
    assert_eq!(same.map(|same| same.emit()), Ok(again));
    match &parsed {
        Any::Fip(fip::Frame { message, .. }) => match message {
            fip::Message::LinkRequest(it) | fip::Message::LinkReply(it) => {
                check_payload(&it.header, it.payload) > 0
            }
            _ => true,
        },
        Any::Fc(frame) => check_payload(&frame.header, frame.payload) > 0,
    }
}

/// A frame with the padding that Ethernet wants: others may send shorter ones.
fn shortest<'a>(frame: Option<&Any<'a>>) -> Option<Any<'a>> {
    let mut frame = frame.cloned();
    if let Some(Any::Fip(fip)) = &mut frame {
        fip.len = fip.len.max(60);
    }
    frame
}

/// Corrects the CRC of an encapsulated frame; a frame of FIP has none.
pub(crate) fn mend(frame: &mut [u8]) {
    if is_fip(frame) || frame.len() < HEAD_LEN + TAIL_LEN {
        return;
    }
    let end = frame.len() - TAIL_LEN;
    let crc = crc([&frame[28..end]]);
    frame[end..end + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Fuzzer: a frame, as it is and with its CRC corrected, which a fuzzer does not find by itself.
/// Returns how many were accepted.
pub(crate) fn fuzz_frame(input: &[u8]) -> usize {
    let mut frame = input.to_vec();
    let accepted = usize::from(check(&frame));
    mend(&mut frame);
    accepted + usize::from(check(&frame))
}

/// Fuzzer: a payload in a frame of the kind that the first byte chooses. The next four are the
/// relative offset. Returns how many meanings it has.
pub(crate) fn fuzz_payload(kinds: &[Kind], input: &[u8]) -> usize {
    let Some((&[choice, ref parameter @ ..], payload)) = input.split_first_chunk::<5>() else {
        return 0;
    };
    let kind = kinds[usize::from(choice) % kinds.len()];
    // No frame has a longer one.
    let payload = &payload[..payload.len().min(PAYLOAD_LEN_MAX)];
    let (id, f_ctl) = (PortId::NONE, FCtl::READ_DATA);
    let parameter = u32::from_be_bytes(*parameter);
    let header = Header { f_ctl, parameter, ..Header::request(kind, id, id, Xid(1)) };
    check_payload(&header, payload)
}

/// The kinds of link services and of FC-CT, for the fuzzer `els`.
pub(crate) const ELS_KINDS: [Kind; 6] =
    [Kind::ElsRequest, Kind::ElsReply, Kind::CtRequest, Kind::CtReply, Kind::BaAcc, Kind::BaRjt];

/// The kinds of information units, for the fuzzer `fcp`.
pub(crate) const FCP_KINDS: [Kind; 4] =
    [Kind::FcpCmnd, Kind::FcpXferRdy, Kind::FcpData, Kind::FcpRsp];

//! The fixed newstyle handshake: client and server agree on an export, then transmission starts.
//!
//! The client is not trusted. So the number and the length of its options are limited, each option
//! is answered or ends the connection, and the caller's socket has a timeout.

use std::io::{self, Read, Write};

use tyche_block::Geometry;

use super::contexts::{ALLOCATION, ALLOCATION_ID, ContextRequest};
use super::ending::Ending;
use super::wire::{
    InfoRequest, MAGIC, OPTION_MAGIC, OPTION_REPLY_MAGIC, OptionHeader, handshake_flag, info,
    option, reply, transmission_flag,
};

/// The longest option that is parsed: a name of 4096 bytes, the specification's limit, and many
/// information requests.
const OPTION_LEN_MAX: usize = 8192;

/// The longest option that is skipped and refused; a longer one ends the connection.
const OPTION_SKIP_MAX: u32 = 1 << 20;

/// Options in one handshake. Real clients send fewer than ten.
const OPTIONS_MAX: usize = 64;

/// Options that are answered to a client that is one too many.
const REFUSALS_MAX: usize = 8;

/// The offer to clients.
#[derive(Clone, Debug)]
pub(super) struct Offer {
    pub(super) name: String,
    pub(super) geometry: Geometry,
    /// The longest read or write, in bytes.
    pub(super) payload_max: u32,
}

/// The agreement with a client about the transmission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Agreed {
    /// Replies with data are structured.
    pub(super) is_structured: bool,
    /// The client may ask for the status of ranges.
    pub(super) tells_status: bool,
}

impl Offer {
    /// The preferred block size of clients, in bytes.
    const PREFERRED_BLOCK: u32 = 4096;

    fn is_named(&self, name: &[u8]) -> bool {
        name.is_empty() || name == self.name.as_bytes()
    }

    fn export_info(&self, agreed: Agreed) -> [u8; 12] {
        let mut bytes = [0; 12];
        bytes[..2].copy_from_slice(&info::EXPORT.to_be_bytes());
        bytes[2..10].copy_from_slice(&self.geometry.size.to_be_bytes());
        let mut flags = transmission_flags(&self.geometry);
        if agreed.is_structured {
            flags |= transmission_flag::SEND_DF;
        }
        bytes[10..].copy_from_slice(&flags.to_be_bytes());
        bytes
    }

    fn block_size_info(&self) -> [u8; 14] {
        let block_size = self.geometry.block_size;
        let preferred = Self::PREFERRED_BLOCK.max(block_size);
        let mut bytes = [0; 14];
        bytes[..2].copy_from_slice(&info::BLOCK_SIZE.to_be_bytes());
        bytes[2..6].copy_from_slice(&block_size.to_be_bytes());
        bytes[6..10].copy_from_slice(&preferred.to_be_bytes());
        bytes[10..].copy_from_slice(&self.payload_max.to_be_bytes());
        bytes
    }
}

/// The transmission flags for a disk.
pub(super) fn transmission_flags(geometry: &Geometry) -> u16 {
    use transmission_flag::{
        CAN_MULTI_CONN, HAS_FLAGS, READ_ONLY, ROTATIONAL, SEND_FLUSH, SEND_FUA, SEND_TRIM,
        SEND_WRITE_ZEROES,
    };
    // All connections end in one session, so a flush on one covers the writes of all.
    let mut always = HAS_FLAGS | SEND_FLUSH | SEND_FUA | CAN_MULTI_CONN;
    if geometry.rotational {
        always |= ROTATIONAL;
    }
    match *geometry {
        Geometry { read_only: true, .. } => always | READ_ONLY,
        Geometry { discard: true, .. } => always | SEND_WRITE_ZEROES | SEND_TRIM,
        _ => always | SEND_WRITE_ZEROES,
    }
}

/// Runs the handshake until transmission may start, and returns what was agreed; otherwise returns
/// why it ended.
pub(super) fn negotiate(stream: &mut (impl Read + Write), offer: &Offer) -> Result<Agreed, Ending> {
    let zeroes = greet(stream)?;
    let mut agreed = Agreed::default();
    for _ in 0..OPTIONS_MAX {
        if answer_option(stream, offer, zeroes, &mut agreed)? {
            return Ok(agreed);
        }
    }
    Err(Ending::TooManyOptions)
}

/// Refuses each option of a client that is one too many, with a text for its user, until it leaves.
/// Returns why it ended.
pub(super) fn turn_away(stream: &mut (impl Read + Write), why: &str) -> Ending {
    let mut refuse = || -> Result<(), Ending> {
        greet(stream)?;
        for _ in 0..REFUSALS_MAX {
            let mut header = [0; OptionHeader::LEN];
            receive_or_hung_up(stream, &mut header)?;
            let header = OptionHeader::parse(&header).ok_or(Ending::BadMagic)?;
            if header.len > OPTION_SKIP_MAX || header.option == option::EXPORT_NAME {
                break;
            }
            skip(stream, header.len)?;
            answer(stream, header.option, reply::ERR_POLICY, why.as_bytes())?;
        }
        Ok(())
    };
    // However it went: there was no room.
    let _ = refuse();
    Ending::TooMany
}

/// Greets a client. Returns whether it wants zeroes behind the answer to an export's name.
fn greet(stream: &mut (impl Read + Write)) -> Result<bool, Ending> {
    let mut greeting = [0; 18];
    greeting[..8].copy_from_slice(&MAGIC.to_be_bytes());
    greeting[8..16].copy_from_slice(&OPTION_MAGIC.to_be_bytes());
    let flags = handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES;
    greeting[16..].copy_from_slice(&flags.to_be_bytes());
    send(stream, &greeting)?;

    let mut client_flags = [0; 4];
    receive_or_hung_up(stream, &mut client_flags)?;
    let client_flags = u32::from_be_bytes(client_flags);
    if client_flags & !u32::from(flags) != 0 {
        return Err(Ending::BadFlags);
    }
    Ok(client_flags & u32::from(handshake_flag::NO_ZEROES) == 0)
}

/// Reads one option and answers it. Returns true if transmission starts now.
fn answer_option(
    stream: &mut (impl Read + Write),
    offer: &Offer,
    zeroes: bool,
    agreed: &mut Agreed,
) -> Result<bool, Ending> {
    let mut header = [0; OptionHeader::LEN];
    receive_or_hung_up(stream, &mut header)?;
    let header = OptionHeader::parse(&header).ok_or(Ending::BadMagic)?;
    if header.option == option::SET_META_CONTEXT {
        // Also one that is refused ends the former selection.
        agreed.tells_status = false;
    }
    let mut data = [0; OPTION_LEN_MAX];
    let Some(data) = data.get_mut(..header.len as usize) else {
        return refuse_long(stream, header).map(|()| false);
    };
    receive(stream, data)?;

    match header.option {
        option::EXPORT_NAME if offer.is_named(data) => {
            return start_by_name(stream, offer, *agreed, zeroes).map(|()| true);
        }
        option::EXPORT_NAME => return Err(Ending::UnknownExport),
        option::ABORT => {
            // The client may be gone already and miss the answer.
            let _ = answer(stream, option::ABORT, reply::ACK, &[]);
            return Err(Ending::Aborted);
        }
        option::LIST if data.is_empty() => list(stream, offer)?,
        option::LIST => answer(stream, header.option, reply::ERR_INVALID, &[])?,
        option::INFO | option::GO => {
            let known = describe(stream, offer, *agreed, header.option, data)?;
            return Ok(known && header.option == option::GO);
        }
        option::STRUCTURED_REPLY if data.is_empty() => {
            agreed.is_structured = true;
            answer(stream, header.option, reply::ACK, &[])?;
        }
        option::STRUCTURED_REPLY => answer(stream, header.option, reply::ERR_INVALID, &[])?,
        option::LIST_META_CONTEXT | option::SET_META_CONTEXT => {
            let is_selection = header.option == option::SET_META_CONTEXT;
            let selected = answer_contexts(stream, offer, *agreed, header.option, data)?;
            if is_selection {
                agreed.tells_status = selected;
            }
        }
        unknown => answer(stream, unknown, reply::ERR_UNSUP, &[])?,
    }
    Ok(false)
}

fn refuse_long(stream: &mut (impl Read + Write), header: OptionHeader) -> Result<(), Ending> {
    // `EXPORT_NAME` has no error reply, and a name this long is invalid.
    if header.len > OPTION_SKIP_MAX || header.option == option::EXPORT_NAME {
        return Err(Ending::OptionTooLong);
    }
    skip(stream, header.len)?;
    answer(stream, header.option, reply::ERR_TOO_BIG, &[])
}

fn start_by_name(
    stream: &mut impl Write,
    offer: &Offer,
    agreed: Agreed,
    zeroes: bool,
) -> Result<(), Ending> {
    let mut bytes = [0; 10 + 124];
    bytes[..10].copy_from_slice(&offer.export_info(agreed)[2..]);
    send(stream, if zeroes { &bytes } else { &bytes[..10] })
}

fn list(stream: &mut impl Write, offer: &Offer) -> Result<(), Ending> {
    let name = offer.name.as_bytes();
    let len = u32::try_from(name.len()).expect("checked at start").to_be_bytes();
    answer(stream, option::LIST, reply::SERVER, &[&len[..], name].concat())?;
    answer(stream, option::LIST, reply::ACK, &[])
}

/// Answers `INFO` and `GO`. Returns whether the answer was a description, not an error.
fn describe(
    stream: &mut impl Write,
    offer: &Offer,
    agreed: Agreed,
    option: u32,
    data: &[u8],
) -> Result<bool, Ending> {
    let Some(request) = InfoRequest::parse(data) else {
        return answer(stream, option, reply::ERR_INVALID, &[]).map(|()| false);
    };
    if !offer.is_named(request.name) {
        return answer(stream, option, reply::ERR_UNKNOWN, &[]).map(|()| false);
    }
    answer(stream, option, reply::INFO, &offer.export_info(agreed))?;
    // Sent even if not asked for: it does a client that ignores it no harm.
    answer(stream, option, reply::INFO, &offer.block_size_info())?;
    if request.wants(info::NAME) {
        let name = [&info::NAME.to_be_bytes()[..], offer.name.as_bytes()].concat();
        answer(stream, option, reply::INFO, &name)?;
    }
    answer(stream, option, reply::ACK, &[])?;
    Ok(true)
}

/// Answers `LIST_META_CONTEXT` and `SET_META_CONTEXT`. Returns whether the context was listed or
/// selected.
fn answer_contexts(
    stream: &mut impl Write,
    offer: &Offer,
    agreed: Agreed,
    option: u32,
    data: &[u8],
) -> Result<bool, Ending> {
    let request = ContextRequest::parse(data).filter(|_| agreed.is_structured);
    let Some(request) = request else {
        return answer(stream, option, reply::ERR_INVALID, &[]).map(|()| false);
    };
    if !offer.is_named(request.name) {
        return answer(stream, option, reply::ERR_UNKNOWN, &[]).map(|()| false);
    }
    let (is_in, id) = match option {
        option::SET_META_CONTEXT => (request.selects(), ALLOCATION_ID),
        _ => (request.lists(), 0),
    };
    if is_in {
        let context = [&id.to_be_bytes()[..], ALLOCATION].concat();
        answer(stream, option, reply::META_CONTEXT, &context)?;
    }
    answer(stream, option, reply::ACK, &[])?;
    Ok(is_in)
}

fn answer(stream: &mut impl Write, option: u32, kind: u32, data: &[u8]) -> Result<(), Ending> {
    let len = u32::try_from(data.len()).expect("answers are short");
    let mut bytes = Vec::with_capacity(20 + data.len());
    bytes.extend_from_slice(&OPTION_REPLY_MAGIC.to_be_bytes());
    bytes.extend_from_slice(&option.to_be_bytes());
    bytes.extend_from_slice(&kind.to_be_bytes());
    bytes.extend_from_slice(&len.to_be_bytes());
    bytes.extend_from_slice(data);
    send(stream, &bytes)
}

fn send(stream: &mut impl Write, bytes: &[u8]) -> Result<(), Ending> {
    stream.write_all(bytes).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => Ending::NotReading,
        _ => Ending::HungUp,
    })
}

fn receive(stream: &mut impl Read, bytes: &mut [u8]) -> Result<(), Ending> {
    stream.read_exact(bytes).map_err(|_| Ending::Truncated)
}

/// As [`receive`], at a point where the client may also leave.
fn receive_or_hung_up(stream: &mut impl Read, bytes: &mut [u8]) -> Result<(), Ending> {
    loop {
        match stream.read(bytes) {
            Ok(0) => return Err(Ending::HungUp),
            Ok(len) => return receive(stream, &mut bytes[len..]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return Err(Ending::Truncated),
        }
    }
}

/// Reads and discards `len` bytes.
pub(super) fn skip(stream: &mut impl Read, len: u32) -> Result<(), Ending> {
    let skipped = io::copy(&mut stream.take(u64::from(len)), &mut io::sink());
    match skipped {
        Ok(skipped) if skipped == u64::from(len) => Ok(()),
        _ => Err(Ending::Truncated),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client's input, all at once, and room for the answers.
    struct Script<'a> {
        input: &'a [u8],
        output: Vec<u8>,
    }

    impl Read for Script<'_> {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            self.input.read(bytes)
        }
    }

    impl Write for Script<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.output.write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    const GOOD: &[u8] = b"\0\0\0\x03IHAVEOPT\0\0\0\x03\0\0\0\0\
        IHAVEOPT\0\0\0\x08\0\0\0\0\
        IHAVEOPT\0\0\0\x09\0\0\0\x0b\0\0\0\x03vol\0\0\0\0\
        IHAVEOPT\0\0\0\x0a\0\0\0\x1e\0\0\0\x03vol\0\0\0\x01\0\0\0\x0fbase:allocation\
        IHAVEOPT\0\0\0\x06\0\0\0\x0b\0\0\0\x03vol\0\x01\0\x03\
        IHAVEOPT\0\0\0\x07\0\0\0\x09\0\0\0\x03vol\0\0";

    fn negotiate(input: &[u8]) -> (Result<Agreed, Ending>, Vec<u8>) {
        let geometry = Geometry { write_cache: true, discard: true, ..Geometry::new(1 << 20, 512) };
        let offer = Offer { name: "vol".into(), geometry, payload_max: 1 << 20 };
        let mut script = Script { input, output: Vec::new() };
        let result = super::negotiate(&mut script, &offer);
        (result, script.output)
    }

    #[test]
    fn a_handshake_cut_anywhere_just_ends() {
        let agreed = Agreed { is_structured: true, tells_status: true };
        assert_eq!(negotiate(GOOD).0, Ok(agreed));
        for len in 0..GOOD.len() {
            let (result, _) = negotiate(&GOOD[..len]);
            assert!(matches!(result, Err(Ending::HungUp | Ending::Truncated)), "cut at {len}");
        }
    }

    #[test]
    fn no_flipped_bit_makes_the_server_panic_or_talk_without_end() {
        let (_, good) = negotiate(GOOD);
        for bit in 0..GOOD.len() * 8 {
            let mut input = GOOD.to_vec();
            input[bit / 8] ^= 1 << (bit % 8);
            let (_, output) = negotiate(&input);
            assert!(output.len() <= good.len() + 124, "bit {bit}");
        }
    }
}

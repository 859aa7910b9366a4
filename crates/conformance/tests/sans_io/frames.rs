//! Frames as bytes, for both ends.

use tyche_proto::Outgoing;
use tyche_proto::wire::{Control, ENTRIES_MAX, ENTRY_LEN, ETHERTYPE, HEAD_LEN, Mac, emit_entries};

pub(crate) const FRAME_LEN: usize = 9014;
pub(crate) const PLAYED: Mac = Mac([2, 0, 0, 0, 0, 1]);
pub(crate) const SUBJECT: Mac = Mac([2, 0, 0, 0, 0, 2]);

/// The bytes of a frame with these data.
pub(crate) fn seal(out: &Outgoing, mut data: Vec<u8>) -> Vec<u8> {
    let mut tail = [0; ENTRIES_MAX * ENTRY_LEN];
    let mut tail_len = emit_entries(&out.entries, &mut tail);
    if let Some(control) = &out.control {
        let mut body = [0; Control::LEN_MAX];
        let len = control.emit(&mut body);
        data = body[..len].to_vec();
        data.resize(data.len() + control.padding_len(), 0);
    }
    if let Some(outgoing) = out.echo {
        data.resize(outgoing.filling, 0xee);
        outgoing.echo.emit(tail.first_chunk_mut().unwrap());
        tail_len = ENTRY_LEN;
    }
    let mut head = [0; HEAD_LEN];
    let addresses = (out.destination, SUBJECT, ETHERTYPE);
    out.header.seal(addresses, [&data[..]], &tail[..tail_len], &mut head);
    [&head[..], &data, &tail[..tail_len]].concat()
}

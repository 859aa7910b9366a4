//! Bytes of frames, from what the protocol hands out.

use tyche_proto::{Outgoing, OutgoingEcho};
use tyche_wire::{
    Control, Data, ENTRIES_MAX, ENTRY_LEN, ETHERTYPE, Entry, HEAD_LEN, Mac, emit_entries,
};

/// Makes the frame. `append` is called for each part of the data section and appends its bytes.
pub(crate) fn seal(
    src: Mac,
    out: &Outgoing,
    mut append: impl FnMut(&Data, &mut Vec<u8>) -> Result<(), String>,
) -> Result<Vec<u8>, String> {
    let mut frame = Vec::with_capacity(HEAD_LEN + payload_len(out));
    frame.resize(HEAD_LEN, 0);
    for entry in &out.entries {
        if let Entry::Data(data) = entry {
            let before = frame.len();
            append(data, &mut frame)?;
            assert_eq!(frame.len() - before, data.len as usize, "a part has its length");
        }
    }
    if let Some(control) = &out.control {
        let mut body = [0; Control::LEN_MAX];
        let len = control.emit(&mut body);
        frame.extend_from_slice(&body[..len]);
        frame.resize(frame.len() + control.padding_len(), 0);
    }
    let mut tail = [0; ENTRIES_MAX * ENTRY_LEN];
    let mut len = emit_entries(&out.entries, &mut tail);
    if let Some(OutgoingEcho { echo, filling }) = out.echo {
        frame.resize(HEAD_LEN + filling, 0);
        echo.emit(tail.first_chunk_mut().expect("room for entries"));
        len = ENTRY_LEN;
    }
    let mut head = [0; HEAD_LEN];
    let addresses = (out.destination, src, ETHERTYPE);
    out.header.seal(addresses, [&frame[HEAD_LEN..]], &tail[..len], &mut head);
    frame[..HEAD_LEN].copy_from_slice(&head);
    frame.extend_from_slice(&tail[..len]);
    Ok(frame)
}

/// Bytes that the payload takes, so that it is not moved while it grows.
fn payload_len(out: &Outgoing) -> usize {
    let part = |entry: &Entry| match entry {
        Entry::Data(data) => data.len as usize,
        _ => 0,
    };
    let data: usize = out.entries.iter().map(part).sum();
    let body = out.control.as_ref().map_or(0, |it| Control::LEN_MAX + it.padding_len());
    let filling = out.echo.map_or(0, |echo| echo.filling);
    data + body + filling + (out.entries.len() + 1) * ENTRY_LEN
}

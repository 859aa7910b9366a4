//! Frames of other implementations, as they were seen on the wire: none is rejected, and each is
//! emitted again to the same bytes.
//!
//! The files in `captures` open in any program that reads pcap. They have the first frames of each
//! kind from networks of two Debian machines: libfc's initiator, and tcm_fc's target.
//!
//! `TYCHE_CAPTURE=FILE cargo test -p tyche-fc-wire --test all captures -- --nocapture` reads
//! another one, and lists what is rejected or has another encoding here.

use std::collections::HashMap;
use std::fs;

use crate::frames;
use crate::frames::{Any, CAPTURES, Payload, captured, parse};
use tyche_fc_wire::els::Code;
use tyche_fc_wire::fip::Message;
use tyche_fc_wire::{Header, Kind, PortId, Xid};

/// Requests by originator, responder and exchange: an answer does not say what it answers.
#[derive(Default)]
struct Requests(HashMap<(PortId, PortId, Xid), Code>);

impl Requests {
    /// The difference between a payload and what is emitted for its meaning, if there is one.
    fn check(&mut self, header: &Header, payload: &[u8]) -> Result<(), String> {
        let meanings = Payload::parse(header, payload);
        let meaning = match header.kind {
            Kind::ElsRequest => {
                let code = payload.first().and_then(|code| Code::from_wire(*code));
                let exchange = (header.s_id, header.d_id, header.ox_id);
                self.0.extend(code.map(|code| (exchange, code)));
                meanings.into_iter().next()
            }
            Kind::ElsReply => {
                let asked = self.0.get(&(header.d_id, header.s_id, header.ox_id));
                let asked = asked.ok_or("an answer to nothing")?;
                let at = Code::ALL.iter().position(|code| code == asked).expect("a known code");
                meanings.into_iter().nth(at)
            }
            _ => meanings.into_iter().next(),
        };
        let meaning = meaning.expect("every kind has one");
        let meaning = meaning.map_err(|reject| format!("rejected: {reject:?}"))?;
        let again = meaning.emit();
        if again != payload {
            return Err(format!("{meaning:?} is\n{again:02x?}, not\n{payload:02x?}"));
        }
        Ok(())
    }
}

/// Checks a frame and its payload.
fn check(requests: &mut Requests, frame: &[u8]) -> Result<(), String> {
    let parsed = parse(frame).map_err(|reject| format!("rejected: {reject:?}"))?;
    let again = parsed.emit();
    if again != frame {
        return Err(format!("{parsed:?} is\n{again:02x?}, not\n{frame:02x?}"));
    }
    match &parsed {
        Any::Fip(fip) => match &fip.message {
            Message::LinkRequest(it) | Message::LinkReply(it) => {
                requests.check(&it.header, it.payload)
            }
            _ => Ok(()),
        },
        Any::Fc(frame) => {
            frame.check_destination().map_err(|reject| format!("{reject:?}"))?;
            requests.check(&frame.header, frame.payload)
        }
    }
}

/// Checks all frames of a file; returns their number, and what is wrong.
fn check_file(bytes: &[u8]) -> (usize, Vec<String>) {
    let (frames, mut requests) = (captured(bytes), Requests::default());
    let faults = frames.iter().enumerate().filter_map(|(at, frame)| {
        let fault = check(&mut requests, frame).err()?;
        Some(format!("frame {}: {fault}", at + 1))
    });
    let faults = faults.collect();
    (frames.len(), faults)
}

#[test]
fn frames_of_linux_are_emitted_to_the_same_bytes() {
    for name in CAPTURES {
        let (count, faults) = check_file(&frames::capture(name));
        assert!(faults.is_empty(), "{name}: {}", faults.join("\n"));
        assert!(count > 40, "{name}: {count} frames");
    }
}

#[test]
fn another_file() {
    let Some(file) = std::env::var_os("TYCHE_CAPTURE") else { return };
    let (count, faults) = check_file(&fs::read(file).unwrap());
    println!("{count} frames, of which {} differ", faults.len());
    faults.iter().take(20).for_each(|fault| println!("{fault}"));
}

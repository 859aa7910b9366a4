//! CDBs: the literal bytes of each command, damage to them, and the refusals.

use crate::literals::{cdbs, hex};
use tyche_scsi::cdb::{Form, Range};
use tyche_scsi::{Cdb, Code, Command, Field, Refusal, SenseKey};

#[test]
fn every_command_has_its_literal_bytes() {
    for (bytes, command) in cdbs() {
        let bytes = hex(bytes);
        assert_eq!(Command::parse(&bytes), Ok(command), "{bytes:02x?}");
        let cdb = command.emit().unwrap();
        assert_eq!(cdb.as_bytes(), bytes, "{command:?}");
        assert_eq!(cdb.padded()[bytes.len()..], vec![0; Cdb::LEN_MAX - bytes.len()]);
        // What follows, in the 16 bytes that FCP has, does not count.
        let padded = [&bytes[..], &[0xff; Cdb::LEN_MAX]].concat();
        assert_eq!(Command::parse(&padded[..Cdb::LEN_MAX]), Ok(command));
    }
}

#[test]
fn cut_cdbs_are_refused() {
    for (bytes, command) in cdbs() {
        let bytes = hex(bytes);
        for len in 0..bytes.len() {
            let refusal = Command::parse(&bytes[..len]);
            assert_eq!(refusal, Err(Refusal::CdbLength), "{command:?} cut to {len}");
        }
    }
}

/// With a bit flipped a CDB is refused, or means a command with a CDB of the same meaning.
#[test]
fn flipped_bits_are_refused_or_have_a_meaning() {
    let mut refused = 0;
    for (bytes, _) in cdbs() {
        let mut bytes = hex(bytes);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            match Command::parse(&bytes) {
                Ok(command) => {
                    let again = command.emit().unwrap();
                    assert_eq!(Command::parse(again.as_bytes()), Ok(command), "{bytes:02x?}");
                }
                Err(_) => refused += 1,
            }
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
    assert!(refused > 200, "{refused}");
}

#[test]
fn only_the_served_operation_codes_are_known() {
    let served: Vec<u8> = (0..=u8::MAX)
        .filter(|opcode| {
            let mut cdb = [0; 16];
            cdb[0] = *opcode;
            Command::parse(&cdb) != Err(Refusal::Opcode)
        })
        .collect();
    let mut literal: Vec<u8> = cdbs().iter().map(|(bytes, _)| hex(bytes)[0]).collect();
    literal.dedup();
    assert_eq!(served, literal);
}

#[test]
fn fields_that_are_not_supported_are_pointed_at() {
    for (bytes, byte) in [
        // NACA, in each length.
        ("00 00 00 00 00 04", 5),
        ("28 00 00 00 00 00 00 00 01 04", 9),
        ("a0 00 00 00 00 00 00 00 10 00 00 04", 11),
        ("88 00 00 00 00 00 00 00 00 00 00 00 00 01 00 04", 15),
        // Protection information.
        ("28 20 00 00 00 00 00 00 01 00", 1),
        ("8a e0 00 00 00 00 00 00 00 00 00 00 00 01 00 00", 1),
        // BYTCHK.
        ("2f 02 00 00 00 00 00 00 01 00", 1),
        ("8f 06 00 00 00 00 00 00 00 00 00 00 00 01 00 00", 1),
        // CMDDT; a page without EVPD.
        ("12 02 00 00 24 00", 1),
        ("12 00 80 00 24 00", 2),
        // Reservations for others.
        ("16 10 00 00 00 00", 1),
        // ANCHOR.
        ("42 01 00 00 00 00 00 00 18 00", 1),
        ("93 18 00 00 00 00 00 00 00 00 00 00 00 01 00 00", 1),
        // Other service actions.
        ("9e 12 00 00 00 00 00 00 00 00 00 00 00 20 00 00", 1),
        ("a3 0a 00 00 00 00 00 00 00 20 00 00", 1),
        ("5e 04 00 00 00 00 00 00 08 00", 1),
        // Reserved selections.
        ("a0 00 03 00 00 00 00 00 10 00 00 00", 2),
        ("a3 0c 04 00 00 00 00 00 00 20 00 00", 2),
    ] {
        let refusal = Command::parse(&hex(bytes)).unwrap_err();
        assert_eq!(refusal, Refusal::CdbField(byte), "{bytes}");
        let sense = refusal.sense();
        assert_eq!((sense.key, sense.code), (SenseKey::IllegalRequest, Code(0x24, 0x00)));
        assert_eq!(sense.field, Some(Field { in_cdb: true, byte: byte.into() }));
    }
}

#[test]
fn values_that_do_not_fit_have_no_cdb() {
    for (form, lba, blocks) in [
        (Form::Six, 0x20_0000, 1),
        (Form::Six, 0, 0),
        (Form::Six, 0, 257),
        (Form::Ten, 1 << 32, 1),
        (Form::Ten, 0, 0x1_0000),
        (Form::Twelve, 1 << 32, 1),
    ] {
        let range = Range { form, lba, blocks };
        assert_eq!(Command::Read { range, fua: false }.emit(), None, "{range:?}");
    }
    let range = Range { form: Form::Six, lba: 0, blocks: 1 };
    assert_eq!(Command::Write { range, fua: true }.emit(), None);
    assert_eq!(Command::Verify(range).emit(), None);
    assert_eq!(Command::SynchronizeCache { range, immediate: false }.emit(), None);
}

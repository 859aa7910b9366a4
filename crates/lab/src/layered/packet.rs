//! The FCP layer: a packet for each command, and its exchange.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tyche_fcoe::fc::wire::fcp::{COMMAND_LEN, Command, Response, TransferReady, data_offset};
use tyche_fcoe::fc::wire::{FCtl, Frame, Header, Kind, Xid};
use tyche_fcoe::scsi::initiator::Data;

use super::Shared;
use super::receive::{Nexus, Received};
use super::scsi::ScsiCommand;
use super::timers::Timer;

/// A command as FCP has it: the IU with a copy of the CDB, and the progress of the exchange.
pub(super) struct FcpPacket {
    command: Command<'static>,
    /// Gone once the command has ended.
    scsi: Option<Box<ScsiCommand>>,
    xid: Xid,
    seq_id: u8,
    timer: Option<Timer>,
}

fn lock(packet: &Mutex<FcpPacket>) -> MutexGuard<'_, FcpPacket> {
    packet.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has commands go to the target that the queue hands out.
pub(super) fn run_queue(shared: &Shared) {
    while let Some(command) = shared.requests.dispatch() {
        send(shared, command);
    }
}

/// Makes the packet of a command, opens its exchange, and sends it.
fn send(shared: &Shared, scsi: Box<ScsiCommand>) {
    let Some(nexus) = shared.nexus.get() else { return end(shared, scsi) };
    let data = &scsi.request.data;
    let command = Command {
        reads: matches!(data, Data::In(_)),
        writes: !matches!(data, Data::In(_) | Data::None),
        data_len: data.len(),
        ..Command::new(shared.lun, *scsi.request.cdb.padded())
    };
    let packet = FcpPacket { command, scsi: Some(scsi), xid: Xid::NONE, seq_id: 0, timer: None };
    let packet = Arc::new(Mutex::new(packet));
    let xid = shared.exchanges.open(&packet).expect("more exchanges than commands");
    let mut packet = lock(&packet);
    (packet.xid, packet.timer) = (xid, Some(shared.timers.start(xid)));
    let mut payload = [0; COMMAND_LEN];
    let len = packet.command.emit(&mut payload);
    let header = Header::request(Kind::FcpCmnd, nexus.own, nexus.target, xid);
    let payload = &payload[..len];
    shared.transmit.push(&Frame { ethernet: nexus.ethernet, header, payload });
}

/// Hands a command that has ended to the completion thread.
fn end(shared: &Shared, scsi: Box<ScsiCommand>) {
    shared.completed.push(scsi);
}

/// Takes a frame.
pub(super) fn handle(shared: &Shared, frame: &Received) {
    let header = &frame.header;
    let Some(packet) = shared.exchanges.find(header.ox_id) else { return };
    let mut packet = lock(&packet);
    match header.kind {
        Kind::FcpData => packet.place(header, &frame.payload),
        Kind::FcpXferRdy => packet.send_data(shared, header, &frame.payload),
        Kind::FcpRsp => packet.finish(shared, header, &frame.payload),
        kind => tracing::warn!(?kind, "a frame that has no place in a command"),
    }
}

impl FcpPacket {
    /// Copies data to where they belong.
    fn place(&mut self, header: &Header, payload: &[u8]) {
        let Some(scsi) = &mut self.scsi else { return };
        let Ok(offset) = data_offset(header, payload.len()) else { return };
        let buffer = scsi.buffer.as_mut();
        let room = buffer.and_then(|it| it.get_mut(offset as usize..)?.get_mut(..payload.len()));
        if let Some(room) = room {
            room.copy_from_slice(payload);
            scsi.moved += payload.len() as u32;
        }
    }

    /// Sends data that the target asks for.
    fn send_data(&mut self, shared: &Shared, header: &Header, payload: &[u8]) {
        let (Some(scsi), Some(nexus)) = (&mut self.scsi, shared.nexus.get()) else { return };
        let Ok(TransferReady { offset, len }) = TransferReady::parse(payload) else { return };
        let buffer = scsi.buffer.as_deref();
        let range = offset as usize..(offset + len) as usize;
        let Some(data) = buffer.and_then(|it| it.get(range)) else { return };
        self.seq_id = self.seq_id.wrapping_add(1);
        let request = data_header(nexus, header, self.seq_id);
        let frames = data.chunks(nexus.payload_max);
        let last = frames.len() - 1;
        for (index, payload) in frames.enumerate() {
            let header = Header {
                f_ctl: if index == last { FCtl::WRITE_DATA_END } else { FCtl::WRITE_DATA },
                seq_cnt: index as u16,
                parameter: offset + (index * nexus.payload_max) as u32,
                ..request
            };
            shared.transmit.push(&Frame { ethernet: nexus.ethernet, header, payload });
        }
        scsi.moved += len;
    }

    /// Takes the response: the exchange is over.
    fn finish(&mut self, shared: &Shared, header: &Header, payload: &[u8]) {
        let Some(mut scsi) = self.scsi.take() else { return };
        shared.exchanges.close(self.xid);
        self.timer.take().into_iter().for_each(|timer| shared.timers.stop(timer));
        match Response::parse(payload) {
            Ok(response) => {
                if response.confirm {
                    self.confirm(shared, header);
                }
                scsi.status = response.status;
                scsi.set_sense(response.sense);
            }
            // It has not moved all its data, for those that look.
            Err(_) => scsi.moved = 0,
        }
        end(shared, scsi);
    }

    /// The target wants to know that its response has come.
    fn confirm(&self, shared: &Shared, response: &Header) {
        let Some(nexus) = shared.nexus.get() else { return };
        let request = Header::request(Kind::FcpConf, nexus.own, nexus.target, response.ox_id);
        let (f_ctl, seq_id) = (FCtl::CONFIRMATION, self.seq_id.wrapping_add(1));
        let header = Header { f_ctl, seq_id, rx_id: response.rx_id, ..request };
        shared.transmit.push(&Frame { ethernet: nexus.ethernet, header, payload: &[] });
    }
}

fn data_header(nexus: &Nexus, ready: &Header, seq_id: u8) -> Header {
    let request = Header::request(Kind::FcpData, nexus.own, nexus.target, ready.ox_id);
    Header { rx_id: ready.rx_id, seq_id, ..request }
}

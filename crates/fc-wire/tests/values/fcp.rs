//! The frames of FCP.

use tyche_fc_wire::fcp::*;
use tyche_fc_wire::{FCtl, Header, Kind, Xid};

use super::{Expected, down, up};
use crate::frames::Payload;

const LUN: [u8; 8] = [0, 3, 0, 0, 0, 0, 0, 0];
const SENSE: [u8; 18] = [0x70, 0, 5, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0];

/// A CDB for 8 blocks from block 65536 on.
fn cdb(opcode: u8, flags: u8) -> [u8; CDB_LEN] {
    [opcode, flags, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 8, 0, 0]
}

fn command(ox_id: u16, command: Command<'static>) -> Expected {
    up(Kind::FcpCmnd, ox_id, Payload::Command(command))
}

fn response(ox_id: u16, seq_id: u8, response: Response<'static>) -> Expected {
    down(Kind::FcpRsp, ox_id, Payload::Response(response)).with(|header| Header {
        f_ctl: FCtl::RESPONSE,
        seq_id,
        ..header
    })
}

/// A frame of data of a read.
fn read(f_ctl: FCtl, seq_cnt: u16, parameter: u32, data: &'static [u8]) -> Expected {
    down(Kind::FcpData, 0x2a, Payload::Data(parameter, data)).with(|header| Header {
        f_ctl,
        seq_cnt,
        parameter,
        ..header
    })
}

pub(super) fn expected(name: &str) -> Option<Expected> {
    Some(match name {
        "fcp-cmnd-read" => {
            let read = Command { reads: true, data_len: 4096, ..Command::new(LUN, cdb(0x88, 0)) };
            command(0x2a, read)
        }
        "fcp-cmnd-write" => {
            let write = Command {
                crn: 7,
                attribute: 2,
                writes: true,
                data_len: 4096,
                ..Command::new(LUN, cdb(0x8a, 8))
            };
            command(0x2b, write)
        }
        "fcp-cmnd-reset" => {
            let management = TaskManagement::LU_RESET;
            command(0x2c, Command { management, ..Command::new(LUN, [0; CDB_LEN]) })
        }
        "fcp-xfer-rdy" => {
            let ready = TransferReady { offset: 0, len: 4096 };
            down(Kind::FcpXferRdy, 0x2b, Payload::TransferReady(ready))
                .with(|header| Header { f_ctl: FCtl::XFER_RDY, ..header })
        }
        "fcp-data-write" => {
            up(Kind::FcpData, 0x2b, Payload::Data(4032, &[0xd7; 64])).with(|header| Header {
                f_ctl: FCtl::WRITE_DATA_END,
                seq_id: 1,
                seq_cnt: 2,
                rx_id: Xid(0x12b),
                parameter: 4032,
                ..header
            })
        }
        "fcp-data-read" => read(FCtl::READ_DATA, 0, 0, &[0x11; 128]),
        "fcp-data-fill" => read(FCtl::READ_DATA_END, 1, 128, &[1, 2, 3, 4, 5]),
        "fcp-rsp" => response(0x2b, 1, Response::GOOD),
        "fcp-rsp-sense" => {
            let residual = Residual::Under(4096);
            response(0x2a, 1, Response { status: 2, residual, sense: &SENSE, ..Response::GOOD })
        }
        "fcp-rsp-reset" => {
            let code = Some(ResponseCode::Complete.to_wire());
            response(0x2c, 0, Response { code, ..Response::GOOD })
        }
        "fcp-conf" => up(Kind::FcpConf, 0x2a, Payload::Empty).with(|header| Header {
            f_ctl: FCtl::CONFIRMATION,
            seq_id: 1,
            rx_id: Xid(0x12a),
            ..header
        }),
        _ => return None,
    })
}

//! Information units of FCP (FCP-4): how a SCSI command travels.
//!
//! | file | unit | from |
//! |---|---|---|
//! | `command` | FCP_CMND | initiator |
//! | `data` | FCP_XFER_RDY; the place of FCP_DATA | target; both |
//! | `response` | FCP_RSP | target |
//! | `prepared` | the heads of data frames and the frames of commands, written once and then patched | |
//!
//! FCP_CONF has no payload. CDBs and sense data are bytes here.

mod command;
mod data;
mod prepared;
mod response;

pub use command::{CDB_LEN, COMMAND_LEN, Command, TaskManagement};
pub use data::{TransferReady, data_offset};
pub use prepared::{COMMAND_FRAME_LEN, CommandFrame, PreparedHead};
pub use response::{Residual, Response, ResponseCode, ResponseFlags};

//! Questions of SCSI's discovery as commands of the lane, and the data of their answers.

use tyche_fc::initiator::{Command, CommandAnswer, Data, Unit};
use tyche_fc::wire::fcp::Residual;
use tyche_scsi::cdb::opcode;
use tyche_scsi::initiator as scsi;

/// Bytes that questions ask for, at most: those of the list of all LUNs.
pub(crate) const ANSWER_LEN: usize = 8 + 8 * tyche_scsi::UNITS_MAX;

/// The command of a question to a logical unit.
pub(crate) fn command(unit: Unit, request: &scsi::Request) -> Command {
    let is_exempt = [opcode::INQUIRY, opcode::REPORT_LUNS, opcode::REQUEST_SENSE];
    let cdb = *request.cdb.padded();
    let data = match request.data {
        scsi::Data::In(len) => Data::In(len),
        _ => Data::None,
    };
    let hears_attentions = !is_exempt.contains(&cdb[0]);
    Command { unit, cdb, data, modifies: false, hears_attentions }
}

/// The bytes of data that have arrived, of those that the question has asked for.
pub(crate) fn answered(request: &scsi::Request, answer: &CommandAnswer) -> u32 {
    let missing = if let Residual::Under(missing) = answer.residual { missing } else { 0 };
    request.data.len().saturating_sub(missing)
}

//! The error messages for refusals by a target, and for exports that it does not have.

use tyche_proto::wire::{Reason, Rejection};
use tyche_proto::{ExportId, Problem};
use tyche_remote::HostReport;

use super::SessionArgs;
use crate::shared::error::{Code, Error, Result};
use crate::shared::sessions::is_running;
use crate::shared::state::State;

impl SessionArgs {
    /// The error for a refusal by the target.
    pub(crate) fn refused(&self, rejection: &Rejection) -> Error {
        let (export, Rejection { reason, detail, .. }) = (&self.export, rejection);
        if *reason == Reason::Cloned
            && let Some(own) = own_session(self)
        {
            let (device, name) = (own.device.display(), own.export);
            let message = format!("export `{export}` is connected already, as {device} (`{name}`)");
            return Error::new(Code::Exists, message);
        }
        let message = match reason {
            Reason::Held => format!(
                "export `{export}` is held by host {detail}; disconnect it there, or connect \
                 with --read-only"
            ),
            Reason::Cloned => format!(
                "export `{export}` is held by a living session of a host with the same identity, \
                 {detail}; if this machine is a clone of that one, give it an id of its own: \
                 remove /etc/machine-id, run systemd-machine-id-setup, and restart"
            ),
            Reason::NoState => format!(
                "{reason}, and so lets nobody write export `{export}`: {detail}; connect with \
                 --read-only, or mend that at the target"
            ),
            Reason::Offline => {
                format!("export `{export}` is offline: {detail}; connect when its disk is back")
            }
            Reason::ReadOnly => {
                format!("export `{export}` is read-only; connect with --read-only")
            }
            Reason::NoResources => format!(
                "the target has no room for another session on export `{export}`; raise \
                 `memory` in the [limits] of its configuration, or disconnect one"
            ),
            Reason::SessionLost => format!(
                "export `{export}` was connected elsewhere since the daemon of its device died, so \
                 that what waits here is stale: give the device up with `tyche disconnect \
                 {export} --force`, then connect again"
            ),
            Reason::KeyRequired => format!(
                "{reason}: make one with `tyche key generate`, have it listed at the target, and \
                 connect with --target-key ask"
            ),
            Reason::Denied => format!(
                "the target does not let this host in: {detail}; there, add the host's key (`tyche \
                 host add`, or a [[host]] in the file), and let it have the export (`tyche export \
                 allow`), also if it was denied"
            ),
            _ => format!("the target refuses export `{export}`: {}", in_words(rejection)),
        };
        let code = match reason {
            Reason::UnknownExport => Code::NotFound,
            _ => Code::Refused,
        };
        Error::new(code, message.trim_end())
    }
}

/// A refusal in the target's words.
pub(super) fn in_words(Rejection { reason, detail, .. }: &Rejection) -> String {
    match detail.as_str() {
        "" => reason.to_string(),
        detail => format!("{reason}: {detail}"),
    }
}

/// The session of another daemon of this host that holds the wanted export, by another name: with
/// or without its target, or by its UUID.
fn own_session(args: &SessionArgs) -> Option<State> {
    let (host, wanted) = (args.host().ok()?, args.wanted().ok()?.1);
    let own = std::process::id();
    let running = State::all().ok()?.into_iter().filter(|(dir, _)| is_running(dir));
    let mut states = running.map(|(_, state)| state).filter(|it| it.host == host && it.pid != own);
    states.find(|state| {
        let uuid = state.known.map(|known| known.0.uuid);
        let named = tyche_session::wanted(&state.export).map(|(_, export)| export);
        match (&wanted, named) {
            (ExportId::Uuid(wanted), _) => uuid == Some(*wanted),
            // Its name is not known, and nobody else of this host is in the way.
            (ExportId::Name(_), Ok(ExportId::Uuid(_))) => true,
            (wanted, named) => named.is_ok_and(|named| named == *wanted),
        }
    })
}

/// The search of a session for its target, as far as the reasons are concerned why it takes long.
pub(crate) struct Search<'a> {
    args: &'a SessionArgs,
    /// Whether the lists of targets were heard to their ends, and did not have the export.
    was_absent: bool,
    /// Whether the target was compared with the known one.
    compared: bool,
}

impl<'a> Search<'a> {
    pub(crate) fn new(args: &'a SessionArgs) -> Self {
        Self { args, was_absent: false, compared: false }
    }

    /// Looks why a session is not connected yet, by the report on it; for the last time if
    /// `is_last`.
    ///
    /// # Errors
    /// The reason, if there is no use in waiting longer.
    pub(crate) fn check(&mut self, report: Option<&HostReport>, is_last: bool) -> Result<()> {
        let args = self.args;
        let problem = report.and_then(|report| report.problem);
        let unoffered = match problem {
            None => is_last,
            problem => problem == Some(Problem::NoOffer),
        };
        if unoffered {
            let error = args.unknown_export(is_last)?;
            // It is absent if it was twice, for a target may be late, or if there is no time left.
            let was_absent = std::mem::replace(&mut self.was_absent, error.is_some());
            if let Some(error) = error.filter(|_| was_absent || is_last) {
                return Err(error);
            }
        }
        // A known target that has another UUID now is none that offers the export.
        let is_unproven = problem.is_some_and(SessionArgs::is_unproven);
        if (unoffered && is_last || is_unproven && !std::mem::replace(&mut self.compared, true))
            && let Some(error) = args.changed_target()?
        {
            return Err(error);
        }
        if is_last { Err(args.unreachable(report)) } else { Ok(()) }
    }
}

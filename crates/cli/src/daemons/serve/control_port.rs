//! The control port of a target: requests of admins elsewhere are answered as those at the control
//! socket.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use tyche_control::{Admin, Caller, Identity, Limits, Port, Service};
use tyche_proto::crypto::PublicKey;

use super::Served;
use super::answers;
use super::by::By;
use crate::shared::control::{ControlAnswer, TargetRequest};
use crate::shared::error::{Code, Error, Result};

/// The shortest time between two lines of the log about guests that are no admins.
const REFUSALS_APART: Duration = Duration::from_secs(10);

/// Opens the control port, if the configuration has one.
///
/// # Errors
/// `Link` if the address can't be listened at; `Config` without a key.
pub(super) fn open(served: &Arc<Served>) -> Result<()> {
    let config = &served.exports.config;
    let Some(address) = config.control else {
        if !config.admin.is_empty() {
            tracing::warn!("nobody listens to the [[admin]]s: `control` says no address");
        }
        return Ok(());
    };
    // It has keys: that was checked.
    let keys = served.own_keys.all();
    let identity = Identity { uuid: served.uuid.into_bytes(), name: served.exports.name.clone() };
    let service = Arc::new(Answering { served: Arc::downgrade(served), refused: Mutex::default() });
    let port = Port::open(address, (keys, identity), Limits::default(), service);
    let port =
        port.map_err(|error| Error::new(Code::Link, format!("`control`: tcp:{address}: {error}")))?;
    tracing::info!("admins are listened to at tcp:{address}");
    if config.admin.is_empty() {
        tracing::warn!("nobody may ask at `control`: there is no [[admin]]");
    }
    // It is opened once.
    let _ = served.admins.port.set(port);
    Ok(())
}

/// Answers as long as the target runs.
struct Answering {
    served: Weak<Served>,
    /// The time of the last line about a guest that is no admin, and how many came since.
    refused: Mutex<(Option<Instant>, u64)>,
}

impl Service for Answering {
    fn admin(&self, key: &PublicKey) -> Option<Admin> {
        self.served.upgrade()?.admins.find(key)
    }

    fn answer(&self, caller: &Caller, request: &[u8]) -> Vec<u8> {
        let answer = self.answer_to(caller, request);
        serde_json::to_vec(&answer).expect("answers are objects that JSON can express")
    }

    fn refused(&self, key: &PublicKey, address: SocketAddr) {
        let mut last = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if last.0.is_some_and(|at| at.elapsed() < REFUSALS_APART) {
            last.1 += 1;
            return;
        }
        let (key, left_out) = (key.fingerprint(), last.1);
        tracing::warn!(%key, %address, left_out, "refused at `control`: no [[admin]] has this key");
        *last = (Some(Instant::now()), 0);
    }

    fn failed(&self, error: &io::Error) {
        tracing::warn!(%error, "a guest of `control` can't be received");
    }
}

impl Answering {
    fn answer_to(&self, caller: &Caller, request: &[u8]) -> ControlAnswer {
        let Some(served) = self.served.upgrade() else {
            return ControlAnswer::refused(Code::Other, "the target is stopping");
        };
        let request: TargetRequest = match serde_json::from_slice(request) {
            Ok(request) => request,
            Err(error) => {
                let message = format!("not a request that this target knows: {error}");
                return ControlAnswer::refused(Code::Other, &message);
            }
        };
        let Caller { admin: Admin { name, read_only }, key, address } = caller;
        let by = By::Admin { name, key: *key, address: *address };
        // Its text names files that the target would read.
        if matches!(request, TargetRequest::Plan { .. }) {
            let message = "a plan is made on the target's machine only";
            return ControlAnswer::refused(Code::Refused, message);
        }
        match request.change().filter(|_| *read_only) {
            Some(change) => {
                if let Some(left_out) = by.may_complain(&served.admins.complaints) {
                    let why = "the admin is read_only";
                    tracing::warn!(%by, left_out, "`{change}` is refused: {why}");
                }
                let message =
                    format!("admin {name} may change nothing at this target: it is `read_only`");
                ControlAnswer::refused(Code::Refused, &message)
            }
            None => answers::answer(served, &request, &by),
        }
    }
}

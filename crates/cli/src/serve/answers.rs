//! Answers of a running target at its control socket.

use std::sync::Arc;
use std::time::Duration;

use tyche_engine::Remains;
use tyche_proto::HostId;
use tyche_store::ResizeError;

use super::Served;
use super::access::Changed;
use super::config::Export;
use super::links::{Missing, What};
use super::state::Decision;
use crate::control::{AccessChange, Answer, Request};
use crate::error::{Code, Error, Result};
use crate::report::{AccessChanged, ExportResized, TargetLink, TargetPort, TargetReport};

/// See the module.
#[derive(Clone)]
pub(super) struct Answers {
    /// The target's name.
    name: String,
    /// The names of its exports, by index.
    exports: Vec<String>,
}

impl Answers {
    pub(super) fn new(name: &str, exports: &[Export]) -> Self {
        let exports = exports.iter().map(|export| export.name.clone()).collect();
        Self { name: name.to_owned(), exports }
    }

    pub(super) fn to(&self, served: Arc<Served>, request: &Request) -> Answer {
        match request {
            Request::Report => Answer::Target(self.report(&served)),
            Request::Resize { export, size } => {
                self.resize(&served, export, *size).map(Answer::Resized).into()
            }
            Request::Access { export, host, change } => {
                let host = host.as_deref();
                self.change_access(served, export, host, *change).map(Answer::Access).into()
            }
            Request::Disconnect { .. }
            | Request::Reload
            | Request::Leave
            | Request::AddLink { .. }
            | Request::RemoveLink { .. } => {
                Answer::refused(Code::Usage, "this is a target, not a session")
            }
        }
    }

    fn report(&self, served: &Served) -> TargetReport {
        let mut report = TargetReport::new(&self.name, &served.target.report());
        report.fcoe = served.fcoe.report().iter().map(TargetPort::from).collect();
        for Missing { what, why } in served.missing() {
            let (interface, problem) = (what.name().to_owned(), Some(why));
            match what {
                What::Link(_) => {
                    report.links.push(TargetLink { interface, problem, ..Default::default() });
                }
                What::Port(_) | What::Vlans(..) => {
                    report.fcoe.push(TargetPort { interface, problem, ..Default::default() });
                }
            }
        }
        for (export, lun) in report.exports.iter_mut().zip(served.fcoe.luns()) {
            export.lun = Some(lun);
        }
        let rights = served.rights();
        for export in &mut report.exports {
            export.allowed = rights.decided(&export.export, Decision::Allowed);
            export.denied = rights.decided(&export.export, Decision::Denied);
        }
        report
    }

    fn resize(&self, served: &Served, name: &str, size: Option<u64>) -> Result<ExportResized> {
        let index = self.exports.iter().position(|export| export == name);
        let index = index.ok_or_else(|| {
            let message = format!("target `{}` has no export `{name}`", self.name);
            Error::new(Code::NotFound, message)
        })?;
        let size = served.resize(index, size).map_err(|error| {
            let code = match error {
                ResizeError::Shrinks { .. } | ResizeError::Indivisible { .. } => Code::Usage,
                _ => Code::Device,
            };
            Error::new(code, format!("export `{name}`: {error}"))
        })?;
        tracing::info!(size, "export {name} is resized");
        Ok(ExportResized { target: self.name.clone(), export: name.to_owned(), size })
    }

    /// Changes which hosts may have an export. An eviction waits for the requests of the host.
    fn change_access(
        &self,
        served: Arc<Served>,
        export: &str,
        host: Option<&str>,
        change: AccessChange,
    ) -> Result<AccessChanged> {
        let named =
            || host.ok_or_else(|| Error::new(Code::Usage, "the request has to name a host"));
        let target = &served.target;
        let changed = match change {
            AccessChange::Allow => served.rights().allow(target, export, named()?),
            AccessChange::Deny | AccessChange::Evict { .. } => {
                served.rights().deny(target, export, named()?)
            }
            AccessChange::Revert => served.rights().revert(target, export, host),
        }?;
        let of_host = changed.host.map(|host| host.to_string()).or_else(|| host.map(str::to_owned));
        let name = of_host.as_deref().unwrap_or("all hosts");
        tracing::info!("export {export}: `{}` of {name}", change.name());
        if let (AccessChange::Evict { limit_ms }, Some(host)) = (change, changed.host) {
            await_departure(served, &changed, (export, host), Duration::from_millis(limit_ms))?;
        }
        if let Some(error) = changed.not_kept {
            let what = format!("{name} is kept out, but not after a restart of the target");
            return Err(Error::new(error.code, format!("{what}: {error}")));
        }
        Ok(AccessChanged {
            target: self.name.clone(),
            export: export.to_owned(),
            host: of_host,
            sessions_ended: changed.ended.len() as u64,
        })
    }
}

/// Waits until nothing of a host is left at an export.
fn await_departure(
    served: Arc<Served>,
    changed: &Changed,
    (export, host): (&str, HostId),
    limit: Duration,
) -> Result<()> {
    let departure = served.target.departure(changed.export, host);
    // The target may be stopped meanwhile.
    drop(served);
    let (what, which) = match departure.wait(limit) {
        Ok(()) => return Ok(()),
        Err(Remains::Requests) => ("has not finished requests of that host".to_owned(), "they"),
        Err(Remains::Unknown(why)) => (
            format!("is missing ({why}) and has not come"),
            "what a former process of the target gave to it for that host",
        ),
    };
    let message = format!(
        "{host} is kept out of `{export}`, but its disk {what} within {} s: {which} may still be \
         executed; run the command again to wait for that",
        limit.as_secs_f64()
    );
    Err(Error::new(Code::Device, message))
}

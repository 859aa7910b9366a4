//! Links of a session that were missing when it was connected: it goes on without them, and uses
//! them when they come.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use tyche_link::ip::ListenAddress;
use tyche_link::packet::Changes;
use tyche_remote::Control;

use super::{MissingLink, SessionArgs, orders};
use crate::shared::control::ControlAnswer;
use crate::shared::error::Error;
use crate::shared::report::SessionLink;

/// The interval at which missing links are tried, beside changes of interfaces and addresses.
const TRY_EVERY: Duration = Duration::from_secs(1);
/// The time for an interface that has just come up to get its carrier, its master, and its address.
const SETTLE: Duration = Duration::from_millis(100);

/// The links that are missing so far.
#[derive(Default)]
pub(super) struct MissingLinks(Mutex<Vec<MissingLink>>);

impl MissingLinks {
    pub(super) fn new(missing: Vec<MissingLink>) -> Arc<Self> {
        Arc::new(Self(Mutex::new(missing)))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<MissingLink>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The error with the reasons for missing links.
    pub(super) fn added_to(&self, error: Error) -> Error {
        let reasons: Vec<_> = self.lock().iter().map(|link| link.why.clone()).collect();
        let message = [vec![error.message], reasons].concat().join("; ");
        Error { message, ..error }
    }

    /// The links as those of a report.
    pub(super) fn reports(&self) -> Vec<SessionLink> {
        let report = |MissingLink { name, why }: &MissingLink| SessionLink {
            interface: name.clone(),
            problem: Some(why.clone()),
            ..SessionLink::default()
        };
        self.lock().iter().map(report).collect()
    }

    /// Adds a link to the session by order of a user, missing or not.
    pub(super) fn add(
        &self,
        control: &dyn Control,
        args: &SessionArgs,
        name: &str,
    ) -> ControlAnswer {
        let added = orders::add_link(control, args, name);
        if added.is_ok() {
            self.forget(name);
        }
        orders::to_answer(added)
    }

    /// Takes a link out of the session by order of a user, missing or not.
    pub(super) fn remove(&self, control: &dyn Control, name: &str) -> ControlAnswer {
        let own = self.names(control).and_then(|names| own_name(names, name));
        let name = own.as_deref().unwrap_or(name);
        if self.forget(name) {
            tracing::info!(link = name, "link, which was missing, removed");
            return ControlAnswer::Done {};
        }
        orders::to_answer(orders::remove_link(control, name))
    }

    /// The names of all links of the session, missing ones included; `None` if that is not known.
    pub(super) fn names(&self, control: &dyn Control) -> Option<Vec<String>> {
        let used = control.report()?.links.into_iter().map(|link| link.link);
        let missing = self.lock().clone().into_iter().map(|link| link.name);
        Some(used.chain(missing).collect())
    }

    /// Waits no longer for a link; false if it was not missing.
    fn forget(&self, name: &str) -> bool {
        let mut missing = self.lock();
        let before = missing.len();
        missing.retain(|link| link.name != name);
        missing.len() < before
    }

    /// Adds links to the session as soon as they open, in a thread of its own.
    ///
    /// # Errors
    /// The system's error when the thread cannot be created.
    pub(super) fn take_up(
        self: &Arc<Self>,
        control: Arc<dyn Control>,
        args: SessionArgs,
    ) -> io::Result<()> {
        if self.lock().is_empty() {
            return Ok(());
        }
        let changes = Changes::open();
        let missing = Arc::clone(self);
        let watch = move || {
            while !missing.lock().is_empty() {
                match &changes {
                    Ok(changes) if changes.wait(TRY_EVERY).is_ok() => {}
                    _ => thread::sleep(TRY_EVERY),
                }
                thread::sleep(SETTLE);
                missing.try_each(&*control, &args);
            }
        };
        thread::Builder::new().name("tyche-late".into()).spawn(watch)?;
        Ok(())
    }

    fn try_each(&self, control: &dyn Control, args: &SessionArgs) {
        // The lock is not held meanwhile: a name may take its time to be resolved.
        let links = self.lock().clone();
        for MissingLink { name, why } in links {
            match orders::add_link(control, args, &name) {
                Ok(()) => {
                    self.forget(&name);
                }
                Err(error) if error.message != why => {
                    tracing::warn!("{error}; going on without it");
                    let mut missing = self.lock();
                    let links = missing.iter_mut().filter(|link| link.name == name);
                    links.for_each(|link| link.why.clone_from(&error.message));
                }
                Err(_) => {}
            }
        }
    }
}

/// The name, among those of the session's links, of the link that a user means: an address may be
/// without its port, as when it was given.
fn own_name(mut names: Vec<String>, meant: &str) -> Option<String> {
    let place = |name: &str| {
        let place = ListenAddress::parse(name, 1).ok().flatten()?;
        Some((place.transport().name, place.host().to_owned(), place.port()))
    };
    let meant_place = place(meant);
    let is_it =
        |name: &String| name == meant || (meant_place.is_some() && place(name) == meant_place);
    let at = names.iter().position(is_it)?;
    Some(names.swap_remove(at))
}

#[cfg(test)]
mod tests {
    use super::own_name;

    #[test]
    fn a_link_is_named_with_and_without_its_port() {
        let own = |meant| {
            let names = ["eth1", "udp:10.0.1.1:8650", "tcp:10.0.1.1:8650", "udp:10.0.1.1:7"];
            own_name(names.map(str::to_owned).to_vec(), meant)
        };
        assert_eq!(own("eth1").as_deref(), Some("eth1"));
        assert_eq!(own("udp:10.0.1.1").as_deref(), Some("udp:10.0.1.1:8650"));
        assert_eq!(own("tcp:10.0.1.1:8650").as_deref(), Some("tcp:10.0.1.1:8650"));
        assert_eq!(own("udp:10.0.1.1:7").as_deref(), Some("udp:10.0.1.1:7"));
        assert_eq!(own("udp:10.0.1.1:8"), None);
        assert_eq!(own("eth2"), None);
    }
}

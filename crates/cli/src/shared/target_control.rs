//! The targets that a command is about: those on this machine, at their control sockets, or one
//! elsewhere (`--at`), at its control port. The only place that chooses between the two.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde::de::DeserializeOwned;
use tyche_control::{Client, ClientError};
use tyche_proto::TargetId;
use tyche_proto::crypto::PublicKey;
use tyche_proto::wire::Name;
use tyche_session::{KEY_FILE, KnownTargets};
use uuid::Uuid;

use crate::shared::control::{TargetRequest, ask, parse_answer};
use crate::shared::control_address::TargetPlace;
use crate::shared::error::{Code, CodedResult, Context, Error, Result};
use crate::shared::keys::{public_key, read_key};
use crate::shared::report::TargetReport;
use crate::shared::runtime::CONTROL;
use crate::shared::sessions;

/// Time limit until a target elsewhere has proved who it is.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit for the report of a target elsewhere, beyond that of one on this machine for the way.
const REPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// The target elsewhere that a command is about, if it is not one of this machine.
#[derive(Args, Clone, Debug)]
pub(crate) struct AtArgs {
    /// Ask the target there, at its control port, instead of those on this machine. NAME is its
    /// name in known-targets; PORT is 8652 by default.
    #[arg(long, value_name = "[NAME@]HOST[:PORT]", value_parser = TargetPlace::parse,
        global = true)]
    at: Option<TargetPlace>,

    /// With --at: the public key of that target, if it is not in known-targets.
    #[arg(long, value_name = "KEY", value_parser = public_key, global = true)]
    target_key: Option<PublicKey>,

    /// With --at: the file of the admin's secret key. By default /etc/tyche/key.
    #[arg(long, value_name = "FILE", global = true)]
    key: Option<PathBuf>,
}

/// A target that can be asked.
pub(crate) enum TargetControl {
    /// On this machine: the path of its control socket.
    Socket(PathBuf),
    /// Elsewhere.
    Port {
        /// The connection, sealed.
        client: Box<Client>,
        /// Its address, for people.
        place: String,
    },
}

/// A target, and its report.
pub(crate) struct FoundTarget {
    pub(crate) control: TargetControl,
    pub(crate) report: TargetReport,
}

impl AtArgs {
    /// True if the command is about a target elsewhere.
    pub(crate) fn is_elsewhere(&self) -> bool {
        self.at.is_some()
    }

    /// The place of the targets, for messages.
    pub(crate) fn place(&self) -> String {
        match &self.at {
            Some(place) => format!("at {place}"),
            None => "on this machine".to_owned(),
        }
    }

    /// The command that lists them, for messages.
    pub(crate) fn list_command(&self) -> String {
        match &self.at {
            Some(place) => format!("`tyche list --at {place}`"),
            None => "`tyche list`".to_owned(),
        }
    }

    /// The targets that the command is about: all of this machine, or the one elsewhere.
    ///
    /// # Errors
    /// The one elsewhere does not answer, is another, or refuses; or an option is missing.
    pub(crate) fn targets(&self) -> Result<Vec<FoundTarget>> {
        let Some(place) = &self.at else {
            self.check()?;
            let local = sessions::targets()?.into_iter().map(|(dir, report)| FoundTarget {
                control: TargetControl::Socket(dir.join(CONTROL)),
                report,
            });
            return Ok(local.collect());
        };
        let mut control = self.reach(place)?;
        let what = format_args!("target at {place}");
        let report = control.ask(&TargetRequest::Report, REPORT_TIMEOUT, what)?;
        Ok(vec![FoundTarget { control, report }])
    }

    /// Checks that no option for a target elsewhere is given without one.
    ///
    /// # Errors
    /// `Usage`.
    pub(crate) fn check(&self) -> Result<()> {
        if self.at.is_some() || (self.target_key.is_none() && self.key.is_none()) {
            return Ok(());
        }
        let message = "--key and --target-key are for a target elsewhere: give --at";
        Err(Error::new(Code::Usage, message))
    }

    /// As [`targets`](Self::targets): the one with that name, or all.
    ///
    /// # Errors
    /// As [`targets`](Self::targets), and `NotFound` if none has the name.
    pub(crate) fn targets_named(&self, name: Option<&str>) -> Result<Vec<FoundTarget>> {
        let mut found = self.targets()?;
        found.retain(|it| name.is_none_or(|name| it.report.name == name));
        if let (Some(name), []) = (name, &found[..]) {
            let (place, list) = (self.place(), self.list_command());
            let message = format!("no target `{name}` runs {place}; see {list}");
            return Err(Error::new(Code::NotFound, message));
        }
        Ok(found)
    }

    /// The target with that name, or the only one that there is.
    ///
    /// # Errors
    /// As [`targets_named`](Self::targets_named); `Usage` if there are several, `NotFound` if there
    /// is none.
    pub(crate) fn one_target(&self, name: Option<&str>) -> Result<FoundTarget> {
        let mut found = self.targets_named(name)?;
        match (found.pop(), &found[..]) {
            (Some(found), []) => Ok(found),
            (Some(last), others) => {
                let names = others.iter().map(|it| it.report.name.as_str());
                let names = names.chain([&*last.report.name]);
                let names = names.collect::<Vec<_>>().join(", ");
                let message = format!("several targets run here: give --target, of {names}");
                Err(Error::new(Code::Usage, message))
            }
            (None, _) => {
                let message = "no target runs on this machine: start `tyche serve`, or write \
                               /etc/tyche/target.toml (there is an example in \
                               /usr/share/doc/tyche/examples) and `systemctl enable --now \
                               tyche-target`";
                Err(Error::new(Code::NotFound, message))
            }
        }
    }

    /// Connects to a target elsewhere, and makes sure that it is the one that is meant.
    fn reach(&self, place: &TargetPlace) -> Result<TargetControl> {
        let wanted = Wanted::find(place, self.target_key)?;
        let file = self.key.as_deref().unwrap_or(Path::new(KEY_FILE));
        let own = read_key(file)?;
        let addresses = place.resolve();
        let addresses = addresses.context(Code::Unreachable, &place.host)?;
        let connected = Client::connect(&addresses, (&own, &wanted.key), CONNECT_TIMEOUT);
        let client = connected.map_err(|error| match error {
            ClientError::Unknown => {
                let message = format!(
                    "the target at {place} knows no admin with the key {} (of {}): list it there \
                     as an [[admin]]",
                    own.public(),
                    file.display()
                );
                Error::new(Code::Refused, message)
            }
            error => failed(&error, format_args!("target at {place}")),
        })?;
        wanted.check(&client, place)?;
        Ok(TargetControl::Port { client: Box::new(client), place: place.to_string() })
    }
}

impl TargetControl {
    /// Asks the target. `what`: the target, for messages.
    ///
    /// # Errors
    /// It does not answer within `limit`, or refuses.
    pub(crate) fn ask<T: DeserializeOwned>(
        &mut self,
        request: &TargetRequest,
        limit: Duration,
        what: impl Display,
    ) -> Result<T> {
        match self {
            Self::Socket(socket) => ask(socket, request, limit).context(Code::Other, what)?,
            Self::Port { client, place } => {
                let what = format!("{what} at {place}");
                let request = serde_json::to_vec(request).context(Code::Other, &what)?;
                let answer = client.ask(&request, limit).map_err(|error| failed(&error, &what))?;
                let answer = String::from_utf8_lossy(&answer);
                parse_answer(&answer).context(Code::Other, &what)?
            }
        }
    }
}

fn failed(error: &ClientError, what: impl Display) -> Error {
    let code = match error {
        ClientError::TooLong => Code::Usage,
        ClientError::Unknown => Code::Refused,
        _ => Code::Unreachable,
    };
    Error::new(code, format!("{what}: {error}"))
}

/// The target that is meant.
struct Wanted {
    key: PublicKey,
    /// Of a known target.
    uuid: Option<Uuid>,
    /// Its name, to be compared if the UUID is not known.
    name: Option<String>,
}

impl Wanted {
    /// The target with the key that is given, or else the known one of that name.
    ///
    /// # Errors
    /// It is not known, or the list can't be read.
    fn find(place: &TargetPlace, given: Option<PublicKey>) -> Result<Self> {
        if let Some(key) = given {
            return Ok(Self { key, uuid: None, name: place.name.clone() });
        }
        let known = KnownTargets::read().coded()?;
        // A target that has the name of its machine needs to be named once only.
        let name = place.name.as_deref().unwrap_or(&place.host);
        let uuid = Uuid::parse_str(name).ok().map(TargetId::Uuid);
        let id = uuid.or_else(|| Name::new(name).map(TargetId::Name));
        let found = id.map_or(Ok(None), |id| known.find(&id)).coded()?;
        let Some(found) = found else {
            let names: Vec<_> = known.targets().iter().map(|it| it.name.as_str()).collect();
            let of = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            let message = format!(
                "the key of target `{name}` is not known to this machine: give it \
                 (--target-key KEY), or name a known target (--at NAME@{}); known: {of}",
                place.host
            );
            return Err(Error::new(Code::Config, message));
        };
        Ok(Self { key: found.key, uuid: Some(found.uuid), name: None })
    }

    /// Checks that the target which has proved the key is this one: others may have the key, too.
    ///
    /// # Errors
    /// `NotFound` if it is another.
    fn check(&self, client: &Client, place: &TargetPlace) -> Result<()> {
        let said = client.target();
        let uuid = Uuid::from_bytes(said.uuid);
        let is_other = self.uuid.is_some_and(|it| it != uuid)
            || self.name.as_ref().is_some_and(|it| *it != said.name && *it != uuid.to_string());
        if !is_other {
            return Ok(());
        }
        let wanted = match (&place.name, self.uuid) {
            (Some(name), Some(uuid)) => format!("`{name}` ({uuid})"),
            (Some(name), None) => format!("`{name}`"),
            (None, uuid) => uuid.unwrap_or_default().to_string(),
        };
        let message =
            format!("the target at {place} is `{}` ({uuid}), and not {wanted}", said.name);
        Err(Error::new(Code::NotFound, message))
    }
}

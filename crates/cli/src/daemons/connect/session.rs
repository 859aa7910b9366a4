//! The arguments of every command that connects to an export, how the engine gets them, and the
//! error messages when the connection fails.

use std::path::Path;
use std::time::Duration;

use clap::Args;
use tyche_block::{ArenaSize, PAGE};
use tyche_link::Link;
use tyche_link::ip::ListenAddress;
use tyche_native::{Discovery, HostOptions, Listing};
use tyche_numa::Placement;
use tyche_proto::crypto::PublicKey;
use tyche_proto::wire::{ExportInfo, Name, Offer};
use tyche_proto::{ChannelChoice, ExportId, Failure, HostKeys, OfferedBy, Problem, TargetId};
use tyche_remote::{HostLink, HostReport, Notice};
use tyche_session::{End, KEY_FILE, MEMORY, NativeOptions, Opened};
use uuid::Uuid;

use super::MissingLink;
use super::options::{CommonArgs, IoPolicy, NativeArgs};
use super::trust::Trust;
use crate::shared::changed::Changed;
use crate::shared::complete;
use crate::shared::error::{Code, CodedResult, Error, Result};
use crate::shared::identity;
use crate::shared::keys::{public_key, read_key};
use crate::shared::links::{LinkArgs, mtus};
use crate::shared::placement::PlacementArgs;

/// Memory for the data of requests: the most, and what is kept. Lower: requests that are long or
/// many wait for each other; and a quarter of what is kept bounds a request.
const ARENA: ArenaSize = ArenaSize { all: MEMORY / PAGE, kept: (8 << 20) / PAGE };
/// Minimum of that memory for each queue.
const ARENA_MIN: ArenaSize = ArenaSize { all: (16 << 20) / PAGE, kept: (4 << 20) / PAGE };
/// How long to listen for other exports when the wanted one is not offered.
const LOOK_AROUND: Duration = Duration::from_millis(500);
/// Names in the error for an export that there is not.
const NAMES_MAX: usize = 10;

/// The export, and the options of its session: each is in a group, by which others refuse it.
#[derive(Args, Clone, Debug)]
pub(crate) struct SessionArgs {
    /// The export: its name, as `tyche discover` lists it, or its UUID. Where several targets offer
    /// one of that name: TARGET/EXPORT, with the target's name or UUID.
    #[arg(add = complete::exports())]
    pub(crate) export: String,

    /// The key that the user has approved for `--target-key ask`.
    #[arg(long, hide = true, value_name = "KEY", value_parser = public_key)]
    pub(crate) approved_key: Option<PublicKey>,

    /// The key that the target has to prove.
    #[arg(skip)]
    pub(crate) trust: Trust,

    #[command(flatten)]
    pub(crate) common: CommonArgs,

    #[command(flatten)]
    pub(crate) native: NativeArgs,

    #[command(flatten)]
    pub(crate) link: LinkArgs,

    #[command(flatten)]
    pub(crate) placement: PlacementArgs,
}

/// Memory of each queue for the data of requests.
pub(super) fn arena_size(queues: usize) -> ArenaSize {
    ArenaSize {
        all: (ARENA.all / queues).max(ARENA_MIN.all),
        kept: (ARENA.kept / queues).max(ARENA_MIN.kept),
    }
}

impl SessionArgs {
    /// Time limit for connecting.
    pub(crate) fn timeout(&self) -> Duration {
        Duration::from_secs_f64(self.common.timeout)
    }

    /// The export and its target, checked.
    pub(crate) fn wanted(&self) -> Result<(TargetId, ExportId)> {
        tyche_session::wanted(&self.export).coded()
    }

    /// The arguments, with the key that the target has to prove. `before`: UUID of the target that
    /// the device is connected to already.
    ///
    /// # Errors
    /// See [`Trust::find`]; or a key of this host has no use.
    pub(crate) fn settled(&self, before: Option<Uuid>) -> Result<Self> {
        let (target, _) = self.wanted()?;
        let wanted = (target, self.export.as_str());
        let trust = Trust::find(wanted, self.native.target_key, self.approved_key, before)?;
        if self.native.key.is_some() && trust.key().is_none() {
            let message = "--key is for a target with a key: give that with --target-key";
            return Err(Error::new(Code::Usage, message));
        }
        Ok(Self { trust, ..self.clone() })
    }

    /// Has what was changed while the predecessor ran count, where that was given the same.
    pub(super) fn renew(&mut self, changed: &Changed) {
        let links = changed.links.as_ref().and_then(|it| it.of(&self.common.links));
        self.common.links = links.unwrap_or_else(|| std::mem::take(&mut self.common.links));
        if let Some(replaced) = &changed.target_key {
            self.trust.renew(replaced);
        }
    }

    /// The changes of the predecessor that still count, if this daemon is changed as well.
    pub(super) fn still_changed(&self, changed: Changed) -> Changed {
        let Changed { links, target_key, .. } = changed;
        let key = self.trust.key().map(|key| key.to_string());
        Changed {
            fails: false,
            links: links.filter(|it| it.now == self.common.links),
            target_key: target_key.filter(|it| Some(&it.now) == key.as_ref()),
        }
    }

    /// The keys of the session, if it shall have any.
    pub(super) fn keys(&self) -> Result<Option<HostKeys>> {
        let Some(target) = self.trust.key() else { return Ok(None) };
        let file = self.native.key.as_deref().unwrap_or(Path::new(KEY_FILE));
        let secret = read_key(file)?;
        Ok(Some(HostKeys { secret, target, target_uuid: self.trust.target_uuid() }))
    }

    /// UUID of the host that asks.
    pub(crate) fn host(&self) -> Result<Uuid> {
        self.native.host_id.map_or_else(identity::host, Ok)
    }

    /// The engine's options for a session with the identity `session`, with links already open;
    /// also returns warnings about the links, and those that are missing.
    pub(crate) fn options(
        &self,
        session: Uuid,
    ) -> Result<(HostOptions, Vec<String>, Vec<MissingLink>)> {
        let placement = self.placement.placement()?;
        let opened = self.link.open_available(&self.common.links, End::Host, &placement)?;
        let Opened { links, warnings, missing, .. } = opened;
        let links: Vec<_> = self.of_host(links).collect();
        let is_missing = |name: &String| missing.iter().any(|(it, _)| it == name);
        let names: Vec<_> =
            self.common.links.iter().filter(|it| !is_missing(it)).cloned().collect();
        let nodes = placement.nodes(links.iter().map(|it| it.link.name())).len();
        let queues = self.common.queues.map_or(nodes.max(1), usize::from);
        let further = (1..queues).map(|_| Ok(self.open_links(&names, &placement)?.0));
        let further_queues = further.collect::<Result<_>>()?;
        let native = NativeOptions {
            choice: self.choice(&placement, queues > 1 && nodes > 1)?,
            batch: self.link.batch(),
            ..self.native.options()
        };
        let ids = (identity::host()?, session);
        let config = native.config(&self.common.options(), &self.export, self.keys()?, ids);
        let options = HostOptions {
            session: config.coded()?,
            links,
            further_queues,
            placement,
            ethertype: self.link.ethertype,
            arena_size: arena_size(queues),
            spin: self.link.spin(),
        };
        let missing = missing.into_iter();
        let missing = missing.map(|(name, error)| MissingLink { name, why: error.to_string() });
        Ok((options, warnings, missing.collect()))
    }

    /// Binds the calling thread, and those that it starts, as is best for such sessions over the
    /// same links.
    pub(crate) fn bind(&self, sessions: &[HostOptions]) {
        let queues = sessions.iter().map(|options| 1 + options.further_queues.len()).sum();
        let links = sessions.first().map_or(&[][..], |options| &options.links);
        let links: Vec<_> = links.iter().map(|it| it.link.name()).collect();
        self.placement.bind(queues, &links);
    }

    /// Policy by which a request gets its channel. `Node`, a channel on the node of the request's
    /// buffer, if the buffers are spread over nodes, or if each queue has a node of its own
    /// (`apart`).
    fn choice(&self, placement: &Placement, apart: bool) -> Result<ChannelChoice> {
        if placement.buffer_nodes().is_empty() {
            let by_node = apart && self.native.io_policy == IoPolicy::LeastOutstanding;
            return Ok(if by_node { ChannelChoice::Node } else { self.native.io_policy.into() });
        }
        if self.native.io_policy == IoPolicy::RoundRobin {
            let message = "--affinity full-mem chooses channels by node: leave out --io-policy";
            return Err(Error::new(Code::Usage, message));
        }
        Ok(ChannelChoice::Node)
    }

    /// Opens the named links, or one on each usable interface if none is named; also returns
    /// warnings.
    pub(crate) fn open_links(
        &self,
        names: &[String],
        placement: &Placement,
    ) -> Result<(Vec<HostLink>, Vec<String>)> {
        let Opened { links, warnings, .. } = self.link.open_all(names, End::Host, placement)?;
        Ok((self.of_host(links).collect(), warnings))
    }

    fn of_host(&self, links: Vec<Box<dyn Link>>) -> impl Iterator<Item = HostLink> {
        links.into_iter().map(|link| HostLink { link, target: self.native.target })
    }

    /// The answers of all targets within that time.
    ///
    /// # Errors
    /// The links can't be opened.
    pub(super) fn look_around(&self, time: Duration) -> Result<Vec<Offer>> {
        Ok(self.discover(time)?.found.into_iter().map(|it| it.offer).collect())
    }

    fn discover(&self, time: Duration) -> Result<Discovery> {
        let placement = Placement::default();
        let links = self.link.open_available(&self.common.links, End::Host, &placement)?.links;
        let (ethertype, key) = (self.link.ethertype, self.trust.key());
        let host = (self.host()?, key.as_ref());
        Ok(tyche_native::discover(links, ethertype, host, Name::EMPTY, time))
    }

    /// Looks for other exports when the wanted one is not offered. `None`: no target answers, or
    /// not with its whole list, or the export is offered by now, as by way of a link that has just
    /// come up. A target that is named may still be heard, unless this `is_last`.
    pub(crate) fn unknown_export(&self, is_last: bool) -> Result<Option<Error>> {
        self.absent(&self.discover(LOOK_AROUND)?.listings(), is_last)
    }

    /// The error for an export that is in no target's list, or whose target was not heard though
    /// others were. A list that was not heard to its end says nothing about what is not in it.
    fn absent(&self, listings: &[Listing], is_last: bool) -> Result<Option<Error>> {
        let (target, export) = self.wanted()?;
        let is_named =
            |it: &&Listing| target.names(&OfferedBy { target: it.target, name: it.name });
        let has_it = |it: &Listing| it.exports.iter().any(|it| export.names(it));
        let mut named = listings.iter().filter(is_named).peekable();
        if named.peek().is_none() {
            let is_unheard = is_last && !listings.is_empty();
            return Ok(is_unheard.then(|| self.unheard(listings)));
        }
        if named.any(|it| has_it(it) || it.missing() > 0) {
            return Ok(None);
        }
        let offered = listings.iter().flat_map(|listing| {
            let name = move |export: &ExportInfo| match target {
                TargetId::Any => export.name.to_string(),
                _ => format!("{}/{}", listing.name, export.name),
            };
            listing.exports.iter().map(name)
        });
        let offered: Vec<_> = offered.collect();
        let others = listings.iter().map(Listing::missing).sum();
        let message = if offered.is_empty() {
            format!("no export `{}`: the target offers nothing to this host", self.export)
        } else {
            format!("no export `{}`; there are: {}", self.export, first_names(offered, others))
        };
        Ok(Some(Error::new(Code::NotFound, message)))
    }

    /// The error for a target that is named, and not among those that were heard.
    fn unheard(&self, listings: &[Listing]) -> Error {
        let heard = listings.iter().map(|it| it.name.to_string()).collect();
        let target = self.export.split_once('/').map_or(&*self.export, |(target, _)| target);
        let message = format!(
            "target `{target}` is not heard on {}; heard are: {}",
            self.links_in_words(),
            first_names(heard, 0)
        );
        Error::new(Code::Unreachable, message)
    }

    /// Whether the target was found, and nobody has proved that he owns its key.
    pub(super) fn is_unproven(problem: Problem) -> bool {
        matches!(problem, Problem::NoAccept | Problem::NoKey | Problem::Unsealed)
    }

    /// The error for a target that does not answer in time, by the report on the session.
    pub(crate) fn unreachable(&self, report: Option<&HostReport>) -> Error {
        let links = || report.iter().flat_map(|report| &report.links);
        let is_unheard = || links().all(|link| link.channels.is_empty());
        let problem = report
            .and_then(|report| report.problem.or_else(|| is_unheard().then_some(Problem::NoOffer)));
        let faults: Vec<_> = links().filter_map(|link| link.fault.as_deref()).collect();
        let is_faulty = matches!(problem, Some(Problem::NoOffer | Problem::Down) | None);
        let why = match problem {
            // The faults of links name their remedies.
            _ if is_faulty && !faults.is_empty() && faults.len() == links().count() => {
                return self.not_connected(&faults.join("; "));
            }
            Some(Problem::NoOffer) if !faults.is_empty() => {
                let others = links().filter(|link| link.fault.is_none());
                let others: Vec<_> = others.map(|link| link.link.as_str()).collect();
                format!("{}; no target is heard on {}", faults.join("; "), others.join(", "))
            }
            Some(Problem::NoOffer) => format!("no target is heard on {}", self.links_in_words()),
            // Frames may be too long for a device on the path.
            Some(problem @ (Problem::NoHello | Problem::Stall | Problem::Narrowed)) => {
                format!("{problem}; {}", mtus(&self.common.links))
            }
            Some(problem @ Problem::NoKey) if !self.place_of_key().is_empty() => {
                let remedy = self.remedy_without_key();
                let what = format!("{problem}, or somebody passes for it: {remedy}");
                return self.not_connected(&what);
            }
            Some(problem @ Problem::NoAccept) if !self.place_of_key().is_empty() => {
                let place = self.place_of_key();
                format!(
                    "{problem}: check with `tyche key show` there that its key is the one {place}"
                )
            }
            Some(problem @ Problem::Unsealed) => {
                let remedy = "find out who answers Discovers for it (tcpdump)";
                return self.not_connected(&format!("{problem}: {remedy}"));
            }
            Some(problem) => problem.to_string(),
            None => "it does not answer in time".into(),
        };
        let remedy = match self.common.links.first() {
            Some(link) if ListenAddress::is_named_by(link) => {
                format!("check that `tyche serve` listens at {link}, and firewalls on the way")
            }
            _ => format!(
                "check cables and VLAN, and that `tyche serve` runs on the same Ethernet with \
                 EtherType {:#06x}; one that listens over UDP only: --link udp:HOST",
                self.link.ethertype
            ),
        };
        self.not_connected(&format!("{why}; {remedy}"))
    }

    /// The place that the target's key is from, in words; empty if it has none.
    fn place_of_key(&self) -> String {
        match &self.trust {
            Trust::Clear => String::new(),
            Trust::Given(_) => "of --target-key".to_owned(),
            Trust::Approved(..) => "that you have confirmed".to_owned(),
            Trust::KnownTarget { file, target } => {
                format!("in line {} of {}", target.line, file.display())
            }
        }
    }

    /// The remedy where a key is wanted, and the target says that it has none.
    fn remedy_without_key(&self) -> String {
        let without = match &self.trust {
            Trust::KnownTarget { target, .. } => {
                format!("run `tyche key forget '{}'`", target.name)
            }
            _ => "leave out --target-key".to_owned(),
        };
        format!(
            "the key {} is wanted. Run `tyche serve` with --key there; only if its administrator \
             wants no key, {without}",
            self.place_of_key()
        )
    }

    fn not_connected(&self, why: &str) -> Error {
        let message =
            format!("cannot connect `{}` within {} s: {why}", self.export, self.common.timeout);
        Error::new(Code::Unreachable, message)
    }

    fn links_in_words(&self) -> String {
        match self.common.links.as_slice() {
            [] => "any interface that is up".into(),
            links => links.join(", "),
        }
    }

    /// The error for a session that failed before it was live, by the notice that says why.
    pub(crate) fn ended(&self, notice: Notice) -> Error {
        match notice {
            Notice::Rejected(rejection) => self.refused(&rejection),
            Notice::Failed(failure) => Self::failed(failure),
            notice => Error::new(Code::Other, format!("{notice:?}")),
        }
    }

    /// The error for a session that failed.
    pub(crate) fn failed(failure: Failure) -> Error {
        let code = match failure {
            Failure::Ambiguous(_) => Code::Usage,
            _ => Code::Unreachable,
        };
        Error::new(code, failure.to_string())
    }
}

/// The first of these names in words, and how many more there are: the rest, and the `others`,
/// whose names are not known.
fn first_names(mut names: Vec<String>, others: usize) -> String {
    names.sort();
    names.dedup();
    let more = others + names.len().saturating_sub(NAMES_MAX);
    names.truncate(NAMES_MAX);
    match more {
        0 => names.join(", "),
        _ => format!("{}, and {more} more (`tyche discover`)", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use tyche_block::Geometry;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        session: SessionArgs,
    }

    #[test]
    fn without_a_report_it_is_not_known_whether_a_target_is_heard() {
        let Line { session } = Line::parse_from(["connect", "disk"]);
        let error = session.unreachable(None).to_string();
        assert!(error.contains("does not answer in time") && !error.contains("heard"), "{error}");
    }

    fn listing(target: &str, exports: &[&str], total: usize) -> Listing {
        let export = |name: &&str| ExportInfo {
            uuid: Uuid::from_u128(7),
            name: Name::new(name).unwrap(),
            geometry: Geometry::new(1 << 20, 512),
            shared: false,
            held: false,
        };
        Listing {
            target: Uuid::from_u128(1),
            name: Name::new(target).unwrap(),
            exports: exports.iter().map(export).collect(),
            total,
        }
    }

    #[test]
    fn an_export_is_absent_only_from_lists_that_were_heard_to_their_end() {
        let absent = |export: &str, listings: &[Listing]| {
            let Line { session } = Line::parse_from(["connect", export]);
            session.absent(listings, true).unwrap().map(|error| error.to_string())
        };
        let listings = [listing("one", &["disk"], 1), listing("two", &["other"], 1)];
        for present in ["disk", "one/disk", "two/other"] {
            assert_eq!(absent(present, &listings), None, "{present}");
        }
        assert_eq!(absent("disk", &[]), None, "nobody answers");
        let said = absent("tape", &listings).unwrap();
        assert!(said.contains("no export `tape`; there are: disk, other"), "{said}");
        let said = absent("two/disk", &listings).unwrap();
        assert!(said.contains("there are: one/disk, two/other"), "{said}");

        // Pages are missing, of the one or of the other.
        let listings = [listing("one", &["disk"], 3), listing("two", &["other"], 1)];
        assert_eq!(absent("tape", &listings), None);
        assert_eq!(absent("one/tape", &listings), None);
        let said = absent("two/tape", &listings).unwrap();
        assert!(said.contains("one/disk, two/other, and 2 more"), "{said}");

        // The target that is named was not heard, and there is time left.
        let Line { session } = Line::parse_from(["connect", "three/disk"]);
        let heard = [listing("one", &["disk"], 1)];
        assert!(session.absent(&heard, false).unwrap().is_none());
        let error = session.absent(&heard, true).unwrap().unwrap();
        assert_eq!(error.code, Code::Unreachable);
        assert!(error.message.contains("target `three` is not heard on "), "{error}");
        assert!(error.message.ends_with("heard are: one"), "{error}");
        let names: Vec<_> = (0..50).map(|number| format!("d{number:02}")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let said = absent("tape", &[listing("one", &names, 50)]).unwrap();
        assert!(said.contains("d00, ") && said.contains("d09, and 40 more"), "{said}");
        assert!(!said.contains("d10"), "{said}");
    }
}

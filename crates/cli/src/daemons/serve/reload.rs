//! The configuration is read again while the target runs: the steps of a [`Plan`] are taken, what
//! takes a restart is named, and a file with a mistake changes nothing.
//!
//! A thread of its own does it, one reload after the other: disks may take long to answer, and the
//! target is to be stopped at any time.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use tyche_engine::Exported;
use tyche_native::LinkRemoval;

use super::access::Configured;
use super::changes::{self, Added, named};
use super::check::{absent, validate};
use super::config::{Config, Export};
use super::exports::ExportRemoval;
use super::link_changes::only_link_of;
use super::links::{Links, Missing, Taken, What, may_pass, own_names_of};
use super::own_keys::OwnKeys;
use super::plan::{Change, Plan, Step};
use super::state::locked;
use super::{Served, hosts, late, merged, reading};
use crate::output::bytes;
use crate::shared::error::{Code, Error, Result};
use crate::shared::report::{PlanReport, PlannedAction, PlannedPart};

/// Time limit for requests of exports and links that are gone from the configuration, of all of
/// them together.
const REMOVAL_LIMIT: Duration = Duration::from_secs(10);

/// The thread that reads the configuration again.
pub(super) struct Reloader(SyncSender<()>);

impl Reloader {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system's error when it cannot be created.
    pub(super) fn start(served: &Arc<Served>) -> io::Result<Self> {
        let (sender, requests) = sync_channel(1);
        let served = Arc::downgrade(served);
        let work = move || {
            for () in requests {
                match served.upgrade() {
                    Some(served) => reload(&served),
                    None => return,
                }
            }
        };
        thread::Builder::new().name("tyche-reload".into()).spawn(work)?;
        Ok(Self(sender))
    }

    /// Has the configuration read again, after what is under way.
    pub(super) fn request(&self) {
        // If one is wanted already, it comes after this moment, too.
        let _ = self.0.try_send(());
    }
}

/// Reads the configuration again, and looks again at how large the disks are.
fn reload(served: &Arc<Served>) {
    match read(served).and_then(|now| apply(served, &now)) {
        Ok(plan) => {
            for change in &plan.pending {
                tracing::warn!("{change}: that takes a restart");
            }
            if plan.pending.is_empty() {
                tracing::info!("nothing else has changed that takes a restart");
            }
        }
        Err(error) => {
            tracing::error!("who may connect, and what is exported, stay as they were: {error}");
        }
    }
    served.exports.all().for_each(|exported| look_again(served, &exported));
}

/// The configuration as the file has it now, with the command line.
fn read(served: &Served) -> Result<Config> {
    let was_empty = served.exports.current().lines.is_empty();
    let read = |path: &Path| reading::read(path, was_empty).map(|(config, _)| config);
    let config = served.args.config.as_deref().map(read).transpose()?;
    merged(&served.args, config.unwrap_or_default())
}

/// Looks again at how large the disk of an export is.
fn look_again(served: &Served, exported: &Exported) {
    let (name, before) = (exported.name(), exported.store().geometry().size);
    match served.exports.resize(&name, None) {
        Ok(Some(size)) if size != before => {
            tracing::info!("export {name} has grown from {} to {}", bytes(before), bytes(size));
        }
        Ok(_) => {}
        Err(error) => tracing::warn!("export {name}: {error}"),
    }
}

/// A plan, with the configurations that it was made of.
struct Planned {
    plan: Plan,
    /// The parts that were added by command and do not count.
    left_out: Vec<String>,
    current: Config,
    wanted: Config,
    keys: OwnKeys,
    configured: Configured,
}

/// Makes the plan for a configuration of file and command line. What was added by command stays.
///
/// # Errors
/// The configuration has a mistake, or contradicts itself.
fn plan(served: &Served, now: &Config) -> Result<Planned> {
    let current = served.exports.current().clone();
    let added = Added {
        exports: changes::added(&current).cloned().collect(),
        links: current.added_links.clone(),
        hosts: hosts::added(&current),
    };
    let keys = served.own_keys.after(&current, now)?;
    let (wanted, left_out) = changes::with_added(now.clone(), added, &keys)?;
    let (started, takes_all) = (&served.exports.config, served.opener.takes_all);
    let until_restart = as_served(&wanted, started, &current);
    changes::check(&until_restart).map_err(|error| Error {
        message: format!("{error}; other links of FCoE, or none, take a restart"),
        ..error
    })?;
    let configured = validate(&until_restart, &keys, &served.opener).map_err(|error| {
        match wanted.key.is_empty() == current.key.is_empty() {
            true => error,
            false => Error { message: format!("{error}; a new `key` takes a restart"), ..error },
        }
    })?;
    let plan = Plan::new(&Change { started, current: &current, wanted: &wanted, takes_all });
    Ok(Planned { plan, left_out, current, wanted, keys, configured })
}

/// The configuration that counts until a restart: with the ports of FCoE that there are, and with
/// links if there are any.
fn as_served(wanted: &Config, started: &Config, current: &Config) -> Config {
    let is_other_kind = wanted.link.is_empty() != started.link.is_empty();
    let link = if is_other_kind { &current.link } else { &wanted.link };
    Config { fcoe: started.fcoe.clone(), link: link.clone(), ..wanted.clone() }
}

/// Returns the plan of a reload of a file with this text.
///
/// # Errors
/// As that has: nothing would change.
pub(super) fn foresee(served: &Served, path: &Path, text: &str) -> Result<PlanReport> {
    let now = merged(&served.args, Config::parse(text, path)?)?;
    let Planned { plan, left_out, .. } = plan(served, &now)?;
    let renamed = renamed_links(served, &plan);
    let needed = needed_links(served, &plan, &renamed);
    let is_kept =
        |step: &Step| renamed.iter().any(|(new, old)| step.name == *new || step.name == *old);
    let note = |step: &Step| match (step.part, step.action) {
        (PlannedPart::Link, _) if is_kept(step) => {
            Some("the same address by another name: it is served on".to_owned())
        }
        (PlannedPart::Link, PlannedAction::Add) => {
            let is_absent = !absent(std::slice::from_ref(&step.name)).is_empty();
            is_absent.then(|| "it is not there: no link is removed before it is".to_owned())
        }
        (PlannedPart::Link, PlannedAction::Remove) => {
            let sessions = needed.get(&step.name)?;
            Some(format!("the only link of {sessions}: only when it is read again without that"))
        }
        (PlannedPart::Export, PlannedAction::Remove) => {
            let visible = served.rights().visible_at(&step.name);
            let users = served.exports.users(&step.name, &visible);
            let users = (!users.is_empty()).then(|| users.join(", "))?;
            Some(format!("connected by {users}: only when it is read again without that"))
        }
        _ => None,
    };
    Ok(PlanReport { left_out, ..plan.report(note) })
}

/// Takes the steps from what is served to a configuration of file and command line.
///
/// # Errors
/// The configuration has a mistake. Nothing has changed then.
fn apply(served: &Arc<Served>, now: &Config) -> Result<Plan> {
    let first = plan(served, now)?;
    // Others may change something for long, also those who are not to any more.
    served.admins.withdraw(&first.wanted.admin);
    // The name of an address may take long to be found: no command waits for it.
    let renamed = renamed_links(served, &first.plan);
    let mut links = open_new(served, &first.plan, &renamed);
    let changing = served.exports.change();
    let Planned { plan, left_out, current, wanted, keys, configured } = plan(served, now)?;
    changes::warn_of(&left_out);
    served.own_keys.change(&keys, &served.exports.target);
    served.admins.replace(&wanted.admin, &keys);
    let mut applying = Applying::new(served, (&current, wanted), renamed);
    // Before hosts are let in.
    served.exports.set_limits(&applying.next);
    served.rights().reconfigure(configured, served);
    tracing::info!("who may connect was read again");
    for step in &plan.steps {
        if served.is_stopping() {
            break;
        }
        applying.take(step, links.remove(&step.name));
    }
    let Applying { next, removals, ending, .. } = applying;
    let state = locked(&served.exports.state);
    // The file may have taken over what was added.
    let kept = [
        state.keep_links(&next.added_links),
        state.keep_hosts(&hosts::added(&next)),
        state.keep_added(changes::added(&next)),
    ];
    kept.into_iter().filter_map(Result::err).for_each(|error| tracing::warn!("{error}"));
    drop(state);
    *served.exports.current() = next;
    if let Err(error) = late::watch(served) {
        tracing::error!("no thread to wait for links that are missing: {error}");
    }
    drop(changing);
    let deadline = Instant::now() + REMOVAL_LIMIT;
    await_exports(removals, deadline);
    for (link, removal) in ending {
        match removal.wait(deadline.saturating_duration_since(Instant::now())) {
            true => tracing::info!("link {link} is removed"),
            false => tracing::warn!(
                "link {link} takes no more requests, and ends when a disk has finished those that \
                 came over it"
            ),
        }
    }
    Ok(plan)
}

/// The names of the links that a plan adds, or removes.
fn links_of(plan: &Plan, action: PlannedAction) -> impl Iterator<Item = &String> {
    let is_it = move |step: &&Step| (step.part, step.action) == (PlannedPart::Link, action);
    plan.steps.iter().filter(is_it).map(|step| &step.name)
}

/// The links that a plan adds and removes by two names of one address, by the new name. They can't
/// be opened beside themselves, and hosts need not notice.
fn renamed_links(served: &Served, plan: &Plan) -> BTreeMap<String, String> {
    let mut renamed = BTreeMap::new();
    let removed: Vec<_> = links_of(plan, PlannedAction::Remove).collect();
    for new in links_of(plan, PlannedAction::Add).filter(|_| !removed.is_empty()) {
        let own = own_names_of(new);
        let before = served.links().with_own(&own).map(str::to_owned);
        // One of two new names has it.
        let is_free = |it: &String| removed.contains(&it) && renamed.values().all(|of| of != it);
        if let Some(before) = before.filter(is_free) {
            renamed.insert(new.clone(), before);
        }
    }
    renamed
}

/// The links that a plan removes and that a session needs as it is now, each with those sessions.
fn needed_links(
    served: &Served,
    plan: &Plan,
    renamed: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let (mut needed, mut gone) = (BTreeMap::new(), Vec::new());
    let removed = links_of(plan, PlannedAction::Remove);
    for name in removed.filter(|name| renamed.values().all(|before| before != *name)) {
        match only_link_of(served, name, &gone) {
            Some(sessions) => _ = needed.insert(name.clone(), sessions),
            None => gone.push(name.clone()),
        }
    }
    needed
}

/// Opens the links that are new.
fn open_new(
    served: &Served,
    plan: &Plan,
    renamed: &BTreeMap<String, String>,
) -> BTreeMap<String, Result<Links>> {
    let new = links_of(plan, PlannedAction::Add).filter(|name| !renamed.contains_key(*name));
    new.map(|name| (name.clone(), served.opener.open_one(name))).collect()
}

/// Waits until nothing of removed exports is left.
fn await_exports(removals: Vec<(String, ExportRemoval)>, deadline: Instant) {
    for (name, removal) in removals {
        match removal.wait(deadline.saturating_duration_since(Instant::now())) {
            Ok(()) => tracing::info!("export {name} is removed"),
            Err(error) => tracing::error!("{error}"),
        }
    }
}

/// A plan whose steps are being taken.
struct Applying<'a> {
    served: &'a Served,
    wanted: Config,
    /// The configuration that is served after the steps that were taken.
    next: Config,
    /// The links that have other names by now, with those before.
    renamed: BTreeMap<String, String>,
    /// Whether all new links are served.
    has_new_links: bool,
    /// The exports that end.
    removals: Vec<(String, ExportRemoval)>,
    /// The links that end.
    ending: Vec<(String, LinkRemoval)>,
}

impl<'a> Applying<'a> {
    fn new(
        served: &'a Served,
        (current, wanted): (&Config, Config),
        renamed: BTreeMap<String, String>,
    ) -> Self {
        // Exports keep the properties that take a restart.
        let kept = |export: &Export| match named(&wanted, &export.name) {
            None => export.clone(),
            Some(Export { place, hosts, allow, initiators, iops, bytes_per_second, .. }) => {
                Export {
                    place: place.clone(),
                    hosts: hosts.clone(),
                    allow: allow.clone(),
                    initiators: initiators.clone(),
                    iops: *iops,
                    bytes_per_second: *bytes_per_second,
                    ..export.clone()
                }
            }
        };
        let export = current.export.iter().map(kept).collect();
        let (link, fcoe) = (current.link.clone(), current.fcoe.clone());
        let next = Config { export, link, fcoe, ..wanted.clone() };
        let (removals, ending) = Default::default();
        Self { served, wanted, next, renamed, has_new_links: true, removals, ending }
    }

    /// Takes a step. `links`: the open link, if it adds one.
    fn take(&mut self, step: &Step, links: Option<Result<Links>>) {
        match (step.part, step.action) {
            (PlannedPart::Link, PlannedAction::Add) if self.renamed.contains_key(&step.name) => {
                self.rename_link(&step.name);
            }
            (PlannedPart::Link, PlannedAction::Add) => {
                let opened = links.unwrap_or_else(|| self.served.opener.open_one(&step.name));
                self.add_link(&step.name, opened);
            }
            (PlannedPart::Link, PlannedAction::Remove) => self.remove_link(&step.name),
            (PlannedPart::Export, PlannedAction::Add) => self.add_export(&step.name),
            (PlannedPart::Export, PlannedAction::Remove) => self.remove_export(&step.name),
            // The rights of hosts count already.
            _ => tracing::info!("configuration: {step}"),
        }
    }

    fn add_link(&mut self, name: &str, opened: Result<Links>) {
        let target = &self.served.exports.target;
        let served = opened.and_then(|links| self.served.links().serve(target, links));
        match served {
            Ok(()) => tracing::info!("{name} is served"),
            // Or a former one of its name has not ended.
            Err(error) if may_pass(&error) || error.code == Code::Device => {
                tracing::warn!("{error}; going on without it");
                self.has_new_links = false;
                let missing = Missing { what: What::Link(name.to_owned()), why: error.message };
                self.served.links().missing.push(missing);
            }
            Err(error) => {
                tracing::error!("{error}; {name} is tried again when the file is read again");
                self.has_new_links = false;
                return;
            }
        }
        self.next.link.push(name.to_owned());
    }

    /// Has a link be known by its new name.
    fn rename_link(&mut self, name: &str) {
        let before = &self.renamed[name];
        self.served.links().rename(before, name);
        let links = self.next.link.iter_mut().filter(|link| *link == before);
        links.for_each(|link| name.clone_into(link));
        tracing::info!("link {before} is {name} now, at the same address");
    }

    /// Removes a link, unless the target could be off the network then, or a session be lost.
    fn remove_link(&mut self, name: &str) {
        if self.renamed.values().any(|before| before == name) {
            return;
        }
        if let Some(until) = self.link_stays_until(name) {
            tracing::warn!(
                "link {name} is not in the configuration any more, and is served until that is \
                 read again {until}"
            );
            return;
        }
        let mut table = self.served.links();
        match table.take(&self.served.exports.target, name) {
            Some(Taken::Served(removal)) => self.ending.push((name.to_owned(), removal)),
            Some(Taken::Missing) | None => tracing::info!("link {name} is not waited for any more"),
        }
        self.next.link.retain(|it| it != name);
    }

    /// The state in which a link may be removed, if that is not so now.
    fn link_stays_until(&self, name: &str) -> Option<String> {
        let table = self.served.links();
        if table.why_missing(name).is_some() {
            return None;
        }
        let is_other_served = table.served().any(|it| self.wanted.link.iter().any(|one| one == it));
        drop(table);
        if !self.has_new_links || !is_other_served {
            return Some("when all of its new links are there".to_owned());
        }
        let sessions = only_link_of(self.served, name, &[])?;
        Some(format!("without it being the only link of {sessions}"))
    }

    fn add_export(&mut self, name: &str) {
        let exports = &self.served.exports;
        // It may have the disk of one that is gone.
        await_exports(std::mem::take(&mut self.removals), Instant::now() + REMOVAL_LIMIT);
        let export = named(&self.wanted, name).expect("the plan names what is wanted").clone();
        let opened = exports.open(&export, false);
        match opened.and_then(|disk| exports.serve(&export, &self.served.rights(), disk)) {
            Ok(_) => {
                tracing::info!("export {name} is added: {}", export.path);
                self.next.export.push(export);
            }
            Err(error) => {
                self.served.rights().forget_configured(name);
                tracing::error!("export {name} is not served: {error}");
            }
        }
    }

    /// Removes an export that nobody has connected.
    fn remove_export(&mut self, name: &str) {
        let exports = &self.served.exports;
        let visible = self.served.rights().visible_at(name);
        let users = exports.users(name, &visible);
        if !users.is_empty() {
            tracing::warn!(
                "export {name} is not in the configuration any more, and is served until that is \
                 read again without it being connected by {}",
                users.join(", ")
            );
            return;
        }
        self.next.export.retain(|export| export.name != name);
        self.removals.extend(exports.remove(name).map(|removal| (name.to_owned(), removal)));
        self.served.rights().forget_configured(name);
    }
}

//! The plan of a target whose configuration has changed: the steps that lead from what is served to
//! what is wanted, and the changes that take a restart.
//!
//! It is made of two configurations and changes nothing, so that it can be shown beforehand.

use std::collections::BTreeMap;
use std::fmt;

use super::config::{Admin, Config, Export, Host};
use super::pool::Pool;
use crate::shared::report::{PendingChange, PlanReport, PlannedAction, PlannedPart, PlannedStep};

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Plan {
    /// In the order in which they are taken: new links come before those that are gone, and exports
    /// that are gone before new ones, which may have their disks.
    pub(super) steps: Vec<Step>,
    pub(super) pending: Vec<Pending>,
}

/// A step that a running target takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) action: PlannedAction,
    pub(super) part: PlannedPart,
    /// The name of the part.
    pub(super) name: String,
}

impl Step {
    fn new(action: PlannedAction, part: PlannedPart, name: impl Into<String>) -> Self {
        Self { action, part, name: name.into() }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.report(None).fmt(f)
    }
}

/// A change that takes a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pending {
    /// The key in the file.
    key: String,
    /// Its line there; `None` if it is gone from it.
    line: Option<usize>,
    /// The change in words.
    what: String,
}

impl fmt::Display for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.report().fmt(f)
    }
}

/// The configurations that are compared.
pub(super) struct Change<'a> {
    /// The one that the target was started with: what takes a restart is served as it says.
    pub(super) started: &'a Config,
    /// The exports and links that are served now, and the access that counts now.
    pub(super) current: &'a Config,
    /// The one that is wanted.
    pub(super) wanted: &'a Config,
    /// Whether all interfaces are served that are up, and no named links.
    pub(super) takes_all: bool,
}

impl Plan {
    /// The plan for a change.
    pub(super) fn new(change: &Change<'_>) -> Self {
        use PlannedAction::{Add, Change as Changed, Remove};
        let Change { current, wanted, .. } = *change;
        let mut steps = tables(current, wanted);
        let (added, removed) = links(change);
        steps.extend(added.map(|link| Step::new(Add, PlannedPart::Link, link)));
        let is_in = |config: &Config, name: &str| config.export.iter().any(|it| it.name == name);
        let exports = |from: &'_ Config, to: &'_ Config, action| {
            let others = from.export.iter().filter(|export| !is_in(to, &export.name));
            let step = |export: &Export| Step::new(action, PlannedPart::Export, &*export.name);
            others.map(step).collect::<Vec<_>>()
        };
        steps.extend(exports(current, wanted, Remove));
        steps.extend(exports(wanted, current, Add));
        let is_other = |(before, now): &(&Export, &Export)| users(before) != users(now);
        let others = pairs(current, wanted).filter(is_other);
        steps.extend(others.map(|(_, now)| Step::new(Changed, PlannedPart::Export, &*now.name)));
        steps.extend(removed.map(|link| Step::new(Remove, PlannedPart::Link, link)));
        Self { steps, pending: pending(change) }
    }

    /// The plan for people and programs. `note`: a remark on a step.
    pub(super) fn report(&self, note: impl Fn(&Step) -> Option<String>) -> PlanReport {
        PlanReport {
            steps: self.steps.iter().map(|step| step.report(note(step))).collect(),
            restart: self.pending.iter().map(Pending::report).collect(),
            left_out: Vec::new(),
        }
    }
}

impl Step {
    fn report(&self, note: Option<String>) -> PlannedStep {
        let Self { action, part, name } = self;
        PlannedStep { action: *action, part: *part, name: name.clone(), note }
    }
}

impl Pending {
    fn report(&self) -> PendingChange {
        let Self { key, line, what } = self;
        let line = line.map(|line| line as u64);
        PendingChange { key: key.clone(), line, change: what.clone() }
    }
}

/// The steps that change who may connect, who may ask, and where disks are made.
fn tables(current: &Config, wanted: &Config) -> Vec<Step> {
    let hosts = |config| by_name::<Host>(config, |it| &it.name);
    let mut steps = compared(PlannedPart::Host, &hosts(&current.host), &hosts(&wanted.host));
    let has_keys = !current.key.is_empty() && !wanted.key.is_empty();
    if has_keys && current.key != wanted.key {
        steps.push(Step::new(PlannedAction::Change, PlannedPart::Key, "key"));
    }
    if current.auth != wanted.auth {
        steps.push(Step::new(PlannedAction::Change, PlannedPart::Auth, "auth"));
    }
    let admins = |config| by_name::<Admin>(config, |it| &it.name);
    steps.extend(compared(PlannedPart::Admin, &admins(&current.admin), &admins(&wanted.admin)));
    let pools = |config| by_name::<Pool>(config, |it| &it.name);
    steps.extend(compared(PlannedPart::Pool, &pools(&current.pool), &pools(&wanted.pool)));
    steps
}

/// Tables of the same kind, by the name that they are about.
fn by_name<T>(tables: &[T], name: impl Fn(&T) -> &String) -> BTreeMap<&str, Vec<&T>> {
    let mut named = BTreeMap::<_, Vec<_>>::new();
    for table in tables {
        named.entry(name(table).as_str()).or_default().push(table);
    }
    named
}

/// The steps from some tables to others.
fn compared<T: PartialEq>(
    part: PlannedPart,
    before: &BTreeMap<&str, Vec<&T>>,
    now: &BTreeMap<&str, Vec<&T>>,
) -> Vec<Step> {
    use PlannedAction::{Add, Change, Remove};
    let step = |action, name: &&str| Step::new(action, part, *name);
    let mut steps = Vec::new();
    steps.extend(before.keys().filter(|it| !now.contains_key(*it)).map(|it| step(Remove, it)));
    steps.extend(now.keys().filter(|it| !before.contains_key(*it)).map(|it| step(Add, it)));
    let is_other = |name: &&&str| before.get(*name).is_some_and(|it| *it != now[*name]);
    steps.extend(now.keys().filter(is_other).map(|it| step(Change, it)));
    steps
}

/// The links that are new, and those that are gone.
fn links<'a>(
    change: &Change<'a>,
) -> (impl Iterator<Item = &'a String>, impl Iterator<Item = &'a String>) {
    let Change { current, wanted, takes_all, .. } = *change;
    // Between names and all interfaces it takes a restart.
    let is_named = !takes_all && !wanted.link.is_empty();
    let added = wanted.link.iter().filter(move |it| is_named && !current.link.contains(it));
    let removed = current.link.iter().filter(move |it| is_named && !wanted.link.contains(it));
    (added, removed)
}

/// The exports of the same name, before and now.
fn pairs<'a>(
    current: &'a Config,
    wanted: &'a Config,
) -> impl Iterator<Item = (&'a Export, &'a Export)> {
    wanted.export.iter().filter_map(|now| {
        let before = current.export.iter().find(|export| export.name == now.name)?;
        Some((before, now))
    })
}

/// Those who may have an export, and how much.
fn users(export: &Export) -> impl PartialEq {
    let Export { hosts, allow, initiators, iops, bytes_per_second, .. } = export;
    ((hosts.clone(), allow.clone(), initiators.clone()), (*iops, *bytes_per_second))
}

/// The properties of an export that are read when it is added only: not its name, the place that
/// defines it, who may have it, and how much they may have.
pub(super) fn properties(export: &Export) -> impl PartialEq + use<> {
    let &Export {
        ref path,
        uuid,
        read_only,
        write_back,
        block_size,
        shared,
        name: _,
        place: _,
        hosts: _,
        allow: _,
        initiators: _,
        iops: _,
        bytes_per_second: _,
        origin: _,
        renamed_from: _,
    } = export;
    (path.clone(), uuid, [read_only, write_back, shared], block_size)
}

/// The changes that take a restart, line by line.
fn pending(change: &Change<'_>) -> Vec<Pending> {
    let Change { started, current, wanted, takes_all } = *change;
    let is_other = |(before, now): &(&Export, &Export)| properties(before) != properties(now);
    let mut pending: Vec<_> = pairs(current, wanted)
        .filter(is_other)
        .map(|(_, now)| Pending {
            key: "export".to_owned(),
            line: now.place.line(),
            what: format!("export {} has other properties", now.name),
        })
        .collect();
    let line = |key: &str| wanted.lines.get(key).copied();
    let mut note = |key: &str, what: String| {
        pending.push(Pending { key: key.to_owned(), line: line(key), what });
    };
    if takes_all && !wanted.link.is_empty() {
        note("link", "`link` names links, and all interfaces are served".to_owned());
    }
    // Without links and with ports, those are the only ones.
    let is_unnamed = !takes_all && wanted.link.is_empty() && !started.link.is_empty();
    if is_unnamed {
        note("link", "`link` is gone, and certain links are served".to_owned());
    }
    let is_fcoe_only = started.link.is_empty() && !takes_all;
    if is_fcoe_only && !wanted.link.is_empty() {
        note("link", "`link` is new, and only ports of FCoE are served".to_owned());
    }
    for (from, to, what) in [(wanted, started, "new"), (started, wanted, "removed")] {
        for port in from.fcoe.iter().filter(|it| to.fcoe.iter().all(|at| at.link != it.link)) {
            note("fcoe", format!("link {} (FCoE) is {what}", port.link));
        }
    }
    for port in &wanted.fcoe {
        if started.fcoe.iter().any(|it| it.link == port.link && it != port) {
            note("fcoe", format!("link {} (FCoE) has other properties", port.link));
        }
    }
    for (key, differs) in [
        ("name", started.name != wanted.name),
        ("threads", started.threads != wanted.threads),
        ("limits", started.limits != wanted.limits),
        ("key", started.key.is_empty() != wanted.key.is_empty()),
        ("control", started.control != wanted.control),
        ("silent", started.is_silent != wanted.is_silent),
        ("udp_discovery", started.is_hidden != wanted.is_hidden),
        ("fcoe_vlan", started.fcoe_vlan != wanted.fcoe_vlan),
    ] {
        if differs {
            note(key, format!("`{key}` has changed"));
        }
    }
    pending
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tyche_proto::crypto::SecretKey;

    use super::super::config::Initiators;
    use super::*;

    fn export(text: &str) -> Export {
        Export::parse(text).unwrap()
    }

    fn link(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    fn served() -> Config {
        Config {
            export: vec![export("a=mem:1M"), export("b=mem:1M"), export("c=mem:1M")],
            link: link(&["eth0", "eth1"]),
            ..Config::default()
        }
    }

    fn plan(served: &Config, wanted: &Config) -> (Vec<String>, Vec<String>) {
        let change = Change { started: served, current: served, wanted, takes_all: false };
        texts(&Plan::new(&change))
    }

    fn texts(plan: &Plan) -> (Vec<String>, Vec<String>) {
        let steps = plan.steps.iter().map(ToString::to_string).collect();
        (steps, plan.pending.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_plan_has_the_steps_in_the_order_in_which_they_are_possible() {
        let served = served();
        let nothing = (link(&[]), link(&[]));
        assert_eq!(plan(&served, &served), nothing);
        let mut wanted = served.clone();
        wanted.export = vec![export("a=mem:1M"), export("b=mem:1M"), export("d=mem:1M")];
        wanted.export[0].initiators = Initiators::Any;
        wanted.link = link(&["eth1", "eth2"]);
        let steps = [
            "add link eth2",
            "remove export c",
            "add export d",
            "change export a: who may have it, or its limits",
            "remove link eth0",
        ];
        assert_eq!(plan(&served, &wanted), (link(&steps), link(&[])));
        // What is served is what counts, not what was served at the start.
        let change =
            Change { started: &served, current: &wanted, wanted: &wanted, takes_all: false };
        assert_eq!(texts(&Plan::new(&change)), nothing);
    }

    #[test]
    fn hosts_are_told_apart_by_name_and_keys() {
        let [key, other] =
            [1, 2].map(|number| SecretKey::from_random([number; 32]).public().to_string());
        let config = |hosts: &[(&str, &str)], auth: &str| {
            let host =
                |(name, key): &(&str, &str)| format!("[[host]]\nname = {name:?}\nkey = {key:?}\n");
            let text = auth.to_owned() + &hosts.iter().map(host).collect::<String>();
            Config::parse(&text, Path::new("target.toml")).unwrap()
        };
        let before = config(&[("alpha", &key), ("beta", &other)], "");
        let now = config(&[("beta", &key), ("gamma", &other)], "auth = \"optional\"\n");
        let steps = [
            "remove host alpha",
            "add host gamma",
            "change host beta: its keys or limits",
            "change who has to have a key (`auth`)",
        ];
        assert_eq!(plan(&before, &now), (link(&steps), link(&[])));
    }

    #[test]
    fn pools_come_and_go_and_move() {
        let config = |pools: &[(&str, &str)]| {
            let pool = |(name, path): &(&str, &str)| {
                format!("[[pool]]\nname = {name:?}\npath = {path:?}\n")
            };
            let text: String = pools.iter().map(pool).collect();
            Config::parse(&text, Path::new("target.toml")).unwrap()
        };
        let before = config(&[("fast", "dir:/srv/a"), ("old", "dir:/srv/b")]);
        let now = config(&[("fast", "dir:/srv/c"), ("new", "dir:/srv/b")]);
        let steps = ["remove pool old", "add pool new", "change pool fast"];
        assert_eq!(plan(&before, &now), (link(&steps), link(&[])));
    }

    #[test]
    fn changes_that_take_a_restart_are_named_line_by_line() {
        let text = "threads = 2\n\nsilent = true\n[limits]\nmemory = \"7MiB\"\n[[export]]\n\
                    name = \"b\"\npath = \"mem:2M\"\n[[fcoe]]\nlink = \"eth7\"\n";
        let mut wanted = Config::parse(text, Path::new("target.toml")).unwrap();
        wanted.link = link(&["eth0", "eth1"]);
        let served = Config { key: vec!["/key".into()], ..served() };
        let (steps, pending) = plan(&served, &wanted);
        assert_eq!(steps, ["remove export a", "remove export c"]);
        assert_eq!(
            pending,
            [
                "export b has other properties (line 6)",
                "link eth7 (FCoE) is new (line 9)",
                "`threads` has changed (line 1)",
                "`limits` has changed (line 4)",
                "`key` has changed",
                "`silent` has changed (line 3)",
            ]
        );
    }

    #[test]
    fn from_named_links_to_all_interfaces_and_back_it_takes_a_restart() {
        let (named, all) = (served(), Config { link: Vec::new(), ..served() });
        let (steps, pending) = plan(&named, &all);
        assert_eq!(
            (steps, pending),
            (link(&[]), link(&["`link` is gone, and certain links are served"]))
        );
        let change = Change { started: &all, current: &all, wanted: &named, takes_all: true };
        let (steps, pending) = texts(&Plan::new(&change));
        assert_eq!(steps, [""; 0]);
        assert_eq!(pending, ["`link` names links, and all interfaces are served"]);
    }
}

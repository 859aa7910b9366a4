//! `tyche serve --fcoe`: the exports as logical units of Fibre Channel over Ethernet.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tyche_fcoe::{
    Departure, FcoeTarget, FcoeTargetOptions, PortOptions, TargetUnit, UnitRemoval, Units,
    VisibleTo, VlanAnnouncer, threads_within,
};
use tyche_session::fcoe::{Numbers, PortName, parse_wwpn};
use uuid::Uuid;

use super::config::{Config, DefinedAt, Export, FcoePort, Initiators};
use super::links::{Missing, What, may_pass};
use super::vlan;
use crate::shared::error::{Code, CodedResult, Context, Error, Result};
use crate::shared::fcoe::AddressRecord;
use crate::shared::links::LinkArgs;
use crate::shared::report::TargetPort;

/// Time limit for the ports of FCoE to report, which is that of links.
pub(super) const PORTS_ANSWER: Duration = Duration::from_secs(1);

/// The running ports of a target. Dropping it logs all initiators out.
pub(super) struct Fcoe {
    ports: Mutex<Vec<Port>>,
    /// The announcers of their VLANs, which run until they are dropped.
    announcers: Mutex<Vec<VlanAnnouncer>>,
    units: Arc<Units>,
    /// The options of links.
    link: LinkArgs,
    /// Threads of each port.
    threads: usize,
    /// The directory of their N_Port_IDs.
    n_port_ids: PathBuf,
}

/// A running port.
struct Port {
    target: FcoeTarget,
    interface: String,
    name: PortName,
}

/// Refuses exports that hosts of both kinds could write: neither kind knows of the other's writers.
///
/// # Errors
/// `Usage` or `Config`.
pub(super) fn refuse_two_writers(config: &Config) -> Result<()> {
    if config.fcoe.is_empty() || config.link.is_empty() {
        return Ok(());
    }
    let is_one_s = |export: &&Export| !export.read_only && !export.shared;
    match config.export.iter().find(is_one_s) {
        None => Ok(()),
        Some(export) => {
            let message = format!(
                "{} would be writable over FCoE and over other links at once, and one writer \
                 would not keep the other out: leave out --fcoe or --link, make it read-only or \
                 `shared`, or serve it by another target",
                export.described()
            );
            Err(Error::new(export.place.code(), message))
        }
    }
}

/// Refuses exports that hosts have to show a key or a UUID for, and that any port of FCoE could
/// have all the same, unless that is what the configuration says. `has_key`: whether the target
/// has one.
///
/// # Errors
/// `Config`.
pub(super) fn refuse_ways_around(config: &Config, has_key: bool) -> Result<()> {
    if config.fcoe.is_empty() {
        return Ok(());
    }
    let is_restricted =
        |export: &Export| has_key || export.allow.is_some() || !export.hosts.is_empty();
    let is_open = |export: &&Export| export.initiators == Initiators::Unsaid;
    match config.export.iter().filter(is_open).find(|export| is_restricted(export)) {
        None => Ok(()),
        Some(export) => {
            let remedy = match export.place {
                DefinedAt::File { .. } => {
                    "`initiators = [\"WWPN\"]`, or write `initiators = \"any\"`"
                }
                DefinedAt::CommandLine | DefinedAt::Command => {
                    "--fcoe-initiator WWPN, or say --fcoe-initiator any"
                }
            };
            let message = format!(
                "{} would be for every port on the network of FCoE, which has no keys: name those \
                 that may have it with {remedy}",
                export.described()
            );
            Err(Error::new(Code::Config, message))
        }
    }
}

impl Fcoe {
    /// Whether hosts of FCoE are the only ones.
    pub(super) fn is_alone(config: &Config) -> bool {
        config.link.is_empty() && !config.fcoe.is_empty()
    }

    /// No port yet. `threads`: the most of each; `n_port_ids`: the directory of those.
    pub(super) fn new(link: LinkArgs, threads: u8, n_port_ids: PathBuf) -> Self {
        let (ports, announcers) = Default::default();
        let (units, threads) = (Arc::new(Units::new(Vec::new())), threads_within(threads.into()));
        Self { ports, announcers, units, link, threads, n_port_ids }
    }

    /// Starts the ports; returns those that are missing.
    pub(super) fn start(&self, config: &Config) -> Result<Vec<Missing>> {
        let vlans = vlan::by_link(&config.fcoe_vlan)?.into_iter();
        let vlans = vlans.map(|(link, vids)| What::Vlans(link.to_owned(), vids));
        let mut missing = Vec::new();
        for what in config.fcoe.iter().cloned().map(What::Port).chain(vlans) {
            match self.add(&what) {
                Ok(()) => {}
                Err(error) if may_pass(&error) => missing.push((what, error)),
                Err(error) => return Err(error),
            }
        }
        if Self::is_alone(config) && self.ports().is_empty() {
            return Err(missing.swap_remove(0).1);
        }
        let missing = missing.into_iter().map(|(what, error)| {
            tracing::warn!("{error}; going on without it");
            Missing { what, why: error.message }
        });
        Ok(missing.collect())
    }

    /// Ends all ports: initiators are logged out.
    pub(super) fn stop(&self) {
        let ports = std::mem::take(&mut *self.ports());
        let announcers = &mut *self.announcers.lock().unwrap_or_else(PoisonError::into_inner);
        drop((ports, std::mem::take(announcers)));
    }

    /// Shows initiators an export as a logical unit.
    ///
    /// # Errors
    /// `Device` if something of another one with its number is left.
    pub(super) fn add_unit(&self, unit: TargetUnit) -> Result<()> {
        self.units.add(unit).context(Code::Device, "FCoE")
    }

    fn ports(&self) -> MutexGuard<'_, Vec<Port>> {
        self.ports.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a port, or an announcer.
    ///
    /// # Errors
    /// Its interface can't be used.
    pub(super) fn add(&self, what: &What) -> Result<()> {
        match what {
            What::Port(port) => self.add_port(port),
            What::Vlans(link, vids) => {
                let announcer = vlan::announce(&self.link, link, vids)?;
                self.announcers.lock().unwrap_or_else(PoisonError::into_inner).push(announcer);
                Ok(())
            }
            What::Link(_) => unreachable!("a link of Tyche is the target's"),
        }
    }

    fn add_port(&self, port: &FcoePort) -> Result<()> {
        let link = &self.link;
        let interface = link.open_fcoe_on(&port.link)?;
        let further_threads = link.open_fcoe_queues(&port.link, self.threads - 1)?;
        let opened = interface.name().to_owned();
        if let Some(warning) = interface.warning() {
            tracing::warn!("{warning}");
        }
        let name = PortName::take(interface.mac(), Numbers::Target).coded()?.or(port.wwpn);
        let address = AddressRecord::of(name.wwpn, &self.n_port_ids);
        let options = FcoeTargetOptions {
            port: PortOptions {
                interface,
                mode: port.mode,
                wwpn: name.wwpn,
                wwnn: name.wwnn,
                recorded: address.read(),
                remember: Some(address.into_callback()),
                e_d_tov: port.e_d_tov(),
            },
            further_threads,
            units: Arc::clone(&self.units),
            spin: link.spin(),
        };
        let target = FcoeTarget::start(options)?;
        self.ports().push(Port { target, interface: opened, name });
        Ok(())
    }

    /// The interfaces, each with the name of its port.
    pub(super) fn described(&self) -> Vec<String> {
        let named = |port: &Port| format!("{} (FCoE {})", port.interface, port.name.wwpn);
        self.ports().iter().map(named).collect()
    }

    /// Takes the present size of an export: initiators are told of another.
    pub(super) fn resized(&self, export: &str) {
        if let Some(lun) = self.lun(export) {
            self.units.resized(lun);
        }
    }

    /// Shows initiators an export whose disk has arrived.
    pub(super) fn arrived(&self, export: &str, uuid: Uuid) {
        if let Some(lun) = self.lun(export) {
            self.units.arrived(lun, uuid);
        }
    }

    /// Changes which ports may have exports. One of ours that is missing so far serves them like
    /// that when it comes.
    pub(super) fn show(
        &self,
        wanted: impl IntoIterator<Item = (impl AsRef<str>, VisibleTo)>,
    ) -> Departure {
        // Without ports in the configuration there are no units.
        let wanted = wanted.into_iter();
        let wanted = wanted.filter_map(|(name, it)| Some((self.lun(name.as_ref())?, it)));
        self.units.set_initiators(wanted.collect())
    }

    /// Whether there may be a port that has an export.
    pub(super) fn shows(&self, export: &str) -> bool {
        self.lun(export).is_some_and(|lun| self.units.is_shown(lun))
    }

    /// Removes the logical unit of an export, if it has one.
    pub(super) fn remove_unit(&self, export: &str) -> Option<UnitRemoval> {
        self.lun(export).and_then(|lun| self.units.remove(lun))
    }

    /// The ports that are logged in and see an export, which is visible to these.
    pub(super) fn users(&self, export: &str, visible: &VisibleTo) -> Vec<String> {
        if !self.shows(export) {
            return Vec::new();
        }
        let sees = |wwpn: &String| {
            parse_wwpn(wwpn).is_ok_and(|wwpn| {
                (visible.only.is_empty() || visible.only.contains(&wwpn))
                    && !visible.except.contains(&wwpn)
            })
        };
        let ports = self.ask()(Instant::now() + PORTS_ANSWER);
        ports.into_iter().flat_map(|port| port.initiators).filter(sees).collect()
    }

    /// Asks for the state of the interfaces. The function that is returned waits for the answers,
    /// no longer than until then.
    pub(super) fn ask(&self) -> impl FnOnce(Instant) -> Vec<TargetPort> + use<> {
        let ask = |it: &Port| (it.interface.clone(), it.name.wwpn, it.target.ask());
        let asked: Vec<_> = self.ports().iter().map(ask).collect();
        move |deadline| {
            let reports = asked.into_iter().map(|(interface, wwpn, answer)| {
                match answer.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                    Ok(report) => (&report).into(),
                    Err(_) => TargetPort {
                        interface,
                        wwpn: wwpn.to_string(),
                        problem: Some("its thread does not answer".to_owned()),
                        ..Default::default()
                    },
                }
            });
            reports.collect()
        }
    }

    /// The LUN of an export, if it has one.
    pub(super) fn lun(&self, export: &str) -> Option<u8> {
        self.units.lun(export)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const PORT: &str = "[[fcoe]]\nlink = \"eth1\"\n";

    fn refused(text: &str, has_key: bool) -> Result<()> {
        refuse_ways_around(&Config::parse(text, Path::new("target.toml")).unwrap(), has_key)
    }

    #[test]
    fn no_export_that_is_for_some_is_for_every_port_without_a_word() {
        let export = "[[export]]\nname = \"vm1\"\npath = \"/dev/vm1\"\n";
        let of = |line: &str| format!("{PORT}{export}{line}\n");
        for (line, has_key) in [
            ("allow = [\"host1\"]", true),
            ("", true),
            ("read_only = true", true),
            ("initiators = []", true),
            ("hosts = [\"7a26e711-2233-4455-a677-8899aabbccdd\"]", false),
        ] {
            let error = refused(&of(line), has_key).unwrap_err();
            assert_eq!(error.code, Code::Config, "{line}");
            let said = ["line 3", "`vm1`", "`initiators = [\"WWPN\"]`", "`initiators = \"any\"`"];
            assert!(said.iter().all(|said| error.message.contains(said)), "{error}");
            for ports in ["initiators = \"any\"", "initiators = [\"21:00:02:00:5e:10:00:02\"]"] {
                let line = line.strip_prefix("initiators = []").unwrap_or(line);
                let both = [&of(line), ports, "\n"].concat();
                assert!(refused(&both, has_key).is_ok(), "{both}");
                let third = export.replace("vm1", "vm2");
                assert!(refused(&[&both, &third[..]].concat(), true).is_err(), "one of two");
            }
        }
        assert!(refused(&of(""), false).is_ok(), "nobody has to show anything");
        assert!(refused(export, true).is_ok(), "there is no way around");
    }

    #[test]
    fn the_command_line_says_it_by_its_own_options() {
        let export = Export::parse("vm1=mem:1M").unwrap();
        let port = FcoePort::new("eth1".into(), tyche_fcoe::fc::network::Mode::Vn2vn, 2.0);
        let config = Config { export: vec![export], fcoe: vec![port], ..Config::default() };
        let error = refuse_ways_around(&config, true).unwrap_err();
        assert!(error.message.contains("--fcoe-initiator any"), "{error}");
        assert_eq!(error.code, Code::Config);
    }
}

//! Sessions of this node: one for each volume. They are daemons of the host, and outlive the driver
//! and its pod.
//!
//! With systemd a session is a transient unit of the host, with the properties of `tyche@.service`;
//! elsewhere `tyche connect` leaves a daemon behind by itself.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use tonic::Status;

use super::mounts::Device;
use crate::ids::VolumeId;
use crate::program::Program;
use crate::tyche::Tyche;

/// Exit code: the export is connected already.
const EXISTS: i32 = 10;
/// Exit code: there is no such session.
const NOT_FOUND: i32 = 3;
/// Time limit to list sessions.
const LIST: Duration = Duration::from_secs(30);
/// Time limit to connect: the daemon's own, and some more.
const CONNECT: Duration = Duration::from_secs(90);
/// Time that a device may be in use when it is disconnected, in seconds: programs that look at
/// devices close them soon.
const IN_USE_S: u64 = 20;
/// Time limit to disconnect.
const DISCONNECT: Duration = Duration::from_secs(90);

/// Properties of a unit that are those of `tyche@.service`.
const UNIT: [&str; 14] = [
    "IgnoreOnIsolate=yes",
    "StartLimitIntervalSec=0",
    "Restart=on-failure",
    "RestartSec=1",
    "RestartPreventExitStatus=2 8 10",
    "TimeoutStopSec=45",
    "KillMode=mixed",
    "SendSIGKILL=no",
    "OOMScoreAdjust=-1000",
    "LimitMEMLOCK=infinity",
    "UMask=0077",
    "NoNewPrivileges=yes",
    "LockPersonality=yes",
    "RestrictRealtime=yes",
];

/// How sessions are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeper {
    /// The host's systemd.
    Systemd,
    /// Nobody: each is a daemon.
    Daemon,
}

/// The sessions of this node.
#[derive(Debug)]
pub(crate) struct Sessions {
    tyche: Tyche,
    keeper: Keeper,
    /// File of the node's key.
    key: PathBuf,
    /// Kind of device, as `tyche connect --as` takes it.
    kind: String,
}

/// A session, as `tyche list` has it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Session {
    export: String,
    device: PathBuf,
    /// The device's sequence number, which later ones of the same name do not have.
    sequence: Option<u64>,
    pub(super) state: String,
    pub(super) problem: Option<String>,
    links: Vec<Link>,
}

/// A link of a session.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Link {
    interface: String,
    problem: Option<String>,
}

/// The output of `tyche list`.
#[derive(Deserialize)]
struct Listed {
    sessions: Vec<Session>,
}

/// The output of `tyche connect`.
#[derive(Deserialize)]
struct Connected {
    device: PathBuf,
}

impl Session {
    /// Its device; `None` if that is gone.
    pub(super) fn device(&self) -> Option<Device> {
        let device = Device::open(&self.device).ok()?;
        (!device.is_gone(self.sequence)).then_some(device)
    }

    /// Whether its device is of use now, or will be when its target answers.
    pub(super) fn is_usable(&self) -> bool {
        matches!(&*self.state, "live" | "lost" | "starting" | "silent")
    }

    /// Whether its target answers.
    pub(super) fn is_live(&self) -> bool {
        self.state == "live"
    }

    /// The faults of its links.
    pub(super) fn link_problems(&self) -> Vec<String> {
        let said = |it: &Link| Some(format!("{}: {}", it.interface, it.problem.as_ref()?));
        self.links.iter().filter_map(said).collect()
    }
}

impl Sessions {
    pub(crate) fn new(tyche: Tyche, keeper: Keeper, key: PathBuf, kind: String) -> Self {
        Self { tyche, keeper, key, kind }
    }

    /// The public key of this node, which is made if there is none.
    ///
    /// # Errors
    /// It can be neither made nor read.
    pub(crate) fn public_key(&self) -> Result<String, Status> {
        let file = self.key.to_string_lossy().into_owned();
        let args = ["key".to_owned(), "generate".to_owned(), "--if-needed".to_owned(), file];
        Ok(self.tyche.run(&args, None, LIST)?.trim().to_owned())
    }

    /// The session of a volume, if there is one.
    pub(super) fn find(&self, volume: &VolumeId) -> Result<Option<Session>, Status> {
        let listed: Listed = self.tyche.ask(&["list".to_owned()], None, LIST)?;
        let export = volume.at_host();
        Ok(listed.sessions.into_iter().find(|it| it.export == export))
    }

    /// Connects a volume; returns its device.
    ///
    /// # Errors
    /// `Unavailable` if the target does not answer, `FailedPrecondition` if it refuses.
    pub(super) fn connect(
        &self,
        volume: &VolumeId,
        options: &[String],
        lock: &File,
    ) -> Result<PathBuf, Status> {
        let mut args = vec!["connect".to_owned(), volume.at_host()];
        args.push(format!("--target-key={}", volume.target.key()));
        args.push(format!("--key={}", self.key.display()));
        args.push(format!("--as={}", self.kind));
        args.extend_from_slice(options);
        if self.keeper == Keeper::Systemd {
            self.start_unit(volume, &args, lock)?;
        } else {
            match self.tyche.ask::<Connected>(&args, Some(lock), CONNECT) {
                Ok(connected) => return Ok(connected.device),
                // An earlier request has got that far.
                Err(failure) if failure.is(EXISTS) => {}
                Err(failure) => return Err(failure.into()),
            }
        }
        let found = self.find(volume)?.map(|it| it.device);
        found.ok_or_else(|| Status::unavailable(format!("{} has no session", volume.export)))
    }

    /// Has systemd start the session as a unit, and waits until its device is usable.
    fn start_unit(&self, volume: &VolumeId, args: &[String], lock: &File) -> Result<(), Status> {
        let command = unit(volume, &self.tyche.path(), args);
        // One that has failed, or that a killed driver has left half-way, is in the way.
        self.clear_unit(volume, lock);
        let done = self.on_host(&command, lock).run(CONNECT);
        let done = done.map_err(|error| error.status("systemd-run"))?;
        if done.code == Some(0) {
            return Ok(());
        }
        // systemd would go on trying.
        self.clear_unit(volume, lock);
        Err(Status::unavailable(format!(
            "{}; see `journalctl -u {}` on the node",
            done.failed("systemd-run").message(),
            unit_name(volume)
        )))
    }

    /// Removes the unit of a volume that has no session. There may be none.
    fn clear_unit(&self, volume: &VolumeId, lock: &File) {
        for command in ["stop", "reset-failed"] {
            let words = ["systemctl".to_owned(), command.to_owned(), unit_name(volume)];
            let _ = self.on_host(&words, lock).run(LIST);
        }
    }

    /// A program of the host, run in the same way as `tyche`.
    fn on_host<'a>(&self, command: &[String], lock: &'a File) -> Program<'a> {
        let words = self.tyche.runner().iter().cloned();
        let words: Vec<OsString> = words.chain(command.iter().map(OsString::from)).collect();
        Program::new(&words[0]).args(&words[1..]).holds(lock)
    }

    /// Ends the session of a volume. `by_force`: though its device is in use or its target lost.
    ///
    /// # Errors
    /// The device is still in use, or the target does not answer.
    pub(super) fn disconnect(
        &self,
        volume: &VolumeId,
        by_force: bool,
        lock: &File,
    ) -> Result<(), Status> {
        let how = if by_force { "--force".to_owned() } else { format!("--wait={IN_USE_S}") };
        let args = ["disconnect".to_owned(), volume.at_host(), how];
        match self.tyche.ask::<serde_json::Value>(&args, Some(lock), DISCONNECT) {
            Err(failure) if failure.is(NOT_FOUND) => Ok(()),
            done => Ok(done.map(drop)?),
        }
    }
}

fn unit_name(volume: &VolumeId) -> String {
    format!("tyche-csi-{}.service", volume.digest())
}

/// The command that starts a session as a unit.
fn unit(volume: &VolumeId, program: &std::ffi::OsStr, args: &[String]) -> Vec<String> {
    let (unit, program) = (unit_name(volume), Path::new(program).display());
    let mut command = vec!["systemd-run".to_owned(), "--quiet".to_owned(), "--collect".to_owned()];
    command.push(format!("--unit={unit}"));
    command.push(format!("--description=Tyche disk {}", volume.at_host()));
    command.push("--slice=system.slice".to_owned());
    let own = [
        "Type=notify".to_owned(),
        format!("TimeoutStartSec={}", CONNECT.as_secs() - 10),
        "DefaultDependencies=no".to_owned(),
        format!("ExecStop={program} unit-stop {unit}"),
        format!("LogExtraFields=TYCHE_EXPORT={}", volume.export),
    ];
    let properties = UNIT.iter().map(|it| (*it).to_owned()).chain(own);
    command.extend(properties.map(|it| format!("--property={it}")));
    command.extend(["--".to_owned(), program.to_string()]);
    command.extend_from_slice(args);
    command.push("--foreground".to_owned());
    command
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::TargetId;

    fn volume() -> VolumeId {
        let key = format!("tyche_{}", "k".repeat(43));
        TargetId::new("store1@h", &key).unwrap().export("pvc-1")
    }

    #[test]
    fn units_have_the_properties_of_the_packaged_one() {
        let packaged = include_str!("../../../../packaging/systemd/tyche@.service");
        let lines: Vec<_> = packaged.lines().filter(|line| !line.starts_with('#')).collect();
        for property in UNIT {
            assert!(lines.contains(&property), "{property} is not in tyche@.service");
        }
        let command = unit(&volume(), "/var/lib/tyche-csi/tyche".as_ref(), &["connect".into()]);
        assert_eq!(command.last().unwrap(), "--foreground");
        let end = command.iter().position(|it| it == "--").unwrap();
        assert_eq!(command[end + 1..end + 3], ["/var/lib/tyche-csi/tyche", "connect"]);
        assert!(command.iter().any(|it| it.contains("unit-stop tyche-csi-")));
    }

    #[test]
    fn sessions_are_usable_unless_they_have_failed() {
        let listed: Listed = serde_json::from_str(
            r#"{"schema":"tyche.list/1","targets":[],"sessions":[
                {"export":"store1/pvc-1","device":"/dev/loop0","state":"live","problem":null,
                 "links":[{"interface":"eth0","problem":"down"},{"interface":"eth1"}]},
                {"export":"x","device":"/dev/loop1","state":"failed","problem":"denied"}]}"#,
        )
        .unwrap();
        let [live, failed] = &listed.sessions[..] else { panic!() };
        assert!(live.is_usable() && live.is_live());
        assert_eq!(live.link_problems(), ["eth0: down"]);
        assert!(!failed.is_usable() && !failed.is_live());
    }
}

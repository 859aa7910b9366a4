//! The command line.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use crate::ids::TargetId;

/// The CSI driver of Tyche: disks of targets for pods of Kubernetes
///
/// It asks targets at their control ports, as an admin, and connects disks with the program
/// `tyche`. See docs/kubernetes.md.
#[derive(Debug, Parser)]
#[command(name = "tyche-csi", version)]
pub struct Options {
    /// The socket on which orchestrators ask: unix:PATH.
    #[arg(long, value_name = "unix:PATH", value_parser = socket)]
    pub(crate) endpoint: PathBuf,

    /// The half of the driver to be.
    #[arg(long, value_enum)]
    pub(crate) mode: Mode,

    /// The program `tyche`.
    #[arg(long, value_name = "PATH", default_value = "tyche")]
    pub(crate) tyche: PathBuf,

    /// Controller: file of the admin's secret key. Targets know its public part as an [[admin]].
    #[arg(long, value_name = "FILE", default_value = "/etc/tyche-csi/key")]
    #[allow(rustdoc::broken_intra_doc_links, reason = "TOML in the text of --help")]
    pub(crate) key: PathBuf,

    /// Controller: a target whose volumes and snapshots are listed; may be repeated. Volumes of
    /// others are managed as well, and found by their names.
    #[arg(long = "target", value_name = "NAME@HOST[:PORT]=KEY", value_parser = target)]
    pub(crate) targets: Vec<TargetId>,

    /// Node: its name, as targets know it as a host. By default that of the machine.
    #[arg(long, value_name = "NAME")]
    pub(crate) node_name: Option<String>,

    /// Node: file of its secret key, which is made if it is not there.
    #[arg(long, value_name = "FILE", default_value = "/etc/tyche/key")]
    pub(crate) node_key: PathBuf,

    /// Node: kind of devices, as `tyche connect --as` takes it.
    #[arg(long = "as", value_name = "KIND", default_value = "auto")]
    pub(crate) kind: String,

    /// Node: how sessions are kept, which outlive the driver.
    #[arg(long, value_enum, default_value_t = SessionKeeper::Auto)]
    pub(crate) sessions: SessionKeeper,

    /// Directory for locks, which need not outlive a restart of the machine.
    #[arg(long, value_name = "DIR", default_value = "/run/tyche-csi")]
    pub(crate) locks: PathBuf,

    /// Node: directory of the host to which `tyche` is copied for sessions that systemd keeps. It
    /// has the same path in the container of the driver.
    #[arg(long, value_name = "DIR", default_value = "/var/lib/tyche-csi")]
    pub(crate) install: PathBuf,
}

/// A half of the driver, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// Volumes, snapshots, and which nodes may have them: one in a cluster.
    Controller,
    /// Devices and mounts of this machine: one on each.
    Node,
    /// Both.
    All,
}

/// The keeper of sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SessionKeeper {
    /// The host's systemd if it runs, otherwise nothing.
    Auto,
    /// The host's systemd: they are units. Needs the PID namespace of the host, and root.
    Systemd,
    /// Nothing: they are daemons. Those of a container end with it.
    Daemon,
}

fn socket(text: &str) -> Result<PathBuf, String> {
    let path = text.strip_prefix("unix:").map(|it| it.strip_prefix("//").unwrap_or(it));
    path.filter(|it| it.starts_with('/')).map(PathBuf::from).ok_or("write unix:PATH".into())
}

fn target(text: &str) -> Result<TargetId, String> {
    let (place, key) = text.split_once('=').ok_or("write NAME@HOST[:PORT]=KEY")?;
    TargetId::new(place, key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_checked() {
        let key = format!("tyche_{}", "k".repeat(43));
        let target = format!("store1@10.0.0.1={key}");
        let common = ["tyche-csi", "--mode", "all", "--endpoint"];
        let parse = |more: &[&str]| Options::try_parse_from([&common[..], more].concat());
        let found = parse(&["unix:///run/csi.sock", "--target", &target]).unwrap();
        assert_eq!(found.endpoint, PathBuf::from("/run/csi.sock"));
        assert_eq!(found.targets[0].name(), "store1");
        assert_eq!(parse(&["unix:/a"]).unwrap().endpoint, PathBuf::from("/a"));
        for wrong in [&["tcp:1"][..], &["unix:a"], &["unix:/a", "--target", "store1"]] {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn the_manifests_have_options_that_there_are() {
        let manifest = include_str!("../../../packaging/kubernetes/tyche-csi.yaml");
        let parts = manifest.split("image: tyche-csi:").skip(1);
        let args =
            parts.filter_map(|it| it.lines().find_map(|it| it.trim().strip_prefix("args: ")));
        let args: Vec<Vec<String>> = args.map(|it| serde_json::from_str(it).unwrap()).collect();
        assert_eq!(args.len(), 2);
        for args in args {
            let words = ["tyche-csi".to_owned()].into_iter().chain(args);
            Options::try_parse_from(words).unwrap_or_else(|error| panic!("{error}"));
        }
        let version = format!("tyche-csi:{}\n", env!("CARGO_PKG_VERSION"));
        assert_eq!(manifest.matches(&version).count(), 2, "the version of the image");
    }
}

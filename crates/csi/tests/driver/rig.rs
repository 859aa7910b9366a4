//! The rig of a test: a target with a pool on XFS and two nodes, in network namespaces joined by a
//! bridge; the driver at each node. All of it is removed when the test ends, however it ends.

use std::collections::HashMap;
use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::Value;
use tyche_testkit::alone::{HeldPlace, Places};
use tyche_testkit::net::{Namespace, lay_cable};
use tyche_testkit::process::{Running, finish, run};
use tyche_testkit::wait::{PATIENCE, wait_until};

use crate::client::pb::volume_capability::access_mode::Mode;
use crate::client::pb::{
    ControllerPublishVolumeRequest, CreateVolumeRequest, NodeGetInfoRequest,
    NodePublishVolumeRequest, NodeStageVolumeRequest, NodeUnpublishVolumeRequest,
    NodeUnstageVolumeRequest, Volume, VolumeCapability,
};
use crate::client::{Client, bytes, map, mounted};

/// One test at a time.
pub(crate) static MACHINE: Places = Places::new("tyche-csi", 1);

/// Time limit for building `tyche`.
const BUILD_LIMIT: Duration = Duration::from_secs(900);
/// The target's control port and its address for sessions.
const PLACE: &str = "store@10.9.0.1";
const LINK: &str = "udp:10.9.0.1";
/// Size of the file system that has the pool: sparse.
const POOL: u64 = 64 << 30;

/// `tyche`. Cargo builds only the program of the package under test, so it is built here, unless
/// those of all packages are (`cargo xtask test` says so by `TYCHE_LAB`).
static TYCHE: LazyLock<PathBuf> = LazyLock::new(|| {
    let programs = Path::new(env!("CARGO_BIN_EXE_tyche-csi")).parent().unwrap();
    if std::env::var_os("TYCHE_LAB").is_none() {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--package", "tyche", "--target-dir"]);
        build.arg(programs.parent().unwrap());
        build.args(programs.ends_with("release").then_some("--release"));
        let done = finish(&mut build, BUILD_LIMIT);
        assert!(done.success(), "{}", done.stderr);
    }
    programs.join("tyche")
});

/// Makes the rig of a test. On a machine where it can't run, prints why and ends the test.
macro_rules! rig {
    () => {{
        tyche_testkit::need_root!("/dev/fuse", "/dev/loop-control");
        $crate::rig::Rig::new($crate::rig::MACHINE.one())
    }};
}
pub(crate) use rig;

/// One test's share of the machine.
pub(crate) struct Rig {
    pub(crate) target: Namespace,
    pub(crate) nodes: [Namespace; 2],
    dir: tempfile::TempDir,
    _place: HeldPlace<'static>,
}

/// A running driver.
pub(crate) struct Driver {
    _process: Running,
    pub(crate) client: Client,
    socket: PathBuf,
}

impl Rig {
    pub(crate) fn new(place: HeldPlace<'static>) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let tag = format!("tyche-csi-{}-{number}", std::process::id());
        let dir = tempfile::Builder::new().prefix(&tag).tempdir_in("/var/tmp").unwrap();
        let namespace = |end| Namespace::new(format!("{tag}-{end}"));
        let (target, nodes) = (namespace("t"), ["1", "2"].map(namespace));
        target.ip(&["link", "add", "name", "bridge", "type", "bridge"]);
        for (node, (port, address)) in
            nodes.iter().zip([("p1", "10.9.0.2/24"), ("p2", "10.9.0.3/24")])
        {
            lay_cable([(&target, port, 1500), (node, "eth0", 1500)]);
            target.ip(&["link", "set", port, "master", "bridge"]);
            node.ip(&["address", "add", address, "dev", "eth0"]);
            node.ip(&["link", "set", "lo", "up"]);
        }
        target.ip(&["address", "add", "10.9.0.1/24", "dev", "bridge"]);
        target.ip(&["link", "set", "bridge", "up"]);
        let rig = Self { target, nodes, dir, _place: place };
        rig.make_pool();
        for name in ["target.key", "admin.key", "node0.key", "node1.key"] {
            run(rig.tyche(&rig.target, "t", &["key", "generate"]).arg(rig.path(name)));
        }
        rig
    }

    fn make_pool(&self) {
        let (image, point) = (self.path("pool.img"), self.path("pool"));
        File::create(&image).unwrap().set_len(POOL).unwrap();
        fs::create_dir(&point).unwrap();
        run(Command::new("mkfs.xfs").arg("-q").arg(&image));
        run(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(&point));
        fs::create_dir(point.join("vols")).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A program with the state of one end: `t`, `0` or `1`.
    pub(crate) fn at(&self, namespace: &Namespace, end: &str, program: &Path) -> Command {
        let mut command = namespace.command(program);
        command.env("TYCHE_RUNTIME_DIR", self.path(&format!("run-{end}")));
        command.env("TYCHE_STATE_DIR", self.path(&format!("state-{end}")));
        command.env("TYCHE_KNOWN_TARGETS", self.path("known-targets"));
        command
    }

    fn tyche(&self, namespace: &Namespace, end: &str, args: &[&str]) -> Command {
        let mut command = self.at(namespace, end, &TYCHE);
        command.args(args);
        command
    }

    /// The public part of a key.
    pub(crate) fn key(&self, name: &str) -> String {
        let shown = run(self.tyche(&self.target, "t", &["key", "show"]).arg(self.path(name)));
        shown.trim().to_owned()
    }

    /// Starts the target, and waits until it serves.
    pub(crate) fn serve(&self) -> Running {
        let (key, admin) = (self.path("target.key"), self.key("admin.key"));
        let config = self.path("target.toml");
        let text = format!(
            "name = \"store\"\nlink = [{LINK:?}]\nkey = {key:?}\ncontrol = \"tcp:10.9.0.1:8652\"\n\
             [[admin]]\nname = \"csi\"\nkey = {admin:?}\n\
             [[pool]]\nname = \"fast\"\npath = \"dir:{}\"\n",
            self.path("pool/vols").display()
        );
        fs::write(&config, text).unwrap();
        let log = File::options().create(true).append(true).open(self.path("target.log")).unwrap();
        let mut serve = self.tyche(&self.target, "t", &["serve", "--config"]);
        serve.arg(&config).stdout(Stdio::piped()).stderr(log);
        let mut target = Running::start(&mut serve);
        let line = target.line();
        assert!(line.starts_with("tyche: serving "), "{line:?}: {}", self.log());
        target
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("target.log")).unwrap_or_default()
    }

    /// Starts the driver at a node, with both halves, and waits until it answers.
    pub(crate) fn drive(&self, node: usize) -> Driver {
        self.drive_with(node, &|_| {})
    }

    /// The same, with other changes to its command.
    pub(crate) fn drive_with(&self, node: usize, change: &dyn Fn(&mut Command)) -> Driver {
        let end = node.to_string();
        let socket = self.path(&format!("csi-{end}.sock"));
        let program = Path::new(env!("CARGO_BIN_EXE_tyche-csi"));
        let mut command = self.at(&self.nodes[node], &end, program);
        command.arg(format!("--endpoint=unix:{}", socket.display()));
        command.args(["--mode=all", "--sessions=daemon", "--as=loop"]);
        command.arg(format!("--tyche={}", TYCHE.display()));
        command.arg(format!("--key={}", self.path("admin.key").display()));
        command.arg(format!("--target={PLACE}={}", self.key("target.key")));
        command.arg(format!("--node-name=node{end}"));
        command.arg(format!("--node-key={}", self.path(&format!("node{end}.key")).display()));
        command.arg(format!("--locks={}", self.path(&format!("locks-{end}")).display()));
        let log = self.path(&format!("csi-{end}.log"));
        command.stderr(File::options().create(true).append(true).open(log).unwrap());
        change(&mut command);
        let _ = fs::remove_file(&socket);
        let process = Running::start(&mut command);
        // The socket is there a moment before somebody listens.
        wait_until("the driver listens", || UnixStream::connect(&socket).is_ok());
        Driver { _process: process, client: Client::new(&socket), socket }
    }

    /// The parameters of the storage class.
    pub(crate) fn class(&self) -> HashMap<String, String> {
        let key = self.key("target.key");
        map(&[("target", PLACE), ("targetKey", &key), ("pool", "fast"), ("links", LINK)])
    }

    /// The request for a volume.
    pub(crate) fn wanted(&self, name: &str, size: u64) -> CreateVolumeRequest {
        CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: bytes(size),
            volume_capabilities: vec![mounted("ext4", Mode::SingleNodeWriter)],
            parameters: self.class(),
            ..CreateVolumeRequest::default()
        }
    }

    /// The output of a command at the target, about itself.
    pub(crate) fn ask_target(&self, args: &[&str]) -> Value {
        let text = run(self.tyche(&self.target, "t", args).args(["-o", "json"]));
        serde_json::from_str(&text).unwrap()
    }

    /// The target's exports.
    pub(crate) fn exports(&self) -> Vec<Value> {
        let listed = self.ask_target(&["export", "list"]);
        listed["targets"][0]["exports"].as_array().unwrap().clone()
    }

    /// The sessions of a node.
    pub(crate) fn sessions(&self, node: usize) -> Vec<Value> {
        let end = node.to_string();
        let list = &["list", "-o", "json"];
        let text = run(&mut self.tyche(&self.nodes[node], &end, list));
        let listed: Value = serde_json::from_str(&text).unwrap();
        listed["sessions"].as_array().unwrap().clone()
    }

    /// Mounts of this test, but for that of the pool.
    pub(crate) fn mounts(&self) -> Vec<PathBuf> {
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let points = table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
        let pool = self.path("pool");
        points.filter(|it| it.starts_with(self.dir.path()) && *it != pool).collect()
    }

    /// Checks that nothing is left of any volume.
    pub(crate) fn assert_empty(&self) {
        assert_eq!(self.mounts(), [] as [PathBuf; 0]);
        assert!(self.sessions(0).is_empty() && self.sessions(1).is_empty());
        assert_eq!(self.exports(), [] as [Value; 0]);
        let files = fs::read_dir(self.path("pool/vols")).unwrap();
        assert_eq!(files.count(), 0, "files are left in the pool");
    }

    pub(crate) fn staging(&self, node: usize) -> String {
        self.path(&format!("stage-{node}")).display().to_string()
    }

    pub(crate) fn point(&self, node: usize) -> String {
        self.path(&format!("pod-{node}")).display().to_string()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for name in ["target.log", "csi-0.log", "csi-1.log"] {
                let text = fs::read_to_string(self.path(name)).unwrap_or_default();
                eprintln!("{name}:\n{text}");
            }
        }
        for (end, node) in self.nodes.iter().enumerate() {
            let args = ["disconnect", "--all", "--force"];
            let mut force = self.tyche(node, &end.to_string(), &args);
            let _ = finish(&mut force, PATIENCE);
        }
        let mut left = self.mounts();
        left.reverse();
        left.push(self.path("pool"));
        for point in left {
            let _ = finish(Command::new("umount").args(["-l"]).arg(point), PATIENCE);
        }
    }
}

impl Driver {
    /// Kills it as a power failure would.
    pub(crate) fn kill(self) {
        drop(self);
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// The id of the node.
    pub(crate) fn node_id(&self) -> String {
        let mut node = self.client.node();
        self.client.ask(node.node_get_info(NodeGetInfoRequest {})).unwrap().node_id
    }

    pub(crate) fn create(&self, wanted: CreateVolumeRequest) -> Volume {
        let mut controller = self.client.controller();
        self.client.ask(controller.create_volume(wanted)).unwrap().volume.unwrap()
    }

    /// Publishes a volume to this node, and stages and publishes it there.
    pub(crate) fn attach(&self, rig: &Rig, node: usize, volume: &Volume, as_: &VolumeCapability) {
        let client = &self.client;
        let request = allow(volume, &self.node_id(), as_);
        client.ask(client.controller().controller_publish_volume(request)).unwrap();
        client.ask(client.node().node_stage_volume(stage(rig, node, volume, as_))).unwrap();
        client.ask(client.node().node_publish_volume(publish(rig, node, volume, as_))).unwrap();
    }

    /// Unpublishes and unstages a volume at this node.
    pub(crate) fn detach(&self, rig: &Rig, node: usize, volume: &Volume) {
        let client = &self.client;
        client.ask(client.node().node_unpublish_volume(unpublish(rig, node, volume))).unwrap();
        client.ask(client.node().node_unstage_volume(unstage(rig, node, volume))).unwrap();
    }
}

/// The request to let a node have a volume.
pub(crate) fn allow(
    volume: &Volume,
    node: &str,
    capability: &VolumeCapability,
) -> ControllerPublishVolumeRequest {
    ControllerPublishVolumeRequest {
        volume_id: volume.volume_id.clone(),
        node_id: node.to_owned(),
        volume_capability: Some(capability.clone()),
        volume_context: volume.volume_context.clone(),
        ..ControllerPublishVolumeRequest::default()
    }
}

pub(crate) fn stage(
    rig: &Rig,
    node: usize,
    volume: &Volume,
    capability: &VolumeCapability,
) -> NodeStageVolumeRequest {
    NodeStageVolumeRequest {
        volume_id: volume.volume_id.clone(),
        staging_target_path: rig.staging(node),
        volume_capability: Some(capability.clone()),
        volume_context: volume.volume_context.clone(),
        ..NodeStageVolumeRequest::default()
    }
}

pub(crate) fn publish(
    rig: &Rig,
    node: usize,
    volume: &Volume,
    capability: &VolumeCapability,
) -> NodePublishVolumeRequest {
    NodePublishVolumeRequest {
        volume_id: volume.volume_id.clone(),
        staging_target_path: rig.staging(node),
        target_path: rig.point(node),
        volume_capability: Some(capability.clone()),
        volume_context: volume.volume_context.clone(),
        ..NodePublishVolumeRequest::default()
    }
}

pub(crate) fn unpublish(rig: &Rig, node: usize, volume: &Volume) -> NodeUnpublishVolumeRequest {
    NodeUnpublishVolumeRequest { volume_id: volume.volume_id.clone(), target_path: rig.point(node) }
}

pub(crate) fn unstage(rig: &Rig, node: usize, volume: &Volume) -> NodeUnstageVolumeRequest {
    NodeUnstageVolumeRequest {
        volume_id: volume.volume_id.clone(),
        staging_target_path: rig.staging(node),
    }
}

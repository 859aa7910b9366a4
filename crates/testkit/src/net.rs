//! Network namespaces and the virtual cables between them. They need root.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::process::run;

/// A network namespace, deleted when dropped.
#[derive(Debug)]
pub struct Namespace(String);

impl Namespace {
    /// A new namespace of that name.
    pub fn new(name: impl Into<String>) -> Self {
        let namespace = Self(name.into());
        run(Command::new("ip").args(["netns", "add", &namespace.0]));
        namespace
    }

    /// Runs `ip` in it; returns the output. `ip -n` would have a copy of all mounts meanwhile: file
    /// systems that another test unmounts stay in use.
    pub fn ip(&self, args: &[&str]) -> String {
        run(self.command("ip").args(args))
    }

    /// A command in it; its other namespaces are the machine's.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.0)).arg("--").arg(program.as_ref());
        command
    }

    /// Adds rules of nftables.
    pub fn nft(&self, rules: &str) {
        run(self.command("nft").arg(rules));
    }

    /// Runs `action` on a thread in it.
    pub fn on_thread<T: Send>(&self, action: impl FnOnce() -> T + Send) -> T {
        let namespace = File::open(format!("/run/netns/{}", self.0)).unwrap();
        let enter = || {
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(namespace.as_fd(), kind).unwrap();
            action()
        };
        thread::scope(|scope| scope.spawn(enter).join().unwrap())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // It may not exist, if its creation has failed.
        let _ = Command::new("ip").args(["netns", "del", &self.0]).output();
    }
}

/// Lays a virtual cable between two new interfaces, each with its namespace, name and MTU, and
/// brings both up.
pub fn lay_cable(ends: [(&Namespace, &str, u32); 2]) {
    let [(here, name, mtu), (there, peer_name, peer_mtu)] = ends;
    let (mtu, peer_mtu) = (&mtu.to_string(), &peer_mtu.to_string());
    let link = ["link", "add", name, "mtu", mtu, "type", "veth"];
    let peer = ["peer", "name", peer_name, "mtu", peer_mtu, "netns", &there.0];
    here.ip(&[&link[..], &peer[..]].concat());
    for (namespace, name, _) in ends {
        namespace.ip(&["link", "set", name, "up"]);
    }
}

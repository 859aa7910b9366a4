//! The network of the demo: two namespaces joined by a virtual cable, which may lose frames.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use super::command::{Failure, run, undo};
use super::stage::Stage;

/// For `ip` and `nft`, which have next to nothing to do.
const LIMIT: Duration = Duration::from_secs(10);

/// The interface in the target's namespace, and in the host's.
pub(super) const TARGET_LINK: &str = "tyche-t";
pub(super) const HOST_LINK: &str = "tyche-h";

/// Two network namespaces and the veth pair between them.
pub(super) struct Cable {
    target: String,
    host: String,
}

impl Cable {
    /// Lays the cable; both ends are up when it returns. Offloads are left as the kernel has them.
    pub(super) fn lay(stage: &Stage, mtu: u32) -> Result<Self, Failure> {
        let cable = Self { target: format!("{}-t", stage.tag), host: format!("{}-h", stage.tag) };
        for name in [&cable.target, &cable.host] {
            let doomed = name.clone();
            stage.undo.push(format!("network namespace; ip netns del {name}"), move || {
                remove_namespace(&doomed)
            })?;
            run(Command::new("ip").args(["netns", "add", name]), LIMIT, &stage.stop)?;
        }
        let mtu = mtu.to_string();
        let mut add = Command::new("ip");
        add.args(["-n", &cable.target, "link", "add", TARGET_LINK, "mtu", &mtu, "type", "veth"]);
        add.args(["peer", "name", HOST_LINK, "mtu", &mtu, "netns", &cable.host]);
        run(&mut add, LIMIT, &stage.stop)?;
        for (name, link) in cable.ends() {
            let mut up = Command::new("ip");
            run(up.args(["-n", name, "link", "set", link, "up"]), LIMIT, &stage.stop)?;
        }
        Ok(cable)
    }

    /// Loses `percent` of the frames of Tyche's EtherType from now on, each way.
    ///
    /// The rule sits where frames come in, before any packet socket that is bound to the
    /// EtherType sees them.
    pub(super) fn lose(&self, stage: &Stage, percent: f64) -> Result<(), Failure> {
        let of_10000 = loss_of_10000(percent);
        for (name, link) in self.ends() {
            let rules = format!(
                "add table netdev tyche\n\
                 add chain netdev tyche loss {{ type filter hook ingress device \"{link}\" \
                 priority 0; }}\n\
                 add rule netdev tyche loss ether type 0x88b5 numgen random mod 10000 < \
                 {of_10000} counter drop\n"
            );
            let file = stage.dir.join(format!("{name}.nft"));
            std::fs::write(&file, rules)
                .map_err(|error| Failure::Failed(format!("write {}: {error}", file.display())))?;
            let mut nft = inside(name, "nft");
            run(nft.arg("-f").arg(&file), LIMIT, &stage.stop)?;
        }
        Ok(())
    }

    /// A command that runs at the target's end.
    pub(super) fn at_target(&self, program: impl AsRef<Path>) -> Command {
        inside(&self.target, program)
    }

    /// A command that runs at the host's end.
    pub(super) fn at_host(&self, program: impl AsRef<Path>) -> Command {
        inside(&self.host, program)
    }

    fn ends(&self) -> [(&str, &str); 2] {
        [(&self.target, TARGET_LINK), (&self.host, HOST_LINK)]
    }
}

/// The rule's number for a loss in percent.
fn loss_of_10000(percent: f64) -> u32 {
    // Bounded by the command line's parser; the cast saturates anyway.
    (percent * 100.0).round() as u32
}

/// A program in a network namespace; everything else, mounts in particular, stays as it is.
fn inside(namespace: &str, program: impl AsRef<Path>) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{namespace}")).arg("--").arg(program.as_ref());
    command
}

fn remove_namespace(name: &str) -> Result<(), String> {
    if !Path::new("/run/netns").join(name).exists() {
        return Ok(());
    }
    undo(Command::new("ip").args(["netns", "del", name]), LIMIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_hundredths_of_a_percent() {
        assert_eq!(loss_of_10000(0.0), 0);
        assert_eq!(loss_of_10000(0.1), 10);
        assert_eq!(loss_of_10000(1.0), 100);
        assert_eq!(loss_of_10000(100.0), 10_000);
    }
}

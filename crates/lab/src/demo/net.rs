//! The network of the demo: two namespaces joined by virtual cables, which may lose frames.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::command::{Failure, run, undo};
use super::stage::Stage;

/// Time limit for `ip` and `nft`, which are quick.
const LIMIT: Duration = Duration::from_secs(10);
/// Polling interval for state that only the kernel knows.
const POLL: Duration = Duration::from_millis(20);

/// Two network namespaces and the veth pairs between them.
pub(super) struct Cables {
    target: String,
    host: String,
    /// The interfaces in the target's namespace, and those in the host's.
    links: [Vec<String>; 2],
}

impl Cables {
    /// Creates `count` cables; all ends are up when it returns. Offloads keep the kernel's
    /// defaults.
    pub(super) fn lay(stage: &Stage, count: u8, mtu: u32) -> Result<Self, Failure> {
        let links = ["t", "h"].map(|end| (0..count).map(|it| format!("tyche-{end}{it}")).collect());
        let (target, host) = (format!("{}-t", stage.tag), format!("{}-h", stage.tag));
        let cables = Self { target, host, links };
        for name in [&cables.target, &cables.host] {
            let doomed = name.clone();
            stage.undo.push(format!("network namespace; ip netns del {name}"), move || {
                remove_namespace(&doomed)
            })?;
            run(Command::new("ip").args(["netns", "add", name]), LIMIT, &stage.stop)?;
        }
        let [targets, hosts] = &cables.links;
        for (target, host) in targets.iter().zip(hosts) {
            cables.lay_one(stage, (target, host), &mtu.to_string())?;
        }
        cables.await_running(stage)?;
        Ok(cables)
    }

    fn lay_one(&self, stage: &Stage, ends: (&str, &str), mtu: &str) -> Result<(), Failure> {
        let mut add = self.at_target("ip");
        add.args(["link", "add", ends.0, "mtu", mtu, "type", "veth"]);
        add.args(["peer", "name", ends.1, "mtu", mtu, "netns", &self.host]);
        run(&mut add, LIMIT, &stage.stop)?;
        for (name, link) in [(&self.target, ends.0), (&self.host, ends.1)] {
            let mut up = inside(name, "ip");
            run(up.args(["link", "set", link, "up"]), LIMIT, &stage.stop)?;
        }
        Ok(())
    }

    /// Waits until the kernel reports all ends as running, which it does some time after frames can
    /// flow: commands that use all interfaces look at that.
    fn await_running(&self, stage: &Stage) -> Result<(), Failure> {
        let deadline = Instant::now() + LIMIT;
        for name in [&self.target, &self.host] {
            let mut show = inside(name, "ip");
            show.args(["-brief", "link", "show", "up"]);
            let is_waiting = |text: &str| text.lines().any(|line| !line.contains(" UP "));
            while is_waiting(&run(&mut show, LIMIT, &stage.stop)?) {
                if Instant::now() > deadline {
                    return Err(Failure::Failed(format!("no carrier in {name}")));
                }
                stage.stop.pause(POLL)?;
            }
        }
        Ok(())
    }

    /// Loses `percent` of the frames of Tyche's EtherType from now on, on each cable, each way.
    ///
    /// The rule sits where frames come in, before any packet socket that is bound to the
    /// EtherType sees them.
    pub(super) fn lose(&self, stage: &Stage, percent: f64) -> Result<(), Failure> {
        let of_10000 = loss_of_10000(percent);
        for (name, links) in [&self.target, &self.host].into_iter().zip(&self.links) {
            let links = links.join(", ");
            let rules = format!(
                "add table netdev tyche\n\
                 add chain netdev tyche loss {{ type filter hook ingress devices = {{ {links} }} \
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

//! Test of the package: installs and removes it in a clean Debian 12.
//!
//! debootstrap makes it once, below `target`. Each test uses a copy, so that the end is compared
//! with the same beginning.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::say as say_of;
use super::tool::{VERSION, output, run_tool};
use crate::packages::{self, Need};
use crate::{Result, target_dir};

/// The Debian release that the package must fit.
const SUITE: &str = "bookworm";
/// Packages that its minimal variant lacks.
const INCLUDE: &str = "systemd,udev";
/// The mirror, if apt on this machine knows none.
const MIRROR: &str = "http://deb.debian.org/debian";
/// Path of the package in the root during the installation.
const PACKAGE: &str = "/tyche.deb";

/// Programs that the test runs.
const NEEDS: &[Need] = &[("debootstrap", "debootstrap"), ("unshare", "util-linux")];

/// Files and directories that dpkg, apt and the dynamic loader write at every installation, those
/// that are written with every new group, and `/run`, which a machine that is off does not have.
const ALWAYS_CHANGED: [&str; 11] = [
    "./etc/.pwd.lock",
    "./etc/group-",
    "./etc/gshadow-",
    "./etc/ld.so.cache",
    "./run",
    "./var/cache",
    "./var/lib/apt",
    "./var/lib/dpkg",
    "./var/lib/systemd/deb-systemd-helper",
    "./var/log",
    "./tyche.deb",
];

/// A description, a command to run in the root, and text that its output must contain.
const CHECKS: [(&str, &str, &str); 11] = [
    ("the program runs", "tyche --version", VERSION),
    // Any other output is an error.
    (
        "systemd finds nothing wrong with the units",
        "cd /usr/lib/systemd/system && systemd-analyze --man=no verify tyche-target.service \
         tyche-exporter.service tyche-disconnect.service tyche@.service 2>&1; \
         echo \"exit code $?\"",
        "=exit code 0\n",
    ),
    (
        "there is a group for those who may read reports",
        "getent group tyche | cut -d: -f1",
        "=tyche\n",
    ),
    (
        "a line of tychetab is a unit at boot",
        "echo 'vm-1 eth0 read-only' >>/etc/tyche/tychetab; mkdir /tmp/units; \
         /usr/lib/systemd/system-generators/tyche-generator /tmp/units /tmp/units /tmp/units; \
         ls /tmp/units/multi-user.target.wants; rm -r /tmp/units",
        "=tyche@vm\\x2d1.service\n",
    ),
    (
        "a mistake in tychetab is named",
        "echo 'vm-2 eth0 read-onl' >>/etc/tyche/tychetab; tyche connect vm-2 --tab 2>&1; \
         echo \"exit code $?\"",
        "tychetab: line 8: `read-onl`: there is no such option",
    ),
    (
        "udev reads the rule without complaint",
        "udevadm test --action=change /devices/virtual/mem/null 2>&1 | grep '[0-9]-tyche.*rules'",
        "=Reading rules file: /usr/lib/udev/rules.d/59-tyche.rules\n\
         Reading rules file: /usr/lib/udev/rules.d/60-tyche.rules\n\
         Reading rules file: /usr/lib/udev/rules.d/65-tyche-md.rules\n",
    ),
    (
        "there is a manual page for each command, tychetab and target.toml",
        "for page in 8/tyche 8/tyche-connect-all 8/tyche-link-add 5/tychetab \
         5/tyche-target.toml; do \
         zcat /usr/share/man/man${page%/*}/${page#*/}.${page%/*}.gz | grep '^.TH'; done | wc -l",
        "=5\n",
    ),
    (
        "bash completes",
        "bash -c 'source /usr/share/bash-completion/completions/tyche && complete -p tyche'",
        " -F _clap_complete_tyche tyche\n",
    ),
    (
        "zsh and fish have something to complete",
        "head -n 1 /usr/share/zsh/vendor-completions/_tyche; \
         grep -c TYCHE_COMPLETE /usr/share/fish/vendor_completions.d/tyche.fish",
        "#compdef tyche\n",
    ),
    (
        "needrestart restarts targets, and no sessions",
        "perl -we 'our %nrconf; do \"/etc/needrestart/conf.d/tyche.conf\"; die $@ if $@; \
         for my $unit (\"tyche-target.service\", \"tyche\\@vm1.service\") { \
         print 0 + grep { $unit =~ /$_/ } keys %{$nrconf{override_rc}} }'",
        "=01",
    ),
    ("nothing is enabled unasked", "ls /etc/systemd/system/*.wants/ | grep -c tyche", "=0\n"),
];

/// Installs, checks, removes and purges; false if a check failed.
pub(super) fn test(package: &Path) -> Result<bool> {
    let root = Root::fresh(&target_dir().join("deb"))?;
    let before = root.files()?;
    fs::copy(package, root.path.join(PACKAGE.trim_start_matches('/')))
        .map_err(|error| format!("{}: {error}", package.display()))?;
    root.run(&format!("apt-get --quiet --yes install {PACKAGE}"))?;
    say("the package installs on a clean Debian 12", true);
    let mut good = true;
    for (what, script, wanted) in CHECKS {
        good &= root.check(what, script, wanted)?;
    }
    root.run("apt-get --quiet --yes remove tyche")?;
    let left = root.surplus(&before)?;
    // dpkg keeps files that the administrator may have changed.
    let kept = [
        "./etc/needrestart",
        "./etc/needrestart/conf.d",
        "./etc/needrestart/conf.d/tyche.conf",
        "./etc/tyche",
        "./etc/tyche/tychetab",
    ];
    let kept = kept.map(str::to_owned);
    good &= tell("removing it leaves its configuration alone", &left, &kept.into());
    // Files that a target and a host write while they run.
    root.run(
        "mkdir -p /var/lib/tyche/targets /etc/systemd/system/multi-user.target.wants; \
         echo x >/var/lib/tyche/host-id; echo x >/etc/tyche/target.toml; \
         ln -s /usr/lib/systemd/system/tyche-target.service \
         /etc/systemd/system/multi-user.target.wants/; apt-get --quiet --yes purge tyche",
    )?;
    let left = root.surplus(&before)?;
    good &= tell("purging it leaves nothing", &left, &BTreeSet::new());
    let gone: BTreeSet<_> = before.difference(&root.files()?).cloned().collect();
    good &= tell("nothing else is gone", &gone, &BTreeSet::new());
    Ok(good)
}

fn say(what: &str, good: bool) {
    say_of("deb", what, good);
}

/// Reports whether the files are the expected ones, and lists the differences.
fn tell(what: &str, files: &BTreeSet<String>, wanted: &BTreeSet<String>) -> bool {
    say(what, files == wanted);
    for file in files.symmetric_difference(wanted) {
        println!("deb:   {file}");
    }
    files == wanted
}

/// A Debian in a directory.
struct Root {
    path: PathBuf,
}

impl Root {
    /// Makes a copy as debootstrap made it.
    fn fresh(dir: &Path) -> Result<Self> {
        let (pristine, path) = (dir.join(SUITE), dir.join("root"));
        if !pristine.exists() {
            bootstrap(&pristine, INCLUDE)?;
        }
        run_tool(Command::new("rm").args(["-rf", "--one-file-system"]).arg(&path))?;
        run_tool(Command::new("cp").arg("-a").arg(&pristine).arg(&path))?;
        Ok(Self { path })
    }

    /// Runs lines of `sh` as root in it; returns their output.
    ///
    /// In mount, network and process namespaces of its own: mounts and processes are gone
    /// afterwards.
    fn shell(&self, script: &str) -> Result<(String, bool)> {
        let enter = "mount -t proc proc \"$0/proc\"; mount --rbind /sys \"$0/sys\"; \
                     mount --rbind /dev \"$0/dev\"; exec chroot \"$0\" sh -c \"$1\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "--net", "--pid", "--fork", "sh", "-c", enter]);
        command.arg(&self.path).arg(script).env("DEBIAN_FRONTEND", "noninteractive");
        command.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("LC_ALL", "C.UTF-8");
        let output = command.output().map_err(|error| format!("unshare: {error}"))?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let complaint = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            return Ok((said, true));
        }
        Ok((said + &complaint, false))
    }

    /// Runs a script that must succeed.
    fn run(&self, script: &str) -> Result<()> {
        match self.shell(script)? {
            (_, true) => Ok(()),
            (said, false) => Err(format!("in a clean Debian, `{script}`:\n{said}")),
        }
    }

    /// Checks that a script's output contains `wanted`, or is exactly the text after its `=`.
    fn check(&self, what: &str, script: &str, wanted: &str) -> Result<bool> {
        let (said, _) = self.shell(script)?;
        let good = match wanted.strip_prefix('=') {
            Some(all) => said == all,
            None => said.contains(wanted),
        };
        say(what, good);
        if !good {
            print!("deb:   wanted {wanted:?}, but there is\n{said}");
        }
        Ok(good)
    }

    /// All files and directories, except those that change at every installation.
    fn files(&self) -> Result<BTreeSet<String>> {
        let mut find = Command::new("find");
        find.current_dir(&self.path).arg(".").arg("-xdev");
        let listed = output(&mut find)?;
        let changes = |file: &str| {
            let below = |place: &str| {
                file.strip_prefix(place).is_some_and(|it| it.is_empty() || it.starts_with('/'))
            };
            ALWAYS_CHANGED.into_iter().any(below)
        };
        Ok(listed.lines().filter(|file| !changes(file)).map(str::to_owned).collect())
    }

    /// The files that were not there before.
    fn surplus(&self, before: &BTreeSet<String>) -> Result<BTreeSet<String>> {
        Ok(self.files()?.difference(before).cloned().collect())
    }
}

/// Makes a Debian with these packages besides the least, from the mirror of this machine's apt.
pub(crate) fn bootstrap(path: &Path, include: &str) -> Result<()> {
    packages::install(NEEDS)?;
    println!("deb: making a {SUITE} with debootstrap, once");
    // Made under another name first: a directory with the final name is complete.
    let aside = path.with_extension("part");
    run_tool(Command::new("rm").args(["-rf", "--one-file-system"]).arg(&aside))?;
    let mut debootstrap = Command::new("debootstrap");
    debootstrap.args(["--variant=minbase", &format!("--include={include}"), SUITE]).arg(&aside);
    debootstrap.arg(mirror());
    if let Some(proxy) = proxy() {
        debootstrap.env("http_proxy", proxy);
    }
    run_tool(&mut debootstrap)?;
    fs::rename(&aside, path).map_err(|error| format!("{}: {error}", path.display()))
}

/// The mirror from which apt gets this suite.
fn mirror() -> String {
    let mut apt = Command::new("apt-get");
    apt.args(["indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]);
    let said = output(apt.args(["Origin: Debian", &format!("Codename: {SUITE}")]));
    let found = said.unwrap_or_default().lines().next().map(str::to_owned);
    found.unwrap_or_else(|| MIRROR.to_owned())
}

/// The proxy that apt uses, if any.
fn proxy() -> Option<String> {
    let mut apt = Command::new("apt-config");
    let said = output(apt.args(["dump", "--format", "%v%n", "Acquire::http::Proxy"])).ok()?;
    said.lines().next().filter(|proxy| !proxy.is_empty()).map(str::to_owned)
}

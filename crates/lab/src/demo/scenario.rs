//! The scenario of the demo, step by step.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use tyche_console::output::bytes;

use super::DemoArgs;
use super::command::{Doing, Failure};
use super::filesystem::{Mode, create_mount_point, unmount_now};
use super::net::Cables;
use super::outage::{Kills, Loss, Outages, Witness, await_nobody_stuck, device_error};
use super::report::{Pace, Report};
use super::session::{ConnectOptions, Devices, Host};
use super::stage::Stage;
use super::target::{EXPORT, Target};
use super::traffic::Traffic;
use super::tree::{self, Copied, SYNC_EVERY, Tree};

/// Runs the whole demo; the stage's clean-up removes what it built.
pub(super) fn play(stage: &Stage, args: &DemoArgs) -> Result<Report, Failure> {
    let program = program()?;
    stage.create_dir()?;
    let root = args.tree.clone().map_or_else(tree_of_toolchain, Ok)?;
    let tree = stage.step(&format!("choose files of {}", root.display()), || {
        Tree::choose(&root, tree::DEMO, &stage.stop)
    })?;
    let mut report = Report {
        schema: "tyche.demo/1",
        filesystem: args.fs.name(),
        links: args.links,
        mtu: args.mtu,
        loss_percent: args.loss,
        frame_len: None,
        tree: root.display().to_string(),
        files: tree.files,
        bytes: tree.bytes,
        copy: None,
        compare: None,
        intact: false,
        outages: Vec::new(),
        loss_of_target: None,
        host: Traffic::default(),
        target: Traffic::default(),
    };
    // The order matters for the clean-up, which goes backwards: first the forced end of sessions,
    // then the end of the target and of the network, the unmount, and the release of devices.
    let devices = Devices::watch(stage)?;
    create_mount_point(stage)?;
    let cables = if args.links == 1 { "a cable".into() } else { format!("{} cables", args.links) };
    let name = format!("two namespaces, {cables} with MTU {}, {} % loss", args.mtu, args.loss);
    let cables = stage.step(&name, || {
        let cables = Cables::lay(stage, args.links, args.mtu)?;
        if args.loss > 0.0 {
            cables.lose(stage, args.loss)?;
        }
        Ok(cables)
    })?;
    let target = Target::new(stage, &cables, program.clone(), args.size)?;
    let host = Host::new(stage, &cables, program, devices)?;
    let name = format!("serve a file of {} as `{EXPORT}`", bytes(args.size));
    stage.step(&name, || target.start())?;
    let act = Act { stage, args, tree: &tree, host: &host, target: &target };
    if let Some(copied) = act.write(&mut report)? {
        act.verify(&mut report, &copied)?;
    }
    Ok(report)
}

/// State shared by the two halves of the scenario.
struct Act<'a> {
    stage: &'a Stage,
    args: &'a DemoArgs,
    tree: &'a Tree,
    host: &'a Host<'a>,
    target: &'a Target<'a>,
}

impl Act<'_> {
    /// Connects, makes a file system, copies the tree into it. `None` if the target is lost for
    /// good on the way, as the user asked for.
    fn write(&self, report: &mut Report) -> Result<Option<Copied>, Failure> {
        let Self { stage, args, host, .. } = *self;
        let options = ConnectOptions { read_only: false, ctrl_loss_tmo: args.ctrl_loss_tmo };
        let device = stage.step("connect --as loop", || host.connect(options))?;
        stage.progress.say(&format!("             {}", device.display()));
        stage.step(&format!("mkfs.{}", args.fs.name()), || args.fs.make(stage, &device))?;
        stage.step("mount", || args.fs.mount(stage, &device, Mode::ReadWrite))?;
        let began = Instant::now();
        let (result, witnesses) = self.copy();
        let time = began.elapsed();
        report.outages = witnesses?;
        for outage in &report.outages {
            report.target.add_earlier(&outage.target_before);
        }
        let copied = match (result, report.outages.last()) {
            (Err(Failure::Disk { doing, source }), Some(outage)) if args.no_restart => {
                let failed_after_s = outage.killed_at.elapsed().as_secs_f64();
                let error = format!("{doing}: {source}");
                report.loss_of_target =
                    Some(self.abandon(report, &device, error, failed_after_s)?);
                return Ok(None);
            }
            (Ok(_), _) if args.no_restart => {
                return Err(Failure::Failed("the copy succeeded without a target".to_owned()));
            }
            (result, _) => result?,
        };
        report.copy = Some(Pace::new(self.tree.bytes, time));
        self.check_outages(report)?;
        stage.step("unmount", || unmount_now(stage))?;
        self.leave(report, &device)?;
        Ok(Some(copied))
    }

    /// Copies, with the outages that the user asked for.
    fn copy(&self) -> (Result<Copied, Failure>, Result<Vec<Witness>, Failure>) {
        let Self { stage, args, tree, host, target } = *self;
        let (sender, copied) = mpsc::channel();
        thread::scope(|scope| {
            let (outages, bytes) = (args.outages(), tree.bytes);
            let kills = outages.map_or(0, |it| u64::from(it.count()));
            // Between two kills the copy must sync, and so wait for the disk.
            let sync_every = SYNC_EVERY.min(bytes / (kills + 1) / 2).max(1);
            let strike = move |it: Outages| it.strike(stage, target, host, bytes, &copied);
            let striker = outages.map(|it| scope.spawn(move || strike(it)));
            let name = format!("copy {} files, {} MB", tree.files, tree.bytes / 1_000_000);
            let copied = stage.step(&name, || {
                let mut measure = stage.progress.measure("copy", tree.bytes);
                tree.copy(&stage.mount_point(), &stage.stop, sync_every, &mut measure, |done| {
                    // The receiver is gone if there are no outages, or no more.
                    let _ = sender.send(done);
                })
            });
            drop(sender);
            let witnesses = striker.map_or(Ok(Vec::new()), |thread| {
                let panicked = |_| Err(Failure::Failed("the outages' thread panicked".to_owned()));
                thread.join().unwrap_or_else(panicked)
            });
            (copied, witnesses)
        })
    }

    /// Fails if the copy was over before all outages had happened.
    fn check_outages(&self, report: &Report) -> Result<(), Failure> {
        let Some(Kills::Spread(times)) = self.args.outages().map(|it| it.kills) else {
            return Ok(());
        };
        let within = report.outages.iter().filter(|outage| outage.within_copy).count();
        if within == times as usize {
            return Ok(());
        }
        let text = format!("{within} of {times} kills fell into the copy: give it a larger --tree");
        Err(Failure::Failed(text))
    }

    /// Ends the session after the target is gone for good and the copy has failed.
    fn abandon(
        &self,
        report: &mut Report,
        device: &Path,
        error: String,
        failed_after_s: f64,
    ) -> Result<Loss, Failure> {
        let Self { stage, host, .. } = *self;
        stage.progress.say(&format!("             {error}"));
        report.host.add(&host.ask("stats")?["sessions"][0]);
        let device_error = device_error(device)?;
        let took = stage.step("disconnect --force", || host.disconnect(device, true))?;
        stage.step("unmount", || unmount_now(stage))?;
        stage.step("nobody waits for the disk", || await_nobody_stuck(stage, device))?;
        host.wait_free(device)?;
        Ok(Loss { error, device_error, failed_after_s, disconnect_s: took.as_secs_f64() })
    }

    /// Connects again, compares all files, and checks the file system.
    fn verify(&self, report: &mut Report, copied: &Copied) -> Result<(), Failure> {
        let Self { stage, args, host, tree, .. } = *self;
        let options = ConnectOptions { read_only: true, ctrl_loss_tmo: args.ctrl_loss_tmo };
        let device = stage.step("connect again, read-only", || host.connect(options))?;
        stage.step("mount read-only", || args.fs.mount(stage, &device, Mode::ReadOnly))?;
        let began = Instant::now();
        stage.step("compare every SHA-256", || {
            let mut measure = stage.progress.measure("compare", tree.bytes);
            copied.compare(&stage.mount_point(), &stage.stop, &mut measure)
        })?;
        report.compare = Some(Pace::new(tree.bytes, began.elapsed()));
        stage.step("unmount", || unmount_now(stage))?;
        stage.step(&format!("check {}", args.fs.name()), || args.fs.check(stage, &device))?;
        report.intact = true;
        self.leave(report, &device)?;
        let stats = host.ask("stats")?;
        report.target.add(&stats["targets"][0]);
        Ok(())
    }

    /// Adds up the session's counters, and ends it.
    fn leave(&self, report: &mut Report, device: &Path) -> Result<(), Failure> {
        let Self { stage, host, .. } = *self;
        stage.step("disconnect", || {
            let stats = host.ask("stats")?;
            let session = &stats["sessions"][0];
            report.frame_len = session["links"][0]["frame_len"].as_u64();
            report.host.add(session);
            host.disconnect(device, false)?;
            host.wait_free(device)
        })
    }
}

/// Path of the Rust toolchain, a real tree of the right size; `/usr` without one.
fn tree_of_toolchain() -> Result<PathBuf, Failure> {
    let asked = std::process::Command::new("rustc").args(["--print", "sysroot"]).output();
    let path = asked.ok().filter(|it| it.status.success()).map(|it| it.stdout);
    let path = path.map(|it| PathBuf::from(String::from_utf8_lossy(&it).trim()));
    let path = path.filter(|path| path.is_dir()).unwrap_or_else(|| PathBuf::from("/usr"));
    path.canonicalize().doing(format_args!("open {}", path.display()))
}

/// Path of `tyche`, which is built, and may be installed, in the directory of this program.
fn program() -> Result<PathBuf, Failure> {
    let path = std::env::current_exe().doing("find this program")?.with_file_name("tyche");
    if path.is_file() {
        return Ok(path);
    }
    Err(Failure::Failed(format!(
        "no {}: the demo runs the program `tyche` beside its own; `cargo build --package tyche` \
         builds it, `cargo xtask demo` both",
        path.display()
    )))
}

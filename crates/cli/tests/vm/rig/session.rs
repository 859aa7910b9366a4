//! A connected export in a guest.

use std::time::Duration;

use serde_json::Value;

use super::{DISK, Guest, Job, PATIENCE};
use crate::attachment::Attachment;

/// A block device made by `tyche connect`.
pub(crate) struct Session<'a> {
    pub(crate) guest: &'a Guest,
    attachment: Attachment,
    /// The arguments of `tyche connect`.
    pub(crate) args: String,
    pub(crate) device: String,
    pub(crate) pid: u64,
}

impl<'a> Session<'a> {
    /// Connects the disk, with more arguments.
    pub(crate) fn connect(guest: &'a Guest, attachment: Attachment, args: &str) -> Self {
        Self::connect_to(guest, attachment, DISK, args)
    }

    pub(crate) fn connect_to(
        guest: &'a Guest,
        attachment: Attachment,
        export: &str,
        args: &str,
    ) -> Self {
        Self::connect_over(guest, attachment, export, &format!("--link eth0 {args}"))
    }

    /// Connects an export, with links and more arguments.
    pub(crate) fn connect_over(
        guest: &'a Guest,
        attachment: Attachment,
        export: &str,
        args: &str,
    ) -> Self {
        let (kind, option) = (attachment.name(), attachment.option());
        let args = format!("{export} --as {kind} {option} {args}");
        if attachment == Attachment::Loop {
            // A system that has booted normally has them loaded; `connect` loads the others.
            guest.run("modprobe --all fuse loop");
        }
        let (device, pid) = connect(guest, &args);
        Self { guest, attachment, args, device, pid }
    }

    /// Runs the same command again after the daemon was killed: the device must stay.
    pub(crate) fn recover(&mut self) {
        let (device, pid) = connect(self.guest, &self.args);
        assert_eq!(device, self.device);
        assert_ne!(pid, self.pid);
        self.pid = pid;
    }

    /// Starts a script with the device as `$D`.
    pub(crate) fn start(&self, script: &str) -> Job<'a> {
        self.guest.start(&format!("D={}\n{script}", self.device))
    }

    /// Runs a script with the device as `$D`, which must succeed.
    pub(crate) fn run(&self, script: &str) -> String {
        self.run_within(PATIENCE, script)
    }

    pub(crate) fn run_within(&self, limit: Duration, script: &str) -> String {
        self.start(script).succeed(limit)
    }

    /// Runs a script with the device as `$D` until it succeeds.
    pub(crate) fn wait_until(&self, script: &str) {
        self.guest.wait_until(&format!("D={}; {script}", self.device));
    }

    /// Waits until `count` more requests were answered: a load is running.
    pub(crate) fn await_requests(&self, count: u32) {
        self.run(&format!(
            "answered() {{ read -r r _ _ _ w _ </sys/block/${{D#/dev/}}/stat; echo $((r + w)); }}\n\
             start=$(answered)\n\
             for i in {{1..600}}; do\n\
             [ $(answered) -ge $((start + {count})) ] && exit\n\
             sleep 0.1\n\
             done; exit 1"
        ));
    }

    /// Disconnects in an orderly way; the device must be gone.
    pub(crate) fn disconnect(self) {
        self.run("tyche disconnect $D");
        self.await_gone();
    }

    /// Disconnects by force, which must take no longer than a few seconds.
    pub(crate) fn disconnect_by_force(self) {
        self.run("timeout 20 tyche disconnect $D --force");
        self.await_gone();
    }

    fn await_gone(&self) {
        let name = self.device.trim_start_matches("/dev/");
        let presence = self.attachment.presence(name);
        self.guest.wait_until(&format!(
            "! [ -e {presence} ] && ! ls -d /sys/class/ublk-char/* 2>/dev/null"
        ));
    }
}

/// Connects; returns the device, and the daemon's PID.
fn connect(guest: &Guest, args: &str) -> (String, u64) {
    let said = guest.run(&format!(
        "tyche connect -o json {args} 2>/tmp/warnings || {{ \
        code=$?; cat /tmp/warnings; exit $code; }}"
    ));
    let value: Value = serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}"));
    (value["device"].as_str().unwrap().to_owned(), value["pid"].as_u64().unwrap())
}

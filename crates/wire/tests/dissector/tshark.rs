//! tshark, with the dissector.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;
use tyche_testkit::process;

use super::capture::Capture;
use super::fields::{BYTES, Field};
use crate::frames;

const SCRIPT: &str = "../../packaging/wireshark/tyche.lua";

/// The user that tshark runs as. Some builds of it refuse scripts to root.
const NOBODY: &str = "65534";

/// The longest time that tshark may take, also where others use the processors.
const PATIENCE: Duration = Duration::from_secs(120);

/// A directory with the script, which everybody can read.
#[derive(Debug)]
pub(super) struct Tshark {
    dir: TempDir,
}

/// A frame as tshark shows it: fields of the frame itself, and what the dissector has found out,
/// such as the number of the answer.
#[derive(Debug, Default)]
pub(super) struct Shown {
    pub(super) fields: Vec<Field>,
    pub(super) found: Vec<Field>,
    /// Names of problems, e.g. `payload_crc`.
    pub(super) problems: Vec<String>,
}

/// A packet's frames.
pub(super) type Packet = Vec<Shown>;

impl Tshark {
    /// None where tshark is not installed.
    pub(super) fn find() -> Option<Self> {
        if !process::is_installed("tshark") {
            return None;
        }
        let dir = TempDir::with_prefix("tyche-dissector-").expect("a directory");
        set_mode(dir.path(), 0o755);
        let script = fs::read(frames::path(SCRIPT)).expect("the dissector");
        write(&dir.path().join("tyche.lua"), &script);
        Some(Self { dir })
    }

    /// Output of tshark with these arguments.
    pub(super) fn run(&self, args: &[&str]) -> String {
        let is_root = fs::metadata(self.dir.path()).is_ok_and(|dir| dir.uid() == 0);
        let mut command = Command::new(if is_root { "setpriv" } else { "tshark" });
        if is_root {
            let (user, group) = (format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"));
            command.args([&user, &group, "--clear-groups", "tshark"]);
        }
        command.env("HOME", self.dir.path()).current_dir(self.dir.path());
        let done =
            process::finish(command.args(args).args(["-X", "lua_script:tyche.lua"]), PATIENCE);
        let (out, complaints) = (done.stdout, done.stderr);
        assert!(done.status.success(), "{args:?}: {complaints}");
        let error = out.lines().find(|line| line.contains("name=\"_ws.lua.error\""));
        assert!(error.is_none() && !complaints.contains("Lua"), "{args:?}: {error:?} {complaints}");
        out
    }

    /// The packets of a capture, in the format PDML, after a first pass over all of them.
    pub(super) fn packets(&self, capture: &Capture) -> Vec<Packet> {
        write(&self.dir.path().join("capture"), capture.bytes());
        let text = self.run(&["-2", "-r", "capture", "-T", "pdml", "-J", "tyche"]);
        text.split("<packet>").skip(1).map(packet).collect()
    }
}

fn write(path: &Path, content: &[u8]) {
    fs::write(path, content).expect("room for a file");
    set_mode(path, 0o644);
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a file of ours");
}

/// Fields that are no bytes of the frame.
pub(super) const FOUND: [&str; 4] = ["response_in", "response_to", "retransmission", "time"];

fn packet(text: &str) -> Packet {
    let mut packet = Packet::new();
    for line in text.lines().map(str::trim_start) {
        let Some(name) = attribute(line, "name") else { continue };
        if line.starts_with("<proto ") {
            packet.extend((name == "tyche").then(Shown::default));
            continue;
        }
        let (Some(name), Some(shown)) = (name.strip_prefix("tyche."), packet.last_mut()) else {
            continue;
        };
        let value = attribute(line, "value").unwrap_or_default();
        let show = attribute(line, "show").unwrap_or_default();
        let show = match name {
            "zero" => value,
            name if BYTES.contains(&name) => value,
            // Newer versions have words for bits.
            _ => match show.as_str() {
                "False" => "0".to_owned(),
                "True" => "1".to_owned(),
                _ => show,
            },
        };
        if let Some(problem) = name.strip_prefix("problem.") {
            shown.problems.push(problem.to_owned());
        } else if FOUND.contains(&name) {
            shown.found.push((name.to_owned(), show));
        } else {
            shown.fields.push((name.to_owned(), show));
        }
    }
    packet
}

/// The value of an attribute of a line of XML.
fn attribute(line: &str, name: &str) -> Option<String> {
    let (_, rest) = line.split_once(&format!(" {name}=\""))?;
    let (value, _) = rest.split_once('"')?;
    Some(value.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
}

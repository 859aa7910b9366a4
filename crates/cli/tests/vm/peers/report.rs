//! The result of the comparison, for programs and for people.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

/// Rates and latency of a device in a job.
pub(crate) struct Figure {
    pub(crate) iops: f64,
    pub(crate) bytes_per_second: f64,
    /// Mean, from submission to completion.
    pub(crate) latency_us: f64,
}

/// The results of a device.
pub(super) struct Row {
    pub(super) name: String,
    /// Whether it kept what was written.
    pub(super) verified: bool,
    /// One for each job; `None` if it failed.
    pub(super) figures: Vec<Option<Figure>>,
}

/// All results.
pub(super) struct Report {
    /// The guest's kernel.
    pub(super) kernel: String,
    pub(super) jobs: Vec<String>,
    pub(super) rows: Vec<Row>,
}

impl Report {
    /// Writes both forms to the directory that `cargo xtask vm peers` names, if it runs this.
    pub(super) fn write(&self) {
        let readme = self.readme();
        println!("{readme}");
        let Some(dir) = std::env::var_os("TYCHE_VM_RESULTS").map(PathBuf::from) else { return };
        fs::create_dir_all(&dir).unwrap();
        let json = serde_json::to_string_pretty(&self.json()).unwrap();
        fs::write(dir.join("results.json"), json + "\n").unwrap();
        fs::write(dir.join("README.md"), readme).unwrap();
    }

    /// Circumstances of the run, by name.
    fn circumstances(&self) -> [(&'static str, String); 8] {
        let build = if cfg!(debug_assertions) { "debug" } else { "release" };
        [
            ("command", "cargo xtask vm peers".to_owned()),
            ("commit", said(&["git", "describe", "--always", "--abbrev=40", "--dirty"])),
            ("build", build.to_owned()),
            ("date", said(&["date", "--utc", "+%Y-%m-%d %H:%M UTC"])),
            ("kernel in the guests", self.kernel.clone()),
            ("emulator", said(&["qemu-system-x86_64", "--version"]) + ", TCG, 2 CPUs, 1 GiB"),
            ("kernel of the machine", said(&["uname", "-sr"])),
            (
                "load of the machine",
                said(&["cut", "--delimiter= ", "--fields=1-3", "/proc/loadavg"]),
            ),
        ]
    }

    fn json(&self) -> Value {
        let rows = self.rows.iter().map(|row| {
            let figures = self.jobs.iter().zip(&row.figures).map(|(job, figure)| {
                let figure = figure.as_ref().map(|figure| {
                    json!({
                        "iops": figure.iops,
                        "bytes_per_second": figure.bytes_per_second,
                        "latency_us": figure.latency_us,
                    })
                });
                (job.clone(), figure.unwrap_or_default())
            });
            let figures: serde_json::Map<_, _> = figures.collect();
            json!({ "device": row.name, "verified": row.verified, "jobs": figures })
        });
        let circumstances =
            self.circumstances().map(|(name, value)| (name.to_owned(), value.into()));
        json!({
            "schema": "tyche.vm-peers/1",
            "made": serde_json::Map::from_iter(circumstances),
            "devices": rows.collect::<Vec<_>>(),
        })
    }

    fn readme(&self) -> String {
        let mut text = INTRODUCTION.to_owned();
        for (name, value) in self.circumstances() {
            text += &format!("| {name} | {value} |\n");
        }
        text += "\n| device | keeps what is written |";
        text.extend(self.jobs.iter().map(|job| format!(" {job} |")));
        text += &format!("\n|---|---|{}\n", "--:|".repeat(self.jobs.len()));
        for row in &self.rows {
            text += &format!("| {} | {} |", row.name, if row.verified { "yes" } else { "**no**" });
            for (job, figure) in row.figures.iter().enumerate() {
                text += &figure.as_ref().map_or(" failed |".to_owned(), |figure| {
                    format!(" {:.0} ({:.2}) |", figure.iops, figure.iops / self.median(job))
                });
            }
            text += "\n";
        }
        text
    }

    /// Median of the requests per second in a job.
    fn median(&self, job: usize) -> f64 {
        let figures = self.rows.iter().filter_map(|row| row.figures[job].as_ref());
        let mut iops: Vec<_> = figures.map(|figure| figure.iops).collect();
        iops.sort_by(f64::total_cmp);
        let middle = iops.len() / 2;
        if iops.len() % 2 == 1 {
            iops[middle]
        } else {
            f64::midpoint(iops[middle - 1], iops[middle])
        }
    }
}

const INTRODUCTION: &str = "\
# Network block devices in an emulated machine

Made by `cargo xtask vm peers`, not by hand. All devices are in one guest, on one cable, in one run,
and their disks are in memory: of processes on this machine for Tyche, nbdkit and vblade, and of a
second guest for nvmet, which is part of a kernel.

**The figures are distorted.** The guests are emulated, instruction by instruction: computing is
some 15 times as slow as on the machine itself, and a system call, an interrupt and a copy cost
other than they do there, compared with each other. The servers outside are not emulated, but nvmet
is. So the first column is a result; the rest shows that nothing is out of proportion, if the
machine had nothing else to do: a load of more than two or three says that it had. For measurements
see [results](../results/README.md).

Figures are requests per second, and in parentheses their ratio to the median of the job.

| | |
|---|---|
";

/// The first line of a program's output.
fn said(command: &[&str]) -> String {
    let output = Command::new(command[0]).args(&command[1..]).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    text.unwrap_or_default().lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_to_the_median_of_what_did_not_fail() {
        let row = |iops: Option<f64>| Row {
            name: "a".to_owned(),
            verified: true,
            figures: vec![iops.map(|iops| Figure { iops, bytes_per_second: 0.0, latency_us: 0.0 })],
        };
        let rows = [Some(300.0), None, Some(100.0), Some(200.0)].map(row).into();
        let mut report = Report { kernel: "6".to_owned(), jobs: vec!["read".to_owned()], rows };
        assert_eq!(report.median(0), 200.0);
        let readme = report.readme();
        assert!(readme.contains("| a | yes | 300 (1.50) |"), "{readme}");
        assert!(readme.contains("| a | yes | failed |"), "{readme}");
        report.rows.pop();
        assert_eq!(report.median(0), 200.0);
        assert!(report.json()["devices"][1]["jobs"]["read"].is_null());
    }
}

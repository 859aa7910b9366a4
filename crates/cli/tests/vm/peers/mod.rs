//! Other network block devices, in the same guest, over the same cable, in the same run.
//!
//! All disks are in memory. Each job runs on every device before the next job does, so that other
//! load on this machine affects them alike. The result is that each device keeps what is written.
//! The rates are only a hint: in an emulated machine the costs of system calls, copies and
//! interrupts differ from a real one.

mod device;
mod report;

use std::time::Duration;

use serde_json::Value;

use crate::rig::Guest;
use device::{Bench, Device};
pub(crate) use device::{connect_nvme, serve_nvme};
use report::{Figure, Report, Row};

/// Time limit for the start and the end of a job, besides its run time.
const LIMIT: Duration = Duration::from_secs(120);

/// The jobs: options of fio, and their names in the report.
pub(crate) const JOBS: [Job; 6] = [
    Job { rw: "randread", bs: "4k", iodepth: 1 },
    Job { rw: "randwrite", bs: "4k", iodepth: 1 },
    Job { rw: "randread", bs: "4k", iodepth: 32 },
    Job { rw: "randwrite", bs: "4k", iodepth: 32 },
    Job { rw: "read", bs: "128k", iodepth: 8 },
    Job { rw: "write", bs: "128k", iodepth: 8 },
];

pub(crate) struct Job {
    rw: &'static str,
    bs: &'static str,
    iodepth: u32,
}

impl Job {
    pub(crate) fn name(&self) -> String {
        format!("{} {} × {}", self.rw, self.bs, self.iodepth)
    }

    /// Runs the job; `None` if it failed.
    pub(crate) fn measure(&self, guest: &Guest, device: &str) -> Option<Figure> {
        let Self { rw, bs, iodepth } = self;
        let script = format!(
            "fio --name=job --filename={device} --rw={rw} --bs={bs} --iodepth={iodepth} \
             --ioengine=libaio --direct=1 --time_based --ramp_time=1 --runtime=5 \
             --output-format=json"
        );
        let done = guest.start(&script).finish(LIMIT);
        let text = done.output.get(done.output.find('{')?..)?;
        let value: Value = serde_json::from_str(text).ok().filter(|_| done.code == 0)?;
        let side = if rw.ends_with("read") { "read" } else { "write" };
        let side = &value["jobs"][0][side];
        Some(Figure {
            iops: side["iops"].as_f64()?,
            bytes_per_second: side["bw_bytes"].as_f64()?,
            latency_us: side["lat_ns"]["mean"].as_f64()? / 1000.0,
        })
    }
}

/// Writes, and checks what it reads back.
pub(crate) fn verify(guest: &Guest, device: &str) -> bool {
    let script = format!(
        "fio --name=verify --filename={device} --rw=randwrite --bs=4k-64k --size=32M --direct=1 \
         --ioengine=libaio --iodepth=16 --verify=crc32c --verify_fatal=1 --minimal"
    );
    guest.start(&script).finish(LIMIT).code == 0
}

#[test]
#[ignore = "needs a virtual machine: cargo xtask vm peers"]
fn compare() {
    let bench = Bench::new();
    let (guest, devices) = bench.connect();
    let mut rows: Vec<_> = devices
        .iter()
        .map(|Device { name, path }| {
            let verified = path.as_ref().is_some_and(|path| verify(&guest, path));
            Row { name: (*name).to_owned(), verified, figures: Vec::new() }
        })
        .collect();
    for job in &JOBS {
        for (device, row) in devices.iter().zip(&mut rows) {
            let path = device.path.as_ref().filter(|_| row.verified);
            row.figures.push(path.and_then(|path| job.measure(&guest, path)));
        }
    }
    let kernel = guest.run("uname -r").trim().to_owned();
    let report = Report { kernel, jobs: JOBS.iter().map(Job::name).collect(), rows };
    report.write();
    bench.disconnect(&guest);
    for row in &report.rows {
        assert!(row.verified, "{}", row.name);
    }
}

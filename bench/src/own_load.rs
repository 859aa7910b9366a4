//! The figures of our own load, `tyche-lab bench`, for servers that fio has no engine for.

use serde::Deserialize;

use crate::counters::Counters;
use crate::process::{Doing, Result, failed};
use crate::result::Latency;

/// Time in which it warms up: its requests and frames are not in its figures.
const WARM_UP_S: f64 = 0.3;

/// The parts of the program's output that matter here.
#[derive(Deserialize)]
struct Output {
    bs: u32,
    iops: f64,
    lat_ns: Latency,
    cpu_s: f64,
    runtime_s: f64,
    counters: Option<Counters>,
}

/// The figures of a load, fio's or our own.
pub(crate) struct Load {
    pub(crate) seconds: f64,
    pub(crate) ios: u64,
    pub(crate) bytes: u64,
    pub(crate) lat_ns: Latency,
    /// Its CPU time, if it has measured that.
    pub(crate) cpu_s: Option<f64>,
    /// The part of its load that it has measured.
    pub(crate) share: f64,
    /// The counters of its links, if the program prints them.
    pub(crate) counters: Option<Counters>,
}

/// Reads the program's output.
pub(crate) fn parse(output: &str) -> Result<Load> {
    let Output { bs, iops, lat_ns, cpu_s, runtime_s, counters } =
        serde_json::from_str(output).doing("the figures of `tyche-lab bench`")?;
    let ios = (iops * runtime_s).round() as u64;
    if ios == 0 {
        return failed("`tyche-lab bench` did nothing");
    }
    Ok(Load {
        seconds: runtime_s,
        ios,
        bytes: ios * u64::from(bs),
        lat_ns,
        cpu_s: Some(cpu_s),
        share: runtime_s / (runtime_s + WARM_UP_S),
        counters,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_the_programs_output() {
        let output = |iops: f64| {
            format!(
                r#"{{"schema":"tyche.bench/1","rw":"randread","bs":4096,"iops":{iops},
                "lat_ns":{{"mean":7.5,"p50":7,"p99":8,"p999":9}},"cpu_s":2.0,"runtime_s":2.7}}"#
            )
        };
        let load = parse(&output(10.0)).unwrap();
        assert_eq!((load.ios, load.bytes, load.lat_ns.p99), (27, 27 * 4096, 8.0));
        assert_eq!((load.cpu_s, load.share), (Some(2.0), 0.9));
        assert!(parse(&output(0.0)).is_err());
    }
}

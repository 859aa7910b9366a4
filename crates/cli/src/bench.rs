//! `tyche bench`: load on an export, without a block device in the way.

use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use tyche_block::{Completion, Extent, Operation, Request};
use tyche_engine::{ConnectError, HostReport, InlineHost, Notice};
use uuid::Uuid;

use crate::connect::SessionArgs;
use crate::error::{Code, Error, Result};
use crate::output::{Format, show};
use crate::report::cpu_seconds;
use crate::serve::binary;

/// The longest time without an answer before the run is given up.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Time to get going before the measurement begins.
const WARM_UP: Duration = Duration::from_millis(300);
/// How long the farewell to the target may take.
const FAREWELL: Duration = Duration::from_secs(1);

/// Measure an export: requests from this process straight to the target.
///
/// The process drives the session itself, so that nothing but the protocol, the network and the
/// target's store is measured. All but `read` and `randread` OVERWRITE THE EXPORT'S CONTENT.
#[derive(Args, Clone, Debug)]
pub(crate) struct BenchArgs {
    #[command(flatten)]
    session: SessionArgs,

    /// What to do.
    #[arg(long, value_enum, default_value_t = Pattern::Randread)]
    rw: Pattern,

    /// Bytes of a request, up to 1 MiB.
    #[arg(long, value_name = "SIZE", default_value = "4k", value_parser = size)]
    bs: u32,

    /// Requests in flight.
    #[arg(long, value_name = "NUMBER", default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=1024))]
    iodepth: u16,

    /// How long to measure.
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0)]
    runtime: f64,

    /// Reads in 100 requests of `randrw`.
    #[arg(long, value_name = "PERCENT", default_value_t = 70,
        value_parser = clap::value_parser!(u64).range(0..=100))]
    rwmix: u64,

    /// How to print.
    #[arg(short, long, default_value_t)]
    pub(crate) output: Format,
}

/// The order and kind of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Pattern {
    /// Read one after the other.
    Read,
    /// Write one after the other.
    Write,
    /// Read anywhere.
    Randread,
    /// Write anywhere.
    Randwrite,
    /// Read and write anywhere.
    Randrw,
}

fn size(text: &str) -> Result<u32, String> {
    match binary(text).parse::<bytesize::ByteSize>() {
        Ok(size) if (512..=1 << 20).contains(&size.as_u64()) && size.as_u64() % 512 == 0 => {
            Ok(size.as_u64() as u32)
        }
        _ => Err("a multiple of 512 up to 1M".to_owned()),
    }
}

pub(crate) fn run(args: &BenchArgs) -> Result<()> {
    let session = SessionArgs {
        queue_size: args.iodepth.max(args.session.queue_size),
        ..args.session.clone()
    };
    let mut host = InlineHost::new(session.options(Uuid::new_v4())?);
    let geometry = host.connect(session.timeout()).map_err(|error| refused(&session, error))?;
    let blocks = geometry.size / u64::from(args.bs);
    if blocks == 0 || !args.bs.is_multiple_of(geometry.block_size) {
        let message = format!(
            "requests of {} bytes do not fit an export of {} bytes in blocks of {}",
            args.bs, geometry.size, geometry.block_size
        );
        return Err(Error::new(Code::Usage, message));
    }
    if geometry.read_only && !matches!(args.rw, Pattern::Read | Pattern::Randread) {
        return Err(Error::new(Code::Refused, "the export is read-only"));
    }
    let mut load = Load::new(args, blocks);
    load.fill(&mut host)?;
    load.run(&mut host, WARM_UP, false)?;
    let (before, cpu) = (host.report(), cpu_seconds());
    load.reset();
    let elapsed = load.run(&mut host, Duration::from_secs_f64(args.runtime), true)?;
    let result = load.result(elapsed, cpu_seconds() - cpu, &before, &host.report());
    host.disconnect(FAREWELL);
    show(args.output, || result.clone(), || text(&result));
    Ok(())
}

fn refused(session: &SessionArgs, error: ConnectError) -> Error {
    match error {
        ConnectError::Refused(Notice::Rejected(reason, detail)) => session.refused(reason, &detail),
        ConnectError::Refused(Notice::Failed(failure)) => SessionArgs::failed(failure),
        ConnectError::Refused(notice) => Error::new(Code::Other, format!("{notice:?}")),
        ConnectError::TimedOut(problem) => match session.unknown_export() {
            Ok(Some(error)) | Err(error) => error,
            Ok(None) => session.unreachable(problem.map(|it| it.to_string())),
        },
    }
}

/// Requests in flight, and what became of those before.
struct Load {
    pattern: Pattern,
    len: u32,
    blocks: u64,
    depth: u16,
    rwmix: u64,
    random: u64,
    next: u64,
    /// When each request in flight began, by its token.
    begun: Vec<Instant>,
    done: Vec<Completion>,
    latencies_ns: Histogram,
    errors: u64,
}

impl Load {
    fn new(args: &BenchArgs, blocks: u64) -> Self {
        Self {
            pattern: args.rw,
            len: args.bs,
            blocks,
            depth: args.iodepth,
            rwmix: args.rwmix,
            random: 0x9e37_79b9_7f4a_7c15,
            next: 0,
            begun: vec![Instant::now(); args.iodepth.into()],
            done: Vec::with_capacity(args.iodepth.into()),
            latencies_ns: Histogram::new(),
            errors: 0,
        }
    }

    /// Xorshift: cheap, and random enough to defeat read-ahead.
    fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }

    fn request(&mut self, buffer: Extent) -> Request {
        let random = self.random();
        let (read, block) = match self.pattern {
            Pattern::Read | Pattern::Write => (self.pattern == Pattern::Read, self.next),
            Pattern::Randread => (true, random % self.blocks),
            Pattern::Randwrite => (false, random % self.blocks),
            Pattern::Randrw => ((random >> 40) % 100 < self.rwmix, random % self.blocks),
        };
        self.next = (self.next + 1) % self.blocks;
        Request {
            operation: if read { Operation::Read } else { Operation::Write { fua: false } },
            offset: block * u64::from(self.len),
            len: self.len,
            buffer: Some(buffer),
        }
    }

    fn submit(&mut self, host: &mut InlineHost, token: u64, buffer: Extent) -> Result<()> {
        let request = self.request(buffer);
        self.begun[token as usize] = Instant::now();
        host.submit(request, token)
            .map_err(|_| Error::new(Code::Other, "the session takes fewer requests than asked for"))
    }

    /// Brings all requests on their way.
    fn fill(&mut self, host: &mut InlineHost) -> Result<()> {
        for token in 0..u64::from(self.depth) {
            let mut buffer = host
                .arena()
                .alloc(self.len as usize)
                .ok_or_else(|| Error::new(Code::Usage, "not enough memory: lower --iodepth"))?;
            for byte in buffer.iter_mut() {
                *byte = (self.random() >> 24) as u8;
            }
            self.submit(host, token, buffer)?;
        }
        Ok(())
    }

    /// Keeps as many on their way for `time`; returns how long it really was.
    fn run(&mut self, host: &mut InlineHost, time: Duration, talk: bool) -> Result<Duration> {
        let start = Instant::now();
        let talk = talk && std::io::stderr().is_terminal();
        let (mut now, mut heard, mut said) = (start, start, start);
        while now.duration_since(start) < time {
            host.wait(&mut self.done, Duration::from_millis(100));
            now = Instant::now();
            if !self.done.is_empty() {
                heard = now;
            } else if now.duration_since(heard) > SILENCE_MAX {
                let message = "no answer from the target for half a minute";
                return Err(Error::new(Code::Unreachable, message));
            }
            for Completion { token, result, buffer } in std::mem::take(&mut self.done) {
                let latency = now.duration_since(self.begun[token as usize]);
                self.latencies_ns.add(latency.as_nanos() as u64);
                self.errors += u64::from(result.is_err());
                let buffer = buffer.expect("reads and writes have a buffer");
                self.submit(host, token, buffer)?;
            }
            if talk && now.duration_since(said) > Duration::from_millis(500) {
                said = now;
                let rate = self.latencies_ns.count as f64 / now.duration_since(start).as_secs_f64();
                eprint!("\r{rate:.0} IOPS ");
                let _ = std::io::stderr().flush();
            }
        }
        if talk {
            eprint!("\r\x1b[K");
        }
        Ok(now.duration_since(start))
    }

    /// Forgets what was measured so far.
    fn reset(&mut self) {
        self.latencies_ns = Histogram::new();
        self.errors = 0;
    }

    fn result(
        &self,
        elapsed: Duration,
        cpu_s: f64,
        before: &HostReport,
        after: &HostReport,
    ) -> Value {
        let latency = &self.latencies_ns;
        let seconds = elapsed.as_secs_f64();
        let frames = |report: &HostReport| {
            report.paths.iter().map(|it| it.port.rx_frames + it.port.tx_frames).sum::<u64>()
        };
        let frames = (frames(after) - frames(before)) as f64;
        json!({
            "schema": "tyche.bench/1",
            "iops": latency.count as f64 / seconds,
            "bytes_per_s": latency.count as f64 * f64::from(self.len) / seconds,
            "lat_ns": {
                "mean": latency.mean(),
                "p50": latency.quantile(0.5),
                "p99": latency.quantile(0.99),
                "p999": latency.quantile(0.999),
            },
            "cpu_s": cpu_s,
            "frames_per_io": frames / latency.count.max(1) as f64,
            "errors": self.errors,
            "retransmitted": after.channel.retransmitted - before.channel.retransmitted,
            "runtime_s": seconds,
        })
    }
}

fn text(result: &Value) -> String {
    let us = |name: &str| result["lat_ns"][name].as_f64().unwrap_or_default() / 1e3;
    format!(
        "{:.0} IOPS, {:.1} MB/s; latency {:.1} us mean, {:.1} p50, {:.1} p99, {:.1} p99.9; \
         {:.2} frames/IO, {:.2} s CPU, {} retransmitted, {} errors\n",
        result["iops"].as_f64().unwrap_or_default(),
        result["bytes_per_s"].as_f64().unwrap_or_default() / 1e6,
        us("mean"),
        us("p50"),
        us("p99"),
        us("p999"),
        result["frames_per_io"].as_f64().unwrap_or_default(),
        result["cpu_s"].as_f64().unwrap_or_default(),
        result["retransmitted"],
        result["errors"],
    )
}

/// Counts by size, to about 3 %: each power of two is split into 32 classes.
struct Histogram {
    classes: Vec<u64>,
    count: u64,
    sum: u64,
}

impl Histogram {
    const SPLIT: u32 = 5;

    fn new() -> Self {
        Self { classes: vec![0; 64 << Self::SPLIT], count: 0, sum: 0 }
    }

    fn class(value: u64) -> usize {
        let bits = value.max(1 << Self::SPLIT).ilog2() - Self::SPLIT;
        ((bits as usize) << Self::SPLIT) + (value >> bits) as usize
    }

    fn add(&mut self, value: u64) {
        self.classes[Self::class(value)] += 1;
        self.count += 1;
        self.sum += value;
    }

    fn mean(&self) -> f64 {
        self.sum as f64 / self.count.max(1) as f64
    }

    /// The value that so much of all is below or equal to.
    fn quantile(&self, part: f64) -> u64 {
        let wanted = (self.count as f64 * part).ceil() as u64;
        let mut seen = 0;
        for (class, count) in self.classes.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                let bits = (class >> Self::SPLIT).saturating_sub(1);
                return ((class - (bits << Self::SPLIT)) as u64) << bits;
            }
        }
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_to_three_percent() {
        let mut histogram = Histogram::new();
        for value in 1..=100_000u64 {
            histogram.add(value);
        }
        for part in [0.001, 0.5, 0.9, 0.999] {
            let (found, right) = (histogram.quantile(part) as f64, part * 100_000.0);
            assert!((found / right - 1.0).abs() < 0.04, "{part}: {found}");
        }
        assert_eq!(histogram.mean(), 50_000.5);
        let mut one = Histogram::new();
        one.add(7);
        assert_eq!(one.quantile(0.5), 7);
    }
}

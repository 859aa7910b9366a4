//! `tyche-lab bench`: `tyche bench`, and the stages of its requests.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use serde::Serialize;
use tyche_cli::bench::{Bench, BenchArgs, connect_fcoe, measure_fcoe};
use tyche_cli::report::BenchReport;
use tyche_cli::{LinkCommand, Wrapper};
use tyche_console::error::{Code, Context, Result};
use tyche_console::output::{Format, show};
use tyche_fcoe::FcoeHostOptions;

use crate::layered;
use crate::sides::{Sides, SidesReport};
use crate::stages::{self, Breakdown};

// Not a doc comment: clap would show it in place of the command's own description.
#[derive(Args, Debug)]
pub(crate) struct StagedBenchArgs {
    #[command(flatten)]
    bench: BenchArgs,

    /// Print in which stages the requests spend their time, at the host, on the wire and at the
    /// target. Reading the clock at every step costs a little time itself.
    #[arg(long, conflicts_with = "fcoe")]
    stages: bool,

    /// Draw the stages as a bar into this file (SVG).
    #[arg(long, value_name = "FILE", requires = "stages")]
    stages_svg: Option<PathBuf>,

    /// Measure an FCoE initiator in layers, as Open-FCoE has them, in place of that of `tyche`: a
    /// SCSI command, an FCP packet and frames for each request, which copy from each other;
    /// queues and exchanges that all threads share behind locks; and a thread each to receive, for
    /// FCP, and to complete. It exists only to be measured, and recovers from nothing.
    #[arg(long, requires = "fcoe", conflicts_with_all = ["stages", "parts", "faults"])]
    layered: bool,

    /// Print how long a request takes from its submission until its command is sent, and from the
    /// arrival of the response until it is completed. For reads with one in flight.
    #[arg(long, requires = "fcoe", conflicts_with = "stages")]
    sides: bool,

    /// Print what the links of the session count from the first request to the last, with those
    /// that the measurement leaves out.
    #[arg(long, conflicts_with_all = ["fcoe", "stages"])]
    counters: bool,
}

/// The output with `--stages`.
#[derive(Serialize)]
#[serde(tag = "schema", rename = "tyche.stages/1")]
struct Output {
    #[serde(flatten)]
    bench: BenchReport,
    stages: stages::Report,
}

/// The output with `--sides` or `--layered`.
#[derive(Serialize)]
#[serde(tag = "schema", rename = "tyche.sides/1")]
struct SidesOutput {
    #[serde(flatten)]
    bench: BenchReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    sides: Option<SidesReport>,
}

/// The output with `--counters`.
#[derive(Serialize)]
#[serde(tag = "schema", rename = "tyche.counters/1")]
struct CountersOutput {
    #[serde(flatten)]
    bench: BenchReport,
    counters: BTreeMap<&'static str, u64>,
}

impl LinkCommand for StagedBenchArgs {
    fn wrap(&mut self, wrapper: Arc<dyn Wrapper>) {
        self.bench.wrap(wrapper);
    }

    fn run(&self) -> Result<()> {
        if self.sides || self.layered {
            self.measure_fcoe()
        } else if self.stages {
            self.measure()
        } else if self.counters {
            self.count()
        } else {
            self.bench.run()
        }
    }

    fn output(&self) -> Format {
        self.bench.output
    }
}

impl StagedBenchArgs {
    fn measure_fcoe(&self) -> Result<()> {
        let (sides, observe) = Sides::new();
        let stamped = |mut options: FcoeHostOptions| {
            if self.sides {
                options.port.interface.fcoe = sides.link(options.port.interface.fcoe);
            }
            options
        };
        let result = if self.layered {
            let connect = |args: &_, options| layered::connect(args, stamped(options));
            measure_fcoe(&self.bench, connect, observe)?
        } else {
            let connect = |args: &_, options| connect_fcoe(args, stamped(options));
            measure_fcoe(&self.bench, connect, observe)?
        };
        let sides = sides.report().filter(|_| self.sides);
        let output = || SidesOutput { bench: result.report(), sides };
        let text = || result.text() + &sides.map_or_else(String::new, SidesReport::text);
        show(self.output(), output, text)
    }

    fn count(&self) -> Result<()> {
        let mut bench = Bench::start(&self.bench, |_| {})?;
        let before = counted(&mut bench)?;
        let result = bench.load()?;
        let mut counters = counted(&mut bench)?;
        for (name, count) in &mut counters {
            *count = count.saturating_sub(before.get(name).copied().unwrap_or(0));
        }
        let counters_text =
            counters.iter().map(|(name, count)| format!("{name}: {count}\n")).collect::<String>();
        let output = || CountersOutput { bench: result.report(), counters };
        show(self.output(), output, || result.text() + &counters_text)
    }

    fn measure(&self) -> Result<()> {
        // Created before the measurement, which a failure here would waste.
        let picture = self.stages_svg.as_deref().map(create).transpose()?;
        let mut bench = Bench::start(&self.bench, |session| session.stages = true)?;
        let (result, jobs) = bench.load_with(|host, stages: &mut Breakdown| {
            host.stage_times().for_each(|times| stages.add(&times));
        })?;
        let mut stages = Breakdown::default();
        jobs.iter().for_each(|job| stages.merge(job));
        let output = || Output { bench: result.report(), stages: stages.report() };
        show(self.output(), output, || result.text() + &stages.text())?;
        let Some((path, mut file)) = picture else { return Ok(()) };
        let BenchReport { rw, bs, iodepth, .. } = result.report();
        let svg = stages::svg(&format!("{rw}, {bs} bytes, depth {iodepth}"), &stages);
        let doing = format_args!("cannot write {}", path.display());
        file.write_all(svg.as_bytes()).context(Code::Other, doing)
    }
}

/// The counters of the links of all jobs, by name, and `requests`.
fn counted(bench: &mut Bench) -> Result<BTreeMap<&'static str, u64>> {
    let count = bench.jobs();
    let jobs = bench.each(count, |host, _| {
        let report = host.report();
        let of_links = report.links.iter().flat_map(|link| &link.link_counters);
        let of_links = of_links.map(|(metric, count)| (metric.name, *count));
        Ok(of_links.chain([("requests", report.requests.total())]).collect::<Vec<_>>())
    })?;
    let mut all = BTreeMap::new();
    for (name, count) in jobs.into_iter().flatten() {
        *all.entry(name).or_default() += count;
    }
    Ok(all)
}

fn create(path: &Path) -> Result<(&Path, File)> {
    let file = File::create(path);
    let file = file.context(Code::Usage, format_args!("--stages-svg {}", path.display()))?;
    Ok((path, file))
}

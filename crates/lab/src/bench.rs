//! `tyche-lab bench`: `tyche bench`, and the stages of its requests.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use serde::Serialize;
use tyche_cli::bench::{Bench, BenchArgs};
use tyche_cli::report::BenchReport;
use tyche_cli::{LinkCommand, Wrapper};
use tyche_console::error::{Code, Context, Result};
use tyche_console::output::{Format, show};

use crate::stages::{self, Breakdown};

// Not a doc comment: clap would show it in place of the command's own description.
#[derive(Args, Debug)]
pub(crate) struct StagedBenchArgs {
    #[command(flatten)]
    bench: BenchArgs,

    /// Print in which stages the requests spend their time, at the host, on the wire and at the
    /// target. Reading the clock at every step costs a little time itself.
    #[arg(long)]
    stages: bool,

    /// Draw the stages as a bar into this file (SVG).
    #[arg(long, value_name = "FILE", requires = "stages")]
    stages_svg: Option<PathBuf>,
}

/// The output with `--stages`.
#[derive(Serialize)]
#[serde(tag = "schema", rename = "tyche.stages/1")]
struct Output {
    #[serde(flatten)]
    bench: BenchReport,
    stages: stages::Report,
}

impl LinkCommand for StagedBenchArgs {
    fn wrap(&mut self, wrapper: Arc<dyn Wrapper>) {
        self.bench.wrap(wrapper);
    }

    fn run(&self) -> Result<()> {
        if self.stages { self.measure() } else { self.bench.run() }
    }

    fn output(&self) -> Format {
        self.bench.output
    }
}

impl StagedBenchArgs {
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
        show(self.output(), output, || result.text() + &stages.text());
        let Some((path, mut file)) = picture else { return Ok(()) };
        let BenchReport { rw, bs, iodepth, .. } = result.report();
        let svg = stages::svg(&format!("{rw}, {bs} bytes, depth {iodepth}"), &stages);
        let doing = format_args!("cannot write {}", path.display());
        file.write_all(svg.as_bytes()).context(Code::Other, doing)
    }
}

fn create(path: &Path) -> Result<(&Path, File)> {
    let file = File::create(path);
    let file = file.context(Code::Usage, format_args!("--stages-svg {}", path.display()))?;
    Ok((path, file))
}

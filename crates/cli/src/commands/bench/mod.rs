//! `tyche bench`: load on an export, without a block device in the way.

mod disk;
mod fcoe;
mod job;
mod load;
mod progress;
mod requests;
mod result;
mod shape;

use std::time::Duration;

use clap::{Args, ValueEnum};
use tyche_block::Geometry;
use tyche_native::{HostOptions, InlineHost, discover};
use tyche_numa::Placement;
use tyche_proto::wire::Name;
use tyche_proto::{ExportId, SessionConfig};
use tyche_session::{End, log_warnings};
use uuid::Uuid;

pub use self::disk::{DiskSession, Observe};
pub use self::fcoe::{connect as connect_fcoe, measure as measure_fcoe};
use self::job::Jobs;
use self::load::Load;
pub use self::load::{Shared, check_notices};
use self::progress::Progress;
pub use self::result::Measurement;
pub use self::shape::{Pattern, Random, Shape};
use crate::daemons::connect::{FcoeArgs, SessionArgs};
use crate::output::{Format, bytes, show};
use crate::shared::error::{Code, Error, Result};
use crate::shared::report::Output;
use crate::shared::seconds::positive;
use crate::shared::sessions::refuse_twice;
use crate::size;

/// How long to wait for offers that tell whether the export is shared.
const LOOK: Duration = Duration::from_millis(500);

/// Measure an export: requests from this process straight to the target.
///
/// The process drives the sessions itself, so that nothing but the protocol, the network and the
/// target's store is measured. All but `read` and `randread` OVERWRITE THE EXPORT'S CONTENT, and
/// need `--yes`. Those two connect read-only, also while another host writes.
#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    #[command(flatten)]
    pub(crate) session: SessionArgs,

    #[command(flatten)]
    fcoe: FcoeArgs,

    /// The order and kind of the requests.
    #[arg(long, value_enum, default_value_t = Pattern::Randread)]
    rw: Pattern,

    /// Overwrite the export's content, as `--rw write`, `rw`, `randwrite` and `randrw` do.
    #[arg(long)]
    yes: bool,

    /// Bytes of a request, up to 1 MiB.
    #[arg(long, value_name = "SIZE", default_value = "4k", value_parser = size)]
    bs: u32,

    /// Requests in flight, of each job and queue.
    #[arg(long, value_name = "NUMBER", default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=1024))]
    iodepth: u16,

    /// Jobs at the same time, each with a session of its own, which has a thread for each of its
    /// queues. To write with more than one, the export has to be `shared`.
    #[arg(long, value_name = "NUMBER", default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: u16,

    /// How long to measure.
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = positive)]
    runtime: f64,

    /// How long the load lasts before it is measured: a fast path over long distances takes seconds
    /// until it is used fully, and so do several users of one until each has its share.
    #[arg(long, value_name = "SECONDS", default_value_t = 0.3, value_parser = positive)]
    ramp_time: f64,

    /// Reads in 100 requests of `rw` and `randrw`.
    #[arg(long, value_name = "PERCENT", default_value_t = 70,
        value_parser = clap::value_parser!(u64).range(0..=100))]
    rwmix: u64,

    /// How to print.
    #[arg(short, long, default_value_t)]
    pub output: Format,
}

fn size(text: &str) -> Result<u32, String> {
    match size::parse(text) {
        Ok(size) if (512..=1 << 20).contains(&size) && size % 512 == 0 => Ok(size as u32),
        _ => Err("a multiple of 512 up to 1M".to_owned()),
    }
}

pub(crate) fn run(args: &BenchArgs) -> Result<()> {
    let result = if args.is_fcoe() {
        fcoe::measure(args, fcoe::connect, Box::new(|_, _| {}))?
    } else {
        Bench::start(args, |_| {})?.load()?
    };
    show(args.output, || Output::Bench(result.report()), || result.text())
}

impl BenchArgs {
    fn is_fcoe(&self) -> bool {
        self.fcoe.is_wanted()
    }

    /// The longest time that connecting may take.
    pub fn timeout(&self) -> Duration {
        self.session.timeout()
    }

    /// Checks that the content may be overwritten, if it will be.
    fn check_consent(&self) -> Result<()> {
        if !self.rw.writes() || self.yes {
            return Ok(());
        }
        let message = format!(
            "--rw {} overwrites what is on export `{}`: if nobody needs that any more, say --yes",
            self.rw.to_possible_value().expect("no pattern is hidden").get_name(),
            self.session.export
        );
        Err(Error::new(Code::Usage, message))
    }

    fn shape(&self) -> Shape {
        Shape::new(self.rw, self.bs, self.iodepth, self.rwmix)
    }

    fn period(&self) -> Period {
        let [ramp, time] = [self.ramp_time, self.runtime].map(Duration::from_secs_f64);
        Period { ramp, time }
    }

    /// The session, for requests of that kind and number.
    fn session(&self) -> SessionArgs {
        let mut session = self.session.clone();
        session.common.queue_size = self.iodepth.max(session.common.queue_size);
        session.common.read_only |= !self.rw.writes();
        session
    }
}

/// How long a load lasts.
#[derive(Clone, Copy)]
struct Period {
    /// Before anything counts.
    ramp: Duration,
    /// Measured.
    time: Duration,
}

/// Jobs that are connected to an export.
pub struct Bench {
    jobs: Jobs,
    shape: Shape,
    period: Period,
}

impl Bench {
    /// Connects the jobs; `change` adjusts the configuration of each session.
    ///
    /// # Errors
    /// The arguments do not fit the export, or a job does not get to it.
    pub fn start(args: &BenchArgs, change: impl Fn(&mut SessionConfig)) -> Result<Self> {
        let (shape, session) = (args.shape(), args.session().settled(None)?);
        args.check_consent()?;
        if args.rw.writes() {
            may_write(args, &session)?;
        }
        let pages = (args.bs as usize).div_ceil(tyche_block::PAGE);
        let options = |_| {
            let (mut options, warnings, _) = session.options(Uuid::new_v4())?;
            log_warnings(&warnings);
            change(&mut options.session);
            // The same number of whole requests on each node.
            let nodes = options.placement.buffer_nodes().len().max(1);
            let pages = pages * usize::from(args.iodepth).next_multiple_of(nodes);
            Ok(HostOptions { arena_size: pages.into(), ..options })
        };
        let options = (0..args.jobs).map(options).collect::<Result<Vec<_>>>()?;
        session.bind(&options);
        let mut jobs = Jobs::start(&session, options)?;
        let geometries = jobs.each(jobs.count(), |host, _, _| Ok(host.geometry()), None)?;
        geometries.into_iter().try_for_each(|geometry| check_geometry(args, geometry))?;
        Ok(Self { jobs, shape, period: args.period() })
    }

    /// The load of each job.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// How long to measure.
    pub fn time(&self) -> Duration {
        self.period.time
    }

    /// Number of threads: one for each queue of each job.
    pub fn jobs(&self) -> usize {
        self.jobs.count()
    }

    /// Has all jobs send requests, and shows the progress.
    ///
    /// # Errors
    /// The target is lost, or a request fails.
    pub fn load(&mut self) -> Result<Measurement> {
        Ok(self.load_with(|_, ()| {})?.0)
    }

    /// Like [`load`](Self::load), but while a job measures, calls `look` after each wait for
    /// answers, with the job's session and the job's `T`. Returns each job's `T`, too.
    ///
    /// # Errors
    /// The target is lost, or a request fails.
    pub fn load_with<T: Default + Send + 'static>(
        &mut self,
        look: impl Fn(&mut InlineHost, &mut T) + Clone + Send + 'static,
    ) -> Result<(Measurement, Vec<T>)> {
        let (shape, period, count) = (self.shape, self.period, self.jobs.count());
        let load = move |host: &mut InlineHost, shared: &Shared, index| {
            let (mut load, mut seen) =
                (Load::new(host, shape, (index, count as u64), shared)?, T::default());
            let tally = load.measure(host, period, |host| look(host, &mut seen))?;
            Ok((tally, seen))
        };
        let mut progress = Progress::new(shape.len, period.ramp + period.time);
        let results = self.jobs.each(count, load, Some(&mut progress))?;
        let (tallies, seen) = results.into_iter().unzip();
        Ok((Measurement { shape, tallies }, seen))
    }

    /// Runs other work in the first `count` jobs at the same time, with their sessions.
    ///
    /// # Errors
    /// The error of the first job that fails.
    pub fn each<T: Send + 'static>(
        &mut self,
        count: usize,
        work: impl Fn(&mut InlineHost, &Shared) -> Result<T> + Clone + Send + 'static,
    ) -> Result<Vec<T>> {
        self.jobs.each(count, move |host, shared, _| work(host, shared), None)
    }
}

/// Refuses to write where that would take the export away from this machine's own session or from
/// another job.
fn may_write(args: &BenchArgs, session: &SessionArgs) -> Result<()> {
    let export = &session.export;
    refuse_twice(export, session.host()?)?;
    if args.jobs == 1 {
        return Ok(());
    }
    let opened =
        session.link.open_available(&session.common.links, End::Host, &Placement::default())?;
    let links = opened.links;
    let (_, wanted) = session.wanted()?;
    let name = match wanted {
        ExportId::Name(name) => name,
        ExportId::Uuid(_) => Name::EMPTY,
    };
    let key = session.trust.key();
    let host = (session.host()?, key.as_ref());
    let found = discover(links, session.link.ethertype, host, name, LOOK).found;
    let mut offered = found.iter().flat_map(|it| &it.offer.exports).filter(|it| wanted.names(it));
    if offered.any(|it| !it.shared) {
        let message = format!(
            "export `{export}` has one writer at a time, not {} jobs: use --jobs 1 and more \
             --iodepth, or serve it with `shared = true`",
            args.jobs
        );
        return Err(Error::new(Code::Refused, message));
    }
    // An export that is not found now is reported when the jobs connect.
    Ok(())
}

fn check_geometry(args: &BenchArgs, geometry: Geometry) -> Result<()> {
    let Geometry { size, block_size, read_only, .. } = geometry;
    let export = &args.session.export;
    if read_only && args.rw.writes() {
        let message = format!("export `{export}` is read-only: use --rw read or randread");
        return Err(Error::new(Code::Refused, message));
    }
    let misfit = if u64::from(args.bs) > size {
        format!("has only {}", bytes(size))
    } else if !args.bs.is_multiple_of(block_size) {
        format!("has blocks of {block_size} bytes")
    } else {
        return Ok(());
    };
    let message = format!("--bs {}: export `{export}` {misfit}", args.bs);
    Err(Error::new(Code::Usage, message))
}

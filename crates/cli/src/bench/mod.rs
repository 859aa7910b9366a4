//! `tyche bench`: load on an export, without a block device in the way, and the floor under it.

mod floor;
mod job;
mod load;
mod progress;
mod result;
mod stages;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, ValueEnum};
use tyche_block::Geometry;
use tyche_engine::{HostOptions, discover};
use tyche_numa::Placement;
use tyche_proto::ExportId;
use tyche_proto::wire::{ExportFlags, Name};
use uuid::Uuid;

use self::floor::Probe;
use self::job::Jobs;
use self::load::{Pattern, Shape};
use self::progress::Progress;
use self::result::Floor;
use self::stages::Breakdown;
use crate::connect::{SessionArgs, positive};
use crate::error::{Code, Context, Error, Result};
use crate::links::{End, log_warnings};
use crate::output::{Format, bytes, show};
use crate::sessions::refuse_twice;
use crate::size;

/// Warm-up before the measurement.
const WARM_UP: Duration = Duration::from_millis(300);
/// Shortest and longest time of one measurement of the floor.
const FLOOR_TIMES: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(500)];
/// How long to wait for offers that tell whether the export is shared.
const LOOK: Duration = Duration::from_millis(500);

/// Measure an export: requests from this process straight to the target.
///
/// The process drives the sessions itself, so that nothing but the protocol, the network and the
/// target's store is measured. All but `read` and `randread` OVERWRITE THE EXPORT'S CONTENT. Those
/// two connect read-only, and get in beside a host that writes.
#[derive(Args, Clone, Debug)]
pub struct BenchArgs {
    #[command(flatten)]
    pub(crate) session: SessionArgs,

    /// What to do.
    #[arg(long, value_enum, default_value_t = Pattern::Randread)]
    rw: Pattern,

    /// Bytes of a request, up to 1 MiB.
    #[arg(long, value_name = "SIZE", default_value = "4k", value_parser = size)]
    bs: u32,

    /// Requests in flight, of each job.
    #[arg(long, value_name = "NUMBER", default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=1024))]
    iodepth: u16,

    /// Jobs at the same time, each with a thread, a session and a socket of its own. To write with
    /// more than one, the export has to be `shared`.
    #[arg(long, value_name = "NUMBER", default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: u16,

    /// How long to measure.
    #[arg(long, value_name = "SECONDS", default_value_t = 5.0, value_parser = positive)]
    runtime: f64,

    /// Reads in 100 requests of `randrw`.
    #[arg(long, value_name = "PERCENT", default_value_t = 70,
        value_parser = clap::value_parser!(u64).range(0..=100))]
    rwmix: u64,

    /// Measure the same links without requests as well: bare frames, exchanged with the target as
    /// the requests and their data would be, and say how close to that the result is.
    #[arg(long)]
    floor: bool,

    /// Say in which stages the requests spend their time, at the host, on the wire and at the
    /// target. Looking at the clock at every step costs a little itself.
    #[arg(long)]
    stages: bool,

    /// Draw the stages as a bar into this file (SVG).
    #[arg(long, value_name = "FILE", requires = "stages")]
    stages_svg: Option<PathBuf>,

    /// How to print.
    #[arg(short, long, default_value_t)]
    pub(crate) output: Format,
}

fn size(text: &str) -> Result<u32, String> {
    match size::parse(text) {
        Ok(size) if (512..=1 << 20).contains(&size) && size % 512 == 0 => Ok(size as u32),
        _ => Err("a multiple of 512 up to 1M".to_owned()),
    }
}

pub(crate) fn run(args: &BenchArgs) -> Result<()> {
    let shape =
        Shape { stages: args.stages, ..Shape::new(args.rw, args.bs, args.iodepth, args.rwmix) };
    let session = SessionArgs {
        queue_size: args.iodepth.max(args.session.queue_size),
        read_only: args.session.read_only || !args.rw.writes(),
        ..args.session.clone()
    };
    if args.rw.writes() {
        may_write(args)?;
    }
    let pages = (args.bs as usize).div_ceil(tyche_block::PAGE);
    let options = |_| {
        let (mut options, warnings) = session.options(Uuid::new_v4())?;
        log_warnings(&warnings);
        options.session.stages = args.stages;
        // The same number of whole requests on each node.
        let nodes = options.placement.buffer_nodes().len().max(1);
        let arena_pages = pages * usize::from(args.iodepth).next_multiple_of(nodes);
        Ok(HostOptions { arena_pages, ..options })
    };
    // Created before the measurement, which a failure here would waste.
    let svg = args.stages_svg.as_deref().map(create).transpose()?;
    let options = (0..args.jobs).map(options).collect::<Result<Vec<_>>>()?;
    let mut jobs = Jobs::start(&session, options, shape)?;
    check_geometry(args, jobs.geometry)?;
    let time = Duration::from_secs_f64(args.runtime);
    let tallies = jobs.load((WARM_UP, time), &mut Progress::new(args.bs, WARM_UP + time))?;
    let floor = if args.floor { Some(find_floor(&mut jobs, shape, time)?) } else { None };
    drop(jobs);
    let result = result::value(shape, &tallies, floor);
    let stages = result::stages(&tallies);
    let breakdown = || stages.as_ref().map_or(String::new(), Breakdown::text);
    show(args.output, || result.clone(), || result::text(&result) + &breakdown());
    if let (Some((path, mut file)), Some(stages)) = (svg, &stages) {
        file.write_all(stages::svg(&args.title(), stages).as_bytes())
            .context(Code::Other, format_args!("cannot write {}", path.display()))?;
    }
    Ok(())
}

impl BenchArgs {
    /// The title of the picture: the load.
    fn title(&self) -> String {
        let pattern = self.rw.to_possible_value().map_or(String::new(), |it| it.get_name().into());
        format!("{pattern}, {} bytes, depth {}", self.bs, self.iodepth)
    }
}

fn create(path: &Path) -> Result<(&Path, File)> {
    let file = File::create(path);
    let file = file.context(Code::Usage, format_args!("--stages-svg {}", path.display()))?;
    Ok((path, file))
}

/// Refuses to write where that would take the export away from this machine's own session or from
/// another job.
fn may_write(args: &BenchArgs) -> Result<()> {
    let (session, export) = (&args.session, &args.session.export);
    refuse_twice(export, session.host()?)?;
    if args.jobs == 1 {
        return Ok(());
    }
    let opened = session.link.open_all(&session.links, End::Host, &Placement::default())?;
    let links = opened.links;
    let (_, wanted) = session.wanted()?;
    let name = match wanted {
        ExportId::Name(name) => name,
        ExportId::Uuid(_) => Name::EMPTY,
    };
    let (ethertype, host) = (session.link.ethertype, session.host()?);
    let found = discover(links, ethertype, host, name, LOOK).found;
    let mut offered = found.iter().flat_map(|it| &it.offer.exports).filter(|it| wanted.names(it));
    if offered.any(|it| !it.flags.contains(ExportFlags::SHARED)) {
        let message = format!(
            "export `{export}` has one writer at a time, and {} jobs would be as many: use \
             --jobs 1 and more --iodepth, or serve it with `shared = true`",
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

/// Measures bare frames on the jobs' links. The best of several turns counts: a pause caused by
/// other work says nothing about the machine.
fn find_floor(jobs: &mut Jobs, shape: Shape, time: Duration) -> Result<Floor> {
    let [least, most] = FLOOR_TIMES;
    let time = (time / 10).clamp(least, most);
    let none = Floor { round_trip_ns: f64::MAX, exchange_per_s: 0.0, stream_bytes_per_s: 0.0 };
    Probe::exchanges(shape.depth).into_iter().try_fold(none, |floor, exchange| {
        let round_trip = result::round_ns(&jobs.floor(Probe::RoundTrip, time)?);
        let exchange = result::bytes_per_s(&jobs.floor(exchange, time)?) / f64::from(shape.len);
        let stream = result::bytes_per_s(&jobs.floor(Probe::Stream, time)?);
        Ok(Floor {
            round_trip_ns: floor.round_trip_ns.min(round_trip),
            exchange_per_s: floor.exchange_per_s.max(exchange),
            stream_bytes_per_s: floor.stream_bytes_per_s.max(stream),
        })
    })
}

//! `tyche bench --fcoe`: load on a LUN. Requests pass to the thread of the session and back, as
//! those of most attachments do.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rustix::time::ClockId;
use tyche_block::{Arena, Completion, Disk, Geometry, Request, Sink};
use tyche_engine::{HostReport, Notice};
use tyche_fcoe::FcoeHost;
use tyche_session::log_warnings;
use uuid::Uuid;

use super::driven::{Driven, cpu_time};
use super::load::{Load, Shape, Shared};
use super::result::Measurement;
use super::{BenchArgs, WARM_UP, check_geometry};
use crate::connect::{Identity, fcoe};
use crate::error::{Code, Error, Result};
use crate::fcoe::PortName;

/// How long to wait for a notice before looking at what keeps the disk from being used.
const LOOK: Duration = Duration::from_millis(200);

/// A session with a LUN.
struct Lun {
    host: FcoeHost,
    notices: Receiver<Notice>,
    sink: Arc<dyn Sink>,
    done: Receiver<Completion>,
    _name: PortName,
}

/// Passes answers on to the thread that waits for them.
struct Answers(Sender<Completion>);

impl Sink for Answers {
    fn complete(&self, completion: Completion) {
        // Nobody waits any more once the measurement has failed.
        let _ = self.0.send(completion);
    }
}

/// Measures, and returns the result.
///
/// # Errors
/// The arguments do not fit the disk, it can't be used, or a request fails.
pub(super) fn measure(args: &BenchArgs) -> Result<Measurement> {
    if args.jobs > 1 {
        let message = "over FCoE there is one job: use --jobs 1 and more --iodepth";
        return Err(Error::new(Code::Usage, message));
    }
    let mut lun = Lun::connect(args)?;
    check_geometry(args, Driven::geometry(&lun))?;
    let shape = Shape::new(args.rw, args.bs, args.iodepth, args.rwmix);
    let shared = Shared::default();
    let mut load = Load::new(&lun, shape, (0, 1), &shared)?;
    let time = Duration::from_secs_f64(args.runtime);
    let tally = load.measure(&mut lun, WARM_UP, time, |_| {})?;
    Ok(Measurement { shape, tallies: vec![tally] })
}

impl Lun {
    fn connect(args: &BenchArgs) -> Result<Self> {
        let mut session = args.session.clone();
        session.queue_size = args.iodepth.max(session.queue_size);
        session.read_only |= !args.rw.writes();
        let id = Uuid::new_v4();
        let identity = Identity { session: id, device: id, resumes: None };
        let (options, name, warnings) = args.fcoe.options(&session, &identity)?;
        log_warnings(&warnings);
        let (told, notices) = channel();
        let host = FcoeHost::start(options, move |notice| {
            let _ = told.send(notice);
        })?;
        let deadline = Instant::now() + session.timeout();
        loop {
            match notices.recv_timeout(LOOK) {
                Ok(Notice::Connected(_)) => break,
                Ok(_) => {}
                Err(_) => {
                    let obstacle = host.control().obstacle();
                    let is_final = obstacle.as_ref().is_some_and(fcoe::is_final);
                    if is_final || Instant::now() >= deadline {
                        return Err(fcoe::refused(&session, obstacle.as_ref()));
                    }
                }
            }
        }
        let (answers, done) = channel();
        Ok(Self { host, notices, sink: Arc::new(Answers(answers)), done, _name: name })
    }
}

impl Driven for Lun {
    fn geometry(&self) -> Geometry {
        self.host.volume().geometry()
    }

    fn arena(&self) -> &Arena {
        self.host.volume().arena()
    }

    fn submit(&mut self, request: Request, token: u64) -> Result<(), Request> {
        self.host.volume().submit(request, token, &self.sink);
        Ok(())
    }

    fn wait(&mut self, done: &mut Vec<Completion>, timeout: Duration) {
        done.extend(self.done.recv_timeout(timeout));
        done.extend(self.done.try_iter());
    }

    fn poll_notice(&mut self) -> Option<Notice> {
        self.notices.try_recv().ok()
    }

    fn report(&mut self) -> Option<HostReport> {
        self.host.control().report()
    }

    /// This thread, and that of the session.
    fn cpu(&self) -> Duration {
        cpu_time(ClockId::ProcessCPUTime)
    }
}

//! `tyche-lab crowd`: many sessions at one target, of which a few are busy, from one thread.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use clap::Args;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use serde::Serialize;
use tyche_block::{Completion, Operation, PAGE, Request};
use tyche_console::error::{Code, Context, Error, Result};
use tyche_console::output::{Format, remark, show};
use tyche_link::ip::End;
use tyche_native::{HostOptions, InlineHost};
use tyche_numa::Placement;
use tyche_proto::wire::{ETHERTYPE, Name};
use tyche_proto::{ExportId, SessionConfig};
use tyche_remote::HostLink;
use tyche_session::LinkOptions;
use uuid::Uuid;

/// Time limit for a session to connect.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often to look for idle sessions with something to do. Higher: the target waits for acks.
const TURN: Duration = Duration::from_millis(20);
/// Time limit for a session to end.
const FAREWELL: Duration = Duration::from_secs(1);
/// Pages of memory of a session, for the data of its requests.
const ARENA_PAGES: usize = 256;

/// Hold many sessions for reading at an export, from one thread, and measure how long they take to
/// connect, and what those do that are busy. What they cost a target is to be measured there.
#[derive(Args, Debug)]
pub(crate) struct CrowdArgs {
    /// The export: its name. A % in it stands for the number of the session, from 0 on, where each
    /// has an export of its own.
    export: String,

    /// The link to the target, of which each session has its own: an interface, or
    /// udp:HOST:PORT, tcp:HOST:PORT.
    #[arg(long, value_name = "LINK")]
    link: String,

    /// Sessions.
    #[arg(long, value_name = "NUMBER", default_value_t = 100)]
    sessions: usize,

    /// Those of them that read, 4 KiB at a time in order; the others are idle.
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    busy: usize,

    /// Requests in flight of each busy session.
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    iodepth: u16,

    /// How long they are held once all are connected.
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    runtime: u64,

    /// How to print.
    #[arg(short, long, default_value_t)]
    pub(crate) output: Format,
}

/// The output of the command.
#[derive(Serialize)]
#[serde(tag = "schema", rename = "tyche.crowd/1")]
struct Output {
    sessions: usize,
    /// From a session's first frame until it is connected: the median, and the longest.
    connect_ms: [f64; 2],
    /// Requests a second of all busy sessions together.
    iops: f64,
    /// The same of the slowest and of the fastest of them.
    range: [f64; 2],
}

/// A session, and the requests that it has had done.
struct Member {
    host: InlineHost,
    /// When it has to have its turn, if no frame arrives before.
    due: Option<tyche_proto::Instant>,
    offset: u64,
    done: u64,
}

pub(crate) fn run(args: &CrowdArgs) -> Result<()> {
    let (mut members, mut times) = (Vec::new(), Vec::new());
    let mut turn = Instant::now();
    for number in 0..args.sessions {
        let begun = Instant::now();
        members.push(connect(args, number)?);
        times.push(begun.elapsed());
        if turn.elapsed() > TURN {
            members.iter_mut().for_each(Member::attend);
            turn = Instant::now();
        }
    }
    times.sort_unstable();
    let ms = |time: Option<&Duration>| time.map_or(0.0, |it| it.as_secs_f64() * 1e3);
    let connect_ms = [ms(times.get(times.len() / 2)), ms(times.last())];
    remark(format_args!("{} sessions are connected", members.len()));
    let runtime = Duration::from_secs(args.runtime);
    hold(&mut members, args, runtime)?;
    let rates = members[..args.busy.min(members.len())].iter();
    let rates: Vec<_> = rates.map(|it| it.done as f64 / runtime.as_secs_f64()).collect();
    let range = [f64::INFINITY, 0.0];
    let range = rates.iter().fold(range, |[least, most], &it| [least.min(it), most.max(it)]);
    let range = if rates.is_empty() { [0.0; 2] } else { range };
    let iops = rates.iter().sum::<f64>() + 0.0;
    let output = Output { sessions: members.len(), connect_ms, iops, range };
    members.into_iter().for_each(|it| it.host.disconnect(FAREWELL));
    let text = format!(
        "{} sessions, connected within {:.1} ms (median), {:.1} ms at most; {:.0} requests of 4 \
         KiB a second, by session {:.0} to {:.0}",
        output.sessions, connect_ms[0], connect_ms[1], output.iops, range[0], range[1]
    );
    show(args.output, || output, || text)
}

/// Connects the session of that number.
fn connect(args: &CrowdArgs, number: usize) -> Result<Member> {
    let placement = Placement::default();
    let options = LinkOptions { ethertype: ETHERTYPE, qdisc: false, placement: &placement };
    let links = options.open_all(std::slice::from_ref(&args.link), End::Host);
    let links = links.context(Code::Link, "crowd")?.links;
    let export = Name::new(&args.export.replace('%', &number.to_string())).ok_or_else(|| {
        Error::new(Code::Usage, format!("`{}` is not a name of an export", args.export))
    })?;
    let [host, session] = [Uuid::new_v4(), Uuid::new_v4()];
    let name = Name::new("crowd").expect("a name");
    let session = SessionConfig {
        queue_size: args.iodepth,
        operations_max: args.iodepth.into(),
        read_only: true,
        ..SessionConfig::new(host, name, session, ExportId::Name(export))
    };
    let mut host = InlineHost::new(HostOptions {
        session,
        links: links.into_iter().map(|link| HostLink { link, target: None }).collect(),
        further_queues: Vec::new(),
        placement,
        ethertype: ETHERTYPE,
        arena_size: ARENA_PAGES.into(),
        spin: Duration::ZERO,
    });
    host.connect(PATIENCE)
        .map_err(|error| Error::new(Code::Link, format!("no session: {error:?}")))?;
    Ok(Member { host, due: None, offset: 0, done: 0 })
}

/// Holds the sessions for that time, and has some of them read.
fn hold(members: &mut [Member], args: &CrowdArgs, time: Duration) -> Result<()> {
    let (busy, idle) = members.split_at_mut(args.busy.min(members.len()));
    let mut done = Vec::new();
    for member in &mut *busy {
        (0..args.iodepth).for_each(|_| member.read());
    }
    let mut bystanders = Bystanders::new(idle).context(Code::Other, "epoll")?;
    let until = Instant::now() + time;
    let mut turn = Instant::now();
    while Instant::now() < until {
        for member in &mut *busy {
            member.serve(&mut done)?;
        }
        if busy.is_empty() || turn.elapsed() >= TURN {
            let wait = if busy.is_empty() { TURN } else { Duration::ZERO };
            bystanders.attend(wait).context(Code::Other, "epoll")?;
            turn = Instant::now();
        }
    }
    Ok(())
}

/// Idle sessions, each of which has its turn when a frame has arrived for it or its timer expires:
/// were all polled each time, the busy ones would have a tenth of the thread less.
struct Bystanders<'a> {
    members: &'a mut [Member],
    epoll: OwnedFd,
    /// Room for what is found ready.
    events: Vec<epoll::Event>,
}

impl<'a> Bystanders<'a> {
    fn new(members: &'a mut [Member]) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (number, member) in (0..).zip(&*members) {
            for fd in member.host.wait_fds() {
                epoll::add(&epoll, fd, epoll::EventData::new_u64(number), epoll::EventFlags::IN)?;
            }
        }
        let events = Vec::with_capacity(members.len().max(1));
        Ok(Self { members, epoll, events })
    }

    /// Waits for a frame for `wait` at most, and has those do something that have to.
    fn attend(&mut self, wait: Duration) -> io::Result<()> {
        let wait = Timespec::try_from(wait).expect("a short time");
        self.events.clear();
        epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&wait))?;
        for event in &self.events {
            self.members[event.data.u64() as usize].attend();
        }
        let now = tyche_engine::now();
        let due = self.members.iter_mut().filter(|it| it.due.is_none_or(|due| due <= now));
        due.for_each(Member::attend);
        Ok(())
    }
}

impl Member {
    /// Submits the next read.
    fn read(&mut self) {
        let size = self.host.geometry().size.max(PAGE as u64);
        let buffer = self.host.arena().alloc(PAGE);
        let request =
            Request { operation: Operation::Read, offset: self.offset, len: PAGE as u32, buffer };
        self.offset = (self.offset + PAGE as u64) % (size - size % PAGE as u64);
        let is_taken = self.host.submit(request, 0).is_ok();
        assert!(is_taken, "no more are in flight than there is room for");
    }

    /// Takes what has come, and reads on.
    fn serve(&mut self, done: &mut Vec<Completion>) -> Result<()> {
        self.host.poll(done);
        for Completion { result, .. } in done.drain(..) {
            result.map_err(|errno| Error::new(Code::Other, format!("a read failed: {errno}")))?;
            self.done += 1;
            self.read();
        }
        Ok(())
    }

    /// Has an idle session do what time asks for.
    fn attend(&mut self) {
        // What it receives in one round it may have to answer in the next.
        while self.host.poll(&mut Vec::new()) {}
        self.due = self.host.poll_timeout();
    }
}

//! A host with several queues, each on a link of its own to the same target.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::rig::{Client, PATIENCE, SIZE, Shared, options, options_of_target};
use tyche_block::{Arena, Completion, Disk, Errno, Operation, Request, Sink};
use tyche_link::Link;
use tyche_link::fault::{FaultLink, FaultPlan, Side};
use tyche_link::memory::{self, MemoryLink};
use tyche_native::{InlineHost, Target};
use tyche_remote::{Control, HostLink, Notice};
use tyche_store::Store;
use tyche_store::fault::FaultStore;
use tyche_store::memory::MemoryStore;
use tyche_testkit::wait::wait_until;

const QUEUES: usize = 3;

type End = Arc<Mutex<MemoryLink>>;

/// The ends of a link for each queue: those of the target, and those of the host.
fn cables() -> (Vec<End>, Vec<End>) {
    let pairs = (0..QUEUES).map(|_| memory::pair(9014).unwrap());
    pairs.map(|(a, b)| (Arc::new(Mutex::new(a)), Arc::new(Mutex::new(b)))).unzip()
}

fn target(ends: &[End], store: Arc<dyn Store>) -> Target {
    let mut options = options_of_target(Shared::new(&ends[0]), store);
    options.links.extend(ends[1..].iter().map(|end| Shared::new(end) as Box<dyn Link>));
    Target::start(options).unwrap()
}

fn client(mut links: Vec<Box<dyn Link>>, ctrl_loss_tmo: Duration) -> Client {
    let first = links.remove(0);
    Client::start_with(first, ctrl_loss_tmo, |options| {
        let further = links.into_iter().map(|link| vec![HostLink { link, target: None }]);
        options.further_queues = further.collect();
    })
    .connected()
}

fn plain(ends: &[End]) -> Vec<Box<dyn Link>> {
    ends.iter().map(|end| Shared::new(end) as Box<dyn Link>).collect()
}

/// One queue of the volume, for requests one after the other.
struct Queue {
    disk: Arc<dyn Disk>,
    sink: Arc<dyn Sink>,
    done: Receiver<Completion>,
}

struct ToChannel(Mutex<Sender<Completion>>);

impl Sink for ToChannel {
    fn complete(&self, completion: Completion) {
        let _ = self.0.lock().unwrap().send(completion);
    }
}

impl Queue {
    fn all(client: &Client) -> Vec<Self> {
        let queues = client.host.volume().queues();
        assert_eq!(queues.len(), QUEUES);
        let queue = |disk| {
            let (sender, done) = channel();
            Self { disk, sink: Arc::new(ToChannel(Mutex::new(sender))), done }
        };
        queues.into_iter().map(queue).collect()
    }

    fn arena(&self) -> &Arena {
        self.disk.arena()
    }

    fn run(&self, request: Request) -> Completion {
        self.disk.submit(request, 0, &self.sink);
        self.done.recv_timeout(PATIENCE).expect("every request is answered")
    }

    fn write(&self, offset: u64, byte: u8) -> Result<(), Errno> {
        let mut buffer = self.arena().alloc(512).unwrap();
        buffer.fill(byte);
        let operation = Operation::Write { fua: false };
        self.run(Request { operation, offset, len: 512, buffer: Some(buffer) }).result
    }

    fn read(&self, offset: u64) -> Result<u8, Errno> {
        let buffer = self.arena().alloc(512);
        let done = self.run(Request { operation: Operation::Read, offset, len: 512, buffer });
        done.result.map(|()| done.buffer.unwrap()[0])
    }

    fn flush(&self) -> Result<(), Errno> {
        self.run(Request { operation: Operation::Flush, offset: 0, len: 0, buffer: None }).result
    }
}

fn volatile() -> FaultStore {
    FaultStore::with_volatile_cache(MemoryStore::new(SIZE, 512).unwrap()).unwrap()
}

#[test]
fn all_queues_are_one_session_and_see_one_disk() {
    let (theirs, ours) = cables();
    let target = target(&theirs, Arc::new(MemoryStore::new(SIZE, 512).unwrap()));
    let client = client(plain(&ours), PATIENCE);
    let queues = Queue::all(&client);
    for (number, queue) in (0..).zip(&queues) {
        queue.write(number * 512, number as u8 + 1).unwrap();
    }
    for queue in &queues {
        let seen: Vec<_> = (0..3).map(|number| queue.read(number * 512).unwrap()).collect();
        assert_eq!(seen, [1, 2, 3]);
    }
    let report = client.host.control().report().unwrap();
    assert_eq!((report.queues, report.live), (QUEUES, true));
    assert_eq!((report.requests.succeeded.writes, report.requests.reads.all().count()), (3, 9));
    let sessions = target.report().sessions;
    assert_eq!(sessions.len(), 1, "{sessions:?}");
    client.host.control().disconnect();
    client.await_notice(|notice| *notice == Notice::Closed);
    // A busy target may read the farewells late.
    wait_until("each queue has said farewell", || target.report().sessions.is_empty());
    assert_eq!(queues[1].read(0), Err(Errno::IO));
}

#[test]
fn a_lost_cache_fails_the_next_flush_on_whichever_queue() {
    for flushes in 0..QUEUES {
        let (theirs, ours) = cables();
        let store = volatile();
        let faults = store.faults();
        let store: Arc<dyn Store> = Arc::new(store);
        let first = target(&theirs, Arc::clone(&store));
        let client = client(plain(&ours), PATIENCE);
        let queues = Queue::all(&client);
        queues[1].write(0, 1).unwrap();
        queues[flushes].flush().unwrap();
        queues[1].write(0, 2).unwrap();
        drop(first);
        faults.crash().unwrap();
        let _second = target(&theirs, store);
        assert_eq!(queues[flushes].flush(), Err(Errno::IO), "on queue {flushes}");
        assert_eq!(queues[2].read(0), Ok(1));
        for queue in &queues {
            // Not yet connected again, the queue that wrote may tell once more.
            let _ = queue.flush();
            assert_eq!(queue.flush(), Ok(()), "it was told");
        }
    }
}

#[test]
fn a_queue_that_fails_ends_the_session() {
    let ((theirs, ours), plan) = (cables(), FaultPlan::new());
    let _target = target(&theirs, Arc::new(MemoryStore::new(SIZE, 512).unwrap()));
    let mut links = plain(&ours);
    let last = links.pop().unwrap();
    links.push(Box::new(FaultLink::new(last, 1, Side::Both, plan.clone()).unwrap()));
    let client = client(links, Duration::from_millis(300));
    let queues = Queue::all(&client);
    queues.iter().for_each(|queue| queue.write(0, 1).unwrap());
    plan.set_cut(true);
    client.await_notice(|notice| matches!(notice, Notice::Failed(_)));
    for queue in &queues {
        assert_eq!(queue.write(0, 2), Err(Errno::IO), "it could be overtaken");
    }
}

/// Runs a request to its end.
fn run(host: &mut InlineHost, operation: Operation, len: u32) -> Result<(), Errno> {
    let buffer = host.arena().alloc(len as usize);
    host.submit(Request { operation, offset: 0, len, buffer }, 0).unwrap();
    let mut done = Vec::new();
    host.wait(&mut done, PATIENCE);
    done.pop().expect("every request is answered").result
}

#[test]
fn an_idle_queue_leaves_the_others_alone_and_a_busy_one_does_not() {
    let (theirs, ours) = cables();
    let target = target(&theirs, Arc::new(MemoryStore::new(SIZE, 512).unwrap()));
    let mut links = plain(&ours).into_iter().map(|link| options(link, Some(PATIENCE)));
    let mut first = InlineHost::with_queues(links.next().unwrap(), QUEUES);
    first.connect(PATIENCE).unwrap();
    let shared = Arc::clone(first.shared());
    let mut further = links.zip(1..).map(|(options, queue)| {
        let mut host = InlineHost::join(options, shared.handle(queue));
        host.connect(PATIENCE).unwrap();
        host
    });
    let (write, flush) = (Operation::Write { fua: false }, Operation::Flush);
    let mut idle = further.next().unwrap();
    assert_eq!(run(&mut idle, write, 512), Ok(()));
    idle.disconnect(PATIENCE);
    let open: usize = target.report().links.iter().map(|link| link.channels.len()).sum();
    assert_eq!(open, 1, "it has said farewell");
    assert_eq!(run(&mut first, flush, 0), Ok(()), "what the other wrote is covered");
    let mut busy = further.next().unwrap();
    let buffer = busy.arena().alloc(512);
    busy.submit(Request { operation: write, offset: 0, len: 512, buffer }, 0).unwrap();
    busy.disconnect(PATIENCE);
    assert_eq!(run(&mut first, write, 512), Err(Errno::IO), "it could be overtaken");
}

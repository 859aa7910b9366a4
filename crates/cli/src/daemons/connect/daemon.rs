//! The daemon of a session: connects, attaches the device, then handles notices and orders.

use std::fs::File;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::raise;
use tyche_attach::{Attachment, Stopped};
use tyche_proto::Failure;
use tyche_remote::{Notice, Remote};
use tyche_session::{keep_next_key, log_warnings, wait_connected};
use uuid::Uuid;

use super::checks::Checks;
use super::last_error::{LastError, Reporter};
use super::late::MissingLinks;
use super::leash::{self, Leash};
use super::predecessor::Predecessor;
use super::refusal::in_words;
use super::revival::{self, Revival, Trying};
use super::signals::{SIGNALS, SignalHandler, Stage, interrupted};
use super::start::{Started, start};
use super::{ConnectArgs, SessionArgs, SessionIdentity, device, leave, memory, orders};
use crate::output::{announce, in_format, line};
use crate::shared::attach;
use crate::shared::control::{self, Asker, ControlAnswer, SessionRequest};
use crate::shared::device_name::DeviceName;
use crate::shared::error::{Code, CodedResult, Context, Error, Result};
use crate::shared::report::{ConnectReport, Output, SessionState};
use crate::shared::runtime::{self, CONTROL, RuntimeDir};
use crate::shared::state::{KnownExport, State};
use crate::{shared::block_device, shared::panics};

/// Pause before a device that could not grow tries again.
const GROW_RETRY: Duration = Duration::from_secs(5);
/// Time limit for the target to confirm the end of the session.
const FAREWELL: Duration = Duration::from_secs(1);

/// An event that the daemon waits for.
enum Input {
    Notice(Notice),
    /// Disconnect, by the number of the signal that asks for it.
    Signal(i32),
    /// Make the run-time directory anew if others have removed it.
    Restore,
    /// The target of the failed session is back, and has admitted this one.
    Revived(Remote),
    /// An order, to be answered with its result.
    Order(Order, SyncSender<Result<()>>),
}

/// An order that ends the session.
#[derive(Clone, Copy)]
enum Order {
    /// Remove the device.
    Disconnect { force: bool },
    /// Leave the device to the next daemon, and be that if `again`.
    Leave { again: bool },
}

/// Runs the session. With `detached` the caller is another `tyche connect`, which waits for one
/// line of JSON.
pub(super) fn run(args: &ConnectArgs, detached: bool) -> Result<()> {
    panics::end_the_process();
    let started = Session::start(args, detached);
    let session = match started {
        Ok(session) => session,
        Err(error) if detached => {
            let _ = announce(&line(&error.report()));
            return Err(Error { message: String::new(), ..error });
        }
        Err(error) => return Err(error),
    };
    let announcement = session.announcement();
    if let Some(leash) = &session.leash {
        leash.let_go();
        let told = announce(&line(&announcement));
        let is_unknown = told.is_err_and(|it| it.kind() == ErrorKind::BrokenPipe);
        // Programs know the device of a predecessor.
        if is_unknown && !session.took_over {
            tracing::warn!("`tyche connect` ended before it was told of the device");
            let _ = raise(SIGTERM);
        }
        leave::release_stdio()?;
        leave::leave_directory();
    } else {
        let device = session.state.device.display().to_string();
        let text = in_format(args.output, || announcement, || format!("{device}\n"));
        if let Err(error) = announce(&text) {
            tracing::warn!("connected as {device}, which can't be printed: {error}");
        }
        // Fails only if the supervisor that asked for it is gone.
        let status = format!("connected as {device}");
        let states = [sd_notify::NotifyState::Ready, sd_notify::NotifyState::Status(&status)];
        let _ = sd_notify::notify(false, &states);
    }
    session.run()
}

struct Session {
    state: State,
    /// Dropped before the host, whose thread may serve it.
    attachment: Box<dyn Attachment>,
    host: Remote,
    /// Keeps the device known to udev.
    name: Option<DeviceName>,
    inputs: Receiver<Input>,
    /// Turns signals into inputs.
    _signals: SignalHandler,
    /// The tie to the `tyche connect` that waits for a report, if one does.
    leash: Option<Leash>,
    /// Whether the device was that of a predecessor.
    took_over: bool,
    /// Whether the device is, or may be, smaller than the export.
    outgrown: bool,
    /// Tries to revive the session, if that has failed.
    revival: Option<Revival>,
    /// The session that is to take its place.
    trial: Option<Remote>,
    /// For who listens to orders, and the revival.
    sender: Sender<Input>,
    /// Whether the session has ended: there is no target to say farewell to.
    closed: bool,
    /// Warnings about the links, for the user.
    warnings: Vec<String>,
    reporter: Reporter,
    /// All arguments, as they were given or as tychetab has them.
    given: ConnectArgs,
    /// Whether another `tyche connect` has started it.
    detached: bool,
    dir: RuntimeDir,
    /// Lock of the export, which excludes other daemons of this host.
    _only: File,
}

impl Session {
    fn start(args: &ConnectArgs, detached: bool) -> Result<Self> {
        let signals = Signals::new(SIGNALS)?;
        let leash = if detached { leash::detach(args.reloaded)? } else { None };
        let (export, host_id) = (&args.session.export, args.session.host()?);
        let Checks { only, predecessor, kind, compromise } = Checks::find(args, host_id)?;
        let known = predecessor.as_ref().map(|predecessor| predecessor.known);
        let resumes = known.map(|known| known.0);
        let (given, args) = (args.clone(), &args.settled(resumes.map(|export| export.target))?);
        let id = Uuid::new_v4();
        let dir = RuntimeDir::take(runtime::sessions().join(id.to_string()), "this session")?;
        let (log, no_log) = if detached { open_log(export, id) } else { (None, None) };
        memory::stay_in_memory(kind);
        // A device keeps its identity over all its daemons.
        let identity = predecessor.as_ref().map_or(id, |predecessor| predecessor.lasting.identity);
        let (sender, inputs) = channel();
        let identities = SessionIdentity { session: id, device: identity, resumes };
        let is_new = predecessor.is_none() && kind.is_of_this_kernel();
        let connected = connect(args, &identities, (signals, is_new), known, (&sender, &inputs))?;
        let Connected { host, known, signals, mut warnings, missing, last_error } = connected;
        tracing::info!(export, session = %id, "connected");
        log_warnings(no_log.as_slice());
        warnings.extend(no_log);
        warnings.extend(args.session.remember(known.0.target));
        let options = device::options(args, kind, identity, dir.path(), host.control().queues());
        let made = device::make(&options, &host, predecessor.as_ref());
        // Logged only now: `--retry` gets here once, but connects many times.
        log_warnings(compromise.as_slice());
        warnings.extend(compromise);
        let (attachment, lasting) = match made {
            Err(error) if predecessor.is_some() => {
                // Dropping the host would wait for its thread, which may serve the device.
                std::mem::forget(host);
                return Err(error);
            }
            // If a signal has come, the error is the interruption, not the failure that it has
            // caused.
            made => signals.made().and(made)?,
        };
        let device = attachment.device_path().to_owned();
        let (args, control) = (args.session.clone(), Arc::clone(host.control()));
        let reporter = Reporter { args, control, missing, last_error, trying: Trying::default() };
        let state = State {
            session: id,
            export: export.clone(),
            host: host_id,
            kind,
            sequence: block_device::sequence(&device),
            device,
            pid: std::process::id(),
            lasting,
            known: Some(known),
            log,
            ended: false,
        };
        let session = Self {
            state,
            attachment,
            host,
            name: None,
            inputs,
            _signals: signals,
            leash,
            took_over: predecessor.is_some(),
            outgrown: predecessor.is_some(),
            revival: None,
            trial: None,
            sender,
            closed: false,
            warnings,
            reporter,
            given,
            detached,
            dir,
            _only: only,
        };
        session.appeared(predecessor, known.0.uuid)
    }

    /// The session, once it is known to all.
    fn appeared(mut self, predecessor: Option<Predecessor>, export: Uuid) -> Result<Self> {
        match self.appear(predecessor, export) {
            Err(error) if self.took_over => {
                // Programs use the device: it waits for another daemon.
                self.attachment.leave();
                std::mem::forget(self);
                Err(error)
            }
            appeared => appeared.map(|()| self),
        }
    }

    /// Makes the session known to the next daemon, to udev, and to other commands.
    fn appear(&mut self, predecessor: Option<Predecessor>, export: Uuid) -> Result<()> {
        self.state.save(self.dir.path())?;
        if let Some(predecessor) = predecessor {
            predecessor.succeeded();
        }
        let State { device, export: name, session, .. } = &self.state;
        self.name = DeviceName::tell(device, name, export, *session)?;
        if let Some(name) = self.name.as_ref().filter(|_| self.took_over) {
            // The predecessor may have failed requests.
            name.resumed();
        }
        self.listen()
    }

    /// The result that `tyche connect` prints; its warnings are in the log, too.
    fn announcement(&self) -> Output {
        let session = self.reporter.describe(&self.state);
        let narrow = super::narrow_links(session.links());
        log_warnings(&narrow);
        let warnings = [self.warnings.as_slice(), &narrow].concat();
        Output::Connect(Box::new(ConnectReport { session, warnings }))
    }

    /// Starts to listen to the control socket.
    fn listen(&self) -> Result<()> {
        let sender = self.sender.clone();
        let (state, reporter) = (self.state.clone(), self.reporter.clone());
        reporter.missing.take_up(Arc::clone(&reporter.control), reporter.args.clone())?;
        let restore = sender.clone();
        // The directory is the session's own. It fails only if the loop has ended.
        let removed = move || restore.send(Input::Restore).is_ok();
        let to_loop = Mutex::new(sender);
        let hand_over = move |order, answer| {
            let order = Input::Order(order, answer);
            to_loop.lock().is_ok_and(|sender| sender.send(order).is_ok())
        };
        let respond = Arc::new(move |request, asker: &Asker<'_>| match request {
            SessionRequest::Report => ControlAnswer::Session(Box::new(reporter.describe(&state))),
            SessionRequest::Disconnect { force } => {
                let order = Order::Disconnect { force };
                let of = (&*reporter.control, state.device.as_path());
                orders::disconnect(of, force, asker, &|answer| hand_over(order, answer))
            }
            SessionRequest::Reload | SessionRequest::Leave => {
                let order = Order::Leave { again: matches!(request, SessionRequest::Reload) };
                orders::pass_on(&|answer| hand_over(order, answer))
            }
            SessionRequest::AddLink { link } => {
                reporter.missing.add(&*reporter.control, &reporter.args, &link)
            }
            SessionRequest::RemoveLink { link } => {
                reporter.missing.remove(&*reporter.control, &link)
            }
        });
        let socket = self.dir.path().join(CONTROL);
        control::serve(&socket, removed, move |request, asker| respond(request, asker))
            .context(Code::Other, "control socket")
    }

    /// Handles notices and orders until the session is over.
    fn run(mut self) -> Result<()> {
        let mut interrupted = false;
        if self.outgrown {
            self.grow();
        }
        loop {
            // What waits already is an order to this process, and comes before it begins anew.
            let wait = match (&self.trial, self.outgrown) {
                (Some(_), _) => Duration::ZERO,
                (None, true) => GROW_RETRY,
                (None, false) => Duration::MAX,
            };
            let input = match self.inputs.recv_timeout(wait) {
                Ok(input) => input,
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    match self.trial.take().map(|trial| self.successor(trial)) {
                        Some(program @ Some(_)) => return self.leave(program),
                        Some(None) => {}
                        None => self.grow(),
                    }
                    continue;
                }
            };
            match input {
                Input::Notice(notice) => self.handle_notice(&notice),
                Input::Restore => {
                    let _ = self.restore().inspect_err(|error| tracing::debug!(%error, "restore"));
                }
                // It may have been given up meanwhile.
                Input::Revived(trial) => self.trial = self.revival.as_ref().and(Some(trial)),
                // Only a second SIGINT forces the end: it comes from a person. A supervisor that
                // stops a service repeats its signal, and would take a disk from under a mounted
                // file system.
                Input::Signal(signal) => match self.stop(interrupted && signal == SIGINT) {
                    Ok(()) => break,
                    Err(error) if signal == SIGINT => {
                        tracing::warn!("{error}; a second Ctrl-C disconnects all the same");
                        interrupted = true;
                    }
                    Err(error) => tracing::warn!("{error}"),
                },
                Input::Order(Order::Disconnect { force }, answer) => {
                    let stopped = self.stop(force);
                    if stopped.is_err() {
                        // The asker may have timed out.
                        let _ = answer.send(stopped);
                        continue;
                    }
                    self.farewell();
                    drop(self);
                    let _ = answer.send(Ok(()));
                    return Ok(());
                }
                Input::Order(Order::Leave { again }, answer) => match self.may_leave(again) {
                    Ok(program) => {
                        let _ = answer.send(Ok(()));
                        return self.leave(program);
                    }
                    Err(error) => {
                        let _ = answer.send(Err(error));
                    }
                },
            }
        }
        self.farewell();
        Ok(())
    }

    /// The program that takes the place of this one, whose session has failed, as the trial has
    /// shown that it can; `None` if it can't yet.
    fn successor(&mut self, trial: Remote) -> Option<PathBuf> {
        match self.may_leave(true) {
            Ok(program) => {
                tracing::info!("the target is back: the session begins anew");
                // Until then, it keeps the export for this host.
                std::mem::forget(trial);
                program
            }
            Err(error) => {
                tracing::error!("the session does not begin anew yet: {error}");
                drop(trial);
                self.try_to_revive();
                None
            }
        }
    }

    /// Makes the directory anew that others have removed, and saves the record.
    fn restore(&mut self) -> Result<()> {
        self.dir.restore()?;
        self.state.save(self.dir.path())
    }

    /// Leaves the device to the next daemon, without a farewell: until that comes, the target keeps
    /// the export for this host. With a program this process goes on as that. Before the device is
    /// left, nothing may fail: it would end with this process.
    fn leave(mut self, again: Option<PathBuf>) -> Result<()> {
        tracing::info!("the device is left to the next daemon");
        self.attachment.leave();
        crate::shared::log::flush();
        match again {
            // As if killed: nothing is dropped, which could wait for the device.
            None => std::process::exit(0),
            Some(program) => leave::go_on_as(program, self.detached),
        }
    }

    /// Checks that the device can be left, and saves what the next daemon needs.
    fn may_leave(&mut self, again: bool) -> Result<Option<PathBuf>> {
        self.restore()?;
        leave::may_leave(&self.state, &self.given, again)
    }

    fn handle_notice(&mut self, notice: &Notice) {
        match notice {
            Notice::Connected(_) => tracing::info!("the target is back"),
            Notice::Lost(problem) => tracing::warn!("target lost: {problem}; requests wait"),
            Notice::FailsFast => {
                tracing::error!("the target is not back in time: requests fail until it is");
            }
            Notice::Resumed => {
                tracing::info!("requests are answered again");
                self.name.iter().for_each(DeviceName::resumed);
            }
            Notice::Joined(link, peer) => tracing::info!(link, %peer, "channel is live"),
            Notice::Parted(link, peer, problem) => {
                tracing::warn!(link, %peer, "channel lost: {problem}");
            }
            Notice::Rejected(rejection) => {
                tracing::warn!("the target refuses: {}", in_words(rejection));
            }
            Notice::OtherVersion(link, peer, versions) => {
                tracing::warn!(link, %peer, "a target speaks {versions} of the protocol only");
            }
            Notice::Resized(size) => {
                tracing::info!(size, "the size of the export has changed");
                self.grow();
            }
            Notice::CacheLost => {
                tracing::error!(
                    "the target lost writes that were not flushed; \
                    the next flush fails"
                );
            }
            Notice::NextKey(said) => keep_next_key(said),
            Notice::Failed(failure) => self.failed(*failure),
            Notice::ResumeState(state) => {
                self.state.known = Some((*state).into());
                if let Err(error) = self.state.save(self.dir.path()) {
                    // The saved state is older, which is safe: at worst another flush fails.
                    tracing::warn!(%error, "record not saved: the next daemon uses an older one");
                }
            }
            Notice::Closed => self.closed = true,
        }
    }

    /// The session has failed: it is tried again where that may help.
    fn failed(&mut self, failure: Failure) {
        tracing::error!("{failure}; all requests fail from now on");
        if revival::is_possible(failure, &self.state, &self.given) {
            self.try_to_revive();
        }
    }

    fn try_to_revive(&mut self) {
        let to_loop = self.sender.clone();
        // A daemon that no longer listens is ending.
        let revived = move |trial| drop(to_loop.send(Input::Revived(trial)));
        let begun = Revival::begin(&self.state, &self.given, &self.reporter.trying, revived);
        match begun {
            Ok(revival) => self.revival = Some(revival),
            Err(error) => tracing::error!("the session is not tried again: {error}"),
        }
    }

    /// Grows the device to the size of the export.
    fn grow(&mut self) {
        let resized = self.attachment.resized();
        let lasts = [ErrorKind::Unsupported, ErrorKind::InvalidData];
        self.outgrown = resized.as_ref().is_err_and(|it| !lasts.contains(&it.kind()));
        if let Err(error) = resized {
            tracing::warn!(%error, "the device keeps its size");
        }
    }

    /// Removes the device; with `force` all requests end first.
    fn stop(&mut self, force: bool) -> Result<()> {
        if force {
            self.host.control().abort();
            self.revival = None;
        }
        if matches!(self.reporter.describe(&self.state).state, SessionState::Failed(_)) {
            self.attachment.give_up_cache();
        }
        match self.attachment.stop(force).coded()? {
            Stopped::InUse if !force => Err(attach::in_use(&self.state.device)),
            Stopped::Gone => {
                self.name = None;
                Ok(())
            }
            Stopped::InUse => {
                self.name = None;
                self.leave_device()
            }
        }
    }

    /// Keeps the device in `tyche list` while other programs use it.
    fn leave_device(&mut self) -> Result<()> {
        let State { device, .. } = &self.state;
        tracing::warn!(device = %device.display(), "still in use: all I/O to it fails");
        self.dir.leave();
        self.state.ended = true;
        self.state.save(self.dir.path())
    }

    /// Tells the target that the session ends, and waits for its confirmation.
    fn farewell(&self) {
        if self.closed {
            return;
        }
        self.host.control().disconnect();
        let deadline = Instant::now() + FAREWELL;
        while let Some(left) = deadline.checked_duration_since(Instant::now()) {
            match self.inputs.recv_timeout(left) {
                Ok(Input::Notice(Notice::Closed)) | Err(_) => return,
                Ok(_) => {}
            }
        }
    }
}

/// A session that is connected, and has no device yet.
struct Connected {
    host: Remote,
    known: KnownExport,
    signals: SignalHandler,
    warnings: Vec<String>,
    missing: Arc<MissingLinks>,
    last_error: Arc<LastError>,
}

/// Connects a session; `known`: the state of the export, as the device's former one knew it. From
/// now on it gets the signals; `is_new`: nobody uses the device yet.
fn connect(
    args: &ConnectArgs,
    identity: &SessionIdentity,
    (signals, is_new): (Signals, bool),
    known: Option<KnownExport>,
    (sender, inputs): (&Sender<Input>, &Receiver<Input>),
) -> Result<Connected> {
    let (notices, caught) = (sender.clone(), sender.clone());
    let last_error = Arc::<LastError>::default();
    let (noted, session) = (Arc::clone(&last_error), args.session.clone());
    let started = start(args, identity, move |notice| {
        noted.note(&notice, &session);
        // A daemon that no longer listens is ending.
        let _ = notices.send(Input::Notice(notice));
    })?;
    let Started { remote: host, mut check, warnings, missing } = started;
    log_warnings(&warnings);
    let stage = if is_new { Stage::Making } else { Stage::Made };
    let hand_over = move |signal| caught.send(Input::Signal(signal)).is_ok();
    let signals = SignalHandler::start(signals, Arc::clone(host.control()), stage, hand_over)?;
    let missing = MissingLinks::new(missing);
    let known = await_connection(&mut *check, (sender, inputs), &args.session, known);
    let known = known.map_err(|error| missing.added_to(error))?;
    Ok(Connected { host, known, signals, warnings, missing, last_error })
}

/// Opens the session's log. Returns its place, or else a warning: the session works without a log.
fn open_log(export: &str, session: Uuid) -> (Option<String>, Option<String>) {
    let none = |error| (None, Some(format!("this session has no log: {error}")));
    crate::shared::log::open(export, session).map_or_else(none, |log| (Some(log), None))
}

/// Waits until the session is live, and has `check` say why it is not. Returns the state of the
/// export: the one that was `known`, unless the target sends another. Another key of the target is
/// an input again, for later: the one that it has proved may not be kept yet.
fn await_connection(
    check: &mut dyn FnMut(bool) -> Result<()>,
    (sender, inputs): (&Sender<Input>, &Receiver<Input>),
    args: &SessionArgs,
    mut known: Option<KnownExport>,
) -> Result<KnownExport> {
    let mut later = Vec::new();
    let next = |wait| match inputs.recv_timeout(wait) {
        Ok(Input::Notice(notice)) => {
            if let Notice::ResumeState(state) = notice {
                known = Some(state.into());
            }
            later.extend(matches!(notice, Notice::NextKey(_)).then(|| notice.clone()));
            Ok(Some(notice))
        }
        Ok(Input::Signal(_)) => Err(interrupted()),
        Ok(_) | Err(RecvTimeoutError::Timeout) => Ok(None),
        Err(RecvTimeoutError::Disconnected) => {
            Err(Error::new(Code::Other, "the session's thread died"))
        }
    };
    wait_connected(args.timeout(), next, check, |notice| args.ended(notice))?;
    later.into_iter().for_each(|notice| drop(sender.send(Input::Notice(notice))));
    Ok(known.expect("it is known before the session is live"))
}

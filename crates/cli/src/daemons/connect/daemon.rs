//! The daemon of a session: connects, attaches the device, then handles notices and orders.

use std::fs::File;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::raise;
use tyche_attach::{Attachment, Stopped};
use tyche_proto::{Failure, NextKey};
use tyche_remote::{Notice, Remote};
use tyche_session::{keep_next_key, log_warnings};
use uuid::Uuid;

use super::checks::Checks;
use super::connection::{Before, Connected, begun, connect, logged, open_log};
use super::inputs::{Input, Order};
use super::last_error::Reporter;
use super::leash::{self, Leash};
use super::predecessor::Predecessor;
use super::refusal::in_words;
use super::revival::{self, Revival, Trying};
use super::signals::{SIGNALS, SignalHandler};
use super::target_key::TargetKey;
use super::{ConnectArgs, SessionIdentity, device, leave, memory, orders};
use crate::output::{announce, in_format, line};
use crate::shared::attach;
use crate::shared::changed::{Changed, Replaced};
use crate::shared::control::{self, Asker, ControlAnswer, SessionRequest};
use crate::shared::device_name::DeviceName;
use crate::shared::error::{Code, CodedResult, Context, Result};
use crate::shared::looks::Looks;
use crate::shared::report::{ConnectReport, Output, SessionState};
use crate::shared::runtime::{self, CONTROL, RuntimeDir};
use crate::shared::state::State;
use crate::{shared::block_device, shared::panics};

/// Pause before a device that could not grow tries again.
const GROW_RETRY: Duration = Duration::from_secs(5);
/// Time limit for the target to confirm the end of the session.
const FAREWELL: Duration = Duration::from_secs(2);
/// The interval at which a session without its target reads again by which key that is known.
const KEY_RETRY: Duration = Duration::from_secs(1);

/// Runs the session. With `detached` the caller is another `tyche connect`, which waits for one
/// line of JSON.
pub(super) fn run(args: &ConnectArgs, detached: bool) -> Result<()> {
    panics::end_the_process();
    let started = Session::start(args, detached);
    let session = match started {
        Ok(session) => session,
        Err(error) => {
            if detached {
                let _ = announce(&line(&error.report()));
            }
            return Err(error);
        }
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
    /// Whether the target is away.
    is_lost: bool,
    target_key: TargetKey,
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
        let resumes = predecessor.as_ref().map(|predecessor| predecessor.known.0);
        let changed = predecessor.as_ref().map(|it| it.changed.clone()).unwrap_or_default();
        let (given, args) = (args.clone(), &args.settled(resumes.map(|it| it.target), &changed)?);
        let before = Before::of(predecessor.as_ref(), args);
        let fails = matches!(before, Before::Failed(_));
        let id = Uuid::new_v4();
        let dir = RuntimeDir::take(runtime::sessions().join(id.to_string()), "this session")?;
        let (log, no_log) = if detached { open_log(export, id) } else { (None, None) };
        memory::stay_in_memory(kind);
        // A device keeps its identity over all its daemons.
        let identity = predecessor.as_ref().map_or(id, |predecessor| predecessor.lasting.identity);
        let (sender, inputs) = channel();
        let identities = SessionIdentity { session: id, device: identity, resumes };
        let is_new = predecessor.is_none() && kind.is_of_this_kernel();
        let connected = connect(args, &identities, (signals, is_new), before, (&sender, &inputs))?;
        let Connected { host, known, signals, mut warnings, missing, last_error } = connected;
        warnings.extend(begun(&args.session, id, (known.0.target, fails), no_log));
        let options = device::options(args, kind, identity, dir.path(), host.control().queues());
        let made = device::make(&options, &host, predecessor.as_ref());
        // Logged only now: `--retry` gets here once, but connects many times.
        warnings.extend(logged(compromise));
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
        let (args, control) = (args.session.clone(), Arc::clone(host.control()));
        let reporter = Reporter { args, control, missing, last_error, trying: Trying::default() };
        let state = State {
            session: id,
            export: export.clone(),
            host: host_id,
            kind,
            sequence: block_device::sequence(attachment.device_path()),
            device: attachment.device_path().to_owned(),
            pid: std::process::id(),
            lasting,
            known: Some(known),
            log,
            ended: false,
            changed: Changed { fails, ..reporter.args.still_changed(changed) },
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
            is_lost: fails,
            target_key: TargetKey::new(&reporter.args.trust, known.0.target),
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
        let fails = self.took_over && self.is_lost;
        self.name = DeviceName::tell(device, name, (export, *session), fails)?;
        if let Some(name) = self.name.as_ref().filter(|_| self.took_over && !self.is_lost) {
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
        let changes = Mutex::new(sender.clone());
        let to_loop = Mutex::new(sender);
        let hand_over = move |order, answer| {
            let order = Input::Order(order, answer);
            to_loop.lock().is_ok_and(|sender| sender.send(order).is_ok())
        };
        let (dir, reports) = (self.dir.path().to_owned(), Looks::default());
        let respond = Arc::new(move |request, asker: &Asker<'_>| match request {
            SessionRequest::Report => {
                let seen = reports.look(|| {
                    let record = State::load(&dir).unwrap_or_else(|| state.clone());
                    reporter.describe(&record)
                });
                ControlAnswer::Session(Box::new((*seen).clone()))
            }
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
                let added = reporter.missing.add(&*reporter.control, &reporter.args, &link);
                keep_links(&added, &reporter, &changes);
                added
            }
            SessionRequest::RemoveLink { link } => {
                let removed = reporter.missing.remove(&*reporter.control, &link);
                keep_links(&removed, &reporter, &changes);
                removed
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
            let wait = match (&self.trial, self.outgrown, self.is_lost) {
                (Some(_), ..) => Duration::ZERO,
                (None, _, true) => KEY_RETRY,
                (None, true, false) => GROW_RETRY,
                (None, false, false) => Duration::MAX,
            };
            let input = match self.inputs.recv_timeout(wait) {
                Ok(input) => input,
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    match self.trial.take().map(|trial| self.successor(trial)) {
                        Some(program @ Some(_)) => return self.leave(program),
                        Some(None) => {}
                        None => self.try_again(),
                    }
                    continue;
                }
            };
            match input {
                Input::Notice(notice) => self.handle_notice(&notice),
                Input::Links(names) => self.keep_links(names),
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

    /// Does again what may succeed by now.
    fn try_again(&mut self) {
        if self.outgrown {
            self.grow();
        }
        if self.is_lost
            && let Some(said) = self.target_key.read_again()
        {
            let key = said.next.fingerprint();
            tracing::info!(key, "the target is known by another key by now");
            self.host.control().know_by(&said);
            self.keep_key(&said);
        }
    }

    fn keep_key(&mut self, said: &NextKey) {
        let before = self.state.changed.target_key.take();
        self.state.changed.target_key = self.target_key.renewed(said, before);
        self.keep("an older key of the target");
    }

    fn keep_links(&mut self, names: Vec<String>) {
        let before = self.state.changed.links.take();
        let given = self.given.session.common.links.clone();
        self.state.changed.links = Replaced::again(before, given, names);
        self.keep("the links from before");
    }

    /// Notes for the next daemon whether requests fail.
    fn keep_failing(&mut self, fails: bool) {
        self.state.changed.fails = fails;
        self.keep("another state of the session");
    }

    /// Saves the record, without which the next daemon uses `instead`.
    fn keep(&self, instead: &str) {
        if let Err(error) = self.state.save(self.dir.path()) {
            tracing::warn!(%error, "record not saved: the next daemon uses {instead}");
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
            Notice::Connected(_) => {
                self.is_lost = false;
                tracing::info!("the target is back");
            }
            Notice::Lost(problem) => {
                self.is_lost = true;
                tracing::warn!("target lost: {problem}; requests wait");
            }
            // As before, in a daemon that has begun anew.
            Notice::FailsFast if self.state.changed.fails => {}
            Notice::FailsFast => {
                tracing::error!("the target is not back in time: requests fail until it is");
                self.keep_failing(true);
            }
            Notice::Resumed => {
                tracing::info!("requests are answered again");
                self.keep_failing(false);
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
            Notice::NextKey(said) => {
                keep_next_key(said);
                self.keep_key(said);
            }
            Notice::Failed(failure) => self.failed(*failure),
            Notice::ResumeState(state) => {
                self.state.known = Some((*state).into());
                // An older one is safe: at worst another flush fails.
                self.keep("an older one");
            }
            Notice::Closed => self.closed = true,
        }
    }

    /// The session has failed: it is tried again where that may help.
    fn failed(&mut self, failure: Failure) {
        tracing::error!("{failure}; all requests fail from now on");
        self.keep_failing(true);
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

/// Tells the daemon's loop which links the session has, if they have changed.
fn keep_links(changed: &ControlAnswer, reporter: &Reporter, changes: &Mutex<Sender<Input>>) {
    let is_changed = matches!(changed, ControlAnswer::Done {});
    let names = reporter.missing.names(&*reporter.control).filter(|_| is_changed);
    // Fails only if the loop has ended.
    if let (Some(names), Ok(changes)) = (names, changes.lock()) {
        let _ = changes.send(Input::Links(names));
    }
}

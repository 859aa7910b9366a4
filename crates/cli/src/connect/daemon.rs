//! The daemon of a session: connects, attaches, then waits for what happens and for orders.

use std::fs::{self, File};
use std::io::{Write, stdout};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tyche_attach::{Attachment, Stopped};
use tyche_block::Disk;
use tyche_engine::{Host, HostControl, LinkError, Notice};
use tyche_proto::Problem;
use uuid::Uuid;

use super::{ConnectArgs, SessionArgs};
use crate::attach::attach;
use crate::control::{self, Request};
use crate::error::{Code, Context, Error, Result};
use crate::links::log_warnings;
use crate::output::show;
use crate::runtime::{self, CONTROL, RuntimeDir};
use crate::{report, sessions};

/// How long without news before the daemon looks at what holds the session up.
const LOOK_AFTER: Duration = Duration::from_millis(500);
/// How long the farewell to the target may take.
const FAREWELL: Duration = Duration::from_secs(1);

/// What the daemon waits for.
enum Input {
    Notice(Notice),
    Signal,
    /// Disconnect, and say how that went.
    Disconnect {
        force: bool,
        answer: SyncSender<Result<()>>,
    },
}

/// Runs the session. With `detached` the caller is another `tyche connect`, which waits for one
/// line of JSON.
pub(super) fn run(args: &ConnectArgs, detached: bool) -> Result<()> {
    let started = Session::start(args, detached);
    let session = match started {
        Ok(session) => session,
        Err(error) if detached => {
            println!("{}", error.json());
            return Err(Error { message: String::new(), ..error });
        }
        Err(error) => return Err(error),
    };
    let announcement = session.announcement();
    if detached {
        println!("{announcement}");
        release_stdio()?;
    } else {
        let device = session.device.display().to_string();
        show(args.output, || announcement, || format!("{device}\n"));
        let _ = stdout().flush();
        // Fails only where a supervisor asked for it and is gone.
        let _ = sd_notify::notify(false, &[sd_notify::NotifyState::Ready]);
    }
    session.run()
}

/// Whoever started us must not wait for our output to end.
fn release_stdio() -> Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdout(&null).map_err(std::io::Error::from)?;
    rustix::stdio::dup2_stderr(&null).map_err(std::io::Error::from)?;
    Ok(())
}

struct Session {
    id: Uuid,
    export: String,
    host: Host,
    attachment: Box<dyn Attachment>,
    device: PathBuf,
    inputs: Receiver<Input>,
    /// The session has ended: there is nobody to say farewell to.
    closed: bool,
    /// What the user should know of the links.
    warnings: Vec<String>,
    dir: RuntimeDir,
}

impl Session {
    fn start(args: &ConnectArgs, detached: bool) -> Result<Self> {
        if detached {
            // Not being a group leader, which a child is not, this can't fail.
            let _ = rustix::process::setsid();
        }
        let signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
        let SessionArgs { export, .. } = &args.session;
        let host_id = args.session.host()?;
        sessions::refuse_twice(export, host_id)?;
        let id = Uuid::new_v4();
        let dir = RuntimeDir::take(runtime::sessions().join(id.to_string()), "this session")?;
        let log = dir.path().join("daemon.log");
        if detached {
            crate::log_to(File::create(&log).context(Code::Other, log.display())?);
        }
        let (options, warnings) = args.session.options(id)?;
        log_warnings(&warnings);
        let (sender, inputs) = channel();
        let notices = sender.clone();
        let host = Host::start(options, move |notice| {
            // The daemon may have stopped listening: it is ending.
            let _ = notices.send(Input::Notice(notice));
        })?;
        await_connection(&host, &inputs, &args.session)?;
        tracing::info!(export, session = %id, "connected");
        let disk: Arc<dyn Disk> = host.volume().clone();
        let attachment = attach(args.kind, disk, export, dir.path())?;
        let device = attachment.device_path().to_owned();
        let session = Self {
            id,
            export: export.clone(),
            host,
            attachment,
            device,
            inputs,
            closed: false,
            warnings,
            dir,
        };
        session.save(host_id)?;
        session.listen(args, sender, signals)?;
        Ok(session)
    }

    /// Writes down what others must know if the daemon dies.
    fn save(&self, host: Uuid) -> Result<()> {
        let path = self.dir.path().join(sessions::STATE);
        let mut state = self.identity();
        report::add(&mut state, json!({ "host": host }));
        fs::write(&path, state.to_string()).context(Code::Other, path.display())
    }

    fn identity(&self) -> Value {
        json!({
            "session": self.id,
            "export": self.export,
            "device": self.device,
            "pid": std::process::id(),
        })
    }

    /// What `tyche connect` prints; what it warns of is in the log, too.
    fn announcement(&self) -> Value {
        let mut value = json!({ "schema": "tyche.connect/1" });
        report::add(&mut value, self.identity());
        if let Some(report) = self.host.control().report() {
            report::add(&mut value, report::session(&report));
        }
        let narrow = super::narrow_links(&value);
        log_warnings(&narrow);
        let warnings = [self.warnings.as_slice(), &narrow].concat();
        report::add(&mut value, json!({ "warnings": warnings }));
        value
    }

    /// Starts to listen to signals and to the control socket.
    fn listen(
        &self,
        args: &ConnectArgs,
        sender: Sender<Input>,
        mut signals: Signals,
    ) -> Result<()> {
        let (identity, control) = (self.identity(), self.host.control());
        let to_loop = Mutex::new(sender.clone());
        let args = args.session.clone();
        let respond = Arc::new(move |request| match request {
            Request::Report => {
                let mut value = identity.clone();
                match control.report() {
                    Some(report) => report::add(&mut value, report::session(&report)),
                    None => report::add(&mut value, json!({ "state": "ending" })),
                }
                value
            }
            Request::Disconnect { force } => disconnect(&control, &to_loop, force),
            Request::AddLink { link } => answer(add_link(&control, &args, &link)),
            Request::RemoveLink { link } => answer(remove_link(&control, &link)),
        });
        let socket = self.dir.path().join(CONTROL);
        control::serve(&socket, move |request| respond(request))
            .context(Code::Other, "control socket")?;
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            for _ in signals.forever() {
                if sender.send(Input::Signal).is_err() {
                    return;
                }
            }
        })?;
        Ok(())
    }

    /// Waits for what happens and for orders until the session is over.
    fn run(mut self) -> Result<()> {
        let mut asked = false;
        while let Ok(input) = self.inputs.recv() {
            match input {
                Input::Notice(notice) => self.handle_notice(&notice),
                Input::Signal => match self.stop(asked) {
                    Ok(()) => break,
                    Err(error) => {
                        tracing::warn!("{error}; a second signal disconnects all the same");
                        asked = true;
                    }
                },
                Input::Disconnect { force, answer } => {
                    let stopped = self.stop(force);
                    if stopped.is_err() {
                        // The asker may have lost patience.
                        let _ = answer.send(stopped);
                        continue;
                    }
                    self.farewell();
                    drop(self);
                    let _ = answer.send(Ok(()));
                    return Ok(());
                }
            }
        }
        self.farewell();
        Ok(())
    }

    fn handle_notice(&mut self, notice: &Notice) {
        match notice {
            Notice::Former(_) => {}
            Notice::Connected(_) => tracing::info!("the target is back"),
            Notice::Lost(problem) => tracing::warn!("target lost: {problem}; requests wait"),
            Notice::Joined(link, peer) => tracing::info!(link, %peer, "channel is live"),
            Notice::Parted(link, peer, problem) => {
                tracing::warn!(link, %peer, "channel lost: {problem}");
            }
            Notice::Rejected(reason, detail) => {
                tracing::warn!("the target refuses: {reason} {detail}");
            }
            Notice::Resized(size) => {
                tracing::info!(size, "the export has another size");
                if let Err(error) = self.attachment.resized() {
                    tracing::warn!(%error, "the device keeps its size");
                }
            }
            Notice::CacheLost => {
                tracing::error!(
                    "the target lost writes that were not flushed; \
                    the next flush fails"
                );
            }
            Notice::Failed(failure) => tracing::error!("{failure}; all requests fail from now on"),
            Notice::Closed => self.closed = true,
        }
    }

    /// Takes the device away.
    fn stop(&mut self, force: bool) -> Result<()> {
        if force {
            self.host.control().abort();
        }
        match self.attachment.stop(force)? {
            Stopped::InUse if !force => {
                let device = self.device.display();
                let message = format!("{device} is in use: unmount it first, or use --force");
                Err(Error::new(Code::Device, message))
            }
            Stopped::Gone | Stopped::InUse => Ok(()),
        }
    }

    /// Tells the target, and waits until it knows.
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

/// Answers an order to disconnect, in the thread of whoever gave it.
fn disconnect(control: &HostControl, to_loop: &Mutex<Sender<Input>>, force: bool) -> Value {
    if force {
        // At once: an orderly end that waits for a lost target is thereby over, too.
        control.abort();
    }
    let (answer, answered) = sync_channel(1);
    let order = Input::Disconnect { force, answer };
    let sent = to_loop.lock().is_ok_and(|sender| sender.send(order).is_ok());
    if !sent {
        return json!({});
    }
    match answered.recv() {
        Ok(Err(error)) => error.json(),
        Ok(Ok(())) | Err(_) => json!({}),
    }
}

/// What an order came to, for who gave it.
fn answer(result: Result<()>) -> Value {
    result.map_or_else(|error| error.json(), |()| json!({}))
}

/// Begins to use another interface, or another TCP address, with the session's own options.
fn add_link(control: &HostControl, args: &SessionArgs, name: &str) -> Result<()> {
    let (links, warnings) = args.open_links(&[name.to_owned()], &args.placement.placement()?)?;
    log_warnings(&warnings);
    for link in links {
        control.add_link(link).map_err(|error| link_error(error, name))?;
    }
    tracing::info!(link = name, "link added");
    Ok(())
}

/// Stops to use an interface.
fn remove_link(control: &HostControl, name: &str) -> Result<()> {
    control.remove_link(name).map_err(|error| link_error(error, name))?;
    tracing::info!(link = name, "link removed");
    Ok(())
}

fn link_error(error: LinkError, name: &str) -> Error {
    let (code, message) = match error {
        LinkError::InUse => (Code::Usage, format!("the session uses {name} already")),
        LinkError::Unknown => {
            let message = format!("the session does not use {name}; `tyche list` shows its links");
            (Code::NotFound, message)
        }
        LinkError::Last => {
            let message = format!(
                "{name} is the session's last link: add another one first, or use \
                 `tyche disconnect`"
            );
            (Code::Usage, message)
        }
        LinkError::Gone => (Code::Other, "the session is ending".to_owned()),
    };
    Error::new(code, message)
}

/// Waits until the session is live.
fn await_connection(host: &Host, inputs: &Receiver<Input>, args: &SessionArgs) -> Result<()> {
    let deadline = Instant::now() + args.timeout();
    let (mut refusal, mut looked) = (None, false);
    loop {
        let wait = deadline.saturating_duration_since(Instant::now()).min(LOOK_AFTER);
        match inputs.recv_timeout(wait) {
            Ok(Input::Notice(Notice::Connected(_))) => return Ok(()),
            Ok(Input::Notice(Notice::Rejected(reason, detail))) => {
                refusal = Some(args.refused(reason, &detail));
            }
            Ok(Input::Notice(Notice::Failed(failure))) => {
                return Err(refusal.unwrap_or_else(|| SessionArgs::failed(failure)));
            }
            Ok(Input::Signal) => return Err(Error::new(Code::Other, "interrupted")),
            Ok(_) => {}
            Err(RecvTimeoutError::Disconnected) => {
                return Err(Error::new(Code::Other, "the session's thread died"));
            }
            Err(RecvTimeoutError::Timeout) => {
                let problem = problem(host);
                let unoffered = problem == Some(Problem::NoOffer);
                if unoffered
                    && !std::mem::replace(&mut looked, true)
                    && let Some(error) = args.unknown_export()?
                {
                    return Err(error);
                }
                if Instant::now() >= deadline {
                    return Err(args.unreachable(problem));
                }
            }
        }
    }
}

/// What the last attempt to connect failed with.
fn problem(host: &Host) -> Option<Problem> {
    host.control().report()?.problem
}

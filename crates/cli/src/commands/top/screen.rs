//! The terminal: drawn at each interval and after each key, and given back as it was, whatever
//! happens: at the end, on an error, on a signal (then the process ends by it) and on a panic.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};

use crate::shared::error::{Code, Context, Result};
use crate::shared::report::TopReport;

use super::draw::{Title, draw};
use super::view::{Asked, View};
use super::watch::Watch;

/// The longest wait for a key, after which signals are looked at.
const PATIENCE: Duration = Duration::from_millis(200);
/// The same while a daemon has not answered: its answer is shown soon.
const SOON: Duration = Duration::from_millis(20);

/// The whole terminal; as it was before once it is dropped.
struct Screen(DefaultTerminal);

impl Screen {
    fn take() -> io::Result<Self> {
        // A panic gives it back as well, by a hook, before it says why.
        match ratatui::try_init() {
            Ok(terminal) => Ok(Self(terminal)),
            Err(error) => {
                ratatui::restore();
                Err(error)
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

/// Shows the daemons that `watch` asks until the user has seen enough.
///
/// # Errors
/// The terminal can't be used, or the run-time directory can't be read.
pub(super) fn show(watch: &mut Watch, interval: Duration) -> Result<()> {
    let signal = Arc::new(AtomicUsize::new(0));
    for number in [SIGHUP, SIGINT, SIGQUIT, SIGTERM] {
        let value = number.cast_unsigned() as usize;
        signal_hook::flag::register_usize(number, Arc::clone(&signal), value)
            .context(Code::Other, "signals")?;
    }
    // The first look may be refused: then the terminal is not touched.
    watch.ask()?;
    let mut screen = Screen::take().context(Code::Other, "the terminal")?;
    let shown = show_on(&mut screen.0, watch, interval, &signal);
    drop(screen);
    if let Ok(number @ 1..) = i32::try_from(signal.load(Ordering::Relaxed)) {
        // Its parent is to see the signal.
        signal_hook::low_level::emulate_default_handler(number).context(Code::Other, "signal")?;
    }
    shown
}

fn show_on(
    terminal: &mut DefaultTerminal,
    watch: &mut Watch,
    interval: Duration,
    signal: &AtomicUsize,
) -> Result<()> {
    let machine = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let (mut view, mut report) = (View::new(), TopReport::default());
    let mut next = Instant::now() + interval;
    let mut is_stale = true;
    while signal.load(Ordering::Relaxed) == 0 {
        if watch.take(Duration::ZERO) && !view.is_paused {
            report = watch.report();
            is_stale = true;
        }
        if std::mem::take(&mut is_stale) {
            view.arrange(&mut report);
            let is_waiting = watch.is_waiting();
            let title = Title { machine: &machine, interval: interval.as_secs_f64(), is_waiting };
            let drawn = terminal.draw(|frame| draw(frame, &report, &view, &title));
            drawn.context(Code::Other, "the terminal")?;
        }
        let now = Instant::now();
        if now >= next {
            // Without those that were missed.
            next = now + interval;
            watch.ask()?;
        }
        let longest = if watch.is_waiting() { SOON } else { PATIENCE };
        let wait = next.saturating_duration_since(now).min(longest);
        if event::poll(wait).context(Code::Other, "the terminal")? {
            is_stale = true;
            let width = terminal.size().context(Code::Other, "the terminal")?.width;
            let event = event::read().context(Code::Other, "the terminal")?;
            let key = if let Event::Key(key) = event { Some(key) } else { None };
            match key.map(|key| view.press(key, &report, width)) {
                Some(Asked::Quit) => return Ok(()),
                Some(Asked::Look) => watch.ask()?,
                Some(Asked::Draw) | None => {}
            }
        }
    }
    Ok(())
}

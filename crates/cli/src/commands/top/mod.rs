//! `tyche top`: the rates of sessions, links, queues and exports, as they change.

mod columns;
mod draw;
mod figures;
mod rates;
mod screen;
mod text;
mod view;
mod watch;

use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;

use crate::output::{Format, show, shows_on_terminal};
use crate::shared::error::Result;
use crate::shared::report::Output;
use crate::shared::seconds::within;
use crate::shared::target_control::AtArgs;

use self::watch::Watch;

/// The range of `--interval`.
const INTERVALS: RangeInclusive<Duration> = Duration::from_millis(100)..=Duration::from_secs(3600);
/// Time limit for all daemons to answer or to be given up: that of `tyche list`, and more.
const ANSWERS: Duration = Duration::from_secs(10);

/// Show requests, throughput, latency and losses of the sessions on this machine as they change,
/// with their links and queues, and of the targets with their exports and hosts; or with --at those
/// of a target elsewhere.
///
/// On a terminal it goes on until `q`; `?` lists the keys. Elsewhere, with `--count` or with `-o
/// json`, it looks twice, prints the rates between the two looks, and ends.
#[derive(Args, Debug)]
pub(crate) struct TopArgs {
    /// Time between two looks at the counters.
    #[arg(short, long, value_name = "SECONDS", default_value_t = 1.0, value_parser = interval)]
    interval: f64,

    /// Print the rates as lines so many times, one interval after the other, and end. 1 if the
    /// output is no terminal.
    #[arg(short = 'n', long, value_name = "N")]
    count: Option<NonZeroU32>,

    #[command(flatten)]
    at: AtArgs,

    /// How to print.
    #[arg(short, long, default_value_t)]
    pub(crate) output: Format,
}

fn interval(text: &str) -> Result<f64, String> {
    within(text, &INTERVALS)
}

impl TopArgs {
    /// Whether the whole terminal is taken.
    pub(crate) fn takes_terminal(&self) -> bool {
        self.count.is_none() && self.output == Format::Text && shows_on_terminal()
    }
}

pub(crate) fn run(args: &TopArgs) -> Result<()> {
    let interval = Duration::from_secs_f64(args.interval);
    args.at.check()?;
    let mut watch = Watch::new(args.at.clone())?;
    if args.takes_terminal() {
        return screen::show(&mut watch, interval);
    }
    let mut next = Instant::now() + interval;
    watch.ask()?;
    watch.take(ANSWERS);
    for round in 0..args.count.map_or(1, NonZeroU32::get) {
        thread::sleep(next.saturating_duration_since(Instant::now()));
        next += interval;
        watch.ask()?;
        watch.take(ANSWERS);
        let report = watch.report();
        let gap = if round > 0 { "\n" } else { "" };
        let text = format!("{gap}{}", text::text(&report));
        show(args.output, || Output::Top(report), || text)?;
    }
    Ok(())
}
